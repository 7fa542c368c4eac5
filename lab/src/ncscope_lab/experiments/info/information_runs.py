"""Training runs, claims by batch and figures that INFO's experiments on matrix information share.

Every row of a last layer holds each ratio twice: the exact value of the whole set, and the paper's
estimate, the mean over batches. The paper does not print the size of the batches that it measures;
64, the size of its training batches, is our assumption.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

from matplotlib.axes import Axes

from ncscope.data.catalogue import CATALOGUE
from ncscope.data.preprocessing import Augmentation
from ncscope.metrics.information import collapse_mir
from ncscope.report import panels
from ncscope_lab.claims import Claim
from ncscope_lab.experiment import Part, Trainings, train_each
from ncscope_lab.figures import collect_points, draw_band, draw_reference
from ncscope_lab.observations import Event, Heartbeat, Observation
from ncscope_lab.quantities import (
    AnyQuantity,
    Quantity,
    Run,
    Runs,
    average,
    quantity,
    replace_fields,
)
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Bench, bench_events, prepare_bench

PAPER_NETWORKS: Mapping[str, str] = {"cifar10": "wrn-28-2-ssl", "cifar100": "wrn-28-8-ssl"}
"""Network of each of the paper's two data sets."""

PAPER = Training(
    data="cifar10",
    network="wrn-28-2-ssl",
    augmentation="reflect-crop-flip",
    # Settings that section 5 does not state are those of TorchSSL, the code base that it names:
    # Nesterov momentum, a cosine schedule over 7/16 of a half-turn, and the moving average of the
    # weights, which is measured.
    optimisation=Optimisation(
        epochs=1343,  # of 781 steps: 2^20
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.03,
        weight_decay=5e-4,
        schedule="cosine-7/16",
        average=0.999,
    ),
    every=1343,
    layers=(),
    groups=("nc4", "information"),
)

SMALL = Training(
    data="digits",
    network="small-wrn",
    augmentation="crop",
    # A network of 64 features and less than a hundredth of the paper's steps: the rate is higher
    # and falls to zero along a cosine, and no weights are averaged.
    optimisation=Optimisation(
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.1,
        weight_decay=5e-4,
        schedule="cosine",
    ),
    layers=(),
    groups=("nc4", "information"),
)


def paper_training(data: str, seed: int, **fields: Any) -> Training:
    """Return the paper's settings for one of its data sets, with some fields replaced."""
    network = PAPER_NETWORKS[data]
    return replace_fields(PAPER, **{"data": data, "network": network, "seed": seed, **fields})


def small_training(data: str, epochs: int, seed: int, **fields: Any) -> Training:
    """Return small settings for a data set that needs no download, measured before and after."""
    augmentation: Augmentation = "crop-flip" if CATALOGUE[data].mirrored else "crop"
    own = {"data": data, "augmentation": augmentation, "epochs": epochs, "every": epochs}
    return replace_fields(SMALL, **{**own, "seed": seed, **fields})


def name_runs(trainings: Iterable[Training], *fields: str) -> dict[str, Training]:
    """Name settings by their data, the fields in which they differ, and their seed."""
    runs = {}
    for training in trainings:
        whole = {**training.optimisation.model_dump(), **training.model_dump()}
        differing = [f"{field.replace('_', ' ')} {whole[field]:g}" for field in fields]
        runs[", ".join([training.data, *differing, f"seed {training.seed}"])] = training
    return runs


def train_with_classes(settings: Trainings) -> list[Part]:
    """Return a part for each training run, whose rows also hold the number of classes."""

    def run(training: Training, resources: Resources) -> Iterator[Event]:
        bench = prepare_bench(training, resources)
        return add_classes(bench, bench_events(bench, resources))

    return train_each(settings.runs, run)


def add_classes(bench: Bench, events: Iterable[Event]) -> Iterator[Event]:
    """Add the number of classes, which determines the MIR at collapse, to each event."""
    classes = {"num_classes": bench.data.num_classes}
    return (e if isinstance(e, Heartbeat) else e.with_values(classes) for e in events)


def drop_metrics_of_means(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a network whose class means on the training set are not measured."""
    of_means = ("nc4_disagreement", "ncc_accuracy", "pfc3")
    return {key: value for key, value in metrics.items() if key not in of_means}


BY_BATCH = "(batches of 64)"
"""Words for the estimate of a ratio that a claim is judged by."""


def claim_by_batch(
    key: str,
    quantity: Callable[[str], AnyQuantity | Mapping[str, AnyQuantity]],
    tell: Callable[[str], Callable[[Runs], str]] | None = None,
    **fields: Any,
) -> Claim:
    """Make a claim on a ratio by batch, as the paper measures it.

    The paper takes the entropy of batches for that of the data set, so the claim is judged by
    batch, and the exact values stand in its evidence.

    Args:
        key: Key of the ratio's exact value.
        quantity: Function of a key that returns the quantity.
        tell: Function of a key that returns the function which describes the runs.
        fields: Further fields of `Claim`.
    """
    batch, exact = (
        Claim(quantity=quantity(each), tell=tell and tell(each), **fields)
        for each in (f"{key}_batch", key)
    )
    return replace(batch, uncounted={"exact values": exact})


def claim_on_accuracy_and_ratios(
    text: str,
    quantity: Callable[[str], Quantity],
    ratios: Mapping[str, str] = {"mir": "MIR", "hdr": "HDR"},
    **fields: Any,
) -> list[Claim]:
    """Make a claim on the accuracy, and the same claim on each ratio by batch.

    Args:
        text: Text of the claims, with ``{}`` for the name of the metric.
        quantity: Function of a key that returns the quantity.
        ratios: Names of the ratios, by the keys of their exact values.
        fields: Further fields of `Claim`.
    """
    names = {key: text.format(f"{name} {BY_BATCH}") for key, name in ratios.items()}
    return [
        Claim(text=text.format("accuracy"), quantity=quantity("accuracy"), **fields),
        *(claim_by_batch(key, quantity, text=name, **fields) for key, name in names.items()),
    ]


def summarise(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation; NaN where unknown, or for a missing number."""
    if not numbers or not all(map(math.isfinite, numbers)):
        return math.nan, math.nan
    return mean(numbers), stdev(numbers) if len(numbers) > 1 else math.nan


def write_spread(numbers: Sequence[float], of_mean: bool = False) -> str:
    """Write the mean and the standard deviation; "unknown" if a number is missing.

    Args:
        numbers: Numbers of several seeds.
        of_mean: Write the standard error of the mean, in place of the deviation.

    Example:
        >>> write_spread([1.0, 2.0, 3.0]), write_spread([1.0]), write_spread([])
        ('2.00 ± 1.00', '1.00', 'unknown')
    """
    middle, spread = summarise(numbers)
    if not math.isfinite(middle):
        return "unknown"
    spread /= math.sqrt(len(numbers)) if of_mean else 1
    return f"{middle:.2f}" + (f" ± {spread:.2f}" if math.isfinite(spread) else "")


@quantity("MIR at collapse to a simplex")
def collapse_mir_of(run: Run) -> float:
    """Return the MIR at collapse to a simplex of the run's number of classes; NaN without rows."""
    return collapse_mir(int(run.rows[-1]["num_classes"])) if run.rows else math.nan


def draw_collapse(axes: Axes, runs: Runs, label: str = "at collapse to a simplex") -> None:
    """Draw the MIR at collapse to a simplex, which depends on the number of classes."""
    for value in sorted({collapse_mir_of(run) for run in runs if run.rows}):
        draw_reference(axes, value, label)


def draw_chance(axes: Axes, runs: Runs, label: str, style: Any = ":") -> None:
    """Draw the accuracy of guesses, 1 over the number of classes."""
    for classes in sorted({float(run.rows[-1]["num_classes"]) for run in runs if run.rows}):
        draw_reference(axes, 1 / classes, label, style)


def draw_metric(
    axes: Axes,
    rows: Sequence[Observation],
    axis: str,
    key: str,
    label: str = "",
    colour: Any = panels.ACCENT,
    marker: str = "o",
) -> None:
    """Draw a metric against a field of the rows; a ratio by batch, and thin and dashed exactly.

    Args:
        axes: Axes to draw on.
        rows: Rows of several runs.
        axis: Key of the horizontal axis.
        key: ``"accuracy"``, or the key of a ratio's exact value.
        label: Subject of the curves, for the legend.
        colour: Colour of the curves.
        marker: Marker at each value of the field.
    """
    axes.set_xlabel(axis)
    if key == "accuracy":
        draw_band(axes, collect_points(rows, axis, key), colour=colour, marker=marker)
        return
    start = f"{label}, " if label else ""
    points = collect_points(rows, axis, f"{key}_batch")
    draw_band(axes, points, f"{start}batches of 64", colour, marker=marker)
    exact = {at: average(numbers) for at, numbers in collect_points(rows, axis, key).items()}
    axes.plot(list(exact), list(exact.values()), color=colour, linestyle=panels.DASHED,
              linewidth=0.8, label=f"{start}exact")  # fmt: skip


LINES = (
    "Lines are means over {}, bands show their range. Solid: accuracy, and ratios as means over "
    "batches of 64, as the claims judge them; thin and dashed: exact ratios of the whole set."
)
"""Part of the captions of figures that `draw_metric` draws."""


def count_seeds(runs: Runs, of: str = "seeds") -> str:
    """Write the number of seeds on each data set, and how many of their runs have no rows.

    Args:
        runs: Runs with the fields ``data`` and ``seed``.
        of: Plural noun for the seeds.
    """
    words = [
        f"{len({run.settings.seed for run in own})} {of} on {data}"
        for data, own in runs.group("data").items()
    ]
    missing = sum(not run.rows for run in runs)
    words += [f"{missing} of {len(runs)} runs without results"] if missing else []
    return ", ".join(words)
