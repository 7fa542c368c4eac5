"""Train a network on a few labelled images and many unlabelled ones, and measure it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ncscope.data.draws import Purpose, stream_seed
from ncscope.data.images import Images
from ncscope.data.order import draw_balanced_subset
from ncscope_lab.observations import Event, Observation, Recorded
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.loop import EpochEnd, train
from ncscope_lab.training.resumable import AfterStep, resumable_events
from ncscope_lab.training.semi_supervised.method import Method
from ncscope_lab.training.semi_supervised.methods import method
from ncscope_lab.training.semi_supervised.objective import few_labels_objective
from ncscope_lab.training.semi_supervised.pseudo_labels import pseudo_label_values
from ncscope_lab.training.semi_supervised.settings import FewLabels
from ncscope_lab.training.semi_supervised.streams import StreamBatches
from ncscope_lab.training.semi_supervised.unlabelled import load_unlabelled
from ncscope_lab.training.semi_supervised.views import (
    LabelledViews,
    NumberedViews,
    Views,
    view_loader,
)
from ncscope_lab.training.supervised import Bench, measure_images, measurement_at, prepare_bench


@dataclass(frozen=True)
class FewLabelsBench:
    """A prepared run with few labels.

    Attributes:
        settings: Settings of the run.
        bench: Data, with the labelled images as training images, and learner of the run.
        unlabelled: Images to train on without labels.
        method: Method for the unlabelled images; None if they are not used.
    """

    settings: FewLabels
    bench: Bench
    unlabelled: Images
    method: Method | None


def prepare_few_labels(settings: FewLabels, resources: Resources) -> FewLabelsBench:
    """Load data, choose labelled images and build the network, without training.

    Args:
        settings: Settings of the run.
        resources: Resources of the run: data folder and accelerator.

    Raises:
        InputError: As for `prepare_bench`, or if the labels cannot be divided evenly among the
            classes.
    """
    bench = prepare_bench(settings, resources)
    with resources.fabric.rank_zero_first(local=True):
        images = load_unlabelled(bench.data, resources.data, resources.download)
    chosen = method(settings, bench.data.num_classes, len(images))
    bench.learner.memory = None if chosen is None else chosen.to(bench.fabric.device)
    few = bench.data.draw_balanced(settings.labels, settings.seed)
    return FewLabelsBench(settings, replace(bench, data=few), images, chosen)


def few_labels_events(settings: FewLabels, resources: Resources) -> Iterator[Event]:
    """Train, measuring held-out images and pseudo-labels at the epochs that are due.

    Args:
        settings: Settings of the run.
        resources: Resources of the run; see `resumable_events`.

    Yields:
        At each measured epoch a row of the averaged model on held-out images and, if unlabelled
        images are used, a row of `pseudo_label_values`; and a heartbeat after every epoch.

    Raises:
        InputError: As for `prepare_few_labels`, or if the disk has no space for checkpoints.
    """
    return few_labels_bench_events(prepare_few_labels(settings, resources), resources)


def few_labels_bench_events(run: FewLabelsBench, resources: Resources) -> Iterator[Event]:
    """Yield `few_labels_events` of a prepared run; afterwards its learner is trained."""
    measured = partial(_measure, run)
    last = run.settings.optimisation.epochs
    return resumable_events(run.bench.learner, partial(_epochs, run), measured, last, resources)


def _measure(run: FewLabelsBench, end: EpochEnd) -> list[Recorded]:
    bench, settings = run.bench, run.settings
    if end.epoch not in settings.due:
        return []
    record = measure_images(bench, bench.learner.evaluated, bench.data.test).record
    accuracy = record.last.metrics.get("accuracy")
    values = {} if accuracy is None else {"error": 1 - accuracy}
    events: list[Recorded] = [measurement_at(end, record, "test", values)]
    if run.method is not None:
        values = {} if end.epoch == 0 else {"loss": end.loss}
        values |= pseudo_label_values(bench, choose_images_to_measure(run), run.method.thresholds)
        events.append(
            Observation(end.step, end.epoch, "unlabelled", "pseudo-labels", values=values)
        )
    return events


def choose_images_to_measure(run: FewLabelsBench) -> Images:
    """Return the unlabelled images whose pseudo-labels are measured.

    If the settings ask for only some of the images, they are drawn at random, regardless of
    their labels, most of which may be unknown.

    Args:
        run: Run that trains on the images.

    Raises:
        InputError: If the settings ask for more images than there are.
    """
    size = run.settings.measured
    if size is None:
        return run.unlabelled
    alike = torch.zeros_like(run.unlabelled.labels)
    return run.unlabelled.subset(draw_balanced_subset(alike, size, seed=0))


def _epochs(run: FewLabelsBench, after_step: AfterStep) -> Iterator[EpochEnd]:
    settings, bench = run.settings, run.bench
    average = bench.learner.average
    return train(
        bench.fabric,
        bench.learner,
        _Batches(run),
        few_labels_objective(
            settings,
            run.method,
            bench.data.num_classes,
            bench.fabric.device,
            None if average is None else average.module,
        ),
        settings.optimisation.epochs,
        accumulate=settings.optimisation.accumulate,
        seed=stream_seed(settings.steps_seed, Purpose.FEW_LABELS_STEPS),
        after_step=after_step,
    )


class _Batches:
    """This process's share of an epoch's batches from a given batch on.

    A batch holds the view of labelled images, the views of unlabelled images, the indices of the
    unlabelled images, and labels.
    """

    def __init__(self, run: FewLabelsBench) -> None:
        kind, size = run.settings.views, run.settings.optimisation.batch_size
        labelled = LabelledViews(run.bench.data.train, kind, ("weak",))
        self._streams = [self._stream(run, labelled, size, Purpose.LABELLED)]
        if run.method is not None:
            views = NumberedViews(run.unlabelled, kind, run.method.views)
            many = size * run.settings.ratio
            self._streams.append(self._stream(run, views, many, Purpose.UNLABELLED))
        self._loaders = [
            view_loader(views, order, run.bench.workers) for views, order in self._streams
        ]

    @staticmethod
    def _stream(
        run: FewLabelsBench, views: Views, size: int, purpose: Purpose
    ) -> tuple[Views, StreamBatches]:
        settings, fabric = run.settings, run.bench.fabric
        seed = stream_seed(settings.steps_seed, purpose)
        place = fabric.global_rank, fabric.world_size
        return views, StreamBatches(len(views), size, settings.steps_per_epoch, seed, *place)

    def __call__(self, epoch: int, first: int) -> Iterator[tuple[Tensor, ...]]:
        for _, order in self._streams:
            order.begin(epoch, first)
        for (*few, labels), *rest in zip(*self._loaders, strict=True):
            yield (*few, *(view for views in rest for view in views), labels)
