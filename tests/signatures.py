"""The checker of signatures that conftest.py hooks into every function of ncscope."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

# As for mypy, an int is a float.
_CONF = BeartypeConf(is_pep484_tower=True)

_OF_NESTED_FUNCTIONS: dict[tuple[str, str, str], Callable[..., Any]] = {}


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Beartype's check of one of the two functions that jaxtyping makes of a signature.

    The first takes the parameters, before the call. The second takes them again, with what the call
    returned: it has only that left to check, against the sizes that the first has bound.

    A function inside of another is defined at every call of that one; its check is made once.
    """
    annotations = function.__annotations__
    returned = annotations.get("return", Any)
    if returned is not Any:
        function.__annotations__ = annotations = {"return": returned}
    if "<locals>" not in function.__qualname__:
        return beartype(function, conf=_CONF)
    key = (function.__module__, function.__qualname__, str(annotations))
    if key not in _OF_NESTED_FUNCTIONS:
        _OF_NESTED_FUNCTIONS[key] = beartype(function, conf=_CONF)
    return _OF_NESTED_FUNCTIONS[key]
