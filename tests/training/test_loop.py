"""The loop trains, steps the schedule once an epoch, and hands over in between."""

import math
from collections.abc import Iterator

import pytest
import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ncscope.training.learner import Learner
from ncscope.training.loop import EpochEnd, log_spaced_epochs, supervised, train

SAMPLES, BATCH, EPOCHS = 50, 16, 6
RATE = 0.5


class Run:
    """A linear classifier on two separable classes, in batches of unlike size and labels."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        labels = (torch.arange(SAMPLES) >= SAMPLES - 20).long()
        inputs = torch.randn(SAMPLES, 3, generator=generator) + 4.0 * labels[:, None]
        self.data = TensorDataset(inputs, labels)
        self.model = nn.Linear(3, 2)
        nn.init.zeros_(self.model.weight)
        nn.init.zeros_(self.model.bias)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimiser, 0.5)

    def start(self) -> Iterator[EpochEnd]:
        fabric = Fabric(accelerator="cpu", devices=1)
        fabric.launch()
        loader = DataLoader(self.data, BATCH)
        loss = supervised(nn.functional.cross_entropy)
        learner = Learner(self.model, self.optimiser, self.schedule)
        return train(fabric, learner, lambda epoch, first: loader, loss, EPOCHS)

    @property
    def rate(self) -> float:
        return self.optimiser.param_groups[0]["lr"]


def test_hands_over_before_training_and_after_every_epoch() -> None:
    run = Run()
    ends = run.start()
    first = next(ends)
    assert (first.epoch, first.step) == (0, 0)
    assert math.isnan(first.loss)
    assert not run.model.weight.any()
    rest = list(ends)
    steps = math.ceil(SAMPLES / BATCH)
    assert [(end.epoch, end.step) for end in rest] == [(e, e * steps) for e in range(1, EPOCHS + 1)]


def test_loss_falls() -> None:
    losses = [end.loss for end in Run().start()][1:]
    assert losses[-1] < 0.5 * losses[0]


def test_loss_is_the_mean_over_samples_not_batches() -> None:
    run = Run()
    run.optimiser.param_groups[0]["lr"] = 0.0
    run.model.bias.data[1] = 1.0
    inputs, labels = run.data.tensors
    expected = nn.functional.cross_entropy(run.model(inputs), labels).item()
    ends = run.start()
    next(ends)
    assert next(ends).loss == pytest.approx(expected, rel=1e-5)


def test_schedule_steps_once_an_epoch() -> None:
    run = Run()
    rates = [run.rate for _ in run.start()]
    assert rates == pytest.approx([RATE * 0.5**epoch for epoch in range(EPOCHS + 1)])


def test_every_epoch_trains_in_training_mode() -> None:
    run = Run()
    for end in run.start():
        assert end.epoch == 0 or run.model.training
        run.model.eval()


def test_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    list(Run().start())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("epochs", "count"), [(1, 2), (2, 16), (100, 6), (300, 16), (350, 2)])
def test_log_spaced_epochs_rise_from_zero_to_the_last(epochs: int, count: int) -> None:
    due = log_spaced_epochs(epochs, count)
    assert due == sorted(set(due))
    assert {0, 1, epochs} <= set(due)
    assert len(due) <= max(count, 3)


def test_log_spaced_epochs_are_evenly_spaced_in_log() -> None:
    assert log_spaced_epochs(1000, 5) == [0, 1, 10, 100, 1000]
