"""Function that checks the statements of the five papers on random instances."""

import json
import secrets
from collections.abc import Iterable

from ncscope.lab.theory.statement import Result
from ncscope.lab.theory.table import check_all

_SEEDS = 10**9


def check_theory(seed: int | None = None, only: str | None = None) -> list[Result]:
    """Check every statement of the five papers on random instances.

    Args:
        seed: Seed of the instances; None draws a seed, which every result reports. The results
            of a seed are the same whether one statement or all are checked.
        only: Id of the one statement to check, for example ``"info/theorem-4.2"``.

    Returns:
        One result per statement, in the order of the table. Its ``verdict`` is ``"holds"``,
        ``"holds-as-corrected"`` or ``"fails"``.

    Raises:
        InputError: If no statement has the id; the message names the nearest id.

    Example:
        >>> (result,) = check_theory(seed=0, only="info/theorem-4.2")
        >>> result.verdict, result.deviation < result.tolerance
        ('holds', True)
    """
    return check_all(secrets.randbelow(_SEEDS) if seed is None else seed, only)


def theory_json(results: Iterable[Result]) -> str:
    """Write the results as one JSON list with one object per statement.

    Example:
        >>> theory_json([])
        '[]'
    """
    return json.dumps([result.record() for result in results], indent=2, allow_nan=False)
