"""Training settings and row selections that the experiments on matrix information share.

Every row of a last layer holds each ratio twice: the exact value of the whole set, and the paper's
estimate, the mean over batches. The paper does not print the size of the batches that it measures;
64, the size of its training batches, is our assumption.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.data.preprocessing import Augmentation
from ncscope.lab.observations import Event, Heartbeat, Observation
from ncscope.lab.papers.trained import average
from ncscope.lab.runs.recipe import Part
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Bench, bench_events, prepared
from ncscope.metrics.information import collapse_mir
from ncscope.report import panels
from ncscope.report.claims import Claim

GROUPS = ("nc4", "information")

ESTIMATES: Mapping[str, str] = {"exact": "", "batches of 64": "_batch"}
"""Suffixes of the keys of a ratio's exact value and batch estimate.

The paper measures by batch: its section 5 takes the entropy of batches for that of the data set. So
its claims are judged and counted by batch, and the exact values are evidence.
"""

PAPER_NETWORKS: Mapping[str, str] = {"cifar10": "wrn-28-2-ssl", "cifar100": "wrn-28-8-ssl"}
"""Network of each of the paper's two data sets."""

SEEDS = (0, 1, 2)

UNSEEN_SEEDS = (3, 4, 5)
"""Seeds of small scales whose settings and margins were chosen after runs with `SEEDS`."""


def paper_training(data: str, seed: int = 0, **given: Any) -> Training:
    """Return the paper's training settings: $2^{20}$ steps of 64 images.

    Settings that section 5 does not state are those of TorchSSL, the code base that it names:
    Nesterov momentum, a cosine schedule over 7/16 of a half-turn, and measurements of the moving
    average of the weights with decay 0.999.

    Args:
        data: Name of a data set among `PAPER_NETWORKS`.
        seed: Seed of the run.
        given: Fields of `Training`, or of `Optimisation`.
    """
    optimisation = Optimisation(
        epochs=1343,  # of 781 steps
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.03,
        weight_decay=5e-4,
        schedule="cosine-7/16",
        average=0.999,
    )
    base = Training(
        data=data,
        network=PAPER_NETWORKS[data],
        augmentation="reflect-crop-flip",
        optimisation=optimisation,
        seed=seed,
        every=1343,
        layers=(),
        groups=GROUPS,
    )
    return changed(base, **given)


def medium_training(data: str, epochs: int, seed: int = 0, **given: Any) -> Training:
    """Return the paper's settings on 10,000 images for one GPU, in about a hundredth of the steps.

    Args:
        data: Name of a data set among `PAPER_NETWORKS`.
        epochs: Passes over the images.
        seed: Seed of the run.
        given: Fields of `Training`, or of `Optimisation`.
    """
    ours = {"network": "wrn-28-2", "balanced": 10_000, "every": epochs, "average": 0.99}
    return paper_training(data, seed, **{"epochs": epochs, "schedule": "cosine"} | ours | given)


def small_training(data: str, epochs: int, seed: int = 0, **given: Any) -> Training:
    """Return settings with the paper's loss, decay, momentum and augmentation for a small network.

    The network has 64 features. There are about a thousandth of the paper's steps, so the rate is
    higher and falls to zero along a cosine, and no weights are averaged.

    Args:
        data: Name of a data set that needs no download.
        epochs: Passes over the data set.
        seed: Seed of the run.
        given: Fields of `Training`, or of `Optimisation`.
    """
    augmentation: Augmentation = "crop" if "digits" in data else "crop-flip"
    optimisation = Optimisation(
        epochs=epochs,
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.1,
        weight_decay=5e-4,
        schedule="cosine",
    )
    base = Training(
        data=data,
        network="small-wrn",
        augmentation=augmentation,
        optimisation=optimisation,
        seed=seed,
        every=epochs,
        layers=(),
        groups=GROUPS,
    )
    return changed(base, **given)


def changed(training: Training, **given: Any) -> Training:
    """Return the settings with some fields replaced, including fields of the optimisation."""
    inner = {name: value for name, value in given.items() if name in Optimisation.model_fields}
    outer = {name: value for name, value in given.items() if name not in inner}
    optimisation = training.optimisation.model_copy(update=inner)
    return training.model_copy(update={"optimisation": optimisation} | outer)


def by_run_name(trainings: Iterable[Training], *fields: str) -> dict[str, Training]:
    """Name settings by their data, the fields in which they differ, and their seed.

    Args:
        trainings: Settings to name.
        fields: Fields in which the settings differ, of `Training` or of `Optimisation`.
    """
    named = {}
    for training in trainings:
        fields_of_run = {**training.optimisation.model_dump(), **training.model_dump()}
        told = [f"{field.replace('_', ' ')} {fields_of_run[field]:g}" for field in fields]
        named[", ".join([training.data, *told, f"seed {training.seed}"])] = training
    return named


Run = TypeVar("Run", bound=Training)


def reweighted(runs: Mapping[str, Run], weights: Sequence[float]) -> dict[str, Run]:
    """Return copies of the runs with an information loss, at other weights of that loss.

    Args:
        runs: Training runs by name.
        weights: Weights of the copies; a run's own weight is left out.

    Example:
        >>> run = Training(data="digits", network="small-conv", mutual_information=0.1)
        >>> list(reweighted({"plain": run.model_copy(update={"mutual_information": 0})}, [1.0]))
        []
        >>> list(reweighted({"MI": run}, [0.1, 1.0]))
        ['MI, weight 1']
    """
    return {
        f"{name}, weight {weight:g}": run.model_copy(update={field: weight})
        for name, run in runs.items()
        for field in ("mutual_information", "entropy_difference")
        for weight in weights
        if getattr(run, field) not in (0, weight)
    }


def information_parts(runs: Mapping[str, Training]) -> list[Part]:
    """Return a part for each training run, whose rows also hold the number of classes."""
    return [
        Part(name, training.optimisation.epochs, partial(_events, training), trains=True)
        for name, training in runs.items()
    ]


def with_classes(bench: Bench, events: Iterable[Event]) -> Iterator[Event]:
    """Add the number of classes, which determines the value at collapse, to each event."""
    values = {"num_classes": bench.data.num_classes}
    return (e if isinstance(e, Heartbeat) else e.with_values(values) for e in events)


def _events(training: Training, resources: Resources) -> Iterator[Event]:
    bench = prepared(training, resources)
    return with_classes(bench, bench_events(bench, resources))


def without_means(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that do not depend on the training set's class means.

    Args:
        metrics: Metrics of a network whose class means on the training set are not measured.
    """
    of_means = ("nc4_disagreement", "ncc_accuracy", "pfc3")
    return {key: value for key, value in metrics.items() if key not in of_means}


def data_sets(runs: Mapping[str, Training]) -> list[str]:
    """Return the names of the data sets, each once."""
    return list(dict.fromkeys(training.data for training in runs.values()))


def by_axis(rows: Iterable[Observation], axis: str, key: str) -> dict[float, list[float]]:
    """Collect a metric by another field of the rows; skip rows that lack either.

    Args:
        rows: Rows of several runs.
        axis: Field on the horizontal axis, such as ``epoch``.
        key: Key of the metric.
    """
    collected: dict[float, list[float]] = {}
    for row in rows:
        if key in row and axis in row:
            collected.setdefault(float(row[axis]), []).append(float(row[key]))
    return dict(sorted(collected.items()))


def extent(numbers: Sequence[float]) -> float:
    """Return the largest minus the smallest value; NaN without values or with a NaN among them.

    Example:
        >>> extent([0.5, 2.0, 1.0]), extent([1.0, float("nan")])
        (1.5, nan)
    """
    return float(np.ptp(numbers)) if numbers else math.nan


def least(numbers: Sequence[float]) -> float:
    """Return the smallest value; NaN without values or with a NaN among them."""
    return float(np.min(numbers)) if numbers else math.nan


def averages(points: Mapping[float, Sequence[float]]) -> dict[float, float]:
    """Average the values at every coordinate of `by_axis`."""
    return {coordinate: average(numbers) for coordinate, numbers in points.items()}


STYLES: Mapping[str, Any] = {"exact": "-", "batches of 64": panels.DASHED}
"""Line styles of the two values of a ratio."""


def band(
    axes: Axes,
    points: Mapping[float, Sequence[float]],
    label: str,
    colour: str = panels.ACCENT,
    style: Any = "-",
) -> None:
    """Draw the mean of several runs as a line, and their range as a band.

    Args:
        axes: Axes to draw on.
        points: Values by coordinate.
        label: Label in the legend.
        colour: Colour of the line and the band.
        style: Style of the line.
    """
    coordinates = list(points)
    arrays = [np.asarray(values) for values in points.values()]
    mean = [float(values.mean()) for values in arrays]
    axes.plot(coordinates, mean, "o", linestyle=style, color=colour, markersize=2.6, label=label)
    least, most = ([float(end(values)) for values in arrays] for end in (np.min, np.max))
    axes.fill_between(coordinates, least, most, color=colour, alpha=0.15, linewidth=0)


def ratio_bands(
    axes: Axes,
    rows: Sequence[Observation],
    axis: str,
    key: str,
    colour: str = panels.ACCENT,
    of: str = "",
) -> None:
    """Draw a ratio, exact and by batch, against a coordinate of several runs.

    Args:
        axes: Axes to draw on.
        rows: Rows of the runs.
        axis: Key of the horizontal axis.
        key: Key of the exact value.
        colour: Colour of both curves.
        of: Subject of the curves, for the legend.
    """
    for estimate, ending in ESTIMATES.items():
        label = f"{of}, {estimate}" if of else estimate
        band(axes, by_axis(rows, axis, key + ending), label, colour, STYLES[estimate])


def collapse_line(
    axes: Axes, rows: Iterable[Observation], name: str = "at collapse to a simplex"
) -> None:
    """Draw the MIR at collapse to a simplex, which depends on the number of classes."""
    for classes in sorted({int(row["num_classes"]) for row in rows if "num_classes" in row}):
        reference_line(axes, collapse_mir(classes), name)


def reference_line(axes: Axes, value: float, name: str, style: Any = ":") -> None:
    """Draw a thin line at a value, with an entry in the legend; draw nothing for NaN."""
    if math.isfinite(value):
        axes.axhline(value, color=panels.SOFT, linestyle=style, linewidth=1.1, label=name)


def legend_beside(figure: Figure, axes: Axes) -> None:
    """Place the legend of one panel, which is valid for all, to the right of the figure."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")


def accuracy_percent(points: Mapping[float, Sequence[float]]) -> dict[float, list[float]]:
    """Convert accuracies by coordinate to percent."""
    return {
        coordinate: [100 * value for value in accuracies]
        for coordinate, accuracies in points.items()
    }


def by_batch(judge: Callable[[str, str], Claim], key: str) -> Claim:
    """Judge a claim on a ratio by batch, as the paper measures, and tell what exact values say.

    Args:
        judge: Function of a key and of words in brackets that name the estimate.
        key: Key of the exact value.
    """
    exact, counted = (judge(key + ending, f" ({name})") for name, ending in ESTIMATES.items())
    return with_exact(counted, exact)


def with_exact(counted: Claim, exact: Claim) -> Claim:
    """Add the verdict and the evidence of the exact values to a claim judged by batch.

    Args:
        counted: Claim judged by batch.
        exact: Claim judged on exact values, which is not counted.
    """
    told = f"not counted: on exact values {exact.verdict}, {exact.evidence}"
    return replace(counted, evidence=f"{counted.evidence}; {told}")
