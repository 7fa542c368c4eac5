"""Quality of the order in which a score puts models: weighted tau, Kendall, Spearman, regret."""

from dataclasses import dataclass
from typing import Any, Literal

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
    table, truth = as_real_array(scores, "scores"), as_real_array(accuracies, "accuracies")
    if table.shape != truth.shape or table.ndim not in (1, 2) or len(table) < 2 or not table.size:
        raise InputError(
            expected="a score and an accuracy of each of two models or more",
            found=f"scores of shape {table.shape} and accuracies of shape {truth.shape}",
            fix="pass both for every model, NaN for an accuracy that is unknown",
        )
    if np.isinf(truth).any() or np.isnan(truth).all():
        found = "infinite ones" if np.isinf(truth).any() else "none"
        fix = "pass NaN for an accuracy that is unknown"
        raise InputError(expected="finite accuracies", found=found, fix=fix)
    table, truth = better * table.reshape(len(table), -1), truth.reshape(len(truth), -1)
    models, sets = table.shape
    check_memory(8 * resamples * (models + sets), "the resamples", "ask for fewer resamples")
    draws = np.random.default_rng(seed)
    rows = draws.integers(0, models, (resamples, models))
    columns = draws.integers(0, sets, (resamples, sets)) if sets > 1 else np.zeros((resamples, 1))
    qualities = [np.zeros((0, 4))]
    # The signs of all pairs of models, for all resamples at once, could take gigabytes.
    block = max(1, _BLOCK // (sets * models**2))
    for start in range(0, resamples, block):
        part = slice(start, start + block)
        pairs = rows[part, :, None], columns[part, None, :].astype(int)
        qualities.append(_mean_over_sets(table[pairs], truth[pairs]))
    values = _mean_over_sets(table[None], truth[None])[0]
    percents = [50 - 50 * level, 50 + 50 * level]
    intervals = []
    for value, column in zip(values, np.concatenate(qualities).T, strict=True):
        numbers = column[~np.isnan(column)]
        low, high = np.percentile(numbers, percents) if len(numbers) else (np.nan, np.nan)
        intervals.append(Correlation(float(value), float(low), float(high)))
    return RankingQuality(*intervals)


def _mean_over_sets(scores: Values, truth: Values) -> Values:
    """Compute the four numbers for each table of models x sets, averaged over the sets."""
    tables, _, sets = scores.shape
    by_set = np.full((tables, 4, sets), np.nan)
    for index in range(sets):
        missing = np.isnan(truth[..., index])
        # Resamples in which the same places are unknown go together, in arrays without gaps.
        for pattern in np.unique(missing, axis=0):
            if (~pattern).sum() < 2:
                continue
            rows = np.nonzero((missing == pattern).all(1))[0]
            pair = (table[rows, :, index][:, ~pattern] for table in (scores, truth))
            by_set[rows, :, index] = row_qualities(*pair)
    defined = ~np.isnan(by_set)
    counts = defined.sum(-1)
    total = np.where(defined, by_set, 0.0).sum(-1)
    return np.divide(total, counts, where=counts > 0, out=np.full(total.shape, np.nan))


def row_qualities(scores: Values, truth: Values) -> Values:
    """Compute weighted tau, Kendall's tau, Spearman's coefficient and regret of each row.

    Args:
        scores: Scores, one row a table and one column a model, the greater the better; NaN last.
        truth: Accuracies, of the same shape, all known.
    """
    places, true_places = ranks(np.where(np.isnan(scores), -np.inf, scores)), ranks(truth)
    a, b = _signs(places), _signs(truth)
    # A weight is a sum of one number a model, so the sums of signs over the other models serve all
    # weights: the table of pairs, the largest array here, is read once and in bytes.
    pairs = [product.sum(-1, dtype=np.int32) for product in (a * b, a * a, b * b)]

    def tau(weights: Values) -> Values:
        """Return the tau in which a pair weighs the sum of its models' weights."""
        total, first, second = ((weights * part).sum(-1) for part in pairs)
        size = np.sqrt(first * second)
        return np.divide(total, size, where=size > 0, out=np.full(total.shape, np.nan))

    weighted = sum(
        tau(1 / (1 + _positions(first, then))) for first, then in ((places, truth), (truth, places))
    )
    # Models that tie for the first place share the regret: none of them is the pick.
    top = places == places.max(-1, keepdims=True)
    regret = ((truth.max(-1, keepdims=True) - truth) * top).sum(-1) / top.sum(-1)
    spearman = correlate_rows(places, true_places)
    return np.stack([weighted / 2, tau(np.ones(())), spearman, regret], -1)


def _signs(values: Values) -> NDArray[np.int8]:
    """Return the signs of the differences between the values of each row, in a byte each."""
    one, other = values[..., :, None], values[..., None, :]
    return np.subtract(one > other, one < other, dtype=np.int8)


def _positions(first: Values, then: Values) -> Values:
    """Return the position of each model from 0: by one variable, ties by the other, then as listed.

    Models alike in both have several positions; only the sum of their weights counts.
    """
    order = np.lexsort((-then, -first))
    positions = np.empty(order.shape)
    np.put_along_axis(positions, order, np.arange(order.shape[-1], dtype=float), -1)
    return positions
