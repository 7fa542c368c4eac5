"""Transfer of several checkpoints: correlation with their scores, and log odds of accuracies."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from ncscope.arguments import Count, Level, Seed, check_arguments
from ncscope.array_checks import as_tensor
from ncscope.errors import InputError
from ncscope.memory import check_memory

Values = NDArray[np.float64]


class Correlation(NamedTuple):
    """A correlation coefficient with its bootstrap interval; NaN if the coefficient is undefined.

    Attributes:
        value: Coefficient from -1 to 1.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    value: float
    low: float
    high: float


@check_arguments
def correlations(
    scores: Any,
    transfer: Any,
    *,
    resamples: Count = 1000,
    level: Level = 0.95,
    seed: Seed = 0,
) -> dict[str, Correlation]:
    r"""Compute Pearson's, Spearman's and Kendall's coefficients of scores and transfer.

    All three are
    $\frac{\langle a-\bar a,b-\bar b\rangle}{\lVert a-\bar a\rVert\lVert b-\bar b\rVert}$:
    of the values (Pearson), of their ranks, with mean ranks for ties (Spearman), and of the signs
    of the differences of all pairs (Kendall's $\tau_b$). Source: VCI figure 7, for Pearson's.

    The ends of the interval are quantiles of the coefficient over resamples of the checkpoints with
    replacement. Resamples in which all scores or all accuracies are equal have no coefficient and
    are left out. With few checkpoints the interval says little: four have only 35 different
    resamples.

    Args:
        scores: Score of each checkpoint; array-like.
        transfer: Transfer of the same checkpoints: accuracies, or log odds; array-like.
        resamples: Number of resamples of the checkpoints.
        level: Share of the resamples inside the interval.
        seed: Seed of the resamples.

    Returns:
        Coefficients by name: ``"pearson"``, ``"spearman"``, ``"kendall"``.

    Raises:
        InputError: If lengths differ, or there are fewer than two checkpoints.

    Example:
        >>> coefficients = correlations([1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 9.0, 16.0])
        >>> [round(coefficients[name].value, 4) for name in ("spearman", "pearson")]
        [1.0, 0.9844]
    """
    first, second = as_real_array(scores, "scores"), as_real_array(transfer, "transfer")
    if first.ndim != 1 or first.shape != second.shape or len(first) < 2:
        found = f"scores of shape {first.shape} and accuracies of shape {second.shape}"
        expected = "a score and an accuracy of each of two checkpoints or more"
        raise InputError(expected=expected, found=found, fix="pass both of every checkpoint")
    pairs = np.stack([first, second])
    if not np.isfinite(pairs).all():
        fix = "leave out the checkpoints that have none"
        raise InputError(expected="finite scores", found="NaN or Inf among them", fix=fix)
    size = 64 * resamples * pairs.shape[1] ** 2  # the signs of all pairs, four times
    check_memory(size, "the resamples", "ask for fewer resamples")
    draws = np.random.default_rng(seed).integers(0, pairs.shape[1], (resamples, pairs.shape[1]))
    ends = [50 - 50 * level, 50 + 50 * level]
    result = {}
    for name, view in VIEWS.items():
        values = correlate_rows(*(view(row[draws]) for row in pairs))
        values = values[~np.isnan(values)]
        low, high = np.percentile(values, ends) if len(values) else (np.nan, np.nan)
        value = correlate_rows(*(view(row[None]) for row in pairs))[0]
        result[name] = Correlation(float(value), float(low), float(high))
    return result


def ranks(values: Values) -> Values:
    """Return ranks from 1 along the last axis, with mean ranks for ties."""
    return rankdata(values, axis=-1)


def signs(values: Values) -> Values:
    """Return the signs of the differences of all ordered pairs along the last axis."""
    return np.sign(values[..., :, None] - values[..., None, :]).reshape(
        *values.shape[:-1], values.shape[-1] ** 2
    )


VIEWS: Mapping[str, Callable[[Values], Values]] = {
    "pearson": lambda values: values,
    "spearman": ranks,
    "kendall": signs,
}
"""Function of the values whose product-moment coefficient each coefficient is."""


def correlate_rows(a: Values, b: Values) -> Values:
    """Compute the product-moment coefficient of each row of two arrays; NaN if one is constant."""
    a, b = _centre_rows(a), _centre_rows(b)
    lengths = np.prod([np.linalg.norm(rows, axis=-1) for rows in (a, b)], axis=0)
    product = (a * b).sum(-1)
    defined = lengths > 0
    whole = np.divide(product, lengths, where=defined, out=np.full_like(product, np.nan))
    return np.clip(whole, -1, 1)  # rounding of the lengths can bring a quotient beyond 1


def _centre_rows(rows: Values) -> Values:
    """Subtract from each row its mean; a constant row becomes exactly 0.

    The mean of a constant row is rounded, and rounding would give the row a correlation.
    """
    same = (rows == rows[..., :1]).all(-1, keepdims=True)
    # In units of a power of two, in which neither differences nor squares overflow.
    _, exponents = np.frexp(np.abs(rows).max(-1, keepdims=True))
    rows = np.ldexp(rows, -exponents)
    return np.where(same, 0.0, rows - rows.mean(-1, keepdims=True))


def as_real_array(value: Any, name: str) -> Values:
    """Return an array-like of real numbers as an array, float64.

    Args:
        value: Array-like, NaN and infinities included.
        name: Name of the value, for messages.

    Raises:
        InputError: If the value is no array of real numbers.
    """
    tensor = as_tensor(value, name)
    if tensor.is_complex():
        found, fix = f"dtype {tensor.dtype}", "pass real numbers"
        raise InputError(expected=f"{name} of real numbers", found=found, fix=fix)
    return tensor.to("cpu", torch.float64).numpy()


@check_arguments
def mean_log_odds(accuracies: Sequence[float]) -> float:
    r"""$\frac1T\sum_t\log\frac{p_t}{1-p_t}$ over downstream sets.

    Source: VCI table 1, "MLO"; Kornblith, Shlens, Le 2019. Infinite if an accuracy is 0 or 1, NaN
    if one is 0 and another 1.

    Args:
        accuracies: $p_t$ from 0 to 1, one for each downstream set.

    Raises:
        InputError: If there is no accuracy, or one is outside 0..1.

    Example:
        >>> round(mean_log_odds([0.5, 0.75]), 6) == round(math.log(3) / 2, 6)
        True
    """
    if not accuracies:
        fix = "pass the accuracy on each downstream set"
        raise InputError(expected="at least one accuracy", found="none", fix=fix)
    return sum(map(_log_odds, accuracies)) / len(accuracies)


@check_arguments
def mean_log_odds_gain(accuracies: Sequence[float], pretraining_accuracy: float) -> float:
    r"""$\frac1T\sum_t\log\frac{p_t}{1-p_t}-\log\frac{p_{pre}}{1-p_{pre}}$, MLOG.

    Source: VCI (6). 0 means that the downstream accuracies are as good as the pretraining accuracy.
    NaN if both terms are infinite.

    Args:
        accuracies: Accuracies, as for `mean_log_odds`.
        pretraining_accuracy: $p_{pre}$, on held-out samples of the pretraining set.

    Raises:
        InputError: As `mean_log_odds`.

    Example:
        >>> mean_log_odds_gain([0.8, 0.8], 0.8)
        0.0
    """
    return mean_log_odds(accuracies) - _log_odds(pretraining_accuracy)


def _log_odds(share: float) -> float:
    if not 0 <= share <= 1:
        fix = "divide per cents by 100"
        raise InputError(expected="an accuracy from 0 to 1", found=str(share), fix=fix)
    if share in (0, 1):
        return math.copysign(math.inf, share - 0.5)
    return math.log(share) - math.log1p(-share)
