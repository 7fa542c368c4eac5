"""Options of class moments and their checks: prior, precision, statistics, sizes."""

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

import numpy as np

from ncscope.errors import InputError

Prior: TypeAlias = Literal["empirical", "uniform"]
Precision: TypeAlias = Literal["float64", "blocked"]
Statistic: TypeAlias = Literal["scatter", "directions"]
ALL_STATISTICS: frozenset[Statistic] = frozenset({"scatter", "directions"})


def checked_size(name: str, size: int) -> int:
    """Check that a size is a positive integer, and return it.

    Raises:
        InputError: If the size is not a positive integer.
    """
    if not isinstance(size, int | np.integer) or size < 1:
        raise InputError(expected=f"{name} of at least 1", found=repr(size), fix=f"correct {name}")
    return int(size)


def checked_prior(prior: Prior) -> Prior:
    """Check that the prior is ``"empirical"`` or ``"uniform"``, and return it.

    Raises:
        InputError: If the prior is neither.
    """
    _check_choice("prior", prior, get_args(Prior))
    return prior


def checked_precision(precision: Precision) -> Precision:
    """Check that the precision is ``"float64"`` or ``"blocked"``, and return it.

    Raises:
        InputError: If the precision is neither.
    """
    _check_choice("precision", precision, get_args(Precision))
    return precision


def checked_statistics(names: Iterable[Statistic]) -> frozenset[Statistic]:
    """Check that every statistic is one that moments can gather, and return them.

    Raises:
        InputError: If a name is none of `ALL_STATISTICS`.
    """
    names = frozenset(names)
    if not names <= ALL_STATISTICS:
        found = str(sorted(names - ALL_STATISTICS))
        raise InputError(
            expected=f"statistics among {sorted(ALL_STATISTICS)}",
            found=found,
            fix="drop the others",
        )
    return names


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        expected = f"{name} {' or '.join(map(repr, choices))}"
        raise InputError(expected=expected, found=repr(value), fix="choose one of the two")
