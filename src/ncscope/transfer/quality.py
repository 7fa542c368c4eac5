"""Quality of the order in which a score puts models: weighted tau, Kendall, Spearman, regret."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncscope.arguments import Count, Level, Seed, check_arguments
from ncscope.errors import InputError
from ncscope.memory import check_memory
from ncscope.transfer.correlations import (
    Correlation,
    Values,
    as_real_array,
    correlate_rows,
    ranks,
)

_BLOCK = 2**24  # numbers that a block of resamples may hold for its pairs of models


@dataclass(frozen=True)
class RankingQuality:
    """Agreement of scores with accuracies, each with a bootstrap interval.

    Attributes:
        weighted_kendall: Weighted Kendall tau, from -1 to 1: pairs that involve a model of high
            rank count more.
        kendall: Kendall's tau b, from -1 to 1.
        spearman: Spearman's coefficient, from -1 to 1.
        regret: Best accuracy less the accuracy of the model with the greatest score; 0 if the score
            picks the best model.
    """

    weighted_kendall: Correlation
    kendall: Correlation
    spearman: Correlation
    regret: Correlation


@check_arguments
def ranking_quality(
    scores: Any,
    accuracies: Any,
    *,
    better: Literal[1, -1] = 1,
    resamples: Count = 1000,
    level: Level = 0.95,
    seed: Seed = 0,
) -> RankingQuality:
    r"""Compute how well scores order models by accuracy, on one set or on the average of several.

    The weighted tau is that of Vigna 2015 as ``scipy.stats.weightedtau`` computes it with its
    defaults: a pair of models of ranks $r$ and $s$, from 0, weighs $\frac1{r+1}+\frac1{s+1}$, and
    the coefficients with ranks by score and by accuracy are averaged. NaN scores count as the
    lowest. A model without an accuracy on a set is left out of this set. Models that tie for the
    greatest score share the regret. Coefficients that are undefined, as for equal scores, are NaN
    on one set, and are left out of the mean over sets.

    The bootstrap draws models, and sets if there are several, with replacement. Models drawn twice
    tie with themselves, so that the intervals of few models reach beyond the value.

    Args:
        scores: Score of each model, array-like; or models x sets.
        accuracies: Accuracy of each model; or models x sets, NaN if unknown.
        better: 1 if a greater score promises more, -1 if a smaller one.
        resamples: Number of resamples.
        level: Share of the resamples inside the interval.
        seed: Seed of the resamples.

    Raises:
        InputError: If shapes differ, there are fewer than two models, or no accuracy is known.

    Cost: for m models, 8m² operations for each set and resample.

    Example:
        >>> quality = ranking_quality([3.0, 2.0, 1.0], [0.9, 0.7, 0.8])
        >>> round(quality.weighted_kendall.value, 4), quality.regret.value
        (0.5455, 0.0)
    """
    given, truth = _checked_table(scores, accuracies)
    values = _qualities(better * given[None], truth[None])[0]
    models, sets = given.shape
    check_memory(8 * resamples * (models + sets), "the resamples", "ask for fewer resamples")
    draws = np.random.default_rng(seed)
    rows = draws.integers(0, models, (resamples, models))
    columns = draws.integers(0, sets, (resamples, sets)) if sets > 1 else np.zeros((resamples, 1))
    drawn = []
    block = max(1, _BLOCK // (sets * models**2))
    for start in range(0, resamples, block):
        part = slice(start, start + block)
        pairs = rows[part, :, None], columns[part, None, :].astype(int)
        drawn.append(_qualities(better * given[pairs], truth[pairs]))
    ends = _ends(np.concatenate(drawn) if drawn else np.full((0, 4), np.nan), level)
    return RankingQuality(*(Correlation(*each) for each in np.vstack([values, *ends]).T.tolist()))


def _ends(drawn: Values, level: float) -> tuple[Values, Values]:
    """Return the quantiles of each column of resamples, NaN left out."""
    low, high = np.full((2, drawn.shape[1]), np.nan)
    for index, column in enumerate(drawn.T):
        known = column[~np.isnan(column)]
        if len(known):
            ends = [50 - 50 * level, 50 + 50 * level]
            low[index], high[index] = np.percentile(known, ends)
    return low, high


def _qualities(scores: Values, truth: Values) -> Values:
    """Compute the four numbers for each table of models x sets, averaged over the sets."""
    whole = np.stack([_of_sets(scores[..., s], truth[..., s]) for s in range(scores.shape[-1])], -1)
    known = ~np.isnan(whole)
    counts = known.sum(-1)
    total = np.where(known, whole, 0.0).sum(-1)
    return np.divide(total, counts, where=counts > 0, out=np.full(total.shape, np.nan))


def _of_sets(scores: Values, truth: Values) -> Values:
    """Compute the four numbers for each row of scores and accuracies."""
    result = np.full((len(scores), 4), np.nan)
    missing = np.isnan(truth)
    for pattern in np.unique(missing, axis=0):
        rows = np.nonzero((missing == pattern).all(1))[0]
        if (~pattern).sum() < 2:
            continue
        result[rows] = row_qualities(scores[rows][:, ~pattern], truth[rows][:, ~pattern])
    return result


def row_qualities(scores: Values, truth: Values) -> Values:
    """Compute weighted tau, Kendall's tau, Spearman's coefficient and regret of each row.

    Args:
        scores: Scores, one row a table and one column a model, the greater the better; NaN last.
        truth: Accuracies, of the same shape, all known.
    """
    placed, true_places = ranks(np.where(np.isnan(scores), -np.inf, scores)), ranks(truth)
    a, b = _signs(placed), _signs(truth)
    pairs = _Pairs(*(product.sum(-1, dtype=np.int32) for product in (a * b, a * a, b * b)))
    weighted = sum(
        pairs.tau(1 / (1 + _positions(first, then)))
        for first, then in ((placed, truth), (truth, placed))
    )
    top = placed == placed.max(-1, keepdims=True)
    regret = ((truth.max(-1, keepdims=True) - truth) * top).sum(-1) / top.sum(-1)
    spearman = correlate_rows(placed, true_places)
    return np.stack([weighted / 2, pairs.tau(np.ones(())), spearman, regret], -1)


class _Pairs(NamedTuple):
    """Sums over the pairs of each model: of both signs' product, and of each sign's square."""

    product: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]

    def tau(self, weights: Values) -> Values:
        """Return the tau in which a pair weighs the sum of its models' weights."""
        total, first, second = ((weights * part).sum(-1) for part in self)
        size = np.sqrt(first * second)
        return np.divide(total, size, where=size > 0, out=np.full(total.shape, np.nan))


def _signs(values: Values) -> NDArray[np.int8]:
    """Return the signs of the differences between the values of each row, in a byte each."""
    one, other = values[..., :, None], values[..., None, :]
    return np.subtract(one > other, one < other, dtype=np.int8)


def _positions(first: Values, then: Values) -> Values:
    """Return the position of each model from 0: by one variable, ties by the other, then as given.

    Models alike in both have several positions; only the sum of their weights counts.
    """
    order = np.lexsort((-then, -first))
    positions = np.empty(order.shape)
    np.put_along_axis(positions, order, np.arange(order.shape[-1], dtype=float), -1)
    return positions


def _checked_table(scores: Any, accuracies: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    given, truth = as_real_array(scores, "scores"), as_real_array(accuracies, "accuracies")
    if given.shape != truth.shape or given.ndim not in (1, 2) or len(given) < 2 or not given.size:
        raise InputError(
            expected="a score and an accuracy of each of two models or more",
            found=f"scores of shape {given.shape} and accuracies of shape {truth.shape}",
            fix="pass both for every model, NaN for an accuracy that is unknown",
        )
    if np.isinf(truth).any() or np.isnan(truth).all():
        found = "infinite ones" if np.isinf(truth).any() else "none"
        fix = "pass NaN for an accuracy that is unknown"
        raise InputError(expected="finite accuracies", found=found, fix=fix)
    return given.reshape(len(given), -1), truth.reshape(len(truth), -1)
