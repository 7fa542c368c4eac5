"""Held-out variability against the difficulty of the data set.

Source: MSE figure 12: the last value of NC1 on held-out images is roughly monotonic in the
difficulty of the data set. The difficulty is the held-out error of the same kind of network. NC1
is a share of the untrained network's value, which is itself larger for harder data.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ncscope.lab.evidence.judging import above, combined, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.terminal import FACTOR, last, most
from ncscope.lab.papers.mse.training import (
    LOSSES,
    Loss,
    MSETraining,
    by_network,
    kind_of,
    under,
)
from ncscope.lab.papers.trained import average, ends, history, ratio
from ncscope.report.claims import Claim


def difficulty(config: MSETraining, rows: Sequence[Observation], loss: Loss) -> Claim:
    """Test that training leaves more of the held-out NC1 on harder data.

    The claim is judged for each kind of network on its seeds. A kind with fewer than two data sets
    is left out.

    Args:
        config: Settings of the recipe.
        rows: Rows of the study.
        loss: Loss of the networks.
    """
    names = under(config, loss)
    accuracy = last(rows, names, "accuracy", "test")
    remaining = {}
    for name in names:
        first, final = ends(history(rows, name, "test"), "nc1")
        remaining[name] = ratio(final, first)
    text = (
        f"under {LOSSES[loss]} the share of the untrained network's NC1 that remains at the end on "
        "held-out images grows with the difficulty of the data set, by a factor of at least "
        f"{FACTOR:g} from one to the next harder, in most kinds of network"
    )
    source = "MSE, figure 12"
    claims = {}
    for kind in dict.fromkeys(kind_of(config.runs[name]) for name in names):
        own = [name for name in names if kind_of(config.runs[name]) == kind]
        errors = {
            config.runs[seeds[0]].data: 1 - average([accuracy[name] for name in seeds])
            for seeds in by_network(config, {name: name for name in own}).values()
        }
        if len(errors) > 1:
            claims[kind] = judged(
                text,
                source=source,
                values=_per_rank(config, {name: remaining[name] for name in own}, errors),
                region=above(FACTOR),
                scale="ratio",
                evidence=", ".join(f"{data} errs {error:.2%}" for data, error in errors.items()),
            )
    enough = max(1, most(len(claims)))
    return combined(text, source=source, claims=claims, enough=enough, of="kinds of network")


def _per_rank(
    config: MSETraining, values: Mapping[str, float], errors: Mapping[str, float]
) -> list[float]:
    """Return the growth of a value from a data set to the next harder one, for each seed."""
    if not all(map(math.isfinite, errors.values())):
        return []
    ranks = {data: rank for rank, data in enumerate(sorted(errors, key=lambda one: errors[one]))}
    seeds: dict[int, list[tuple[int, float]]] = {}
    for name, value in values.items():
        training = config.runs[name]
        seeds.setdefault(training.seed, []).append((ranks[training.data], value))
    return [growth(points) for points in seeds.values()]


def growth(points: Sequence[tuple[int, float]]) -> float:
    """Return the factor by which a positive value grows with each rank: an exponential fit.

    Args:
        points: Ranks and values, at least two.

    Example:
        >>> round(growth([(0, 1.0), (1, 2.0), (2, 4.0)]), 12), growth([(0, 0.0), (1, 1.0)])
        (2.0, nan)
    """
    if len(points) < 2 or not all(0 < value < math.inf for _, value in points):
        return math.nan
    ranks, values = np.array(points, dtype=float).T
    return float(np.exp(np.polyfit(ranks, np.log(values), 1)[0]))
