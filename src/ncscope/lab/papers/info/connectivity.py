"""Linear mode connectivity: accuracy, MIR and HDR between two runs from one initialisation.

Source: INFO section 5.2, figures 3 and 4. Command: ``ncscope reproduce info/connectivity``.

Two networks start from the same weights and are trained with different data orders and
augmentations. The networks between them are those of `interpolated`, once with interpolated
batch-norm statistics and once with `reestimated` statistics: averages over the training images,
without augmentation, in shuffled batches of the training's size.

The paper's scale uses `paper_training`, with learning rates 0.03, 0.003 and 0.0003 on CIFAR-10, and
0.03 on CIFAR-100, three pairs each.

The small scale uses handwritten digits, with three pairs at each rate. There are 700 steps instead
of 2^20, so the rates are ten times higher: 0.3, 0.03 and 0.003, for 16 epochs of batches of 32. The
lowest rate has 64 epochs, because claims need equal training accuracy (see `connectivity_claims`).
Cost: 7 minutes on one core of a shared machine.

Results (means over pairs; training accuracy .999 to 1 at all rates): in the middle accuracy falls
from .99 to .12 at rate 0.3 and from .99 to .79 at 0.03, and at 0.003 it does not fall. 3 of 10
claims held, 5 are undecided. At 0.003 all quantities remain within 0.015. If accuracy falls to
chance, MIR falls and HDR rises towards the middle; the paper's opposite anomalies did not occur,
neither exactly nor by batch. Most of the fall comes from the batch-norm statistics: with
re-estimated statistics, accuracy in the middle is .93 at 0.3 and .98 at 0.03, HDR below 0.08.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from ncscope.data.draws import stream_seed
from ncscope.data.loaders import make_measurement_loader
from ncscope.data.order import epoch_order
from ncscope.lab.observations import Event, Heartbeat, Observation, Value
from ncscope.lab.papers.info.connectivity_claims import (
    AS_THEY_ARE,
    REESTIMATED,
    between,
    claims_on,
)
from ncscope.lab.papers.info.interpolation import interpolated, reestimated
from ncscope.lab.papers.info.runs import (
    SEEDS,
    UNSEEN_SEEDS,
    band,
    by_axis,
    by_run_name,
    collapse_line,
    legend_beside,
    medium_training,
    paper_training,
    ratio_bands,
    small_training,
    with_classes,
    without_means,
)
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Bench, bench_events, prepared, probed
from ncscope.report import panels
from ncscope.report.claims import Claim

COLOURS = {AS_THEY_ARE: panels.ACCENT, REESTIMATED: panels.SECOND}

SMALL_EPOCHS = {0.3: 16, 0.03: 16, 0.003: 64}
"""Epochs at the small scale by learning rate. The lowest rate learns for longer, until the training
accuracy is that of the others."""


class InfoConnectivity(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="First runs of the pairs, by name.")
    intervals: int = Field(10, ge=2, description="Steps in which omega goes from 0 to 1.")


def _paper() -> InfoConnectivity:
    rates = [("cifar10", rate) for rate in (3e-2, 3e-3, 3e-4)]
    runs = [
        paper_training(data, seed, learning_rate=rate)
        for data, rate in [*rates, ("cifar100", 3e-2)]
        for seed in SEEDS
    ]
    return InfoConnectivity(runs=by_run_name(runs, "learning_rate"))


def _medium() -> InfoConnectivity:
    """Return pairs at a high rate, and at a low rate with the more epochs that it needs."""
    pairs = [("cifar10", 3e-2, 30), ("cifar10", 3e-3, 60), ("cifar100", 3e-2, 30)]
    runs = [
        medium_training(data, epochs, seed, learning_rate=rate)
        for data, rate, epochs in pairs
        for seed in SEEDS
    ]
    return InfoConnectivity(runs=by_run_name(runs, "learning_rate"))


def _small() -> InfoConnectivity:
    return InfoConnectivity(
        runs=by_run_name(
            (
                small_training("digits", epochs, seed, learning_rate=rate, batch_size=32)
                for rate, epochs in SMALL_EPOCHS.items()
                for seed in UNSEEN_SEEDS
            ),
            "learning_rate",
        )
    )


def _parts(config: InfoConnectivity) -> list[Part]:
    """Return a part for each pair: both runs, then the networks between them."""
    run = partial(_events, config.intervals)
    return [
        Part(name, 2 * training.optimisation.epochs, partial(run, training), trains=True)
        for name, training in config.runs.items()
    ]


def _events(intervals: int, training: Training, resources: Resources) -> Iterator[Event]:
    """Yield the events of both runs, distinguished by split, and of the networks between."""
    order_seed = stream_seed(training.steps_seed, 1)
    second = training.model_copy(update={"order_seed": order_seed})
    benches: list[Bench] = []
    for name, settings in {"first": training, "second": second}.items():
        run_resources = (
            resources
            if resources.checkpoints is None
            else replace(resources, checkpoints=resources.checkpoints / name)
        )
        bench = prepared(settings, run_resources)
        for event in with_classes(bench, bench_events(bench, run_resources)):
            yield _of_run(event, name)
        benches.append(bench)
    yield from with_classes(benches[0], _between(benches, intervals))


def _between(benches: Sequence[Bench], intervals: int) -> Iterator[Observation]:
    """Yield measurements on held-out images of the networks from one run to the other."""
    first, second = benches
    ends = first.learner.evaluated, second.learner.evaluated
    size = first.settings.optimisation.batch_size
    # Every process reads all images, so that all compute the same statistics. The images are in
    # an order of training, because a set may be stored class by class.
    order = epoch_order(len(first.data.train), first.settings.seed, 0)
    images = make_measurement_loader(first.data.train.subset(order), size, workers=first.workers)
    for step in range(intervals + 1):
        omega = step / intervals
        plain = interpolated(*ends, omega)
        for statistics, model in (
            (AS_THEY_ARE, plain),
            (REESTIMATED, reestimated(plain, images)),
        ):
            yield _held_out(first, model, {"omega": omega, "statistics": statistics})


def _of_run(event: Event, name: str) -> Event:
    """Return an event with the name of its run in the name of its split."""
    if isinstance(event, Heartbeat):
        return event
    return replace(event, split=f"{event.split}, {name} run")


def _held_out(bench: Bench, model: nn.Module, values: Mapping[str, Value]) -> Observation:
    """Measure the last layer of a network between two runs on held-out images."""
    epochs = bench.settings.optimisation.epochs
    last = probed(bench, model, bench.data.test).record.layers[-1]
    values = {**values, **without_means(last.metrics)}
    return Observation(bench.learner.step, epochs, "between", last.layer, values=values)


def _by_rate(config: InfoConnectivity) -> dict[str, dict[float, list[str]]]:
    """Group pairs that differ only in the seed, by data and rate, with the highest rate first."""
    by_data: dict[str, dict[float, list[str]]] = {}
    for name, training in sorted(
        config.runs.items(), key=lambda pair: -pair[1].optimisation.learning_rate
    ):
        rates = by_data.setdefault(training.data, {})
        rates.setdefault(training.optimisation.learning_rate, []).append(name)
    return by_data


def _claims(config: InfoConnectivity, rows: Sequence[Observation]) -> list[Claim]:
    """Test section 5.2: which runs are connected, and the dependence on the learning rate."""
    return [
        claim for data, rates in _by_rate(config).items() for claim in claims_on(rows, data, rates)
    ]


def _drawings(config: InfoConnectivity, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figures 3 and 4 of the paper, with one row for each data set and rate."""
    caption = (
        "INFO figures 3 and 4: held-out accuracy, MIR and HDR of the networks between two runs; "
        "lines are means over pairs, bands show their range. Solid: exact values of the whole "
        "set; dashed: means over batches of 64. Batch-norm statistics are interpolated or "
        "re-estimated."
    )
    return [Drawing("fig-3-4", caption, _figure(config, rows))]


def _figure(config: InfoConnectivity, rows: Sequence[Observation]) -> Figure:
    groups = [
        (f"{data}, rate {rate:g}", names)
        for data, rates in _by_rate(config).items()
        for rate, names in rates.items()
    ]
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 2.6 * len(groups)), layout="constrained")
        grid = figure.subplots(len(groups), 3, squeeze=False, sharex=True, sharey="col").tolist()
        for line, (title, names) in zip(grid, groups, strict=True):
            _panels(line, rows, names)
            for axes, name in zip(line, ("accuracy", "MIR", "HDR"), strict=True):
                axes.set_title(f"{name}, {title}")
        for axes in grid[-1]:
            axes.set_xlabel("omega")
        legend_beside(figure, grid[0][1])
    return figure


def _panels(line: Sequence[Axes], rows: Sequence[Observation], names: Sequence[str]) -> None:
    """Draw accuracy, MIR and HDR of the pairs at one rate."""
    accuracy, mir, hdr = line
    for statistics, colour in COLOURS.items():
        chosen = [row for name in names for row in between(rows, name, statistics)]
        band(accuracy, by_axis(chosen, "omega", "accuracy"), statistics, colour)
        ratio_bands(mir, chosen, "omega", "mir", colour, statistics)
        ratio_bands(hdr, chosen, "omega", "hdr", colour, statistics)
    collapse_line(mir, [row for name in names for row in between(rows, name)])


RECIPE: Recipe[InfoConnectivity] = Recipe(
    id="info/connectivity",
    title="Matrix information between two runs from one initialisation",
    lead=(
        "Two networks that start from the same weights, and the networks between them. INFO says "
        "that the lower the learning rate, the less accuracy, MIR and HDR vary on the way."
    ),
    source="INFO section 5.2, figures 3-4",
    config=InfoConnectivity,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=("omega", "statistics", "accuracy", "mir", "mir_batch", "hdr", "hdr_batch"),
    scales={"paper": _paper(), "medium": _medium(), "small": _small()},
    cost={
        "paper": "210 GPU-hours (estimated)",
        "medium": "50 minutes of one GPU (estimated)",
        "small": "7 minutes on one core",
    },
)
