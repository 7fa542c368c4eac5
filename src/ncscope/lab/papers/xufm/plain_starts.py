"""Descent on the plain model from many starts: with decays, without decays, and with a ReLU.

Source: XUFM section 3 (remark on the optimisation procedure), section 2 (no decays) and section 7
(ReLU). A part of ``xufm/ufm``.

The three descents of a seed begin at one start, drawn as in section 6. With decays each of them
reaches the closed form's minimum and collapses. Without decays each fits the labels, which makes it
a global minimiser, and keeps within-class variability. With a ReLU on the features an entry that
starts negative stays at zero for good, so that no two samples of a class can agree; descent ends
above the minimum, which the ReLU does not change.
"""

from collections.abc import Iterator, Sequence

import torch

from ncscope.lab.evidence.judging import decided
from ncscope.lab.evidence.proportions import in_most
from ncscope.lab.observations import Observation, observations_of
from ncscope.lab.report.rows import number, numbers, part_of
from ncscope.lab.runs.recipe import Part
from ncscope.lab.surrogates.descent import gradient_descent
from ncscope.lab.surrogates.plain import PlainUFM
from ncscope.lab.surrogates.problem import Point, Problem
from ncscope.lab.surrogates.trajectory import measured_point
from ncscope.lab.surrogates.ufm import UFM
from ncscope.report.claims import Claim

DECAYS, NO_DECAYS, RELU = "starts, decays", "starts, no decays", "starts, ReLU"
GROUPS = ("nc1", "nc2", "nc3")
ARRIVED = 1e-6
"""Distance from the minimum at which a descent counts as arrived."""
COLLAPSED, UNCOLLAPSED = 1e-3, 1e-2
"""NC1 below the first counts as collapsed, above the second as not collapsed."""
AT_ZERO = 0.5
"""Objective of features and weights that are zero."""


def parts(
    sizes: tuple[int, int, int, float, float], rate: float, steps: int, starts: int
) -> list[Part]:
    """Return the descents from every start: with decays, without, and with a ReLU.

    Args:
        sizes: K, d, n, decay of the weights and decay of the features.
        rate: Step size.
        steps: Steps of each descent.
        starts: Number of starts, with seeds 0, 1, and so on.
    """
    k, d, n, _, _ = sizes
    models: dict[str, Problem] = {
        DECAYS: UFM(*sizes),
        NO_DECAYS: PlainUFM(k, d, n, weight_decay=0.0, feature_decay=0.0),
        RELU: PlainUFM(*sizes, activation="relu"),
    }
    minimum = UFM(*sizes).minimiser().objective

    def part(name: str, model: Problem) -> Part:
        lowest = 0.0 if name == NO_DECAYS else minimum
        return Part(name, starts, lambda _: _descents(model, lowest, rate, steps, starts))

    return [part(name, model) for name, model in models.items()]


def _descents(
    model: Problem, minimum: float, rate: float, steps: int, starts: int
) -> Iterator[Observation]:
    """Yield the last point of the descent from each start."""
    for seed in range(starts):
        start = model.start(torch.Generator().manual_seed(seed))
        problem, begin = _fewer_columns(model, start)
        ((_, last),) = gradient_descent(problem, begin, rate, [steps])
        (observation,) = observations_of(measured_point(problem, last, steps, GROUPS))
        yield observation.with_values({"seed": seed, "minimum": minimum})


def _fewer_columns(model: Problem, start: Point) -> tuple[Problem, Point]:
    return model.compact(start) if isinstance(model, UFM) else (model, start)


def claims(rows: Sequence[Observation]) -> list[Claim]:
    """Test that decays lead to collapse from any start, and that nothing else does."""
    decays, free, relu = (part_of(rows, name) for name in (DECAYS, NO_DECAYS, RELU))
    return [_easily_obtained(decays), _uncollapsed(free), _doomed(relu)]


def gaps(rows: Sequence[Observation]) -> list[float]:
    """Return the distance of each last objective from the minimum."""
    return [number(row, "objective") - number(row, "minimum") for row in rows]


def _ends(rows: Sequence[Observation]) -> str:
    if not rows:
        return "none measured"
    far, nc1 = gaps(rows), numbers(rows, "nc1")
    return (
        f"objective {min(far):.1e} to {max(far):.1e} above the minimum, NC1 {min(nc1):.2g} to "
        f"{max(nc1):.2g}"
    )


def _easily_obtained(rows: Sequence[Observation]) -> Claim:
    good = [
        gap < ARRIVED and nc1 < COLLAPSED
        for gap, nc1 in zip(gaps(rows), numbers(rows, "nc1"), strict=True)
    ]
    return decided(
        "With decays gradient descent arrives at a collapsed global minimiser from every start",
        source="XUFM, section 3, remark on the optimisation procedure",
        held=all(good) if rows else None,
        evidence=f"{sum(good)} of {len(rows)} starts; {_ends(rows)}",
    )


def _uncollapsed(rows: Sequence[Observation]) -> Claim:
    good = [
        gap < ARRIVED and nc1 > UNCOLLAPSED
        for gap, nc1 in zip(gaps(rows), numbers(rows, "nc1"), strict=True)
    ]
    return in_most(
        "Without decays descent typically ends at a global minimiser that is not collapsed",
        source="XUFM, section 2",
        hits=good,
        evidence=_ends(rows),
    )


def _doomed(rows: Sequence[Observation]) -> Claim:
    gained = sum(number(row, "objective") < (AT_ZERO + number(row, "minimum")) / 2 for row in rows)
    arrived = sum(gap < ARRIVED for gap in gaps(rows))
    collapsed = sum(nc1 < COLLAPSED for nc1 in numbers(rows, "nc1"))
    return decided(
        "With a ReLU on the features of the plain model descent fails from every start: it goes "
        f"more than half of the way from the objective at zero, {AT_ZERO}, to the minimum, but "
        f"neither arrives at the minimum nor collapses to an NC1 below {COLLAPSED:g}",
        source="XUFM, section 7",
        held=gained == len(rows) and arrived == collapsed == 0 if rows else None,
        evidence=f"{gained} of {len(rows)} starts went more than half of the way, {arrived} "
        f"arrived, {collapsed} collapsed; {_ends(rows)}",
    )
