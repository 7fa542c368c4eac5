"""Claims on the two-level models over random starts: how many arrive, and what they arrive at."""

import math
from collections.abc import Mapping, Sequence

from ncscope.lab.evidence.judging import above, decided, judged
from ncscope.lab.evidence.proportions import in_most
from ncscope.lab.observations import Observation
from ncscope.lab.report.rows import number
from ncscope.lab.simulations.extended import (
    ARRIVED,
    FORMS,
    KEPT,
    LABELS,
    THEOREMS,
    at_level,
    separation,
)
from ncscope.lab.simulations.ufm import VANISHED
from ncscope.lab.surrogates.extended import Activation
from ncscope.report.claims import Claim

Path = Sequence[Observation]
"""Rows of one descent."""
Paths = Mapping[Activation, Sequence[Path]]
"""Descents from every start, by activation; equal positions have equal seeds."""
FALL = 0.01
"""Largest share of its first value that a metric keeps when it tends to zero."""
LOST_COST_MARGIN = 0.05
"""Relative difference of a lost sample's cost from 1/(2N) that counts as equal."""


def claims(paths: Paths, figures: str) -> list[Claim]:
    """Test theorems 4.1 and 4.2, and their comparison, on descents from random starts.

    Args:
        paths: Descents by activation.
        figures: Reproduced figures, as part of the claims' owner.
    """
    both = [
        (linear, relu)
        for linear, relu in zip(paths["linear"], paths["relu"], strict=True)
        if arrives(linear) and arrives(relu)
    ]
    return [
        *(_most_arrive(name, paths[name], figures) for name in ("linear", "relu")),
        _lost_samples(paths["relu"]),
        *_collapse("linear", paths["linear"], figures),
        *_collapse("relu", paths["relu"], figures),
        _norms_agree(paths["relu"]),
        _rates_separate(both, figures),
        _structures_separate(paths, figures),
    ]


def gap(path: Path) -> float:
    """Return the distance of the last objective from the minimum; NaN without rows."""
    return number(path[-1], "objective") - number(path[-1], "minimum") if path else math.nan


def arrives(path: Path) -> bool:
    """Return whether the descent ends at the minimum."""
    return abs(gap(path)) < ARRIVED


def first_that_arrives(paths: Paths) -> dict[Activation, Path]:
    """Return the descents from the first start that both models arrive from, else the first."""
    pairs = list(zip(paths["linear"], paths["relu"], strict=True))
    linear, relu = next((pair for pair in pairs if all(map(arrives, pair))), pairs[0])
    return {"linear": linear, "relu": relu}


def _last(path: Path, key: str, level: str) -> float:
    return number(at_level(path, level)[-1], key)


def _most_arrive(name: Activation, paths: Sequence[Path], figures: str) -> Claim:
    return in_most(
        f"{LABELS[name]}: gradient descent arrives at the {FORMS[name]} from most starts, to 1e-6",
        source=f"XUFM, {figures}",
        hits=[arrives(path) for path in paths if path],
        evidence=f"distances {', '.join(f'{gap(path):+.1e}' for path in paths)}",
    )


def _lost_samples(paths: Sequence[Path]) -> Claim:
    told, fits = [], []
    for path in filter(None, paths):
        lost, cost = number(path[-1], "lost_samples"), 1 / (2 * number(path[-1], "samples"))
        fits.append(abs(gap(path) - lost * cost) <= LOST_COST_MARGIN * max(lost, 1.0) * cost)
        told.append(f"{lost:.0f} lost, {gap(path) / cost:+.3f}")
    return decided(
        "ReLU: every start ends above the value of the collapsed point by 1/(2N) for each lost "
        f"sample, to {LOST_COST_MARGIN:.0%}",
        source="ours",
        held=all(fits) if fits else None,
        evidence=f"distances in units of 1/(2N): {'; '.join(told) or 'none measured'}",
    )


def _collapse(name: Activation, paths: Sequence[Path], figures: str) -> list[Claim]:
    """Test that the theorem's metrics tend to zero on the descents that arrive."""
    good = [path for path in paths if arrives(path)]
    levels = ["H1", "H2"] if name == "linear" else ["H2"]
    wanted = [(level, key) for level in levels for key in ("nc1", "nc2_of")]
    return [
        _tends_to_zero(name, good, level, key, figures)
        for level, key in [*wanted, ("H2", "nc3_alignment")]
    ]


WORDS = {
    "nc1": "collapses to its class means",
    "nc2_of": "becomes an orthogonal frame",
    "nc3_alignment": "is aligned with the classifier",
}


def _tends_to_zero(
    name: Activation, paths: Sequence[Path], level: str, key: str, figures: str
) -> Claim:
    starts = [number(at_level(path, level)[0], key) for path in paths]
    kept = [
        _last(path, key, level) / start for path, start in zip(paths, starts, strict=True) if start
    ]
    return decided(
        f"{LABELS[name]}: {level} {WORDS[key]} on the descents that arrive; {key} falls to at most "
        f"{FALL:.0%} of its start",
        source=f"{THEOREMS[name]}, {figures}",
        held=max(kept) < FALL if kept else None,
        evidence=f"share of the start at the end: {max(kept, default=math.nan):.1e} at most on "
        f"{len(kept)} descents",
    )


def _norms_agree(paths: Sequence[Path]) -> Claim:
    costs = [abs(number(path[-1], "nuclear_cost")) for path in paths if arrives(path)]
    return decided(
        "ReLU: the nuclear norms before and after the ReLU agree on the descents that arrive, to "
        "1e-6 in the objective",
        source="XUFM, theorem 4.2, its assumption",
        held=max(costs) < ARRIVED if costs else None,
        evidence=f"their difference costs at most {max(costs, default=math.nan):.1e} on "
        f"{len(costs)} descents",
    )


def _rates_separate(both: Sequence[tuple[Path, Path]], figures: str) -> Claim:
    apart = [(separation(linear), separation(relu)) for linear, relu in both]
    told = ", ".join(f"{relu:.2f} and {linear:.2f}" for linear, relu in apart)
    return judged(
        "the levels differ more in the rate of collapse with ReLU than without",
        source=f"XUFM, section 6, {figures}",
        values=[relu - linear for linear, relu in apart],
        region=above(0.0),
        of="starts",
        evidence="differences in decades between NC1 at H1 and at H2, medians over the descent, "
        f"with ReLU and without: {told or 'none'}",
    )


def _structures_separate(paths: Paths, figures: str) -> Claim:
    linear, relu = (
        [_last(path, "nc2_of", "H1") for path in paths[name] if arrives(path)]
        for name in ("linear", "relu")
    )
    most, least = max(linear, default=math.nan), min(relu, default=math.nan)
    return decided(
        "on the descents that arrive H1 becomes an orthogonal frame without ReLU (NC2 below "
        f"{VANISHED:g}), but not with ReLU (above {KEPT:g})",
        source=f"XUFM, section 6, {figures}",
        held=most < VANISHED and least > KEPT if linear and relu else None,
        evidence=f"nc2_of of H1 ends at {most:.2g} at most on {len(linear)} descents without, at "
        f"{least:.2g} at least on {len(relu)} descents with ReLU",
    )
