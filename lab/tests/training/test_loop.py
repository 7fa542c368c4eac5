"""The loop trains, steps the schedule once an epoch, and hands over in between."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ncscope_lab.training.learner import Learner
from ncscope_lab.training.loop import EpochEnd, log_spaced_epochs, supervised, train
from ncscope_lab.training.optimisation import Optimisation, learner
from tests.pace import others_slow

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


@pytest.mark.parametrize(("epochs", "count"), [(1, 2), (2, 16), (100, 6), (300, 16), (350, 2)])
def test_log_spaced_epochs_rise_from_zero_to_the_last(epochs: int, count: int) -> None:
    due = log_spaced_epochs(epochs, count)
    assert due == sorted(set(due))
    assert {0, 1, epochs} <= set(due)
    assert len(due) <= max(count, 3)


def test_log_spaced_epochs_are_evenly_spaced_in_log() -> None:
    assert log_spaced_epochs(1000, 5) == [0, 1, 10, 100, 1000]


class Resumable:
    """A net with dropout and a moving average, trained in steps of two batches."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        settings = Optimisation(
            epochs=EPOCHS, learning_rate=0.1, schedule="cosine", average=0.9, accumulate=2
        )
        self.learner = learner(self.model, settings)

    def batches(self, epoch: int, first: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        data = Run().data.tensors
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(BATCH)[first:]:
            yield data[0][rows], data[1][rows]

    def ends(self, after_step: Callable[[], None] = lambda: None) -> list[EpochEnd]:
        fabric = Fabric(accelerator="cpu", devices=1)
        loss = supervised(nn.functional.cross_entropy)
        whole = train(
            fabric,
            self.learner,
            self.batches,
            loss,
            EPOCHS,
            accumulate=2,
            seed=5,
            after_step=after_step,
        )
        return list(whole)


class Stopped(Exception):  # noqa: N818
    """Where a run was cut."""


@pytest.mark.parametrize("cut", others_slow(range(EPOCHS), 0, EPOCHS - 1))
def test_a_run_cut_between_steps_goes_on_to_the_same_end(cut: int) -> None:
    whole = Resumable()
    expected = whole.ends()
    broken, saved, calls = Resumable(), {}, []

    def stop() -> None:
        calls.append(1)
        if len(calls) == cut + 1:
            saved.update(copy.deepcopy(broken.learner.state()))
            raise Stopped

    with pytest.raises(Stopped):
        broken.ends(stop)
    fresh = Resumable()
    with torch.no_grad():
        fresh.model[0].weight.add_(1.0)
    fresh.learner.load_state(saved)
    found = fresh.ends()
    assert found == expected[cut + 1 :]
    for name, value in whole.learner.evaluated.state_dict().items():
        assert torch.equal(fresh.learner.evaluated.state_dict()[name], value)


def test_a_run_at_the_end_of_an_epoch_hands_over_at_once() -> None:
    whole = Resumable()
    whole.ends()
    (only,) = whole.ends()
    assert (only.epoch, only.step) == (EPOCHS, 2 * EPOCHS)


def test_accumulated_batches_make_the_step_of_one_batch() -> None:
    def trained(size: int, accumulate: int) -> torch.Tensor:
        run = Run()
        data = run.data.tensors
        fabric = Fabric(accelerator="cpu", devices=1)
        start = Learner(run.model, run.optimiser, run.schedule)

        def batches(epoch: int, first: int) -> Any:
            return zip(data[0][:48].split(size), data[1][:48].split(size), strict=True)

        loss = supervised(nn.functional.cross_entropy)
        list(train(fabric, start, batches, loss, 2, accumulate=accumulate))
        return run.model.weight.detach()

    torch.testing.assert_close(trained(16, 1), trained(4, 4))


def test_a_last_smaller_group_of_batches_counts_as_their_mean() -> None:
    run = Run()
    inputs, labels = (part[:48] for part in run.data.tensors)
    parts = list(zip(inputs.split(16), labels.split(16), strict=True))
    loss, fabric = supervised(nn.functional.cross_entropy), Fabric(accelerator="cpu", devices=1)
    start = Learner(run.model, run.optimiser, run.schedule)
    list(train(fabric, start, lambda epoch, first: parts, loss, 1, accumulate=2))

    plain = Run()
    for rows in (slice(0, 32), slice(32, 48)):
        plain.optimiser.zero_grad()
        nn.functional.cross_entropy(plain.model(inputs[rows]), labels[rows]).backward()
        plain.optimiser.step()
    torch.testing.assert_close(run.model.weight, plain.model.weight)
