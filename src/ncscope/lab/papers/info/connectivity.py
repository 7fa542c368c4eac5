"""Linear mode connectivity: accuracy, MIR and HDR between two runs from one initialisation.

Source: INFO section 5.2, figures 3 and 4. Command: ``ncscope reproduce info/connectivity``.

Two networks start from the same weights and are trained with different data orders and
augmentations. The networks between them are those of `interpolated`, once with interpolated
batch-norm statistics and once with `reestimated` statistics: averages over the training images,
without augmentation, in shuffled batches of the training's size.

The paper's scale uses `paper_training`, with learning rates 0.03, 0.003 and 0.0003 on CIFAR-10, and
0.03 on CIFAR-100.

The small scale uses handwritten digits, with three pairs at each rate. There are 700 steps instead
of 2^20, so the rates are ten times higher: 0.3, 0.03 and 0.003, for 16 epochs of batches of 32.
Cost: 5 minutes on one core of a shared machine.

Results (means over pairs): in the middle accuracy falls from .99 to .10 at rate 0.3 and from .99 to
.72 at 0.03. At 0.003 it does not fall; it is .94. MIR and HDR vary less at every lower rate, as the
paper says. If accuracy falls to chance, MIR falls and HDR rises all the way to the middle. The
paper's opposite anomalies did not occur, neither exactly nor by batch. Most of the fall comes from
the batch-norm statistics: with re-estimated statistics, accuracy in the middle is .85 at 0.3 and
.98 at 0.03, and HDR is below 0.09.
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
from ncscope.data.loaders import measuring_loader
from ncscope.data.order import epoch_order
from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Event, Heartbeat, Observation, Value
from ncscope.lab.papers.info.interpolation import interpolated, reestimated
from ncscope.lab.papers.info.runs import (
    ESTIMATES,
    SEEDS,
    band,
    by_axis,
    by_run_name,
    collapse_line,
    extent,
    least,
    legend_beside,
    paper_training,
    ratio_bands,
    small_training,
    with_classes,
    without_means,
)
from ncscope.lab.papers.trained import average, ends, on_runs, ordered, values
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Bench, bench_events, prepared, probed
from ncscope.report import panels
from ncscope.report.claims import Claim

AS_THEY_ARE, REESTIMATED = "as they are", "re-estimated"
COLOURS = {AS_THEY_ARE: panels.ACCENT, REESTIMATED: panels.SECOND}

CHANCE = 1.5
"""An accuracy counts as random guessing if it is at most this multiple of chance."""
CONNECTED = 0.02
"""Two runs are connected if the accuracy between them falls at most this far below its mean at the
ends (Frankle et al. 2020 take 2 %)."""
UNCHANGED = 0.05
"""A ratio counts as almost unchanged if it varies by at most this."""


class InfoConnectivity(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="First runs of the pairs, by name.")
    intervals: int = Field(10, ge=2, description="Steps in which omega goes from 0 to 1.")


def _paper() -> InfoConnectivity:
    first = [paper_training("cifar10", learning_rate=rate) for rate in (3e-2, 3e-3, 3e-4)]
    return InfoConnectivity(runs=by_run_name([*first, paper_training("cifar100")], "learning_rate"))


def _small() -> InfoConnectivity:
    return InfoConnectivity(
        runs=by_run_name(
            (
                small_training("digits", 16, seed, learning_rate=rate, batch_size=32)
                for rate in (0.3, 0.03, 0.003)
                for seed in SEEDS
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
    images = measuring_loader(first.data.train.subset(order), size, workers=first.workers)
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


def between(
    rows: Sequence[Observation], part: str, statistics: str = AS_THEY_ARE
) -> list[Observation]:
    """Select the networks between the runs of a pair, in order of omega.

    Args:
        rows: Rows of the study.
        part: Name of the pair.
        statistics: Statistics of the batch norms: ``"interpolated"`` or ``"reestimated"``.
    """
    return [row for row in rows if row.part == part and row.get("statistics") == statistics]


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
    claims = []
    for data, rates in _by_rate(config).items():
        highest, lowest = max(rates), min(rates)
        if highest > lowest:
            where = f"{data}, rate {highest:g}"
            claims += _apart(_paths(rows, rates[highest]), where)
            claims += [_calming(rows, rates, data, key, name) for key, name in _KEYS.items()]
        where = f"{data}, rate {lowest:g}"
        claims += _connected(_paths(rows, rates[lowest]), where)
        claims.append(_helped(rows, rates, data))
    return claims


Paths = Mapping[str, Sequence[Observation]]

_RATIOS = {
    f"{key}{ending}": f"{key.upper()} ({estimate})"
    for key in ("mir", "hdr")
    for estimate, ending in ESTIMATES.items()
}
_KEYS = {"accuracy": "accuracy", **_RATIOS}


def _paths(rows: Sequence[Observation], names: Sequence[str]) -> Paths:
    return {name: between(rows, name) for name in names}


def _apart(paths: Paths, where: str) -> list[Claim]:
    """Test the paper's observations on runs that are not connected."""
    claims = [
        on_runs(
            f"{where}: accuracy falls to random guessing for omega from 0.4 to 0.6, in every pair",
            {name: _guessing(path) for name, path in paths.items()},
            source="INFO",
        )
    ]
    for key, name in _RATIOS.items():
        rising = key.startswith("mir")
        test = _rises_between if rising else _falls_near_ends
        text = (
            "rises again for omega from 0.4 to 0.6"
            if rising
            else "falls from either run to the nearest network between the runs"
        )
        held = {pair: test(values(path, key)) for pair, path in paths.items()}
        claims.append(on_runs(f"{where}: {name} {text}, in every pair", held, source="INFO"))
    return claims


def _guessing(path: Sequence[Observation]) -> tuple[bool, str]:
    middle = [row for row in path if 0.4 <= float(row["omega"]) <= 0.6]
    lowest = least(values(middle, "accuracy"))
    classes = int(path[0]["num_classes"]) if path else 0
    return lowest * classes <= CHANCE, f"least {lowest:.3f}"


def _rises_between(course: Sequence[float]) -> tuple[bool, str]:
    """Return whether the middle fifth rises above both sides, and the numbers."""
    if len(course) < 3:
        return False, "no path"
    at = len(course) // 2
    reach = round(0.1 * (len(course) - 1))
    most = -least([-value for value in course[at - reach : at + reach + 1]])
    left = least(course[: at - reach] or course[:1])
    right = least(course[at + reach + 1 :] or course[-1:])
    told = f"least {left:.3f}, then highest {most:.3f}, then least {right:.3f}"
    return most > max(left, right), told


def _falls_near_ends(course: Sequence[float]) -> tuple[bool, str]:
    if len(course) < 3:
        return False, "no path"
    told = f"{course[0]:.3f} to {course[1]:.3f}, and {course[-1]:.3f} to {course[-2]:.3f}"
    return course[1] < course[0] and course[-2] < course[-1], told


def _calming(
    rows: Sequence[Observation],
    rates: Mapping[float, Sequence[str]],
    data: str,
    key: str,
    name: str,
) -> Claim:
    """Test that a quantity varies less between the runs at every lower learning rate."""
    variations = {
        rate: average([_variation(path, key) for path in _paths(rows, names).values()])
        for rate, names in rates.items()
    }
    return decided(
        f"{data}: {name} varies less between the runs at every lower rate",
        source="INFO",
        held=ordered(list(variations.values()), falling=True),
        evidence="mean range: "
        + ", ".join(f"{value:.4f} at {rate:g}" for rate, value in variations.items()),
    )


def _connected(paths: Paths, where: str) -> list[Claim]:
    """Test the paper's observations on connected runs."""
    barriers = {name: _barrier(path) for name, path in paths.items()}
    connected = {name: (fall <= CONNECTED, f"{fall:.4f}") for name, fall in barriers.items()}
    text = f"accuracy falls by no more than {CONNECTED} between the runs"
    claims = [on_runs(f"{where}: {text}, in every pair", connected, source="INFO")]
    for key, name in _RATIOS.items():
        varied = {pair: _variation(path, key) for pair, path in paths.items()}
        held = {pair: (value <= UNCHANGED, f"{value:.4f}") for pair, value in varied.items()}
        text = f"{name} remains almost unchanged, within {UNCHANGED}"
        claims.append(on_runs(f"{where}: {text}, in every pair", held, source="INFO"))
    return claims


def _helped(rows: Sequence[Observation], rates: Mapping[float, Sequence[str]], data: str) -> Claim:
    """Test whether re-estimated statistics reduce the fall at every rate; not in the paper."""
    held, told = [], []
    for rate, names in rates.items():
        plain, anew = (
            average([_barrier(between(rows, name, statistics)) for name in names])
            for statistics in (AS_THEY_ARE, REESTIMATED)
        )
        held.append(anew < plain)
        told.append(f"{plain:.4f} and {anew:.4f} at {rate:g}")
    return decided(
        f"{data}: accuracy falls less if the statistics are re-estimated, at every rate",
        source="INFO",
        held=all(held),
        evidence=f"mean fall without and with re-estimation: {', '.join(told)}",
    )


def _barrier(path: Sequence[Observation]) -> float:
    """Return the mean accuracy at the ends minus the least accuracy on the path."""
    start, end = ends(path, "accuracy")
    return (start + end) / 2 - least(values(path, "accuracy"))


def _variation(path: Sequence[Observation], key: str) -> float:
    return extent(values(path, key))


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
    scales={"paper": _paper(), "small": _small()},
    cost={"paper": "70 GPU-hours (estimated)", "small": "5 minutes on one core"},
)
