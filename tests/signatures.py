"""The decorator that conftest.py's import hook puts on every function and class of ncscope.

`jaxtyping.jaxtyped` binds the arguments of each call to the parameters and checks them twice; that
took a fifth of the suite. This decorator checks them once. A function is prepared at its first
call: a process of the suite calls a part of the functions that it imports.
"""

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import TypeCheckError

Function = Callable[..., Any]

# As for mypy, an int is a float.
_CONF = BeartypeConf(is_pep484_tower=True, violation_type=TypeCheckError)
_BY_JAXTYPING = jaxtyping.jaxtyped
_SIZES = jaxtyping.jaxtyped("context")
"""Scope of the sizes that the names in array annotations stand for."""

_OF_NESTED_FUNCTIONS: dict[tuple[Any, str], tuple[Function, Function]] = {}


def jaxtyped(function: Any = None, *, typechecker: Any = None) -> Any:
    """Check parameters and result of a function, or of a dataclass's constructor, at every call."""
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if inspect.isclass(function):
        own = vars(function).get("__init__")
        if is_dataclass(function) and inspect.isfunction(own) and not hasattr(own, "__wrapped__"):
            function.__init__ = jaxtyped(own)
        return function
    if not inspect.isfunction(function) or inspect.isgeneratorfunction(function):
        return _BY_JAXTYPING(function, typechecker=checked)
    prepared = _between_checks if "<locals>" in function.__qualname__ else _with_checks
    ready: Function | None = None

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal ready
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if ready is None:
            ready = prepared(function)
        with _SIZES:
            return ready(*args, **kwargs)

    return wrapped


def checked(function: Function) -> Function:
    """Return the function with beartype's check of its parameters and of what it returns."""
    return beartype(function, conf=_CONF)


def _with_checks(function: Function) -> Function:
    """Return a copy of the function that checks its parameters and its result."""
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    _describe(copy, function, _hints(function))
    return checked(copy)


def _between_checks(function: Function) -> Function:
    """Return the function between two checks, which are made once for all functions of its code.

    A function inside of another is defined at every call of that one.
    """
    key = (function.__code__, str(function.__annotations__))
    if key not in _OF_NESTED_FUNCTIONS:
        _OF_NESTED_FUNCTIONS[key] = _checks(function)
    parameters, result = _OF_NESTED_FUNCTIONS[key]

    def checking(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        parameters(*args, **kwargs)
        return result(function(*args, **kwargs))

    return checking


def _checks(function: Function) -> tuple[Function, Function]:
    """Return a function that takes the parameters, and one that takes and returns the result."""
    empty = inspect.Parameter.empty
    signature = inspect.signature(function)
    bare = [
        each.replace(annotation=empty, default=empty if each.default is empty else None)
        for each in signature.parameters.values()
    ]
    scope: dict[str, Any] = {}
    exec(f"def takes{inspect.Signature(bare)}: ...\ndef returns(value): return value", scope)
    hints = _hints(function)
    returned = hints.pop("return", Any)
    _describe(scope["takes"], function, hints)
    _describe(scope["returns"], function, {"return": returned}, defaults=False)
    return checked(scope["takes"]), checked(scope["returns"])


def _describe(
    copy: Function, function: Function, hints: dict[str, Any], defaults: bool = True
) -> None:
    """Give a stand-in the names and annotations of a function, and its defaults."""
    copy.__module__, copy.__name__ = function.__module__, function.__name__
    copy.__qualname__ = function.__qualname__
    copy.__annotations__ = hints
    if defaults:
        copy.__defaults__ = function.__defaults__
        copy.__kwdefaults__ = function.__kwdefaults__


def _hints(function: Function) -> dict[str, Any]:
    """Return the annotations of a function as types.

    One that only a type checker can read, for its names or as what it names takes no parameters at
    run time, is Any.
    """
    found = {}
    for name, hint in function.__annotations__.items():
        only = types.SimpleNamespace(__annotations__={name: hint})
        try:
            found |= get_type_hints(only, function.__globals__, include_extras=True)
        except (NameError, TypeError):
            found[name] = Any
    return found
