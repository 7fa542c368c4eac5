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
