"""Statements of the papers and of the field: all of them, and their checks."""

import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

import torch

from ncscope.errors import InputError
from ncscope_lab.theory import (
    field,
    field_depth,
    info_entropies,
    info_regression,
    mse_central_path,
    mse_coordinates,
    mse_decomposition,
    mse_limits,
    mse_spectrum,
    pfc,
    vci,
    vci_blocks,
    vci_index,
    vci_invariance,
    vci_probing,
    xufm,
    xufm_conjecture,
    xufm_cross_entropy,
    xufm_extended,
    xufm_perturbed,
)
from ncscope_lab.theory.statement import Result, Statement

STATEMENTS: tuple[Statement, ...] = (
    *info_entropies.STATEMENTS,
    *info_regression.STATEMENTS,
    *vci.STATEMENTS,
    *vci_invariance.STATEMENTS,
    *vci_probing.STATEMENTS,
    *vci_index.STATEMENTS,
    *vci_blocks.STATEMENTS,
    *mse_decomposition.STATEMENTS,
    *mse_spectrum.STATEMENTS,
    *mse_coordinates.STATEMENTS,
    *mse_central_path.STATEMENTS,
    *mse_limits.STATEMENTS,
    *pfc.STATEMENTS,
    *xufm.STATEMENTS,
    *xufm_extended.STATEMENTS,
    *xufm_conjecture.STATEMENTS,
    *xufm_cross_entropy.STATEMENTS,
    *xufm_perturbed.STATEMENTS,
    *field.STATEMENTS,
    *field_depth.STATEMENTS,
)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread inside the context.

    The checks compute with thousands of tiny matrices, for which a second thread costs more than it
    saves. It also changes the order of summation, and so the last digits.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _statement(wanted: str) -> Statement:
    by_id = {statement.id: statement for statement in STATEMENTS}
    if wanted not in by_id:
        (nearest,) = get_close_matches(wanted.lower(), by_id, n=1, cutoff=0.0)
        raise InputError(
            expected=f"the id of one of {len(by_id)} statements",
            found=repr(wanted),
            fix=f"the nearest is {nearest}; without an id all are checked",
        )
    return by_id[wanted]


_SEEDS = 10**9


def check_theory(seed: int | None = None, only: str | None = None) -> list[Result]:
    """Check every statement of the five papers, and of the field, on random instances.

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
    seed = secrets.randbelow(_SEEDS) if seed is None else seed
    chosen = STATEMENTS if only is None else (_statement(only),)
    with _one_thread():
        return [statement.check(seed) for statement in chosen]


def theory_json(results: Iterable[Result]) -> str:
    """Write the results as one JSON list with one object per statement.

    Example:
        >>> theory_json([])
        '[]'
    """
    return json.dumps([result.record() for result in results], indent=2, allow_nan=False)
