"""The loops of public examples: measured with a line or two, and trained as without us."""

import os
from collections.abc import Callable
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
