"""The training loop, on the devices that Fabric was given."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from ncscope.data.draws import stream_seed
from ncscope.stats.processes import ALL
from ncscope_lab.training.learner import Learner

Batches = Callable[[int, int], Iterable[Any]]
"""Function of an epoch and a first batch, both counted from 0, that iterates over the batches.

Each batch is a tuple whose last tensor has one entry per sample. With several processes, each
process sees its share of every batch, and all processes see equally many batches.
"""
Objective = Callable[[nn.Module, Any], Tensor]
"""The mean loss of a model, in training mode, over this process's share of a batch."""


@dataclass(frozen=True)
class EpochEnd:
    """State that the loop reports after an epoch.

    Attributes:
        epoch: Epochs completed; 0 before the first.
        step: Optimiser steps taken.
        loss: Mean training loss over the epoch, of all processes; NaN before the first.
    """

    epoch: int
    step: int
    loss: float


def train(
    fabric: Fabric,
    learner: Learner,
    batches: Batches,
    objective: Objective,
    epochs: int,
    *,
    accumulate: int = 1,
    seed: int | None = None,
    after_step: Callable[[], None] = lambda: None,
) -> Iterator[EpochEnd]:
    """Train from the learner's current position; yield after every epoch.

    The caller can measure, save and stop between epochs, so the loop has no hooks for these.

    Args:
        fabric: A launched Fabric.
        learner: Learner to train; after the last batch of an epoch its position is the start of
            the next epoch.
        batches: Batches of every epoch.
        objective: The loss.
        epochs: Total number of epochs, including those already completed.
        accumulate: Batches whose gradients make one step; an epoch's last step may have fewer.
        seed: Seed of dropout and similar draws, combined with step and rank; None leaves torch's
            generator alone.
        after_step: Function that is called after every step that does not end an epoch.

    Yields:
        First the learner's state, unless the learner is within an epoch; then the state after
        each epoch.
    """
    model, optimiser = fabric.setup(learner.model, learner.optimiser)
    if learner.batch == 0:
        yield EpochEnd(learner.epoch, learner.step, float("nan"))
    while learner.epoch < epochs:
        model.train()
        remaining = batches(learner.epoch, learner.batch)
        for batch, following in pairwise(chain(remaining, (None,))):
            last = following is None
            if seed is not None:
                position = learner.epoch, learner.batch, fabric.global_rank
                torch.manual_seed(stream_seed(seed, *position))
            learner.batch += 1
            stepping = last or learner.batch % accumulate == 0
            with fabric.no_backward_sync(model, enabled=not stepping):
                loss = objective(model, fabric.to_device(batch))
                fabric.backward(loss / accumulate)
            learner.loss = learner.loss + loss.detach().double() * _size(batch)
            learner.samples += _size(batch)
            if stepping:
                _rescale(learner, accumulate)
                _step(learner, optimiser)
                if not last:
                    after_step()
        yield _finish(fabric, learner)


def normalise_together(model: nn.Module, device: torch.device, processes: int) -> nn.Module:
    """Return the model with synchronised batch norms, which use statistics of the global batch.

    Torch has no synchronised batch norm for the CPU: there each of several processes normalises
    by the statistics of its share of the batch.

    Args:
        model: Model to change. Call this function before an optimiser or a moving average copies
            references to it; its parameters stay the same.
        device: Device to train on.
        processes: Number of processes that share a batch.

    Example:
        >>> for device in map(torch.device, ("cuda", "cpu")):
        ...     type(normalise_together(nn.BatchNorm1d(3), device, processes=2)).__name__
        'SyncBatchNorm'
        'BatchNorm1d'
    """
    if processes == 1 or device.type != "cuda":
        return model
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def supervised(criterion: Callable[[Tensor, Tensor], Tensor]) -> Objective:
    """Return the objective of batches (inputs, labels) for a loss of logits and labels."""
    return lambda model, batch: criterion(model(batch[0]), batch[1])


def _step(learner: Learner, optimiser: Any) -> None:
    optimiser.step()
    optimiser.zero_grad()
    learner.step += 1
    if learner.average is not None:
        learner.average.update_parameters(learner.model)


def _rescale(learner: Learner, accumulate: int) -> None:
    """Rescale the gradients of an epoch's last, smaller group of batches to their mean."""
    group = learner.batch % accumulate
    if group:
        for parameter in learner.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(accumulate / group)


def _finish(fabric: Fabric, learner: Learner) -> EpochEnd:
    """End the epoch: move the learner to the start of the next epoch, equal on every process.

    On the CPU each process has its own running statistics of the batch norms, in the network and
    in the moving average. All processes take over those of the first process.
    """
    seen = [float(learner.loss), float(learner.samples)]
    totals = torch.tensor(seen, dtype=torch.float64, device=fabric.device)
    loss, samples = ALL.sum(totals, guarded=False).tolist()
    mean = loss / samples if samples else float("nan")
    ALL.send(learner.model.buffers())
    if learner.average is not None:
        ALL.send(learner.average.buffers())
    learner.epoch, learner.batch, learner.loss, learner.samples = learner.epoch + 1, 0, 0.0, 0
    learner.schedule.step()
    return EpochEnd(learner.epoch, learner.step, mean)


def _size(batch: Any) -> int:
    return len(batch[-1])


def log_spaced_epochs(epochs: int, count: int) -> list[int]:
    """About `count` whole epochs from 0 to `epochs`, evenly spaced on a logarithmic axis.

    Example:
        >>> log_spaced_epochs(100, 6)
        [0, 1, 3, 10, 32, 100]
    """
    last = max(1, count - 2)
    return sorted({0, *(round(epochs ** (i / last)) for i in range(last + 1))})
