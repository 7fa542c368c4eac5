"""Null tests: count how often a claim holds of values that mean nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

from ncscope_lab.findings import Finding
from ncscope_lab.observations import Results

DRAWS, MOST = 40, 4
"""Draws of a null test, and most draws in which a claim may hold."""


def often_held(claims: Callable[[Random], Iterable[Finding]]) -> dict[str, int]:
    """Claims that hold in more draws than chance allows, with the number of these draws.

    Args:
        claims: Function that tests the claims on values drawn by the generator.
    """
    counts: Counter[str] = Counter()
    for draw in range(DRAWS):
        counts.update(claim.text for claim in claims(Random(draw)) if claim.held)
    return {text: count for text, count in counts.items() if count > MOST}


def not_held(claims: Iterable[Finding]) -> list[str]:
    """Texts of the claims that are not held or undecided, with the verdicts."""
    return [f"{claim.verdict}: {claim.text}" for claim in claims if not claim.held]


def mixed(runs: Sequence[Results], random: Random) -> Results:
    """Every row of one of the runs, which have equal parts; the runs are drawn row by row."""
    return Results(random.choice(rows) for rows in zip(*runs, strict=True))
