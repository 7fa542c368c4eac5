"""Optimiser, learning-rate schedule and moving average, built from settings."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ncscope_lab.runs.settings import Config
from ncscope_lab.training.learner import Learner, moving_average


class Optimisation(Config):
    """Optimiser, learning rate, batch size and length of a training run.

    Epochs are counted from 0. The learning rate of epoch e is ``learning_rate`` times
    ``rate_factor(settings, e)``.
    """

    epochs: int = Field(350, ge=1, description="Passes over the training set.")
    batch_size: int = Field(128, ge=1, description="Samples per batch, over all processes.")
    accumulate: int = Field(1, ge=1, description="Batches whose gradients make one step.")
    optimiser: Literal["sgd", "nesterov", "adamw"] = Field("sgd", description="Update rule.")
    learning_rate: float = Field(0.1, gt=0, description="Highest learning rate.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of sgd and nesterov.")
    weight_decay: float = Field(
        5e-4, ge=0, description="Weight decay; adamw's is decoupled and exempts vectors, tokens."
    )
    clip: float | None = Field(
        None, gt=0, description="Largest norm of the gradient, for high rates; default no limit."
    )
    schedule: Literal["constant", "cosine", "cosine-7/16", "steps", "exponential"] = Field(
        "constant", description="Shape of the learning rate after warm-up."
    )
    milestones: tuple[float, ...] = Field(
        (1 / 3, 2 / 3), description="For steps: shares of the epochs at which the rate falls."
    )
    decay: float = Field(
        0.1, gt=0, le=1, description="Factor at each milestone; for exponential, per epoch."
    )
    warmup_epochs: int = Field(0, ge=0, description="Epochs over which the rate rises linearly.")
    warmup_rate: float = Field(0.0, ge=0, description="Learning rate of the first warm-up epoch.")
    average: float = Field(
        0.0, ge=0, lt=1, description="Decay per step of the averaged weights; 0 for no average."
    )
    precision: Literal["32-true", "bf16-mixed"] = Field("32-true", description="Matrix products.")

    @model_validator(mode="after")
    def _warms_up_in_time(self) -> "Optimisation":
        if self.warmup_epochs >= self.epochs and self.warmup_epochs:
            msg = "fewer warmup_epochs than epochs"
            raise ValueError(msg)
        return self

    @property
    def decay_of_loss(self) -> float:
        r"""$\lambda$ of $\frac\lambda2\lVert w\rVert^2$ in the loss; 0 for adamw (decoupled)."""
        return 0.0 if self.optimiser == "adamw" else self.weight_decay


def rate_factor(settings: Optimisation, epoch: int) -> float:
    r"""Return the learning rate of an epoch as a share of the highest.

    After w epochs of warm-up, ``cosine`` is $\frac12(1+\cos\pi\frac{e-w}{E-w})$ and
    ``cosine-7/16`` is $\cos\frac{7\pi}{16}\frac{e-w}{E-w}$. The latter is the schedule of FixMatch
    and FreeMatch, and ends at 0.195.

    Args:
        settings: Settings that define the schedule.
        epoch: Epoch, counted from 0.

    Example:
        >>> steps = Optimisation(epochs=9, schedule="steps")
        >>> [round(rate_factor(steps, epoch), 4) for epoch in range(9)]
        [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01]
        >>> rising = Optimisation(epochs=9, learning_rate=1.0, warmup_epochs=2)
        >>> [rate_factor(rising, epoch) for epoch in range(4)]
        [0.0, 0.5, 1.0, 1.0]
    """
    warmup = settings.warmup_epochs
    if epoch < warmup:
        first = settings.warmup_rate / settings.learning_rate
        return first + (1 - first) * epoch / warmup
    if settings.schedule == "cosine":
        return (1 + math.cos(math.pi * (epoch - warmup) / (settings.epochs - warmup))) / 2
    if settings.schedule == "cosine-7/16":
        return math.cos(7 * math.pi / 16 * (epoch - warmup) / (settings.epochs - warmup))
    if settings.schedule == "exponential":
        return float(settings.decay ** (epoch - warmup))
    if settings.schedule == "steps":
        passed = [share for share in settings.milestones if epoch >= share * settings.epochs]
        return float(settings.decay ** len(passed))
    return 1.0


def learner(model: nn.Module, settings: Optimisation) -> Learner:
    """Set up a model for training.

    Args:
        model: Model whose parameters with ``requires_grad`` are trained.
        settings: Settings of the optimisation.
    """
    optimiser = _optimiser(model, settings)
    if settings.clip is not None:
        parameters, norm = list(model.parameters()), settings.clip

        def clip(*step: object) -> None:
            nn.utils.clip_grad_norm_(parameters, norm)

        # A hook, so that every loop clips, and after the gradients of all processes are averaged.
        optimiser.register_step_pre_hook(clip)
    schedule = LambdaLR(optimiser, lambda epoch: rate_factor(settings, epoch))
    average = moving_average(model, settings.average) if settings.average else None
    return Learner(model, optimiser, schedule, average=average)


def _optimiser(model: nn.Module, settings: Optimisation) -> Optimizer:
    if settings.optimiser == "adamw":
        return torch.optim.AdamW(_by_decay(model, settings), lr=settings.learning_rate)
    return torch.optim.SGD(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.optimiser == "nesterov",
    )


def _by_decay(model: nn.Module, settings: Optimisation) -> list[dict[str, Any]]:
    """Group the parameters into those with weight decay and those without.

    Vectors (biases and gains) have no weight decay, and neither do the parameters that a timm
    model exempts: transformers exempt their position embeddings and class token.
    """
    exempt: set[str] = getattr(model, "no_weight_decay", set)()
    groups: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[parameter.ndim <= 1 or name in exempt].append(parameter)
    decays = settings.weight_decay, 0.0
    return [
        {"params": group, "weight_decay": decay}
        for group, decay in zip(groups, decays, strict=True)
    ]


def bytes_to_come(optimiser: Optimizer) -> int:
    """Return the bytes of optimiser state that the first step will allocate.

    Momentum keeps one copy of each parameter; the moments of Adam and its variants keep two.
    """
    return sum(
        _copies(group) * parameter.nbytes
        for group in optimiser.param_groups
        for parameter in group["params"]
        if parameter not in optimiser.state
    )


def _copies(group: Mapping[str, Any]) -> int:
    return len(group["betas"]) if "betas" in group else int(group["momentum"] > 0)
