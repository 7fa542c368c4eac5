"""Measuring a model is measuring its features, captured by hand."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope
from ncscope import InputError
from ncscope.measurement.evaluation import LINE
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.models.networks.residual import ResidualNet

from ..closeness import assert_agree, assert_arrays_agree
from ..reference.layerwise import (
    reference_alignment,
    reference_geodesic,
    reference_relative_position,
    reference_transport_cost,
)

K = 5
PFC = {"nc1_quotient", "pfc1", "nc2_etf", "pfc2", "ncc_accuracy", "pfc3"}


def residual_net(**options: object) -> ResidualNet:
    torch.manual_seed(0)
    return ResidualNet(in_features=12, width=8, depth=3, num_classes=K, **options).train()


def samples(seed: int = 0, n: int = 48) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % K
    means = torch.randn(K, 12, generator=torch.Generator().manual_seed(9))
    return TensorDataset(means[labels] + torch.randn(n, 12, generator=generator), labels)


def loader(data: TensorDataset | None = None, **options: object) -> DataLoader:
    return DataLoader(data or samples(), **({"batch_size": 20} | options))


def measured(model: nn.Module, batches: Iterable[object], **options: object) -> ncscope.ModelReport:
    return ncscope.measure_model(model, batches, progress=False, **options)


def captured(model: nn.Module, names: list[str], data: TensorDataset) -> dict[str, Tensor]:
    """Inputs of the head (under "") and outputs of the named layers, by plain hooks."""
    found: dict[str, Tensor] = {}
    *_, head = (m for m in model.modules() if isinstance(m, nn.Linear))
    handles = [head.register_forward_pre_hook(lambda _, args: found.update({"": args[0].clone()}))]
    for name in names:

        def keep(_: nn.Module, __: object, output: Tensor, name: str = name) -> None:
            found[name] = output.flatten(1).clone()

        handles.append(model.get_submodule(name).register_forward_hook(keep))
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.no_grad():
        model(data.tensors[0])
    for handle in handles:
        handle.remove()
    for module, training in flags:
        module.training = training
    return found


def assert_layers_as_by_hand(
    model: nn.Module, head: nn.Linear, data: TensorDataset, report: ncscope.ModelReport
) -> None:
    names = [name for name in report.layers if name != "head input"]
    features = captured(model, names, data)
    labels = data.tensors[1]
    by_hand = ncscope.measure(features[""], labels, head.weight, head.bias)
    assert_agree(report, dict(by_hand))
    for name, values in by_hand.spectra.items():
        assert_arrays_agree(report.spectra[name], values)
    assert report.notes == by_hand.notes
    *earlier, last = report.layers
    assert dict(report.layers[last]) == dict(report)
    for name in earlier:
        alone = ncscope.measure(features[name], labels, num_classes=K, groups=["pfc"])
        assert set(alone) == PFC
        assert_agree(report.layers[name], dict(alone))


@pytest.mark.parametrize("bias", [True, False])
def test_residual_net_layer_by_layer_as_by_hand(bias: bool) -> None:
    model, data = residual_net(bias=bias), samples()
    report = measured(model, loader(batch_size=len(data)))
    assert list(report.layers) == ["blocks.0", "blocks.1", "blocks.2"]
    assert_layers_as_by_hand(model, model.classifier, data, report)


@pytest.mark.slow
def test_resnet_layer_by_layer_as_by_hand() -> None:
    from torchvision.models import resnet18

    torch.manual_seed(0)
    model = resnet18(num_classes=K)
    images = torch.randn(12, 3, 48, 48)
    data = TensorDataset(images, torch.arange(12) % K)
    report = measured(model, loader(data, batch_size=12))
    blocks = [f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)]
    assert list(report.layers) == [*blocks, "head input"]
    dims = [report.layers[name].dim for name in report.layers]
    assert dims == [9216] * 2 + [4608] * 2 + [2304] * 2 + [2048] * 2 + [512]
    assert_layers_as_by_hand(model, model.fc, data, report)
    pooled = measured(model, loader(data, batch_size=12), pool=True)
    dims = [pooled.layers[name].dim for name in blocks]
    assert dims == [64, 64, 128, 128, 256, 256, 512, 512]
    assert_agree(pooled, dict(report))


def test_all_groups_of_every_layer() -> None:
    model, data = residual_net(), samples()
    report = measured(model, loader(), layer_groups=None)
    features = captured(model, ["blocks.0"], data)["blocks.0"]
    alone = ncscope.measure(features, data.tensors[1], num_classes=K)
    assert_agree(report.layers["blocks.0"], dict(alone), rel=1e-5)  # float32 of other batch sizes
    assert set(report.layers["blocks.0"].spectra) == set(alone.spectra)


def test_groups_of_the_head_and_weight_decay() -> None:
    model, data = residual_net(), samples()
    report = measured(model, loader(batch_size=48), groups=["mse"], weight_decay=0.1)
    head = model.classifier
    features = captured(model, [], data)[""]
    by_hand = ncscope.measure(
        features, data.tensors[1], head.weight, head.bias, groups=["mse"], weight_decay=0.1
    )
    assert_agree(report, dict(by_hand))


def test_layers_by_name_and_pattern() -> None:
    report = measured(residual_net(), loader(), layers=["stem", "blocks.[12]"])
    assert list(report.layers) == ["stem", "blocks.1", "blocks.2"]
    only = measured(residual_net(), loader(), layers=[])
    assert list(only.layers) == ["head input"]
    assert only.model_record.geodesic is None
    assert_agree(only, dict(report))


def layer_features(data: TensorDataset) -> list[Tensor]:
    names = ["blocks.0", "blocks.1", "blocks.2"]
    features = captured(residual_net(), names, data)
    return [features[name].double() for name in names]


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
def test_geodesic_is_that_of_interpolated_features(prior: str) -> None:
    data = samples(n=33)  # unequal classes
    counts = torch.bincount(data.tensors[1])
    report = measured(residual_net(), loader(data, batch_size=33), prior=prior, class_counts=counts)
    first, *_, last = (h.numpy() for h in layer_features(data))
    labels, line = data.tensors[1].numpy(), report.model_record.geodesic
    assert line is not None
    assert line.t == LINE.tolist()
    assert (line.t[0], line.t[-1]) == (0, 1)
    assert line.transport_cost == pytest.approx(
        reference_transport_cost(first, last, labels), rel=1e-9
    )
    assert line.alignment == pytest.approx(reference_alignment(first, last, labels), rel=1e-9)
    some = slice(None, None, 5)
    expected = reference_geodesic(first, last, labels, line.t[some], prior=prior)
    for key, values in expected.items():
        assert getattr(line, key)[some] == pytest.approx(list(values), rel=1e-9), key


def test_geodesic_ends_at_the_layers() -> None:
    report = measured(residual_net(), loader())
    line, (first, *_, last) = report.model_record.geodesic, report.layers.values()
    for key in ("pfc1", "pfc2", "pfc3"):
        assert getattr(line, key)[0] == pytest.approx(first[key], rel=1e-9)
        assert getattr(line, key)[-1] == pytest.approx(last[key], rel=1e-9)


def test_relative_positions_are_those_of_the_features() -> None:
    data = samples()
    report = measured(residual_net(), loader(batch_size=48))
    assert report.model_record.comparable == ("blocks.0", "blocks.1", "blocks.2")
    expected = reference_relative_position([h.numpy() for h in layer_features(data)])
    assert list(report.model_record.relative_position) == pytest.approx(list(expected), rel=1e-9)
    assert report.model_record.relative_position[0] == 0
    assert report.model_record.relative_position[-1] == 1


@pytest.mark.parametrize("batch_size", [7, 48])
def test_straightness_is_the_chord_over_the_path_of_the_features(batch_size: int) -> None:
    layers = np.stack([h.numpy() for h in layer_features(samples())])
    path = np.linalg.norm(np.diff(layers, axis=0), axis=2).sum()
    chord = np.linalg.norm(layers[-1] - layers[0], axis=1).sum()
    report = measured(residual_net(), loader(batch_size=batch_size))
    assert report.model_record.straightness == pytest.approx(chord / path, rel=1e-6)
    assert chord / path < 0.95


def test_one_layer_has_no_straightness() -> None:
    assert measured(residual_net(), loader(), layers=[]).model_record.straightness is None


def test_layers_of_another_dimension_are_not_compared() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, K))
    report = measured(model, loader(), layers=["0", "1", "2", "3"])
    assert report.model_record.comparable == ("2", "3")
    assert report.model_record.relative_position == (0.0, 1.0)
    assert report.model_record.straightness == pytest.approx(1)
    assert len(report.model_record.layers) == 4


def test_reference_uses_the_training_means() -> None:
    model, train, test = residual_net(), samples(0), samples(1)
    reference = measured(model, loader(train, batch_size=48))
    report = measured(model, loader(test, batch_size=48), reference=reference)
    own = measured(model, loader(test, batch_size=48))
    names = list(report.layers)
    train_features, test_features = (captured(model, names, data) for data in (train, test))
    for name in names:
        known = ncscope.measure(train_features[name], train.tensors[1])
        head = (model.classifier.weight, model.classifier.bias) if name == names[-1] else ()
        by_hand = ncscope.measure(
            test_features[name], test.tensors[1], *head, groups=["nc4"], reference=known
        )
        values = report.layers[name]
        assert_agree({key: values[key] for key in by_hand}, dict(by_hand))
    changed = {key for key in report if report[key] != own[key]}
    assert changed <= {"ncc_accuracy", "pfc3", "nc4_disagreement"}
    assert report["ncc_accuracy"] < own["ncc_accuracy"]


class Double(nn.Module):
    """Rows do not depend on the batch they are in."""

    def __init__(self) -> None:
        super().__init__()
        self.net = residual_net().double()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.double())


def assert_reports_agree(found: ncscope.ModelReport, expected: ncscope.ModelReport) -> None:
    assert list(found.layers) == list(expected.layers)
    for name, layer in expected.layers.items():
        assert_agree(found.layers[name], dict(layer), rel=1e-10)
    assert found.model_record.relative_position == pytest.approx(
        expected.model_record.relative_position
    )
    for key in ("pfc1", "pfc2", "pfc3"):
        wanted = getattr(expected.model_record.geodesic, key)
        assert getattr(found.model_record.geodesic, key) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"batch_size": 1}, {"batch_size": 7}, {"batch_size": 7, "shuffle": True}]
)
def test_batch_size_and_order_do_not_matter(options: dict[str, object]) -> None:
    model = Double()
    assert_reports_agree(measured(model, loader(**options)), measured(model, loader(batch_size=48)))


def test_spilling_to_disk_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = residual_net()
    in_memory, spilled = (measured(model, loader(), memory=memory) for memory in (10**6, 0))
    for name, layer in in_memory.layers.items():
        assert dict(spilled.layers[name]) == dict(layer)
    assert spilled.model_record == in_memory.model_record
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_stored_where_no_second_look_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("stored")

    monkeypatch.setattr("ncscope.stats.store.FeatureStore.append", refuse)
    report = measured(residual_net(), loader(), groups=["nc2"], layer_groups=["nc2"])
    assert "nc2_etf" in report
    with pytest.raises(AssertionError, match="stored"):
        measured(residual_net(), loader())


def test_the_uniform_prior_with_class_counts() -> None:
    model, data = residual_net(), samples(n=33)
    counts = torch.bincount(data.tensors[1])
    report = measured(model, loader(data, batch_size=33), prior="uniform", class_counts=counts)
    features = captured(model, [], data)[""]
    head = model.classifier
    by_hand = ncscope.measure(features, data.tensors[1], head.weight, head.bias, prior="uniform")
    assert_agree(report, dict(by_hand))
    with pytest.raises(InputError, match="class_counts"):
        measured(model, loader(data), prior="uniform")
    with pytest.raises(InputError, match="class_counts says"):
        measured(model, loader(samples(n=30)), prior="uniform", class_counts=counts)


def test_classes_without_samples_are_named() -> None:
    inputs, labels = samples().tensors
    data = TensorDataset(inputs[labels != 3], labels[labels != 3])
    report = measured(residual_net(), loader(data))
    for layer in report.layers.values():
        assert any(line.startswith("class 3 without samples") for line in layer.warnings)
        assert layer.num_classes == K


def test_a_pruned_head_is_measured_as_it_computes() -> None:
    from torch.nn.utils import prune

    model, data = residual_net(), samples()
    prune.l1_unstructured(model.classifier, "weight", amount=0.5)
    report = measured(model, loader(batch_size=48))
    assert (model.classifier.weight == 0).sum() == 20
    assert_layers_as_by_hand(model, model.classifier, data, report)


@pytest.mark.slow
def test_batches_of_other_kinds() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = residual_net()

        def forward(self, pixels: Tensor) -> dict[str, Tensor]:
            return {"logits": self.net(pixels)}

    plain = measured(residual_net(), loader())
    inputs, labels = samples().tensors
    batches = list(zip(inputs.split(20), labels.split(20), strict=True))
    mappings = [{"pixels": x, "labels": y} for x, y in batches]
    assert_agree(measured(Named(), mappings), dict(plain))
    lists = [[x, y.tolist()] for x, y in batches]
    assert_agree(measured(residual_net(), lists), dict(plain))
    once = iter(batches)
    assert_agree(measured(residual_net(), once), dict(plain))


@pytest.mark.parametrize("batches", [[], iter(()), DataLoader(samples(n=0))])
def test_an_empty_loader_is_refused(batches: Iterable[object]) -> None:
    with pytest.raises(InputError, match="empty loader"):
        measured(residual_net(), batches)


X, Y = samples().tensors
BAD_BATCHES = {
    "a tensor": (X, "found Tensor"),
    "three parts": ((X, Y, Y), "found tuple"),
    "a mapping without labels": ({"pixels": X}, "found dict"),
    "labels too large": ((X, Y + 1), "label 5 at row 4"),
    "labels of another length": ((X, Y[:7]), r"labels of shape \(7,\) for 48 rows"),
    "one-hot labels": ((X, nn.functional.one_hot(Y)), r"shape \(48, 5\)"),
    "one class": ((X, 0 * Y), "at least two classes"),
    "NaN": ((X.index_fill(0, torch.tensor(3), torch.nan), Y), "NaN"),
}


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("what", BAD_BATCHES)
def test_bad_batches_are_refused_by_name(what: str) -> None:
    batch, message = BAD_BATCHES[what]
    with pytest.raises(InputError, match=message):
        measured(residual_net(), [batch])
    with pytest.raises(InputError, match=message.replace("at row 4", "at row")):
        measured(residual_net(), [(X[:2], Y[:2]), batch] if what != "one class" else [batch])


def test_layers_and_heads_that_do_not_exist_are_refused() -> None:
    for options in ({"layers": ["blocks.9"]}, {"head": "fc"}, {"groups": ["nc9"]}):
        with pytest.raises(InputError, match=r"blocks\.9|fc|nc9"):
            measured(residual_net(), loader(), **options)


def state_of(model: nn.Module) -> dict[str, object]:
    return {
        "tensors": {name: value.clone() for name, value in model.state_dict().items()},
        "training": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
        "grad": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        "torch": torch.get_rng_state(),
        "python": torch.tensor(random.getstate()[1]),
    }


def normalised_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(8, K)
    )
    model[1].eval()
    model[0].weight.requires_grad_(False)
    model(X).sum().backward()
    return model.train().requires_grad_(True)


def failing() -> Iterator[tuple[Tensor, Tensor]]:
    yield X, Y
    torch.rand(5)
    raise RuntimeError("the disk went away")


# checking signatures draws from Python's random numbers
@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_model_and_the_random_states_are_left_as_they_were(shuffle: bool) -> None:
    model = normalised_model()
    model[1].eval()
    before = state_of(model)
    measured(model, loader(shuffle=shuffle), layers=["0", "1", "2"])
    torch.testing.assert_close(state_of(model), before, rtol=0, atol=0)
    assert torch.is_grad_enabled()


# checking signatures draws from Python's random numbers
@pytest.mark.usefixtures("unchecked_signatures")
def test_a_failing_loader_leaves_them_too() -> None:
    model = normalised_model()
    before = state_of(model)
    with pytest.raises(RuntimeError, match="went away"):
        measured(model, failing())
    torch.testing.assert_close(state_of(model), before, rtol=0, atol=0)


def test_probe_and_front_door_are_the_same() -> None:
    model = residual_net()
    probed = measure_layers(model, loader(), Options(memory=0, by_class=True))
    assert probed.record == measured(model, loader()).model_record
    assert list(probed.statistics) == [record.layer for record in probed.record.layers]


def test_the_record_is_plain() -> None:
    import json
    from dataclasses import asdict

    report = measured(residual_net(), loader())
    plain = asdict(report.model_record)
    assert json.loads(json.dumps(plain)) == json.loads(json.dumps(plain, allow_nan=False))
    assert [layer["layer"] for layer in plain["layers"]] == list(report.layers)
    found = json.loads(report.to_json())
    assert list(found["layers"]) == list(report.layers)
    assert found["metrics"] == found["layers"]["blocks.2"]["metrics"]


def test_progress_is_on_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    ncscope.measure_model(residual_net(), loader(), progress=True)
    assert capsys.readouterr().out == ""
    measured(residual_net(), loader())
    assert capsys.readouterr() == ("", "")


TAPPED = [["blocks.0", "blocks.2"], ["blocks.0"]]


@pytest.mark.parametrize(("known", "asked"), [TAPPED, TAPPED[::-1]])
def test_the_last_layer_of_a_reference_is_matched_by_role(
    known: list[str], asked: list[str]
) -> None:
    model, train, test = residual_net(), loader(samples(0)), loader(samples(1))
    same = measured(model, train, layers=asked)
    other = measured(model, train, layers=known)
    assert list(same.layers)[-1] != list(other.layers)[-1]
    expected = measured(model, test, layers=asked, reference=same)
    found = measured(model, test, layers=asked, reference=other)
    for name, layer in expected.layers.items():
        assert dict(found.layers[name]) == dict(layer)
    assert found["ncc_accuracy"] < measured(model, test, layers=asked)["ncc_accuracy"]


def test_a_reference_without_a_layer_is_refused_before_the_rest_is_run() -> None:
    model = residual_net()
    reference = measured(model, loader(), layers=["blocks.1", "blocks.2"])
    expected = r"layer 'blocks\.0', found layers blocks\.1, blocks\.2; .*same layers"
    with pytest.raises(InputError, match=expected):
        measured(model, failing(), reference=reference)
    without = measured(model, loader(), reference=reference, layer_groups=["nc2"])
    assert without["ncc_accuracy"] == measured(model, loader())["ncc_accuracy"]


def test_a_reference_of_another_dimension_is_refused() -> None:
    torch.manual_seed(0)
    wide = measured(ResidualNet(in_features=12, width=9, depth=3, num_classes=K), loader())
    for layers, name in ((None, "blocks.0"), ([], "head input")):
        expected = f"dimension 8 for layer '{name}', found dimension 9"
        with pytest.raises(InputError, match=expected):
            measured(residual_net(), loader(), layers=layers, reference=wide)


@pytest.mark.usefixtures("unchecked_signatures")
def test_a_reference_that_is_no_report_of_a_model_is_refused() -> None:
    report = measured(residual_net(), loader())
    plain = ncscope.measure(X, Y)
    for reference in (plain, report.statistics, report.layers, report.model_record):
        with pytest.raises(InputError, match=r"reference as a ModelReport.*measure_model"):
            measured(residual_net(), loader(), reference=reference)


def test_the_means_of_a_reference_are_moved_to_the_layers_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, moved = residual_net(), []
    plain_to = Tensor.to

    def to(tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
        moved.append((id(tensor), args))
        return plain_to(tensor, *args, **kwargs)

    reference = measured(model, loader())
    monkeypatch.setattr(Tensor, "to", to)
    measured(model, loader(), reference=reference)
    for layer in reference.layers.values():
        assert (id(layer.statistics.classes), (torch.device("cpu"),)) in moved


@pytest.mark.gpu
def test_a_reference_on_another_device() -> None:
    reference = measured(residual_net(), loader())
    model = residual_net().cuda()
    expected = measured(model, loader(), reference=measured(model, loader()))
    assert_agree(measured(model, loader(), reference=reference), dict(expected), rel=1e-4)
    back = measured(residual_net(), loader(), reference=measured(model, loader()))
    assert_agree(back, dict(expected), rel=1e-4)


class Counting(nn.Module):
    """Counts its calls in buffers, also in evaluation mode: in place and by a new tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.runs = residual_net(), SimpleNamespace(count=0)
        self.register_buffer("calls", torch.tensor(3))
        self.register_buffer("mean", torch.tensor([torch.nan, -0.0]))
        self.register_buffer("seen", None)
        self.register_buffer("graph", torch.eye(2).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        self.runs.count += 1
        self.calls += 1
        self.mean = self.mean + x.mean()
        self.seen = x
        return self.net(x)


def assert_buffers_kept(model: Counting, batches: Iterable[object], message: str = "") -> None:
    before = dict(model._buffers)
    if message:
        with pytest.raises(Exception, match=message):
            measured(model, batches)
    else:
        measured(model, batches)
    assert {name: id(buffer) for name, buffer in model._buffers.items()} == {
        name: id(buffer) for name, buffer in before.items()
    }
    assert model.calls == 3
    torch.testing.assert_close(model.mean, torch.tensor([torch.nan, -0.0]), equal_nan=True)


def test_buffers_that_a_model_writes_are_put_back() -> None:
    model = Counting()
    assert_buffers_kept(model, loader(batch_size=20))
    # Three batches, and the first once more in full, in two samples, and in eight twice.
    assert model.runs.count == 7
    assert_buffers_kept(model, failing(), "went away")
    assert model.runs.count == 12
    assert_buffers_kept(model, [(torch.full_like(X, torch.nan), Y)], "NaN")
    assert model.runs.count == 13


def test_buffers_yet_to_be_filled_are_left_to_their_module() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.LazyBatchNorm1d(), nn.Linear(8, K))
    measured(model, loader(), layers=[])
    assert model[1].running_mean.shape == (8,)
    measured(model, loader(), layers=[])
