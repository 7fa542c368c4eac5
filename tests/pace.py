"""Parametrisations of which the default suite runs a few, and the slow suite the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def others_slow(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Return the values as parameters, marked slow but for the quick ones."""
    every = list(values)
    assert all(value in every for value in quick)
    return [
        value if value in quick else pytest.param(*_unpacked(value), marks=pytest.mark.slow)
        for value in every
    ]


def _unpacked(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
