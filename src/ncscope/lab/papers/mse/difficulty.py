"""Held-out variability against the difficulty of the data set.

Source: MSE figure 12: the last value of NC1 on held-out images is roughly monotonic in the
difficulty of the data set. The difficulty is the held-out error of the same kind of network. NC1
is a share of the untrained network's value, which is itself larger for harder data. The small
scale has two data sets, which show a difference and no trend.
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
    kind_of,
    under,
)
from ncscope.lab.papers.trained import average, ends, history, ratio
from ncscope.report.claims import Claim


def difficulty(config: MSETraining, rows: Sequence[Observation], loss: Loss) -> Claim:
    """Test that training leaves more of the held-out NC1 on harder data.

    The claim is judged for each kind of network on its seeds. A kind with fewer than two data sets
    is left out. Two data sets show no trend: then the claim is ours, that more remains on the
    second set of the settings than on the first.

    Args:
        config: Settings of the recipe.
        rows: Rows of the study.
        loss: Loss of the networks.
    """
    names = under(config, loss)
    accuracy = last(rows, names, "accuracy", "test")
    kinds = _kinds(config, names)
    remaining = {}
    for name in names:
        first, final = ends(history(rows, name, "test"), "nc1")
        remaining[name] = ratio(final, first)
    text, source = _stated(loss, kinds)
    claims = {}
    for kind, sets in kinds.items():
        own = {name: remaining[name] for name in names if kind_of(config.runs[name]) == kind}
        errors = {
            data: 1 - average([accuracy[name] for name in own if config.runs[name].data == data])
            for data in sets
        }
        known = all(map(math.isfinite, errors.values()))
        order = sorted(sets, key=errors.__getitem__) if known and len(sets) > 2 else sets
        claims[kind] = judged(
            text,
            source=source,
            values=_per_rank(config, own, order) if known else [],
            region=above(FACTOR),
            scale="ratio",
            evidence=", ".join(f"{data} errs {error:.2%}" for data, error in errors.items()),
        )
    enough = max(1, most(len(claims)))
    return combined(text, source=source, claims=claims, enough=enough, of="kinds of network")


def _kinds(config: MSETraining, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the data sets of every kind of network that has several, in the settings' order."""
    kinds: dict[str, dict[str, None]] = {}
    for name in names:
        run = config.runs[name]
        kinds.setdefault(kind_of(run), {})[run.data] = None
    return {kind: list(sets) for kind, sets in kinds.items() if len(sets) > 1}


def _stated(loss: Loss, kinds: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return text and source of the claim, which with two data sets is no trend."""
    share = (
        f"under {LOSSES[loss]} the share of the untrained network's NC1 that remains at the end on "
        "held-out images"
    )
    pairs = {tuple(sets) for sets in kinds.values()}
    if len(pairs) == 1 and len(min(pairs)) == 2:
        easy, hard = min(pairs)
        text = f"{share} is larger on {hard} than on {easy}, by a factor of at least {FACTOR:g}"
        return text, "ours"
    text = (
        f"{share} grows with the difficulty of the data set, by a factor of at least {FACTOR:g} "
        "from one to the next harder, in most kinds of network"
    )
    return text, "MSE, figure 12"


def _per_rank(
    config: MSETraining, values: Mapping[str, float], order: Sequence[str]
) -> list[float]:
    """Return the growth of a value from a data set to the next, for each seed."""
    seeds: dict[int, list[tuple[int, float]]] = {}
    for name, value in values.items():
        training = config.runs[name]
        seeds.setdefault(training.seed, []).append((order.index(training.data), value))
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
