"""Verdicts of claims that should all hold."""

from collections.abc import Iterable

from ncscope_lab.findings import Finding


def not_held(claims: Iterable[Finding]) -> list[str]:
    """Texts of the claims that are not held or undecided, with the verdicts."""
    return [f"{claim.verdict}: {claim.text}" for claim in claims if not claim.held]
