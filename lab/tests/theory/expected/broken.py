"""A formula to break, and the statement that must then fail."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Break:
    """One broken formula.

    Attributes:
        statement: Id of the statement that must turn to ``fails``.
        module: The module of statements that looks the formula up by name.
        name: The name.
        broken: What stands in its place.
    """

    statement: str
    module: ModuleType
    name: str
    broken: Callable[..., Any]


def scaled(
    statement: str, module: ModuleType, name: str, factor: float = 1.001, entry: int | None = None
) -> Break:
    """Return the formula, or one entry of what it returns, times a factor."""
    formula: Callable[..., Any] = getattr(module, name)

    def broken(*args: Any) -> Any:
        value = formula(*args)
        if entry is None:
            return factor * value
        return tuple(factor * part if j == entry else part for j, part in enumerate(value))

    return Break(statement, module, name, broken)
