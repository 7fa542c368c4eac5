"""Training of a transformer on addition modulo p, which memorises and much later generalises."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from lightning.fabric import Fabric
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from ncscope.data.draws import Purpose, generator
from ncscope.lab.observations import Event, Observation, Recorded
from ncscope.lab.papers.info.modular_addition import (
    ModularTransformer,
    Sums,
    SumSplit,
    mirrored,
    modular_addition,
)
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.learner import Learner
from ncscope.lab.training.loop import EpochEnd, log_spaced_epochs, supervised, train
from ncscope.lab.training.resumable import AfterStep, resumable_events
from ncscope.measurement.evaluation import estimate_by_batch
from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.measurement.samples import measure_samples
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.taps import HEAD_INPUT


class Grokking(BaseModel):
    """One run of full-batch training on addition modulo p, and its measurements."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    modulus: int = Field(113, ge=3, description="p: numbers are 0 to p - 1.")
    train_share: float = Field(0.3, gt=0, lt=1, description="Share of pairs to train on.")
    width: int = Field(128, ge=1, description="Width of the residual stream.")
    heads: int = Field(4, ge=1, description="Attention heads, each of width / heads.")
    hidden: int = Field(512, ge=1, description="Units of the ReLU network.")
    steps: int = Field(20_000, ge=1, description="AdamW steps, each on all training pairs.")
    learning_rate: float = Field(1e-3, gt=0, description="Constant.")
    betas: tuple[float, float] = Field((0.9, 0.98), description="Of AdamW.")
    weight_decay: float = Field(1.0, ge=0, description="Decoupled decay of all parameters.")
    measurements: int = Field(
        40, ge=2, description="Approximate number of information measurements, log-spaced."
    )
    accuracy_measurements: int = Field(
        200, ge=2, description="Approximate number of accuracy measurements, log-spaced."
    )
    batch_size: int = Field(64, ge=2, description="Batch size of batch MIR and HDR.")

    @model_validator(mode="after")
    def _fits(self) -> "Grokking":
        if self.width % self.heads:
            msg = "a width that the heads share evenly"
            raise ValueError(msg)
        if round(self.train_share * self.modulus**2) < 2 * self.batch_size:
            msg = "training pairs for two batches of batch_size or more"
            raise ValueError(msg)
        return self

    @property
    def informed(self) -> list[int]:
        """Steps at which information is measured, including the first and the last."""
        return log_spaced_epochs(self.steps, self.measurements)

    @property
    def accuracy_steps(self) -> list[int]:
        """Steps at which accuracy is measured, including those of information."""
        return sorted({*self.informed, *log_spaced_epochs(self.steps, self.accuracy_measurements)})


@dataclass(frozen=True)
class GrokkingBench:
    """A prepared run.

    Attributes:
        settings: Settings of the run.
        fabric: Processes of the run.
        data: All pairs, on the device.
        learner: The transformer in training.
    """

    settings: Grokking
    fabric: Fabric
    data: SumSplit
    learner: Learner


def grokking_events(settings: Grokking, seed: int, resources: Resources) -> Iterator[Event]:
    """Train, measuring training and held-out pairs at the steps that are due.

    An epoch is a step. The products of the ReLU network's second matrix and of the unembedding,
    forward and backward, are half the cost of a step. A measurement of information solves two
    eigenproblems of up to 4,096 rows per split.

    Args:
        settings: Settings of the run.
        seed: Seed of the choice of pairs and of the weights.
        resources: Resources of the run; see `resumable_events`.

    Yields:
        An event for every split and step that is due, and a heartbeat after every step.

    Raises:
        InputError: If the disk has no space for checkpoints.
    """
    bench = prepared(settings, seed, resources.fabric)
    informed, accuracy_steps = set(settings.informed), set(settings.accuracy_steps)

    def epochs(after_step: AfterStep) -> Iterator[EpochEnd]:
        return full_batch_steps(bench, after_step)

    def due(end: EpochEnd) -> list[Recorded]:
        if end.step not in accuracy_steps:
            return []
        return measured(bench.settings, bench.learner, bench.data, end, end.step in informed)

    return resumable_events(bench.learner, epochs, due, settings.steps, resources)


def prepared(settings: Grokking, seed: int, fabric: Fabric) -> GrokkingBench:
    """Choose the pairs and draw the weights, without training.

    Args:
        settings: Settings of the run.
        seed: Seed of the choice of pairs and of the weights.
        fabric: A launched Fabric.
    """
    split = modular_addition(settings.modulus, settings.train_share, seed)
    data = SumSplit(*(Sums(*fabric.to_device(tuple(part))) for part in split))
    model = ModularTransformer(
        settings.modulus,
        settings.width,
        settings.heads,
        settings.hidden,
        generator(seed, Purpose.WEIGHTS),
    ).to(fabric.device)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    constant = LambdaLR(optimiser, lambda epoch: 1.0)
    return GrokkingBench(settings, fabric, data, Learner(model, optimiser, constant))


def full_batch_steps(
    bench: GrokkingBench, after_step: AfterStep = lambda: None
) -> Iterator[EpochEnd]:
    """Train on all training pairs at every step, which is an epoch; see `train`.

    Args:
        bench: The run; its transformer is trained from its current state.
        after_step: See `train`; never called, as every step ends an epoch.
    """

    def batches(epoch: int, first: int) -> Iterable[Sums]:
        return [bench.data.train]

    _keep_freed_memory()
    steps = bench.settings.steps
    objective = supervised(cross_entropy)
    return train(bench.fabric, bench.learner, batches, objective, steps, after_step=after_step)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean cross-entropy in float64.

    In float32 the loss of a memorised pair rounds to 0, and so does its gradient. AdamW divides by
    the gradient's size, so its steps would then consist of rounding errors.
    """
    return functional.cross_entropy(logits.double(), labels)


def measured(
    settings: Grokking, learner: Learner, data: SumSplit, end: EpochEnd, informed: bool
) -> list[Recorded]:
    """Measure accuracy and loss on both splits, and the information between stream and unembedding.

    Held-out accuracy is also measured without the pairs that are training pairs in the other order.

    Args:
        settings: Settings of the run.
        learner: Learner of the transformer.
        data: Pairs of the run.
        end: State of training at the end of the epoch.
        informed: Measure information too if True.
    """
    events = list[Recorded]()
    model = learner.model
    assert isinstance(model, ModularTransformer)
    weight = model.head.weight.detach().double()
    for split, (pairs, labels) in zip(data._fields, data, strict=True):
        with evaluation_mode(model):
            features = model.features(pairs)
            logits = model.head(features)
            loss, right = cross_entropy(logits, labels), logits.argmax(1) == labels
        values = {"loss": float(loss), "accuracy": float(right.double().mean())}
        if split == "test":
            known = mirrored(data)
            values["accuracy_mirrored"] = float(right[known].double().mean())
            values["accuracy_unmirrored"] = float(right[~known].double().mean())
        if informed:
            record, _ = measure_samples(
                HEAD_INPUT, features, labels, settings.modulus, weight, groups=("information",)
            )
            values |= estimate_by_batch(features, labels, weight, settings.batch_size)
            events.append(Measurement(ModelRecord((record,)), end.step, split, values=values))
        else:
            events.append(Observation(end.step, end.epoch, split, HEAD_INPUT, values=values))
    return events


def _keep_freed_memory() -> None:
    """Make glibc keep the memory of activations from step to step.

    By default glibc returns large blocks to the system, which fills each with zeros before lending
    it again; this takes a seventh of a step. glibc keeps blocks that are smaller than the largest
    block, up to 32 MiB, that was freed before.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)
