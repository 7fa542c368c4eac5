"""The checker of signatures that conftest.py hooks into every function of ncscope."""

import threading
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import jaxtyped

# As for mypy, an int is a float.
_CONF = BeartypeConf(is_pep484_tower=True)

EVERY = 10
"""Signatures are checked at the first of so many calls of a function in a test."""

_CALLS: dict[tuple[str, str], int] = {}
"""Calls of each function in this test."""

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


def install() -> None:
    """Let the functions of ncscope check their signatures; nothing may have imported it yet."""
    jaxtyping.jaxtyped = check_some_calls(jaxtyped)
    packages = ["ncscope", "ncscope_lab"]
    jaxtyping.install_import_hook(packages, f"{__name__}.{checked.__name__}")


def check_some_calls(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """Return jaxtyping's decorator with a check at some calls only.

    One measurement makes 1,300 calls, and a check of all doubles its time. A function inside
    of another is defined at every call of that one; its check is made once.
    """
    of_nested: dict[tuple[str, str, str], Callable[..., Any]] = {}
    nested = threading.local()

    def decorate(**options: Any) -> Callable[..., Any]:
        def make_check_of_nested(function: FunctionType) -> Callable[..., Any]:
            annotations = function.__annotations__
            place = (function.__module__, function.__qualname__, str(annotations))
            if place not in of_nested:

                @wraps(function)
                def run_latest(*args: Any, **kwargs: Any) -> Any:
                    return nested.functions[-1](*args, **kwargs)

                of_nested[place] = decorator(**options)(run_latest)

            def check(*args: Any, **kwargs: Any) -> Any:
                nested.functions = [*getattr(nested, "functions", ()), function]
                try:
                    return of_nested[place](*args, **kwargs)
                finally:
                    nested.functions = nested.functions[:-1]

            return check

        def of_some_calls(function: Any) -> Any:
            if not isinstance(function, FunctionType):  # a class
                return decorator(**options)(function)
            inside = "<locals>" in function.__qualname__
            key = (function.__module__, function.__qualname__)
            make_check = make_check_of_nested if inside else decorator(**options)
            check = make_check(function)

            @wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                return (check if is_due(key) else function)(*args, **kwargs)

            return call

        return of_some_calls

    return decorate


def is_due(key: tuple[str, str]) -> bool:
    """Count a call, and return whether it is to be checked."""
    count = _CALLS[key] = _CALLS.get(key, 0) + 1
    return count % EVERY == 1


def forget_calls() -> None:
    """Begin a test, whose checks do not depend on the tests before."""
    _CALLS.clear()
