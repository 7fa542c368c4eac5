"""The callback in real runs of Lightning's trainer logs what `measure_model` measures."""

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import EarlyStopping
from torch import Tensor, nn
from torch.utils.data import DataLoader

import ncscope
from ncscope.integrations.lightning import NeuralCollapseCallback
from ncscope.integrations.torchmetrics import NeuralCollapse

from .lightning_runs import Classifier, fit, samples

pytestmark = pytest.mark.filterwarnings(
    "ignore:The '.*_dataloader' does not have many workers",
)
TRAIN, HELD_OUT = (DataLoader(samples(n, seed), batch_size=16) for n, seed in ((48, 0), (32, 1)))
PFC = ("pfc1", "pfc2", "pfc3")
SOME = {"groups": ["nc1", "nc3", "nc4"]}


def assert_logged(logged: dict, split: str, model: Classifier, batches, **options) -> None:
    """All metrics are logged, each under one name: PFC's names before the head, others there."""
    report = ncscope.measure_model(model.net, batches, progress=False, **options)
    *before, last = report.layers.items()
    twins = dict(zip(("nc1_quotient", "nc2_etf", "ncc_accuracy"), PFC, strict=True))
    prefix = f"{split}/nc/"
    expected = {
        f"{prefix}{name}/{key}": value
        for name, layer in before
        for key, value in layer.items()
        if key not in twins
    }
    aliases = (*PFC, "seli_logits")
    expected |= {f"{prefix}{key}": value for key, value in last[1].items() if key not in aliases}
    found = {key: float(v) for key, v in logged.items() if key.startswith(prefix)}
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True)  # float32


@pytest.mark.slow
def test_both_sets_are_measured_on_the_final_weights():
    callback = NeuralCollapseCallback(every_n_epochs=2, log="all", by_class=True)
    trainer, model = fit(callback)
    alone = fit(None)[1]
    # the second epoch and the last: four passes to trace the model and three batches each; and four
    # passes to trace it for each validation, and for the sanity check
    assert model.passes == alone.passes + 2 * 7 + 2 * 4 + 4
    torch.testing.assert_close(model.state_dict(), alone.state_dict(), rtol=0, atol=0)
    assert_logged(trainer.callback_metrics, "train", model, TRAIN)
    assert_logged(trainer.callback_metrics, "val", model, HELD_OUT)
    assert callback.latest["val"] == ncscope.measure_model(model.net, HELD_OUT).model_record
    steps = [(each.split, each.step) for each in callback.history]
    assert steps == [(name, step) for step in (6, 9) for name in ("val", "train")]
    last = {each.split: each.model_record for each in callback.history}
    assert last == callback.latest
    assert {name for name, module in model.named_modules() if module._forward_hooks} == set()


def test_each_validation_costs_four_passes():
    alone, followed = fit(None)[1], fit(NeuralCollapseCallback(train=None, **SOME))[1]
    # To find the head, batch axes, and the order of rows: in the sanity check, and in three epochs.
    assert followed.passes == alone.passes + 4 * 4


@pytest.mark.slow
def test_steps_are_measured_as_they_were():
    callback = NeuralCollapseCallback(train="steps", validation=False, **SOME)
    trainer, model = fit(callback)
    assert model.passes == fit(None)[1].passes + 4 * 3  # in each of three epochs
    assert callback.latest["train"].layers[-1].num_samples == 48
    report = ncscope.measure_model(model.net, TRAIN, progress=False, **SOME)
    moved = float(trainer.callback_metrics["train/nc/nc1"])
    assert moved == pytest.approx(report["nc1"], rel=0.2)
    assert moved != pytest.approx(report["nc1"], rel=0.005)
    assert set(callback.latest) == {"train"}


class Converted(Classifier):
    """Its batches come in single precision, and are moved aside before they are transferred."""

    def train_dataloader(self) -> DataLoader:
        rows = [(inputs.float(), label) for inputs, label in samples(48, 0)]
        return DataLoader(rows, batch_size=16)

    def on_before_batch_transfer(self, batch, dataloader_idx):
        assert batch[0].dtype == torch.float64  # Lightning has converted it by then
        return batch[0] - 1, batch[1]


def test_training_batches_are_prepared_as_lightning_prepares_them():
    callback = NeuralCollapseCallback(validation=False, log="all", **SOME)
    trainer, model = fit(callback, kind=Converted, precision="64-true")
    moved = [(inputs.float().double() - 1, labels) for inputs, labels in TRAIN]
    assert_logged(trainer.callback_metrics, "train", model, moved, **SOME)


class Shuffled(Classifier):
    """Its training loader shuffles by a generator of its own."""

    def train_dataloader(self) -> DataLoader:
        generator = torch.Generator().manual_seed(2)
        return DataLoader(samples(48, 0), batch_size=16, shuffle=True, generator=generator)


@pytest.mark.slow
def test_a_loader_with_a_generator_of_its_own_goes_on_as_if_nobody_measured():
    alone = fit(None, kind=Shuffled)[1]
    followed = fit(NeuralCollapseCallback(**SOME), kind=Shuffled)[1]
    torch.testing.assert_close(followed.state_dict(), alone.state_dict(), rtol=0, atol=0)


def test_validating_apart_and_batches_of_another_kind():
    callback = NeuralCollapseCallback(
        network="net",
        every_n_epochs=100,
        split_batch=lambda batch: (batch[0], 3 - batch[1]),
        log="all",
        **SOME,
    )
    trainer, model = fit(None)
    trainer.callbacks.append(callback)
    trainer.validate(model, HELD_OUT, verbose=False)
    turned = [(inputs, 3 - labels) for inputs, labels in HELD_OUT]
    assert_logged(trainer.callback_metrics, "val", model, turned, **SOME)


class Marked(Classifier):
    """Its data sets know their classes, and mark samples that have none."""

    def data(self, samples_: Any) -> Any:
        samples_ = [
            (inputs, 255 if at % 5 == 0 else int(label)) for at, (inputs, label) in samples_
        ]
        return Named(samples_)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.data(enumerate(samples(48, 0))), batch_size=16)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.data(enumerate(samples(32, 1))), batch_size=16)

    def training_step(self, batch, index):
        return super().training_step((batch[0], batch[1].clamp(max=3)), index)

    def validation_step(self, batch, index):
        return super().validation_step((batch[0], batch[1].clamp(max=3)), index)


class Named(list):
    """A data set that knows its classes."""

    classes = ("ant", "bee", "cat", "dog")


@pytest.mark.slow
@pytest.mark.parametrize("train", ["pass", "steps"])
def test_marks_are_left_out_and_names_come_along(train):
    callback = NeuralCollapseCallback(train=train, ignore_index=255, log="all", **SOME)
    trainer, model = fit(callback, kind=Marked)
    kept = [each for at, each in enumerate(samples(32, 1)) if at % 5]
    assert_logged(trainer.callback_metrics, "val", model, DataLoader(kept, 25), **SOME)
    notes = [callback.latest[split].layers[-1].notes[0] for split in ("train", "val")]
    assert notes == [f"{n} samples left out: labelled 255" for n in ("10 of 48", "7 of 32")]
    assert callback.history.provenance.class_names == Named.classes


def test_which_submodule_is_the_network():
    found = NeuralCollapseCallback()._network
    one, several = Classifier(), LightningModule()
    several.body, several.head = nn.Linear(2, 2), nn.Linear(2, 2)
    assert found(one) is one.net
    assert found(several) is several


@pytest.mark.parametrize("settings", [{"train": "epoch"}, {"every_n_epochs": 0}])
@pytest.mark.usefixtures("unchecked_signatures")
def test_settings_that_are_none_are_refused(settings):
    with pytest.raises(ncscope.InputError, match=f"expected {next(iter(settings))}"):
        NeuralCollapseCallback(**settings)


class Growing(Classifier):
    """Replaces its head in the second epoch, and its network in the third."""

    def on_train_epoch_start(self) -> None:
        torch.manual_seed(10 + self.current_epoch)
        if self.current_epoch == 1:
            self.net.classifier = nn.Linear(8, 6).double()
        if self.current_epoch == 2:
            self.net = Classifier().net


@pytest.mark.slow
@pytest.mark.parametrize("train", ["pass", "steps"])
def test_a_head_or_a_network_that_is_replaced_within_a_fit_is_found_again(train):
    callback = NeuralCollapseCallback(train=train, **SOME)
    _, model = fit(callback, kind=Growing)
    heads = {(m.split, m.step): m.model_record.layers[-1].num_classes for m in callback.history}
    assert list(heads.values()) == [4, 4, 6, 6, 4, 4]
    report = ncscope.measure_model(model.net, HELD_OUT, progress=False, **SOME)
    found = callback.latest["val"].layers[-1].metrics
    assert found == pytest.approx(dict(report), rel=1e-9)


class Logging(Classifier):
    """Logs a metric of one value, as Lightning logs those of torchmetrics."""

    def __init__(self) -> None:
        super().__init__()
        self.nc1 = NeuralCollapse(4, 8, key="nc1")

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        features = self.net.blocks(self.net.stem(batch[0]))
        self.nc1.update(features, batch[1])
        self.log("val/nc1", self.nc1, on_epoch=True)


def test_a_metric_of_one_value_is_logged():
    stop = EarlyStopping("val/nc1", mode="min", patience=1, min_delta=1e9)
    trainer, model = fit(stop, kind=Logging)
    inputs, labels = samples(32, 1).tensors
    with torch.no_grad():
        expected = ncscope.measure(model.net.blocks(model.net.stem(inputs)), labels)["nc1"]
    assert trainer.callback_metrics["val/nc1"].item() == pytest.approx(expected, rel=1e-6)
    assert trainer.current_epoch == 2  # stopped on its value
