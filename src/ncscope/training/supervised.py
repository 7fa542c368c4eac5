"""Train a network on a labelled data set, and measure its collapse along the way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.fabric import Fabric
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ncscope.losses import squared_error
from ncscope.models.catalogue import build, tapped_layers
from ncscope.probing.model import Probed, ProbeOptions, probe_model
from ncscope.probing.records import ProbeRecord, Row
from ncscope.training.checkpoint import Checkpoints
from ncscope.training.data.catalogue import load
from ncscope.training.data.draws import stream_seed
from ncscope.training.data.images import ImageData, Images
from ncscope.training.data.loaders import measuring_loader, training_loader
from ncscope.training.data.mixing import mixed
from ncscope.training.data.order import EpochBatches
from ncscope.training.data.preprocessing import Augmentation
from ncscope.training.event_log import EventLog
from ncscope.training.learner import Learner
from ncscope.training.loop import EpochEnd, Objective, log_spaced_epochs, train
from ncscope.training.optimisation import Optimisation, learner
from ncscope.training.work import Work

_WEIGHTS, _STEPS = 2, 3  # what a seed is for


class Training(BaseModel):
    """One training run, and what is measured of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str = Field(description="Data set, by its name in the catalogue.")
    network: str = Field(description="Network, by its name in the catalogue.")
    augmentation: Augmentation = Field("none", description="Of the training images.")
    normalisation: Literal["own", "imagenet"] = Field("own", description="Of the pixels.")
    image_size: int | None = Field(None, ge=1, description="Pixels a side; default the set's.")
    loss: Literal["cross-entropy", "mse"] = Field("cross-entropy", description="Of the logits.")
    mixing: bool = Field(False, description="MixUp or CutMix of batches; for cross-entropy.")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Of cross-entropy.")
    head: Literal["linear", "simplex"] = Field(
        "linear", description="Trained, or fixed to a simplex."
    )
    bias: bool = Field(True, description="Whether the classifier has a bias.")
    optimisation: Optimisation = Field(Optimisation(), description="How to train.")
    seed: int = Field(0, ge=0, lt=2**63, description="Of weights, order, augmentation and dropout.")
    measurements: int = Field(
        12, ge=2, description="About how many epochs to measure at, log-spaced."
    )
    every: int | None = Field(
        None, ge=1, description="Measure after each so many epochs; default log-spaced."
    )
    measured: int | None = Field(
        None, ge=2, description="Training images to measure, as many of each class; default all."
    )
    layers: tuple[str, ...] | None = Field(
        None, description="Layers to measure besides the last, by name or pattern; default blocks."
    )
    groups: tuple[str, ...] = Field(
        ("nc1", "nc2", "nc3", "nc4", "pfc"), description="Groups of metrics of the last layer."
    )
    layer_groups: tuple[str, ...] = Field(("pfc",), description="Of the other layers.")

    @property
    def due(self) -> list[int]:
        """Epochs to measure at, the first and the last among them."""
        epochs = self.optimisation.epochs
        if self.every is not None:
            return [*range(0, epochs, self.every), epochs]
        return log_spaced_epochs(epochs, self.measurements)


@dataclass(frozen=True)
class Bench:
    """A run laid out: data, learner, processes.

    Attributes:
        settings: Of the run.
        fabric: Its processes.
        data: The data set.
        learner: The network in training.
        workers: Processes that read ahead.
    """

    settings: Training
    fabric: Fabric
    data: ImageData
    learner: Learner
    workers: int = 0


Extra = Callable[[Bench, EpochEnd], list[Row]]
"""Rows on a run at a measured epoch; whatever it does leaves the learner as it was."""


def _nothing(bench: Bench, end: EpochEnd) -> list[Row]:
    return []


def prepared(settings: Training, work: Work) -> Bench:
    """Data loaded, network built, nothing trained.

    Args:
        settings: Of the run.
        work: Where data are, and what to train on.

    Raises:
        InputError: If data are missing, or a name is not in its catalogue.
    """
    with work.fabric.rank_zero_first(local=True):  # one process a machine downloads
        data = load(
            settings.data,
            work.data,
            download=work.download,
            augmentation=settings.augmentation,
            size=settings.image_size,
            normalisation=settings.normalisation,
            seed=settings.seed,
        )
    channels, size, _ = data.shape
    torch.default_generator.manual_seed(stream_seed(settings.seed, _WEIGHTS))
    model = build(
        settings.network,
        data.num_classes,
        in_channels=channels,
        image_size=size,
        head=settings.head,
        bias=settings.bias,
    )
    fabric = work.fabric
    model = model.to(fabric.device)
    return Bench(settings, fabric, data, learner(model, settings.optimisation), work.workers)


def training_rows(settings: Training, work: Work, extra: Extra = _nothing) -> Iterator[Row]:
    """Train, measuring the training and the held-out images at the epochs that are due.

    Args:
        settings: Of the run.
        work: Where and with what. With a place, a run that was stopped goes on from its last
            checkpoint, and first yields again the rows that it had.
        extra: What else to measure at those epochs.

    Yields:
        A row for every layer, split and measured epoch, and an empty one after every epoch.

    Raises:
        InputError: As `prepared`, or if the disk has no room for checkpoints.
    """
    bench = prepared(settings, work)
    keeper = _Keeper(bench, work)
    rows = keeper.restored()
    log = EventLog(keeper.events)
    log.add(rows)
    yield from rows
    ends = _epochs(bench, lambda: keeper.save_if_due(rows))
    if rows and bench.learner.batch == 0:
        next(ends)  # its rows are among those restored
    for end in ends:
        fresh: list[Row] = [{}] if end.epoch else []
        if end.epoch in settings.due:
            fresh += [*measured_rows(bench, end), *extra(bench, end)]
        rows += fresh
        if len(fresh) > 1 or end.epoch == settings.optimisation.epochs:
            keeper.save(rows)
            log.add(fresh)
        yield from fresh


def measured_rows(bench: Bench, end: EpochEnd) -> list[Row]:
    """Every layer on training and held-out images; at the end the geodesic and the spectra.

    Args:
        bench: The run.
        end: Where it stands.
    """
    settings, model = bench.settings, bench.learner.evaluated
    images = bench.data.train
    if settings.measured is not None:
        images = images.balanced(settings.measured)
    options = ProbeOptions(
        layers=tapped_layers(model) if settings.layers is None else settings.layers,
        groups=settings.groups,
        layer_groups=settings.layer_groups,
        weight_decay=settings.optimisation.decay_of_loss,
    )
    train_set = _probed(bench, images, options)
    test_set = _probed(bench, bench.data.test, options, train_set)
    when: Row = {"step": end.step, "epoch": end.epoch}
    loss: Row = {} if end.epoch == 0 else {"loss": end.loss}
    rows = _layer_rows(when | {"split": "train"} | loss, train_set.record)
    rows += _layer_rows(when | {"split": "test"}, test_set.record)
    if end.epoch == settings.optimisation.epochs:
        rows += _line_rows(when, train_set.record)
        rows += _spectrum_rows(when, train_set.record)
    return rows


def _probed(
    bench: Bench, images: Images, options: ProbeOptions, reference: Probed | None = None
) -> Probed:
    fabric, size = bench.fabric, bench.settings.optimisation.batch_size
    loader = measuring_loader(images, size, fabric.global_rank, fabric.world_size, bench.workers)
    known = None if reference is None else reference.statistics
    return probe_model(bench.learner.evaluated, loader, options, known)


def _layer_rows(when: Row, record: ProbeRecord) -> list[Row]:
    """A row a layer, with its place on the path where it has one."""
    places = dict(zip(record.comparable, record.relative_position, strict=False))
    return [
        when
        | {"layer": layer.layer}
        | ({"relative_position": places[layer.layer]} if layer.layer in places else {})
        | dict(layer.metrics)
        for layer in record.layers
    ]


def _line_rows(when: Row, record: ProbeRecord) -> list[Row]:
    """PFC1-3 on the straight line from the first comparable layer to the last."""
    line = record.geodesic
    if line is None:
        return []
    points = zip(line.t, line.pfc1, line.pfc2, line.pfc3, strict=True)
    where: Row = when | {"split": "line", "layer": "line"}
    return [where | {"t": t, "pfc1": a, "pfc2": b, "pfc3": c} for t, a, b, c in points]


def _spectrum_rows(when: Row, record: ProbeRecord) -> list[Row]:
    """The last layer's covariance eigenvalues, a row an index; none unless they were asked for."""
    spectra = record.layers[-1].spectra
    between, total = spectra.get("between", []), spectra.get("total", [])
    where: Row = when | {"split": "spectrum", "layer": "spectrum"}
    return [
        where
        | {"index": place + 1, "total": value}
        | ({"between": between[place]} if place < len(between) else {})
        for place, value in enumerate(total)
    ]


def _epochs(bench: Bench, after_step: Callable[[], None]) -> Iterator[EpochEnd]:
    settings, fabric = bench.settings.optimisation, bench.fabric
    order = EpochBatches(
        len(bench.data.train),
        settings.batch_size,
        bench.settings.seed,
        fabric.global_rank,
        fabric.world_size,
    )
    loader = training_loader(bench.data.train, order, bench.workers)

    def batches(epoch: int, first: int) -> DataLoader[Any]:
        order.begin(epoch, first)
        return loader

    return train(
        fabric,
        bench.learner,
        batches,
        objective(bench.settings, bench.data.num_classes, fabric.device),
        settings.epochs,
        accumulate=settings.accumulate,
        seed=stream_seed(bench.settings.seed, _STEPS),
        after_step=after_step,
    )


def objective(settings: Training, num_classes: int, device: torch.device) -> Objective:
    """The loss that the settings ask for, of batches (images, labels).

    Args:
        settings: Of the run.
        num_classes: Of the data.
        device: Where it runs.
    """
    half = settings.optimisation.precision == "bf16-mixed"
    smoothing = settings.label_smoothing
    cross_entropy = nn.CrossEntropyLoss(label_smoothing=smoothing)
    criterion = squared_error if settings.loss == "mse" else cross_entropy

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        images, targets = batch
        if settings.mixing:
            # The loop has seeded torch for this batch alone.
            draw = settings.seed, torch.initial_seed()
            images, targets = mixed(images, targets, num_classes, *draw)
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            logits = model(images)
        return criterion(logits.float(), targets)

    return loss


class _Keeper:
    """The checkpoint of a run: everything that it has yielded, and its learner."""

    def __init__(self, bench: Bench, work: Work) -> None:
        self.learner = bench.learner
        self.first, self.alone = bench.fabric.is_global_zero, bench.fabric.world_size == 1
        self.checkpoints: Checkpoints | None = None
        self.events: Path | None = None
        if work.place is not None:
            self.checkpoints = Checkpoints(work.place / "checkpoint.pt", work.seconds)
            self.events = work.place / "tensorboard" if self.first else None

    def restored(self) -> list[Row]:
        """The rows of the last checkpoint, the learner put back to it; none if there is none."""
        if self.checkpoints is None:
            return []
        state = self.checkpoints.load()
        if state is None:
            if self.first:
                self.checkpoints.check_space(self.learner.state())
            return []
        self.learner.load_state(state["learner"])
        return list(state["rows"])

    def save_if_due(self, rows: list[Row]) -> None:
        """Save the place in the middle of an epoch, now and then, if there is one process.

        Several have a sum of the loss each, and meet at the end of an epoch only.
        """
        if self.alone and self.checkpoints is not None and self.checkpoints.due:
            self.save(rows)

    def save(self, rows: list[Row]) -> None:
        """Save the place; of several processes the first does."""
        if self.checkpoints is not None and self.first:
            self.checkpoints.save({"learner": self.learner.state(), "rows": rows})
