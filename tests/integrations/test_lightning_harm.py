"""The callback changes nothing in runs of Lightning that are written as users write them."""

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset

import ncscope
from ncscope.errors import InputError
from ncscope.integrations.lightning import NeuralCollapseCallback, can_be_read_again
from ncscope.integrations.recording import MeasurementWarning
from ncscope.measurement.naming import HEADLINE, LAYER_HEADLINE

from ..pace import others_slow
from .patterns import DATA, INPUTS, LABELS, Apart, Stream, Whole, fit, states

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Precision bf16-mixed"),
]


def run(callback: NeuralCollapseCallback | None, module: Any, folder: Any, **settings: Any) -> Any:
    """What a run leaves behind: weights, random states, the user's values, the best model."""
    best = ModelCheckpoint(folder, monitor="val/accuracy", mode="max", filename="{epoch}")
    stop = EarlyStopping("val/accuracy", mode="max", patience=2, min_delta=1)
    callbacks = [best, stop, *([] if callback is None else [callback])]
    settings = {"max_epochs": 4, "enable_checkpointing": True, **settings}
    trainer, module = fit(callbacks, module, **settings)
    values = float(trainer.callback_metrics["val/accuracy"])
    chosen = best.best_model_path.rpartition("/")[2], float(best.best_model_score)
    left = [values, chosen, trainer.current_epoch, stop.wait_count, states()]
    return left, module.state_dict(), trainer, module


def assert_unharmed(make: Any, folder: Any, callback: Any, **settings: Any) -> tuple[Any, Any]:
    left, weights, *_ = run(None, make(), folder / "alone", **settings)
    again, followed, trainer, module = run(callback, make(), folder / "followed", **settings)
    assert again == left
    torch.testing.assert_close(followed, weights, rtol=0, atol=0)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    return trainer, module


class Several(Apart):
    """Two validation loaders, the second with other inputs."""

    def val_dataloader(self) -> Any:
        return [DataLoader(DATA, batch_size=10), DataLoader(DATA, batch_size=7)]

    def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
        if dataloader_idx == 0:
            super().validation_step(batch, index)
        else:
            self.logits(batch[0])


class Combined(Apart):
    """Batches of two training loaders at a time."""

    def train_dataloader(self) -> Any:
        loaders = [DataLoader(DATA, batch_size=16, shuffle=True) for _ in range(2)]
        return dict(zip(("one", "other"), loaders, strict=True))

    def training_step(self, batch: Any, index: int) -> Tensor:
        return sum(super(Combined, self).training_step(part, index) for part in batch.values())


class Named(Whole):
    """A loader of mappings."""

    def unpacked(self, batch: Any) -> tuple[Any, Tensor]:
        return batch["x"], batch["labels"]

    def train_dataloader(self) -> Any:
        rows = [{"x": x, "labels": y} for x, y in zip(INPUTS, LABELS, strict=True)]
        return DataLoader(rows, batch_size=16)

    val_dataloader = train_dataloader


class TwoInputs(Apart):
    """Batches of two inputs and labels, for a network that takes two inputs."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head(self.backbone(x + 0.1 * y))

    def logits(self, x: Any) -> Tensor:
        return self(*x)

    def unpacked(self, batch: Any) -> tuple[Any, Tensor]:
        return batch[:2], batch[2]

    def train_dataloader(self) -> Any:
        rows = list(zip(INPUTS, INPUTS.flip(1), LABELS, strict=True))
        return DataLoader(rows, batch_size=16)

    val_dataloader = train_dataloader


class Endless(Whole):
    def train_dataloader(self) -> Any:
        return DataLoader(Stream(), batch_size=16)


class CompiledChild(Apart):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = torch.compile(self.backbone, backend="eager")


class Single(Apart):
    """One child that is called whole."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(self.backbone, self.head)
        del self.backbone, self.head

    def logits(self, x: Any) -> Tensor:
        return self.net(x)


class Embedding(Whole):
    """Its forward returns features; a head follows."""

    def forward(self, x: Tensor) -> Tensor:
        return self.backbone(x)

    def logits(self, x: Any) -> Tensor:
        return self.head(self(x))


class Unseen(Apart):
    """Its optimiser steps run every second batch, by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        optimiser = self.optimizers()
        self.manual_backward(super().training_step(batch, index) / 2)
        if index % 2:
            optimiser.step()
            optimiser.zero_grad()


def combined_split(batch: Any) -> tuple[Any, Tensor]:
    """The part of a training batch that runs last, or a validation batch."""
    return tuple(batch["other"]) if isinstance(batch, dict) else tuple(batch)


PATTERNS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "backbone and head apart": (Apart, {}, {}),
    "one child": (Single, {}, {}),
    "itself": (Whole, {}, {}),
    "features, then a head": (Embedding, {}, {}),
    "several loaders": (Several, {"dataloader_idx": 1}, {}),
    "loaders combined": (Combined, {"split_batch": combined_split}, {}),
    "gradient accumulation": (Apart, {}, {"accumulate_grad_batches": 2}),
    "manual optimisation": (Unseen, {}, {}),
    "mixed precision": (Apart, {}, {"precision": "bf16-mixed"}),
    "mixed precision, one child": (Single, {}, {"precision": "bf16-mixed"}),
    "compiled": (lambda: torch.compile(Single(), backend="eager"), {}, {}),
    "compiled child": (CompiledChild, {}, {}),
    "mappings": (Named, {}, {}),
    "two inputs": (TwoInputs, {"split_batch": lambda batch: (batch[:2], batch[2])}, {}),
    "iterable": (Endless, {}, {"limit_train_batches": 3}),
    "no sanity check": (Whole, {}, {"num_sanity_val_steps": 0}),
    "within an epoch": (Apart, {"reference": "train"}, {"val_check_interval": 1}),
}


@pytest.mark.parametrize(
    "pattern",
    others_slow(PATTERNS, "several loaders", "mixed precision", "iterable"),
)
def test_patterns_of_training_scripts_run_as_without_the_callback(pattern, tmp_path):
    make, options, settings = PATTERNS[pattern]
    callback = NeuralCollapseCallback(**options)
    trainer, _ = assert_unharmed(make, tmp_path, callback, **settings)
    assert {each.split for each in callback.history} == {"train", "val"}
    for split in ("train", "val"):
        index = "1/" if split == "val" and options.get("dataloader_idx") else ""
        start = f"{split}/{index}"
        names = {
            key.replace(start, f"{split}/")
            for key in trainer.callback_metrics
            if key.startswith(start)
        }
        head = {key.rpartition("/")[2] for key in names if key.count("/") == 2}
        assert head - {"accuracy"} == set(HEADLINE)
        layers = {key.rpartition("/")[2] for key in names if key.count("/") == 3}
        assert layers == set(LAYER_HEADLINE)
        assert callback.latest[split].layers[-1].num_samples == 48


@pytest.mark.slow
def test_parts_are_measured_as_the_whole(tmp_path):
    """A loop that calls the parts gives what a pass of a module around them gives."""
    callback = NeuralCollapseCallback(train=None)
    _, module = fit([callback], Apart())
    whole = nn.Sequential()
    whole.backbone, whole.head = module.backbone, module.head
    report = ncscope.measure_model(whole, module.val_dataloader(), progress=False)
    *before, last = report.model_record.layers
    without_table = replace(last, per_class=None)  # a callback makes none unasked for
    assert callback.latest["val"].layers == (*before, without_table)


def test_a_name_that_the_module_logs_stays_the_modules(tmp_path):
    class Own(Apart):
        def validation_step(self, batch, index, dataloader_idx=0):
            super().validation_step(batch, index)
            self.log("val/nc/nc1", 7.0)

    callback = NeuralCollapseCallback(train=None)
    with pytest.warns(MeasurementWarning, match="logs val/nc/nc1; these values") as caught:
        trainer, _ = fit([callback], Own())
    assert len([each for each in caught if each.category is MeasurementWarning]) == 1
    assert trainer.callback_metrics["val/nc/nc1"] == 7
    assert trainer.callback_metrics["val/nc/vci"] == pytest.approx(callback.history["vci"][-1])


@pytest.mark.slow
def test_without_a_namespace_the_modules_accuracy_stays(tmp_path):
    callback = NeuralCollapseCallback(train=None, prefix="", log="all", groups=["nc4"], layers=[])
    with pytest.warns(MeasurementWarning, match="logs val/accuracy; these values"):
        trainer, _ = assert_unharmed(Apart, tmp_path, callback)
    assert "val/ncc_accuracy" in trainer.callback_metrics


class AtTheEnd(Apart):
    """It logs at the ends of epochs, under names that the callback has too."""

    def on_train_epoch_end(self) -> None:
        self.log("train/accuracy", 3.0 + self.current_epoch)

    def on_validation_epoch_end(self) -> None:
        self.log("val/nc1", 5.0 + self.current_epoch)


class Logs(Logger):
    """Keeps what the trainer writes."""

    name, version = "logs", 0

    def __init__(self) -> None:
        super().__init__()
        self.written: list[dict[str, float]] = []

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.written.append(metrics)


class Reading(EarlyStopping):
    """Notes the values that early stopping reads."""

    def __init__(self, monitor: str) -> None:
        super().__init__(monitor, patience=9)
        self.read: list[float] = []

    def _evaluate_stopping_criteria(self, current: Tensor) -> Any:
        self.read.append(float(current))
        return super()._evaluate_stopping_criteria(current)


@pytest.mark.parametrize("epochs", [1, 3])
def test_values_that_the_module_logs_at_the_end_of_an_epoch_are_not_averaged(epochs):
    callback = NeuralCollapseCallback(prefix="", log="all", groups=["nc1", "nc4"], layers=[])
    stop = [Reading(key) for key in ("train/accuracy", "val/nc1", "train/nc1", "val/cdnv")]
    logs = Logs()
    with pytest.warns(MeasurementWarning) as caught:
        trainer, _ = fit([callback, *stop], AtTheEnd(), max_epochs=epochs, logger=logs)
    users, ours = {"train/accuracy": 3.0, "val/nc1": 5.0}, ("train/nc1", "val/cdnv")
    for each, (key, first) in zip(stop[:2], users.items(), strict=True):
        expected = [first + epoch for epoch in range(epochs)]
        assert each.read == expected
        assert [row[key] for row in logs.written if key in row] == expected
        assert trainer.callback_metrics[key] == expected[-1]
        assert any(key in str(warning.message) for warning in caught)
    for each, key in zip(stop[2:], ours, strict=True):
        split, metric = key.split("/")
        expected = pytest.approx(callback.history.split(split)[metric].tolist())
        assert each.read == expected
        assert [row[key] for row in logs.written if key in row] == expected


class Augmented(Dataset):
    """Augments by torch's random generator, which a worker has alone."""

    def __len__(self) -> int:
        return len(DATA)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, label = DATA[index]
        return inputs + 0.1 * torch.rand(6), label


class Persistent(Single):
    """Its workers, and their random generators, live from epoch to epoch."""

    def train_dataloader(self) -> Any:
        settings = {"num_workers": 1, "persistent_workers": True}
        return DataLoader(Augmented(), batch_size=16, shuffle=True, **settings)


class Positioned(IterableDataset):
    """A stream that goes on where it was left."""

    def __init__(self) -> None:
        self.rows = iter(DATA[index % 48] for index in range(10_000))

    def __iter__(self) -> Any:
        return (row for row in self.rows)


class OneWay(Single):
    def train_dataloader(self) -> Any:
        return {"one": DataLoader(Positioned(), batch_size=16)}

    def training_step(self, batch: Any, index: int) -> Tensor:
        return super().training_step(batch["one"], index)


@pytest.mark.slow
@pytest.mark.parametrize("make", [Persistent, OneWay])
def test_loaders_that_an_additional_pass_would_change_are_measured_in_the_steps(make, tmp_path):
    convert = lambda batch: batch["one"] if isinstance(batch, dict) else batch  # noqa: E731
    options = {"layers": [], "groups": ["nc1"], "split_batch": lambda b: tuple(convert(b))}
    callback = NeuralCollapseCallback(**options)
    assert_unharmed(make, tmp_path, callback, limit_train_batches=3)
    assert callback.latest["train"].layers[-1].num_samples == 48
    assert callback.latest["train"].layers[-1].warnings[-1].startswith("measured in the training s")
    assert not any("steps" in each for each in callback.latest["val"].layers[-1].warnings)


def test_which_loaders_can_be_read_again():
    plain, stream = DataLoader(DATA), DataLoader(Positioned())
    assert can_be_read_again({"one": plain, "other": [plain, plain]})
    assert can_be_read_again(CombinedLoader([plain]))
    for loader in (stream, iter(plain), [plain, stream], CombinedLoader([plain, stream])):
        assert not can_be_read_again(loader)


def test_an_additional_pass_needs_no_warning():
    callback = NeuralCollapseCallback(validation=False, layers=[], groups=["nc1"])
    fit([callback], Single())
    assert not any("steps" in each for each in callback.latest["train"].layers[-1].warnings)


@pytest.mark.slow
def test_a_callback_that_follows_several_fits_keeps_them_apart():
    callback = NeuralCollapseCallback(layers=[], groups=["nc4"], reference="train")
    fit([callback], Single(), max_epochs=3)
    first = callback.history.measurements
    with pytest.warns(MeasurementWarning, match="has ended"):
        fit([callback], NoHead(), max_epochs=1)
    assert callback.latest == {}
    fit([callback], Single(), max_epochs=1)
    assert callback.history.measurements[: len(first)] == first
    runs = [(each.run, each.split, each.step) for each in callback.history]
    assert runs[len(first) :] == [("fit 3", "train", 3), ("fit 3", "val", 3)]
    alone = NeuralCollapseCallback(layers=[], groups=["nc4"], reference="train")
    fit([alone], Single(), max_epochs=1)
    assert callback.latest == alone.latest


def test_each_of_several_validation_loaders_has_its_names():
    callbacks = [
        NeuralCollapseCallback(train=None, layers=[], groups=["nc1"], dataloader_idx=index)
        for index in range(2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", MeasurementWarning)
        trainer, _ = fit(callbacks, Several())
    for callback, name in zip(callbacks, ("val/nc/nc1", "val/1/nc/nc1"), strict=True):
        assert trainer.callback_metrics[name] == pytest.approx(callback.history["nc1"][-1])


class Twice(Single):
    """Enough validation samples of each class for standard errors."""

    def val_dataloader(self) -> Any:
        return DataLoader(ConcatDataset([DATA, DATA]), batch_size=10)


@pytest.mark.slow
def test_trust_is_measured_on_request():
    callback = NeuralCollapseCallback(
        train=None, layers=[], groups=["nc1"], baseline=True, uncertainty=True
    )
    fit([callback], Twice(), max_epochs=1)
    assert callback.latest["val"].layers[-1].baseline["nc1"] > 0
    assert callback.latest["val"].layers[-1].standard_errors["nc1"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"foo": 1}, "found foo"),
        ({"groups": ["nc9"]}, "nc9"),
        ({"layer_groups": ["nc9"]}, "nc9"),
        ({"prior": "uniform"}, "measure_model"),
        ({"class_counts": torch.tensor([12, 12, 12, 12])}, "measure_model"),
    ],
)
def test_options_are_checked_before_the_run(options, said):
    with pytest.raises(InputError, match=said):
        NeuralCollapseCallback(**options)


class NoHead(Apart):
    """A cosine classifier."""

    def logits(self, x: Any) -> Tensor:
        features = nn.functional.normalize(self.backbone(x))
        return features @ nn.functional.normalize(self.head.weight).T


@pytest.mark.parametrize(
    "when", others_slow(["sanity check", "first epoch", "training"], "sanity check", "training")
)
def test_an_error_of_measuring_ends_no_run(when, tmp_path):
    cases = {
        "sanity check": ({}, {}),
        "first epoch": ({}, {"num_sanity_val_steps": 0}),
        "training": ({"validation": False}, {}),
    }
    options, settings = cases[when]
    message = "expected a linear layer whose output is the logits, found none"
    callback = NeuralCollapseCallback(**options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_unharmed(NoHead, tmp_path, callback, **settings)
    said = [str(each.message) for each in caught if each.category is MeasurementWarning]
    assert len(said) == 1
    assert message in said[0]
    assert len(callback.history) == 0
    with pytest.raises(InputError, match=message):
        fit([NeuralCollapseCallback(on_error="raise", **options)], NoHead(), **settings)


def test_a_stream_without_an_end_is_measured_as_far_as_the_run_went():
    callback = NeuralCollapseCallback(validation=False, groups=["nc1"])
    fit([callback], Endless(), max_steps=4)
    assert callback.latest["train"].layers[-1].num_samples == 64


def test_labels_that_do_not_fit_end_no_run(tmp_path):
    wrong = {"split_batch": lambda batch: (batch[0], batch[1] + 3)}
    with pytest.warns(MeasurementWarning, match="has ended, .* found label 4 at row"):
        assert_unharmed(Single, tmp_path, NeuralCollapseCallback(**wrong))


def test_a_problem_shows_in_the_sanity_check():
    class Epoch(Apart):
        def on_train_start(self):
            raise KeyboardInterrupt

    with (
        pytest.warns(MeasurementWarning, match="no batch of this form"),
        pytest.raises(SystemExit),
    ):
        fit([NeuralCollapseCallback(split_batch=refused)], Epoch())


def refused(batch: Any) -> Any:
    message = "no batch of this form"
    raise ValueError(message)


@pytest.mark.slow
def test_validation_by_the_means_of_the_training_set():
    callback = NeuralCollapseCallback(reference="train", groups=["nc4"], layers=[])
    _, module = fit([callback], Single())
    assert [each.split for each in callback.history] == ["train", "val"] * 2
    steps = callback.history.steps.tolist()
    assert steps == [3, 3, 6, 6]
    fixed = NeuralCollapseCallback(
        reference=ncscope.measure_model(module.net, DataLoader(DATA, 16), layers=[]),
        train=None,
        groups=["nc4"],
        layers=[],
    )
    fit([fixed], Single())
    assert len(fixed.history) == 2


@pytest.mark.slow
def test_alerts_warn_and_end_nothing(tmp_path):
    """Also with a function that fails, and draws random numbers."""
    seen = []

    def work(measurement):
        seen.append((measurement.split, measurement.step))
        raise RuntimeError(str(torch.rand(3)))

    alert = {"nc1 above 0": work, "rankme < 1000": None}
    callback = NeuralCollapseCallback(groups=["nc1", "spectra"], layers=[], alert=alert)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_unharmed(Single, tmp_path, callback)
    met = [(each.split, each.step) for each in callback.history]
    assert seen == met
    said = [str(each.message) for each in caught if each.category is ncscope.AlertWarning]
    assert len(said) == 2 * len(met)
    assert sum("failed" in text for text in said) == len(met)
    assert not any(each.category is MeasurementWarning for each in caught)


def test_alerts_end_no_run_if_warnings_are_errors(capsys):
    def stop(measurement):
        measurement.model_record.layers[-1].metrics.clear()
        raise SystemExit(1)

    alert = {"nc1 above 0": stop, "nc1 > 0": None}
    callback = NeuralCollapseCallback(groups=["nc1"], layers=[], alert=alert)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ncscope.AlertWarning)
        fit([callback], Single())
    assert len(callback.history["nc1"]) > 0
    said = capsys.readouterr().err
    assert said.count("failed") == said.count("SystemExit: 1") == len(callback.history)
    assert said.count("nc1 > 0: nc1 is") == len(callback.history)


@pytest.mark.parametrize(
    ("alert", "said"),
    [
        ("nc1_quotients falls", "write nc1_quotient"),
        (["nc1 rises", "rankme < 10"], "add 'key:rankme' to groups"),
        ("msp_auroc below 0.5", "leave the alert out"),
    ],
)
def test_alerts_are_checked_before_the_run(alert, said):
    with pytest.raises(InputError, match=said):
        NeuralCollapseCallback(groups=["nc1"], alert=alert)


@pytest.mark.slow
def test_the_page_is_written_at_the_end(tmp_path):
    fit([NeuralCollapseCallback(train=None, save=tmp_path / "run.html")], Single())
    assert "<html" in (tmp_path / "run.html").read_text()
    with pytest.warns(MeasurementWarning, match="history was not saved"):
        fit([NeuralCollapseCallback(train=None, save=tmp_path / "none" / "run.html")], Single())


@pytest.mark.parametrize(
    "settings",
    [{"log": "most"}, {"on_error": "stop"}, {"reference": "val"}, {"save": "run.txt"}],
)
@pytest.mark.usefixtures("unchecked_signatures")
def test_arguments_of_another_value_are_refused(settings):
    with pytest.raises(InputError, match=f"expected {next(iter(settings))}"):
        NeuralCollapseCallback(**settings)
