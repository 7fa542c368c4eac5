"""The loops of public examples: measured with a line or two, and trained as without us."""

import os
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import ncscope

N, K = 96, 4
LABELS = torch.arange(N) % K
IMAGES = torch.randn(N, 1, 12, 12, generator=torch.Generator().manual_seed(0))
IMAGES = IMAGES + LABELS[:, None, None, None] / 2
Result = tuple[dict[str, Tensor], Tensor, Any]


def loaders() -> tuple[DataLoader, DataLoader]:
    data = TensorDataset(IMAGES, LABELS)
    return DataLoader(data, batch_size=32, shuffle=True), DataLoader(data, batch_size=40)


class Mnist(nn.Module):
    """The network of PyTorch's MNIST example: two dropouts, and a log-softmax at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, 1), nn.Conv2d(4, 8, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(128, 16), nn.Linear(16, K)

    def features(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.conv2(self.conv1(x).relu()).relu(), 2)
        return self.dropout2(self.fc1(self.dropout1(x.flatten(1))).relu())

    def forward(self, x: Tensor) -> Tensor:
        return functional.log_softmax(self.fc2(self.features(x)), dim=1)


class Pitch(Mnist):
    """The end of CREPE: a sigmoid for each bin."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.fc2(self.features(x)))


class Fast(Mnist):
    """The end of airbench: logits divided by a constant."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.features(x)) / 9


LOSSES: dict[type[Mnist], Callable[[Tensor, Tensor], Tensor]] = {
    Mnist: functional.nll_loss,
    Pitch: lambda p, y: functional.binary_cross_entropy(p, functional.one_hot(y, K).float()),
    Fast: lambda z, y: functional.cross_entropy(z, y, label_smoothing=0.2),
}


def examples_loop(kind: type[Mnist], measured: bool) -> Result:
    """PyTorch's example: train and test in turn; the report comes after the loop of the test."""
    torch.manual_seed(1)
    model, (training, testing) = kind(), loaders()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    report = None
    for _ in range(2):
        model.train()
        for data, target in training:
            optimizer.zero_grad()
            LOSSES[kind](model(data), target).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            if measured:
                with ncscope.watch(model) as seen:
                    for data, target in testing:
                        model(data)
                        seen.labels(target)
                report = seen.report()
            else:
                for data, _ in testing:
                    model(data)
    return model.state_dict(), torch.get_rng_state(), (model, report)


def training_loop(kind: type[Mnist], measured: bool) -> Result:
    """A loop that watches the training steps, with dropout and moving weights."""
    torch.manual_seed(1)
    model, (training, _) = kind().train(), loaders()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ncscope.watch(model, groups=["nc1"], layers=[])
    report = None
    for _ in range(2):
        if measured:
            watch.__enter__()
        for data, target in training:
            optimizer.zero_grad()
            LOSSES[kind](model(data), target).backward()
            optimizer.step()
            if measured:
                watch.labels(target)
        if measured:
            watch.__exit__(None, None, None)
            report = watch.report()
    return model.state_dict(), torch.get_rng_state(), (model, report)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("loop", [examples_loop, training_loop])
def test_loops_train_as_without_us(loop: Callable, kind: type[Mnist]) -> None:
    alone, (weights, state, (_, report)) = loop(kind, False), loop(kind, True)
    torch.testing.assert_close(weights, alone[0], rtol=0, atol=0)
    assert torch.equal(state, alone[1])
    assert report.num_samples == N


@pytest.mark.parametrize("kind", LOSSES)
def test_the_numbers_are_those_of_the_last_layer(kind: type[Mnist]) -> None:
    _, _, (model, report) = examples_loop(kind, True)
    with torch.no_grad():
        features = model.features(IMAGES)
    scale = 1 / 9 if kind is Fast else 1.0
    weight, bias = (part.detach() * scale for part in (model.fc2.weight, model.fc2.bias))
    wanted = ncscope.measure(features, LABELS, weight, bias)
    for key in ("nc1", "nc3_self_duality", "nc4_disagreement", "accuracy", "mse_loss"):
        assert report[key] == pytest.approx(wanted[key], rel=1e-4), key
    with torch.no_grad():
        right = (model(IMAGES).argmax(1) == LABELS).double().mean()
    assert report["accuracy"] == pytest.approx(float(right))


class Text(nn.Module):
    """The forward pass of nanoGPT, with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.block = nn.Embedding(12, 8), nn.GRU(8, 8, batch_first=True)
        self.lm_head = nn.Linear(8, 12, bias=False)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x, _ = self.block(self.wte(idx))
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def nanogpts_loop(measured: bool) -> Result:
    torch.manual_seed(1)
    model = Text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data, report = torch.randint(0, 12, (500,)), None
    for _ in range(3):
        start = torch.randint(0, 480, (8,))
        x = torch.stack([data[i : i + 10] for i in start])
        y = torch.stack([data[i + 1 : i + 11] for i in start])
        model(x, y)[1].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if measured:
        batch = {"idx": x, "targets": y, "labels": y}
        report = ncscope.measure_model(model, [batch], layers=[], progress=False)
    return model.state_dict(), torch.get_rng_state(), (model, report, x, y)


def test_nanogpt() -> None:
    alone, (weights, state, (model, report, x, y)) = nanogpts_loop(False), nanogpts_loop(True)
    torch.testing.assert_close(weights, alone[0], rtol=0, atol=0)
    assert torch.equal(state, alone[1])
    with torch.no_grad():
        rows, _ = model.block(model.wte(x))
        right = (model(x, y)[0].argmax(2) == y).double().mean()
    assert report["accuracy"] == pytest.approx(float(right))
    wanted = ncscope.measure(rows.flatten(0, 1), y.flatten(), groups=["nc1"], num_classes=12)
    assert report["nc1"] == pytest.approx(wanted["nc1"], rel=1e-4)


class Skorch(nn.Module):
    """The module of skorch's documentation: its last layer is a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.output = nn.Linear(144, 10), nn.Linear(10, K)

    def forward(self, x: Tensor) -> Tensor:
        return functional.softmax(self.output(self.dense(x).relu()), dim=-1)


def test_skorch() -> None:
    skorch = pytest.importorskip("skorch")
    rows, labels = IMAGES.flatten(1).numpy(), LABELS.numpy()
    torch.manual_seed(0)
    net = skorch.NeuralNetClassifier(Skorch, max_epochs=2, lr=0.1, train_split=None, verbose=0)
    net.fit(rows, labels)
    before = torch.get_rng_state()
    report = ncscope.measure_model(net.module_, [(IMAGES.flatten(1), LABELS)], progress=False)
    assert torch.equal(torch.get_rng_state(), before)
    assert report["accuracy"] == pytest.approx(float((net.predict(rows) == labels).mean()))
    assert any("the softmax" in note for note in report.notes)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_keras() -> None:
    os.environ["KERAS_BACKEND"] = "torch"
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((144,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(K, name="logits"),
            keras.layers.Activation("softmax"),
        ]
    )
    rows = IMAGES.flatten(1)
    report = ncscope.measure_model(model, [(rows, LABELS)], progress=False)
    with torch.no_grad():
        hidden, last = model.layers[0](rows), model.layers[1]
        weight, bias = (part.value.detach().cpu() for part in (last.kernel, last.bias))
    wanted = ncscope.measure(hidden.detach().cpu(), LABELS, weight.T, bias)
    for key in ("nc1", "nc3_self_duality", "accuracy"):
        assert report[key] == pytest.approx(wanted[key], rel=1e-4), key
    named = ncscope.measure_model(model, [(rows, LABELS)], head="logits", progress=False)
    assert named["nc1"] == pytest.approx(report["nc1"])


def equal_runs(loop: Callable[[bool], Result]) -> Any:
    """Run a loop without and with us, and return what the second leaves."""
    alone, (weights, state, left) = loop(False), loop(True)
    torch.testing.assert_close(weights, alone[0], rtol=0, atol=0)
    assert torch.equal(state, alone[1])
    return left


class Normed(nn.Module):
    """A network with buffers, dropout and a head."""

    def __init__(self, k: int = K) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(144, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)
        )
        self.fc = nn.Linear(16, k)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.encoder(x))


def train_once(model: nn.Module, batches: Any, *, by: nn.Module | None = None) -> None:
    optimizer = torch.optim.SGD((by or model).parameters(), lr=0.1, momentum=0.9)
    for data, target in batches:
        optimizer.zero_grad()
        functional.cross_entropy(model(data), target).backward()
        optimizer.step()


def averaged_loop(measured: bool) -> Result:
    """timm's: inference mode and autocast; the network, then its average of weights."""
    torch.manual_seed(1)
    model, (training, testing) = Normed(), loaders()
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    reports: dict[str, Any] = {}
    for _ in range(2):
        train_once(model.train(), training)
        average.update_parameters(model)
        for name, each in {"model": model, "average": average}.items():
            each.eval()
            seen = ncscope.watch(each, groups=["nc1", "nc4"]) if measured else None
            with torch.inference_mode(), seen or nullcontext():
                for data, target in testing:
                    with torch.autocast("cpu", torch.bfloat16):
                        each(data)
                        if seen:
                            seen.labels(target)
            reports[name] = seen.report() if seen else None
    return model.state_dict(), torch.get_rng_state(), (model, average, reports)


def test_a_network_and_its_average_in_mixed_precision() -> None:
    model, average, reports = equal_runs(averaged_loop)
    for name, each in {"model": model, "average": average.module}.items():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            features = each.encoder(IMAGES)
        wanted = ncscope.measure(features, LABELS, groups=["nc1"])
        assert reports[name]["nc1"] == pytest.approx(wanted["nc1"], rel=1e-6)


def contexts_loop(measured: bool) -> Result:
    """nanoGPT's: one watch whose context is entered for each batch, and a report a split."""
    torch.manual_seed(1)
    model, (training, testing) = Normed(), loaders()
    reports = []
    for _ in range(2):
        train_once(model.train(), training)
        model.eval()
        seen = ncscope.watch(model, layers=[]) if measured else nullcontext()
        for batches in (training, testing):
            for data, target in batches:
                with torch.no_grad(), seen:
                    model(data)
                    if measured:
                        seen.labels(target)
            reports += [seen.report()] if measured else []
    return model.state_dict(), torch.get_rng_state(), (model, reports)


def test_a_context_for_each_batch() -> None:
    model, reports = equal_runs(contexts_loop)
    assert [report.num_samples for report in reports] == [N] * 4
    assert dict(reports[2]) == pytest.approx(dict(reports[3]), nan_ok=True, rel=1e-6, abs=1e-9)
    wanted = ncscope.measure_model(model, loaders()[1], layers=[], progress=False)
    assert dict(reports[3]) == pytest.approx(dict(wanted), nan_ok=True)


def probe_loop(measured: bool) -> Result:
    """SupContrast's second stage: a linear classifier on features of a network that is frozen."""
    torch.manual_seed(1)
    model, classifier, (training, testing) = Normed().eval(), Normed().fc, loaders()
    report = None
    for _ in range(2):
        classifier.train()
        with torch.no_grad():
            batches = [(model.encoder(data), target) for data, target in training]
        train_once(classifier, batches)
        classifier.eval()
        seen = ncscope.watch(classifier) if measured else nullcontext()
        with torch.no_grad(), seen:
            for data, target in testing:
                classifier(model.encoder(data))
                if measured:
                    seen.labels(target)
        report = seen.report() if measured else None
    return classifier.state_dict(), torch.get_rng_state(), (model, classifier, report)


def test_a_classifier_on_frozen_features() -> None:
    model, classifier, report = equal_runs(probe_loop)
    with torch.no_grad():
        features = model.encoder(IMAGES)
    wanted = ncscope.measure(features, LABELS, classifier.weight, classifier.bias)
    for key in ("nc1", "nc3_self_duality", "accuracy"):
        assert report[key] == pytest.approx(wanted[key], rel=1e-6), key


def contrastive_loop(measured: bool) -> Result:
    """SupContrast's first stage: two views a sample, no classifier; moments of the first view."""
    torch.manual_seed(1)
    model, (training, _) = nn.Sequential(Normed().encoder, nn.Linear(16, 8)), loaders()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moments, rows = ncscope.ClassMoments(K, 8), []
    for data, target in training:
        views = torch.cat([data + torch.randn_like(data), data + torch.randn_like(data)])
        first, second = functional.normalize(model(views), dim=1).split(len(data))
        if measured:
            moments.update(first, target)
            rows.append((first.detach(), target))
        optimizer.zero_grad()
        ((first @ second.T) / 0.1).logsumexp(1).mean().backward()
        optimizer.step()
    return model.state_dict(), torch.get_rng_state(), (moments, rows)


def test_features_of_one_of_two_views() -> None:
    moments, rows = equal_runs(contrastive_loop)
    features, labels = (torch.cat(parts) for parts in zip(*rows, strict=True))
    wanted = ncscope.measure(features, labels, groups=["nc1"])
    assert ncscope.measure_moments(moments)["nc1"] == pytest.approx(wanted["nc1"])


def shuffled_loop(measured: bool) -> Result:
    """pytorch-cifar100's: under a decorator, and over a test loader that shuffles in workers."""
    torch.manual_seed(1)
    model, (training, _) = Normed(), loaders()
    testing = DataLoader(TensorDataset(IMAGES, LABELS), 40, shuffle=True, num_workers=1)
    report = None

    @torch.no_grad()
    def evaluate() -> Any:
        model.eval()
        for data, _ in testing:
            model(data)
        return ncscope.measure_model(model, testing, progress=False) if measured else None

    for _ in range(2):
        train_once(model.train(), training)
        report = evaluate()
    return model.state_dict(), torch.get_rng_state(), (model, report)


@pytest.mark.slow  # processes of a loader
def test_a_loader_that_shuffles_in_a_worker() -> None:
    model, report = equal_runs(shuffled_loop)
    with torch.no_grad():
        right = (model(IMAGES).argmax(1) == LABELS).double().mean()
    assert report["accuracy"] == pytest.approx(float(right))


def fabric_loop(measured: bool) -> Result:
    """Lightning Fabric's: model, optimiser and loaders in its wrappers."""
    fabric = pytest.importorskip("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    torch.manual_seed(1)
    model = Normed()
    wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    training, testing = fabric.setup_dataloaders(*loaders())
    report = None
    for _ in range(2):
        wrapped.train()
        for data, target in training:
            optimizer.zero_grad()
            fabric.backward(functional.cross_entropy(wrapped(data), target))
            optimizer.step()
        wrapped.eval()
        seen = ncscope.watch(wrapped) if measured else nullcontext()
        with torch.no_grad(), seen:
            for data, target in testing:
                wrapped(data)
                if measured:
                    seen.labels(target)
        report = seen.report() if measured else None
    return model.state_dict(), torch.get_rng_state(), (model, report)


@pytest.mark.slow  # imports Lightning
@pytest.mark.filterwarnings("ignore")
def test_fabric() -> None:
    model, report = equal_runs(fabric_loop)
    wanted = ncscope.measure_model(model, loaders()[1], progress=False)
    assert dict(report) == pytest.approx(dict(wanted), nan_ok=True)
    assert list(report.layers) == list(wanted.layers)


def accelerate_loop(measured: bool) -> Result:
    """Accelerate's: mappings whose inputs the loop makes from the batch."""
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    torch.manual_seed(1)
    model, (training, testing) = Normed(), loaders()
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer, training, testing = accelerator.prepare(model, optimizer, training, testing)
    report = None
    for _ in range(2):
        model.train()
        for data, target in training:
            accelerator.backward(functional.cross_entropy(model((data - 1) / 2), target))
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        seen = ncscope.watch(model) if measured else nullcontext()
        for data, target in testing:
            inputs = (data - 1) / 2
            with torch.no_grad(), seen:
                model(inputs)
                if measured:
                    seen.labels(target)
        report = seen.report() if measured else None
    return model.state_dict(), torch.get_rng_state(), (model, report)


@pytest.mark.filterwarnings("ignore")
def test_accelerate() -> None:
    model, report = equal_runs(accelerate_loop)
    batches = [((IMAGES - 1) / 2, LABELS)]
    wanted = ncscope.measure_model(model, batches, progress=False)
    for key in ("nc1", "nc3_self_duality", "accuracy", "ncc_accuracy"):
        assert report[key] == pytest.approx(wanted[key], rel=1e-5), key


def fastai_loop(measured: bool) -> Result:
    """fastai's: a learner, its loaders with tensors of its own classes, and a schedule."""
    basics = pytest.importorskip("fastai.basics")
    pytest.importorskip("fastai.callback.all")  # adds the learner's schedules
    torch.manual_seed(1)
    random.seed(1)
    data = list(zip(IMAGES, LABELS.tolist(), strict=True))
    batches = basics.DataLoaders.from_dsets(data, data, bs=32, device="cpu", num_workers=0)
    learner = basics.Learner(batches, Normed(), loss_func=nn.CrossEntropyLoss())
    with learner.no_bar(), learner.no_logging():
        learner.fit_one_cycle(1, 0.01)
        report = (
            ncscope.measure_model(learner.model, batches.valid, progress=False)
            if measured
            else None
        )
        learner.fit_one_cycle(1, 0.01)
    return learner.model.state_dict(), torch.get_rng_state(), report


@pytest.mark.filterwarnings("ignore")
def test_fastai() -> None:
    report = equal_runs(fastai_loop)
    assert report.num_samples == N
