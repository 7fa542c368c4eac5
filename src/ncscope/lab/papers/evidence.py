"""Arithmetic for claims, which accepts any rows, and verdicts over several runs.

Missing measurements are NaN, and so is zero over zero. No comparison with NaN holds.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ncscope.lab.runs.recipe import Claim
from ncscope.metrics.layerwise import order_breaks


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


def geometric_mean(found: Sequence[float]) -> float:
    """Compute the geometric mean: 0 if a value is 0, NaN without values.

    Example:
        >>> round(geometric_mean([1.0, 4.0]), 12), geometric_mean([0.0, 4.0]), geometric_mean([])
        (2.0, 0.0, nan)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.exp(np.mean(np.log(found)))) if found else math.nan


def middle(found: Sequence[float]) -> float:
    """Compute the median; NaN without values."""
    return float(np.median(found)) if found else math.nan


def average(found: Sequence[float]) -> float:
    """Compute the mean; NaN without values."""
    return float(np.mean(found)) if found else math.nan


def ordered(found: Sequence[float], falling: bool) -> bool:
    """Return whether two or more values fall, or rise, at every step; ties are allowed."""
    return len(found) > 1 and all(map(math.isfinite, found)) and not order_breaks(found, falling)


def on_runs(
    text: str,
    found: Mapping[str, tuple[bool, str]],
    numbers: str = "",
    enough: int | None = None,
    of: str = "runs",
) -> Claim:
    """Test a claim on every run, or on enough runs.

    Args:
        text: Text of the claim.
        found: Verdict and numbers of each run, by name of the run.
        numbers: Description of the numbers.
        enough: Number of runs on which the claim must be true; default all, and at least one.
        of: Plural noun for the counted items, if they are not runs.
    """
    good = sum(held for held, _ in found.values())
    words = "; ".join(f"{name}: {told}" for name, (_, told) in found.items())
    return {
        "claim": text,
        "held": good >= (max(1, len(found)) if enough is None else enough),
        "evidence": f"in {good} of {len(found)} {of}; {numbers}{words or 'none to judge'}",
    }
