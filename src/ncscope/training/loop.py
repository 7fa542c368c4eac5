"""One plain training loop, on whatever devices Fabric was given."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader


@dataclass(frozen=True)
class EpochEnd:
    """What the loop reports after an epoch.

    Attributes:
        epoch: Epochs completed; 0 before the first.
        step: Optimiser steps taken.
        loss: Mean training loss over the epoch, on this process's samples; NaN before the first.
    """

    epoch: int
    step: int
    loss: float


def train(
    fabric: Fabric,
    model: nn.Module,
    optimiser: Optimizer,
    schedule: LRScheduler,
    loader: DataLoader[Any],
    epochs: int,
    criterion: Callable[[Tensor, Tensor], Tensor],
) -> Iterator[EpochEnd]:
    """Train epoch by epoch, handing over in between.

    The caller measures, saves and stops as it likes between epochs: the loop holds no hooks.

    Args:
        fabric: A launched Fabric.
        model: A classifier; it is set up by Fabric here.
        optimiser: Over the model's parameters.
        schedule: Advanced once an epoch.
        loader: Yields inputs and labels, reshuffled at each iteration.
        epochs: Number of epochs.
        criterion: Loss of logits and labels.

    Yields:
        The state before the first epoch and after each.
    """
    wrapped, optimiser = fabric.setup(model, optimiser)
    batches = fabric.setup_dataloaders(loader)
    step = 0
    yield EpochEnd(0, 0, float("nan"))
    for epoch in range(1, epochs + 1):
        wrapped.train()
        total, samples = torch.zeros((), device=fabric.device), 0
        for inputs, labels in batches:
            optimiser.zero_grad()
            loss = criterion(wrapped(inputs), labels)
            fabric.backward(loss)
            optimiser.step()
            step += 1
            total, samples = total + loss.detach() * len(labels), samples + len(labels)
        schedule.step()
        yield EpochEnd(epoch, step, float(total / samples))


def log_spaced_epochs(epochs: int, count: int) -> list[int]:
    """About `count` whole epochs from 0 to `epochs`, evenly spaced on a logarithmic axis.

    Example:
        >>> log_spaced_epochs(100, 6)
        [0, 1, 3, 10, 32, 100]
    """
    last = max(1, count - 2)
    return sorted({0, *(round(epochs ** (i / last)) for i in range(last + 1))})
