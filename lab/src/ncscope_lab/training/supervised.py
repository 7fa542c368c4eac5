"""Training of a network on a labelled data set, with measurements of its collapse."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader

from ncscope.data.catalogue import load
from ncscope.data.draws import Purpose, stream_seed
from ncscope.data.images import ImageData, Images
from ncscope.data.loaders import make_measurement_loader, make_training_loader
from ncscope.data.order import EpochBatches, check_shares
from ncscope.measurement.evaluation import ModelResult
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.models.networks.catalogue import build, layers_to_tap
from ncscope_lab.observations import ITERATION, Event, Observation
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.learner import Learner
from ncscope_lab.training.loop import EpochEnd, normalise_together, train
from ncscope_lab.training.objectives import objective
from ncscope_lab.training.optimisation import learner
from ncscope_lab.training.resumable import AfterStep, resumable_events
from ncscope_lab.training.settings import Training

INFORMATION_BATCH = 64
"""Batch size of INFO's batch estimates, which the rows hold beside the exact values."""


@dataclass(frozen=True)
class Bench:
    """A prepared run: data, learner and processes.

    Attributes:
        settings: Settings of the run.
        fabric: Processes of the run.
        data: The data set.
        learner: The network in training.
        workers: Processes that read ahead.
    """

    settings: Training
    fabric: Fabric
    data: ImageData
    learner: Learner
    workers: int = 0


Extra = Callable[[Bench, EpochEnd], Sequence[Observation]]
"""Function that measures more at a measured epoch; it must not change the learner."""


def prepare_bench(settings: Training, resources: Resources) -> Bench:
    """Load data and build the network, without training.

    Args:
        settings: Settings of the run.
        resources: Resources of the run: data folder and accelerator.

    Raises:
        InputError: If data are missing, there are fewer samples than requested or than processes,
            or a name is not in its catalogue.
    """
    with resources.fabric.rank_zero_first(local=True):  # one process a machine downloads
        data = load(
            settings.data,
            resources.data,
            download=resources.download,
            augmentation=settings.augmentation,
            size=settings.image_size,
            normalisation=settings.normalisation,
            seed=settings.seed,
        )
    if settings.balanced is not None:
        data = data.draw_balanced(settings.balanced, settings.seed)
    measured = settings.measured or len(data.train)
    sizes = {"training images to measure": measured, "held-out images": len(data.test)}
    check_shares(sizes, resources.fabric.world_size)
    channels, size, _ = data.shape
    torch.default_generator.manual_seed(stream_seed(settings.seed, Purpose.WEIGHTS))
    model = build(
        settings.network,
        data.num_classes,
        in_channels=channels,
        image_size=size,
        head=settings.head,
        bias=settings.bias,
    )
    fabric = resources.fabric
    # The order in which convolutions compute: up to 20 % less time on a CPU.
    model = model.to(fabric.device).to(memory_format=torch.channels_last)
    model = normalise_together(model, fabric.device, fabric.world_size)
    return Bench(settings, fabric, data, learner(model, settings.optimisation), resources.workers)


def training_events(
    settings: Training, resources: Resources, extra: Extra = lambda bench, end: []
) -> Iterator[Event]:
    """Train, measuring the training and the held-out images at the epochs that are due.

    Args:
        settings: Settings of the run.
        resources: Resources of the run; see `resumable_events`.
        extra: Function that measures more at these epochs.

    Yields:
        A measurement for every split and measured epoch, and a heartbeat after every epoch.

    Raises:
        InputError: As for `prepare_bench`, or if the disk has no space for checkpoints.
    """
    return bench_events(prepare_bench(settings, resources), resources, extra)


def bench_events(
    bench: Bench, resources: Resources, extra: Extra = lambda bench, end: []
) -> Iterator[Event]:
    """Yield `training_events` of a prepared run; afterwards its learner is trained.

    Args:
        bench: Prepared run, not yet trained.
        resources: Resources of the run, with the checkpoint folder.
        extra: Function that measures more, as in `training_events`.

    Yields:
        The same events as `training_events`.

    Raises:
        InputError: If the disk has no space for checkpoints.
    """
    settings = bench.settings

    def due(end: EpochEnd) -> list[Measurement | Observation]:
        if end.epoch not in settings.due:
            return []
        return [*measure_splits(bench, end), *extra(bench, end)]

    last = settings.optimisation.epochs
    return resumable_events(bench.learner, partial(_epochs, bench), due, last, resources)


def measure_splits(bench: Bench, end: EpochEnd) -> list[Measurement]:
    """Measure every layer on training and held-out images.

    Args:
        bench: The run.
        end: State of training at the end of the epoch.
    """
    settings, model = bench.settings, bench.learner.evaluated
    images = bench.data.train
    if settings.measured is not None:
        images = images.draw_balanced(settings.measured)
    train_set = measure_images(bench, model, images)
    test_set = measure_images(bench, model, bench.data.test, train_set)
    loss = {} if end.epoch == 0 else {"loss": end.loss}
    return [
        measurement_at(end, train_set.record, "train", loss),
        measurement_at(end, test_set.record, "test"),
    ]


def measurement_at(
    end: EpochEnd, record: ModelRecord, split: str, values: Mapping[str, float] = {}
) -> Measurement:
    """Return a measurement at the end of an epoch, with the number of optimiser steps.

    Args:
        end: State of training at the end of the epoch.
        record: Record of the layers.
        split: Name of the samples.
        values: Further numbers.
    """
    return Measurement(record, end.epoch, split, values={ITERATION: end.step, **values})


def measure_images(
    bench: Bench, model: nn.Module, images: Images, reference: ModelResult | None = None
) -> ModelResult:
    """Measure a model with the layers and metric groups of the run's settings.

    Args:
        bench: The run.
        model: Network of the run, or one made from it.
        images: Images to measure on.
        reference: Statistics of the training set, whose class means the classification by nearest
            class mean uses; default the statistics of the images.
    """
    settings, fabric = bench.settings, bench.fabric
    options = Options(
        layers=layers_to_tap(model) if settings.layers is None else settings.layers,
        groups=settings.groups,
        layer_groups=settings.layer_groups,
        weight_decay=settings.optimisation.decay_of_loss,
        information_batch=INFORMATION_BATCH,
        progress=False,
    )
    size = settings.optimisation.batch_size
    loader = make_measurement_loader(
        images, size, fabric.global_rank, fabric.world_size, bench.workers
    )
    known = None if reference is None else reference.statistics
    return measure_layers(model, loader, options, known)


def _epochs(bench: Bench, after_step: AfterStep) -> Iterator[EpochEnd]:
    settings, fabric = bench.settings.optimisation, bench.fabric
    order = EpochBatches(
        len(bench.data.train),
        settings.batch_size,
        bench.settings.steps_seed,
        fabric.global_rank,
        fabric.world_size,
    )
    loader = make_training_loader(bench.data.train, order, bench.workers)

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
        seed=stream_seed(bench.settings.steps_seed, Purpose.STEPS),
        after_step=after_step,
    )
