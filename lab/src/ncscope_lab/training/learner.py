"""Learner: the state that a checkpoint saves, so that a resumed run equals an unbroken one."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


@dataclass
class Learner:
    """A model in training.

    The random draws of a step depend only on the seed and on the position of the step, so the
    learner holds no random state.

    Attributes:
        model: The network.
        optimiser: Optimiser of the network's parameters.
        schedule: Schedule of the learning rate, advanced after every epoch.
        average: The moving average of the model's weights, or None.
        memory: Buffers that the objective carries from step to step, or None.
        epoch: Epochs completed.
        batch: Batches of the next epoch completed.
        step: Optimiser steps taken.
        loss: Sum of the training loss over the epoch's samples so far.
        samples: Number of samples in this sum.
    """

    model: nn.Module
    optimiser: Optimizer
    schedule: LRScheduler
    average: AveragedModel | None = None
    memory: nn.Module | None = None
    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss: float | Tensor = 0.0
    samples: int = 0

    @property
    def evaluated(self) -> nn.Module:
        """The model to measure: the moving average if there is one, else the network."""
        return self.model if self.average is None else self.average.module

    def state(self) -> dict[str, Any]:
        """Return the whole state for `load_state`: tensors and plain values only."""
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "memory": None if self.memory is None else self.memory.state_dict(),
            "place": {name: getattr(self, name) for name in _PROGRESS} | {"loss": float(self.loss)},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a saved state, of a model and an optimiser of the same kind and shapes."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        if self.memory is not None:
            self.memory.load_state_dict(state["memory"])
        for name in _PROGRESS:
            setattr(self, name, state["place"][name])


_PROGRESS = ("epoch", "batch", "step", "loss", "samples")


def moving_average(model: nn.Module, decay: float) -> AveragedModel:
    r"""Average weights and buffers exponentially: $m$ times old plus $1-m$ times new.

    Args:
        model: Model whose weights and buffers are averaged.
        decay: $m$, below 1.
    """
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
