"""Parts of recipes that train networks, selections from their results, and evidence in words."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation, Results
from ncscope.lab.runs.recipe import Part
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Extra, training_events
from ncscope.measurement.records import GeodesicRecord
from ncscope.metrics.layerwise import order_breaks
from ncscope.report.claims import Claim


def training_parts(runs: Mapping[str, Training], extra: Extra | None = None) -> list[Part]:
    """Return a part for each training run.

    Args:
        runs: Settings by the name of the part.
        extra: Function that measures more at the epochs that are due.
    """
    run = training_events if extra is None else partial(training_events, extra=extra)
    return [
        Part(name, training.optimisation.epochs, partial(run, training), trains=True)
        for name, training in runs.items()
    ]


def history(
    rows: Sequence[Observation], part: str, split: str = "train", layer: str | None = None
) -> list[Observation]:
    """Select the rows of one layer over training.

    Args:
        rows: Rows of a study.
        part: Name of the run.
        split: ``"train"`` or ``"test"``.
        layer: Name of the layer; default the last layer, which feeds the classifier.
    """
    selected = [row for row in rows if row.part == part and row.split == split]
    wanted = selected[-1].layer if selected and layer is None else layer
    return [row for row in selected if row.layer == wanted]


def layers(rows: Sequence[Observation], part: str, epoch: int | None = None) -> list[Observation]:
    """Select the rows of all layers at one epoch, in forward order; by default the last epoch."""
    selected = [row for row in rows if row.part == part and row.split == "train"]
    wanted = selected[-1].epoch if selected and epoch is None else epoch
    return [row for row in selected if row.epoch == wanted]


def geodesic(results: Results, part: str) -> GeodesicRecord | None:
    """Return the prediction from the first comparable layer to the last, at the last epoch."""
    selected = [each for each in results.measurements if each.run == part and each.split == "train"]
    return selected[-1].model_record.geodesic if selected else None


def interpolation(path: Sequence[Observation], accuracy: float = 1.0) -> Observation | None:
    """Return the first row of a layer's history at zero training error; None without one.

    Args:
        path: Rows of one layer over training, on the training set.
        accuracy: Least accuracy that counts as zero error.
    """
    return next((row for row in path if float(row.get("accuracy", 0)) >= accuracy), None)


def interpolation_epoch(path: Sequence[Observation], accuracy: float = 1.0) -> float | None:
    """Return the epoch of `interpolation`."""
    reached = interpolation(path, accuracy)
    return None if reached is None else reached.epoch


def values(path: Sequence[Observation], key: str) -> list[float]:
    """Return one metric of every row, NaN for rows without the metric."""
    return [float(row.get(key, math.nan)) for row in path]


def ends(path: Sequence[Observation], key: str) -> tuple[float, float]:
    """Return one metric of the first and of the last row; NaN without rows."""
    course = values(path, key) or [math.nan]
    return course[0], course[-1]


def ratio(above: float, below: float) -> float:
    """Divide as floating point does: the result is infinity or NaN if the divisor is zero.

    Example:
        >>> ratio(1.0, 2.0), ratio(1.0, 0.0), ratio(0.0, 0.0)
        (0.5, inf, nan)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.divide(above, below))


def decades(start: float, end: float) -> float:
    r"""Return the number of decades by which a value falls, $\log_{10}$ of start over end."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.log10(ratio(start, end)))


def geometric_mean(numbers: Sequence[float]) -> float:
    """Compute the geometric mean: 0 if a value is 0, NaN without values.

    Example:
        >>> round(geometric_mean([1.0, 4.0]), 12), geometric_mean([0.0, 4.0]), geometric_mean([])
        (2.0, 0.0, nan)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.exp(np.mean(np.log(numbers)))) if numbers else math.nan


def middle(numbers: Sequence[float]) -> float:
    """Compute the median; NaN without values."""
    return float(np.median(numbers)) if numbers else math.nan


def average(numbers: Sequence[float]) -> float:
    """Compute the mean; NaN without values."""
    return float(np.mean(numbers)) if numbers else math.nan


def ordered(course: Sequence[float], falling: bool) -> bool:
    """Return whether two or more values fall, or rise, at every step; ties are allowed."""
    return len(course) > 1 and all(map(math.isfinite, course)) and not order_breaks(course, falling)


def on_runs(
    text: str,
    verdicts: Mapping[str, tuple[bool | None, str]],
    numbers: str = "",
    *,
    source: str,
    enough: int | None = None,
    of: str = "runs",
) -> Claim:
    """Test a deterministic claim on every run, or on enough runs.

    Args:
        text: Text of the claim.
        verdicts: Verdict and numbers of each run, by name of the run; the verdict is None if a
            measurement is missing, and then the claim is undecided if the run decides it.
        numbers: Description of the numbers.
        source: Owner of the claim, see `Claim`.
        enough: Number of runs on which the claim must be true; default all, and at least one.
        of: Plural noun for the counted items, if they are not runs.
    """
    needed = max(1, len(verdicts)) if enough is None else enough
    good = sum(bool(held) for held, _ in verdicts.values())
    missing = sum(held is None for held, _ in verdicts.values())
    held = None if good < needed <= good + missing else good >= needed
    by_run = "; ".join(f"{name}: {told}" for name, (_, told) in verdicts.items())
    return decided(
        text,
        source=source,
        held=held,
        evidence=f"in {good} of {len(verdicts)} {of}; {numbers}{by_run or 'none to judge'}",
    )
