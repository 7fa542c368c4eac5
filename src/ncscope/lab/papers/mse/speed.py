"""Speed of collapse under both losses: epochs to a common value of NC1, and fitted rates.

Source: MSE figure 10. The values at the end are no measure of speed: they also depend on how far a
network collapses at all.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ncscope.lab.evidence.judging import above, below
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.terminal import FACTOR, over_networks
from ncscope.lab.papers.mse.training import MSETraining, rivals, typical
from ncscope.lab.papers.trained import decades, history, ratio, values
from ncscope.report.claims import Claim


def sooner(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    """Test that NC1 takes fewer epochs under MSE to the least value that both losses reach.

    Args:
        config: Settings of the recipe.
        rows: Rows of the study.
    """
    times = {}
    for name, pair in pairs_of(config).items():
        paths = [history(rows, run) for run in pair]
        level = max(_least(path) for path in paths)
        times[name] = [epochs_to(path, level) for path in paths]
    return over_networks(
        "networks collapse faster under MSE than under cross-entropy: NC1 on the training set "
        "reaches the least value that both losses reach in fewer epochs, by a factor of at least "
        f"{FACTOR:g}, in most networks",
        config,
        {name: ratio(*both) for name, both in times.items()},
        source="MSE, figure 10",
        region=below(1 / FACTOR),
        scale="ratio",
        told={name: f"epoch {a:.3g} against {b:.3g}" for name, (a, b) in times.items()},
    )


def steeper(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    """Test that NC1 falls at a higher fitted rate under MSE.

    Args:
        config: Settings of the recipe.
        rows: Rows of the study.
    """
    slopes = {
        name: [exponent(history(rows, run)) for run in pair]
        for name, pair in pairs_of(config).items()
    }
    return over_networks(
        "NC1 on the training set falls at a higher rate under MSE than under cross-entropy: in "
        "decades for each decade of epochs, fitted from the first epoch on, by a factor of at "
        f"least {FACTOR:g}, in most networks",
        config,
        {name: ratio(*both) if min(both) > 0 else math.nan for name, both in slopes.items()},
        source="MSE, figure 10",
        region=above(FACTOR),
        scale="ratio",
        told={name: f"rate {a:.3g} against {b:.3g}" for name, (a, b) in slopes.items()},
    )


def pairs_of(config: MSETraining) -> dict[str, tuple[str, str]]:
    """Return the `rivals` whose networks are not the paper's exceptions."""
    pairs = rivals(config)
    return {name: pairs[name] for name in typical(config, pairs)}


def _least(path: Sequence[Observation]) -> float:
    """Return the least finite NC1 of a run; NaN without one."""
    return min(filter(math.isfinite, values(path, "nc1")), default=math.nan)


def epochs_to(path: Sequence[Observation], level: float) -> float:
    """Return the epoch at which NC1 falls to a level, between measurements on a log scale of NC1.

    Args:
        path: Rows of one layer over training.
        level: Value of NC1.

    Returns:
        The epoch; NaN if NC1 is not measured above and then at or below the level.
    """
    points = list(zip([row.epoch for row in path], values(path, "nc1"), strict=True))
    for (before, high), (after, low) in pairwise(points):
        if low <= level < high:
            share = ratio(decades(high, level), decades(high, low)) if level > 0 else 1.0
            return before + share * (after - before)
    return math.nan


def exponent(path: Sequence[Observation]) -> float:
    """Return the decades by which NC1 falls for each decade of epochs: a fit from epoch 1 on.

    Args:
        path: Rows of one layer over training.

    Returns:
        The least-squares slope; NaN for fewer than two epochs, or an NC1 that is not positive.
    """
    points = [(row.epoch, nc1) for row, nc1 in zip(path, values(path, "nc1"), strict=True)]
    after = [(epoch, nc1) for epoch, nc1 in points if epoch >= 1]
    if len(after) < 2 or not all(0 < nc1 < math.inf for _, nc1 in after):
        return math.nan
    epochs, numbers = np.log10(np.array(after, dtype=float)).T
    return -float(np.polyfit(epochs, numbers, 1)[0])
