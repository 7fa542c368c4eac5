"""One plain training loop, on whatever devices Fabric was given."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from ncscope.data.draws import stream_seed
from ncscope.lab.training.learner import Learner
from ncscope.stats.distributed import share_of_first, sum_across_processes

Batches = Callable[[int, int], Iterable[Any]]
"""The batches of an epoch from the one with a given number on, both counted from 0.

Each is a tuple whose last tensor has an entry a sample. With several processes, each sees its
own share, and all of them equally many batches.
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
    """Train from where the learner is, handing over after every epoch.

    The caller measures, saves and stops as it likes in between: the loop holds no hooks.

    Args:
        fabric: A launched Fabric.
        learner: Learner; after the last batch of an epoch it stands at the next epoch's start.
        batches: Batches of every epoch.
        objective: The loss.
        epochs: Number of epochs in all.
        accumulate: Batches whose gradients make one step; an epoch's last step may have fewer.
        seed: Seed of dropout and similar draws, combined with step and rank; None leaves torch's
            generator alone.
        after_step: Called after every step that does not end an epoch.

    Yields:
        Where the learner stands at the start, if that is the end of an epoch or before the
        first, and the state after each epoch.
    """
    model, optimiser = fabric.setup(learner.model, learner.optimiser)
    if learner.batch == 0:
        yield EpochEnd(learner.epoch, learner.step, float("nan"))
    while learner.epoch < epochs:
        model.train()
        here = batches(learner.epoch, learner.batch)
        for batch, following in pairwise(chain(here, (None,))):
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
        yield _finished(fabric, learner)


def normalising_together(model: nn.Module, device: torch.device, processes: int) -> nn.Module:
    """Return the model with batch norms that use the statistics of the whole batch.

    As they do with one process. On the CPU, where torch has no such norm, each of several
    processes normalises by its share of the batch.

    Args:
        model: To be changed, before anything keeps a copy of it; its parameters stay the same.
        device: Device to train on.
        processes: Number of processes that share a batch.

    Example:
        >>> for device in map(torch.device, ("cuda", "cpu")):
        ...     type(normalising_together(nn.BatchNorm1d(3), device, processes=2)).__name__
        'SyncBatchNorm'
        'BatchNorm1d'
    """
    if processes == 1 or device.type != "cuda":
        return model
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def supervised(criterion: Callable[[Tensor, Tensor], Tensor]) -> Objective:
    """Return the objective of batches (inputs, labels) under a loss of logits and labels."""
    return lambda model, batch: criterion(model(batch[0]), batch[1])


def _step(learner: Learner, optimiser: Any) -> None:
    optimiser.step()
    optimiser.zero_grad()
    learner.step += 1
    if learner.average is not None:
        learner.average.update_parameters(learner.model)


def _rescale(learner: Learner, accumulate: int) -> None:
    """Make the gradients of an epoch's last, smaller group of batches their mean."""
    group = learner.batch % accumulate
    if group:
        for parameter in learner.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(accumulate / group)


def _finished(fabric: Fabric, learner: Learner) -> EpochEnd:
    """Close the epoch: the learner stands at the start of the next, the same on every process.

    Batch norms that work with one process's share, as on the CPU, keep statistics of their own,
    and so does the average; they become the first one's.
    """
    seen = [float(learner.loss), float(learner.samples)]
    totals = torch.tensor(seen, dtype=torch.float64, device=fabric.device)
    loss, samples = sum_across_processes(totals).tolist()
    mean = loss / samples if samples else float("nan")
    share_of_first(learner.model.buffers())
    if learner.average is not None:
        share_of_first(learner.average.buffers())
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
