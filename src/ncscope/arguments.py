"""One check of arguments at the public boundary, read off the annotations of a function.

Every public function and class has the decorator `check_arguments`. What an annotation cannot say
(shapes, sizes that must fit each other) the function checks itself.
"""

import functools
import inspect
import math
import operator
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from numbers import Real
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, SupportsFloat, SupportsInt, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ncscope.errors import InputError

Target = TypeVar("Target", bound=Callable[..., Any])


class Within(NamedTuple):
    """Range of a number, as metadata of an annotation.

    Attributes:
        least: Smallest number.
        most: Largest number; with both infinite and excluded, any finite number.
        open: True if the ends themselves are excluded.
    """

    least: float = -math.inf
    most: float = math.inf
    open: bool = False

    def admits(self, number: float) -> bool:
        """Return whether a number is in the range."""
        if self.open:
            return self.least < number < self.most
        return self.least <= number <= self.most

    def __str__(self) -> str:
        if math.isinf(self.least):
            return "that is finite"
        if math.isinf(self.most):
            return f"{'above' if self.open else 'of at least'} {self.least}"
        ends = (self.least, self.most)
        return "between {} and {}".format(*ends) if self.open else "from {} to {}".format(*ends)


Size = Annotated[int, Within(1)]
"""Integer of at least 1."""

Count = Annotated[int, Within(0)]
"""Integer of at least 0."""

Seed = Annotated[int, Within(0, 2**32 - 1)]
"""Seed that the generators of torch, NumPy and scikit-learn all take."""

NotNegative = Annotated[float, Within(0)]
"""Finite number of at least 0."""

Positive = Annotated[float, Within(0, open=True)]
"""Finite number above 0."""

Share = Annotated[float, Within(0, 1)]
"""Number from 0 to 1."""

Level = Annotated[float, Within(0, 1, open=True)]
"""Number between 0 and 1, such as the level of an interval."""


def check_arguments(target: Target) -> Target:
    """Check each argument of a function, or of a class's public methods, against its annotation.

    The function receives plain numbers: NumPy's, and arrays and tensors of one element, are
    converted. Integers fit 64 bits; a bool is no integer, and 1 is no bool. Numbers are finite,
    but for those annotated ``SupportsFloat``. A tensor that requires a gradient is refused for a
    plain float, because its gradient would be lost in silence. Tensors are dense and have values.

    Returns:
        The same class, or a function of the same signature that raises `InputError` for an
        argument of another type; the sentence has the argument's name.

    The function's attribute ``checks`` has the names of the arguments that are checked.

    Cost: a microsecond for each argument.
    """
    if not isinstance(target, type):
        return typing.cast(Target, _wrap(target, {}))
    names = {target.__name__: target}
    for name, member in list(vars(target).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, classmethod):
            setattr(target, name, classmethod(_wrap(member.__func__, names)))
        elif isinstance(member, property) and member.fset is not None:
            setattr(target, name, member.setter(_wrap(member.fset, names)))
        elif inspect.isfunction(member):
            setattr(target, name, _wrap(member, names))
    return target


def _wrap(function: Callable[..., Any], names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that reads each argument before it calls another.

    Args:
        function: Function to call.
        names: Names in the annotations that the function's module does not have yet.
    """
    parameters = inspect.signature(function).parameters
    # Without the annotation of what is returned, which may be of a library that is imported only
    # for type checks.
    annotations = {
        name: each.annotation
        for name, each in parameters.items()
        if each.annotation is not each.empty and each.kind not in _MANY
    }
    holder = types.SimpleNamespace(__annotations__=annotations)
    scope = inspect.unwrap(function).__globals__
    hints = typing.get_type_hints(holder, scope, dict(names), include_extras=True)
    kinds = {name: _kind(hint) for name, hint in hints.items()}
    readers = {name: _make_reader(name, kind) for name, kind in kinds.items() if kind is not None}
    if not readers:
        return function
    by_place = [name for name, each in parameters.items() if each.kind in _BY_PLACE]
    in_order = tuple(readers.get(name) for name in by_place)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Plain loops: torch.compile follows them, and a signature's `bind` takes ten times as long.
        values = list(args)
        for place, reader in enumerate(in_order[: len(values)]):
            if reader is not None:
                values[place] = reader(values[place])
        for name, value in kwargs.items():
            reader = readers.get(name)
            if reader is not None:
                kwargs[name] = reader(value)
        return function(*values, **kwargs)

    vars(call)["checks"] = tuple(readers)
    return call


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Misfit(NamedTuple):
    """Part of a value that does not fit; empty if the value as a whole does not."""

    found: str = ""


class _Kind(NamedTuple):
    """Values that an annotation admits.

    Attributes:
        read: Function that returns a value as the function takes it, or a `_Misfit`.
        words: Description of the values.
        fix: Remedy for another value; ``{name}`` stands for the argument.
        scalar: True for numbers, texts and choices.
    """

    read: Callable[[Any], Any]
    words: str
    fix: str
    scalar: bool = False


def _make_reader(name: str, kind: _Kind) -> Callable[[Any], Any]:
    read = kind.read

    def reader(value: Any) -> Any:
        result = read(value)
        if type(result) is _Misfit:
            raise InputError(
                expected=f"{name} as {kind.words}",
                found=result.found or describe(value),
                fix=kind.fix.format(name=name),
            )
        return result

    return reader


def describe(value: Any) -> str:
    """Return a short description of any value, for a message.

    Args:
        value: Value of a caller, whose own ``repr`` may be long or fail.

    Example:
        >>> describe("0.1"), describe(2**5000), describe([1, 2]), describe(describe)
        ("'0.1'", 'an integer of 5001 bits', '[1, 2]', 'a function')
    """
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, _SHOWN):
        return _SHORT.repr(value)
    if isinstance(value, Tensor | np.ndarray):
        kind = "a tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} of {value.dtype} and shape {tuple(value.shape)}"
    if type(value) in (list, tuple, set, frozenset) and all(type(v) in _SHOWN for v in value):
        try:
            return _SHORT.repr(value)
        except ValueError:  # an integer of more digits than Python writes
            pass
    name = type(value).__name__
    size = f" of {len(value)}" if type(value) in (list, tuple, dict, set, frozenset) else ""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}{size}"


_SHOWN = (int, float, complex, str, bytes, bool, types.NoneType)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


@functools.cache
def _kind(annotation: Any) -> _Kind | None:
    """Return what an annotation admits; None if it admits everything."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _union(parts)
    if origin is Annotated:
        return _within(_kind(parts[0]), parts[1])
    if origin is Literal:
        return _literal(parts)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, TypeVar) or annotation in (Any, object, inspect.Parameter.empty):
        return None
    if hasattr(annotation, "array_type"):  # of jaxtyping
        return _PLAIN[Tensor]
    form = origin or annotation
    if form is Callable:
        return _Kind(lambda v: v if callable(v) else _Misfit(), "a function", "pass a function")
    if form in (Mapping, dict):
        return _dictionary(*(map(_kind, parts) if parts else (None, None)))
    if form is tuple and parts and Ellipsis not in parts:
        return _tuple([_kind(part) for part in parts])
    if form in (Iterable, Collection, Sequence, list, tuple):
        return _several(form, _kind(parts[0]) if parts else None)
    name = form.__name__
    words = f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"
    fix = f"pass what {_MAKERS[name]} returned" if name in _MAKERS else f"pass {words}"
    return _Kind(lambda v: v if isinstance(v, form) else _Misfit(), words, fix)


_MAKERS = {"Report": "measure", "ModelReport": "measure_model", "TransferReport": "transfer"}
"""Function that makes an object of a class which no user builds."""


def _union(parts: Sequence[Any]) -> _Kind | None:
    """Return a kind of several; texts are paths or devices where these are admitted too.

    A data set of torch is taken as a loader is: it has its methods, but not those of an iterable.
    """
    if Path in parts or torch.device in parts:
        parts = [part for part in parts if part is not str]
    parts = [part for part in parts if typing.get_origin(part) is not Dataset]
    kinds = [_kind(part) for part in parts]
    if None in kinds:
        return None
    known = [kind for kind in kinds if kind is not None]
    known.sort(key=lambda kind: not kind.scalar)  # a number before a tensor
    reads = tuple(kind.read for kind in known)

    def read(value: Any) -> Any:
        misfit = _Misfit()
        for each in reads:
            result = each(value)
            if type(result) is not _Misfit:
                return result
            misfit = result if result.found else misfit
        return misfit

    words = " or ".join(kind.words for kind in known if kind.words != "None")
    words += " or None" if types.NoneType in parts else ""
    scalar = all(kind.scalar for kind in known)
    fixes = {kind.fix for kind in known if kind.words != "None"}
    return _Kind(read, words, fixes.pop() if len(fixes) == 1 else "pass one of these", scalar)


def _within(kind: _Kind | None, bounds: Within) -> _Kind:
    assert kind is not None
    plain = kind.read

    def read(value: Any) -> Any:
        number = plain(value)
        return number if type(number) is _Misfit or bounds.admits(number) else _Misfit()

    return _Kind(read, f"{kind.words} {bounds}", f"pass {kind.words} {bounds}", scalar=True)


def _literal(choices: Sequence[object]) -> _Kind:
    def read(value: Any) -> Any:
        # By type as well, because True == 1. The choice itself is returned: an equal value may be
        # of a subclass, such as NumPy's text.
        for choice in choices:
            if isinstance(value, type(choice)) and value == choice:
                return choice
        return _Misfit()

    shown = [repr(choice) for choice in choices]
    words = " or ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)
    return _Kind(read, words, _CHOOSE, scalar=True)


def _dictionary(key: _Kind | None, value: _Kind | None) -> _Kind:
    def read(mapping: Any) -> Any:
        if not isinstance(mapping, Mapping):
            return _Misfit()
        results = dict(mapping)
        for name, content in mapping.items():
            if key is not None and type(key.read(name)) is _Misfit:
                return _Misfit(f"{describe(name)} as a key")
            results[name] = content if value is None else value.read(content)
            if type(results[name]) is _Misfit:
                found = results[name].found or describe(content)
                return _Misfit(f"{found} under {describe(name)}")
        same = all(results[name] is content for name, content in mapping.items())
        return mapping if same else results

    words = "a dictionary" if key is None else f"a dictionary from {key.words}"
    words += "" if value is None else f" to {value.words}"
    return _Kind(read, words, "pass a dictionary")


def _tuple(kinds: Sequence[_Kind | None]) -> _Kind:
    def read(value: Any) -> Any:
        if not isinstance(value, tuple | list) or len(value) != len(kinds):
            return _Misfit()
        parts = [each if k is None else k.read(each) for each, k in zip(value, kinds, strict=True)]
        broken = next((part for part in parts if type(part) is _Misfit), None)
        return tuple(parts) if broken is None else broken

    return _Kind(read, f"a tuple of {len(kinds)}", f"pass a tuple of {len(kinds)}")


def _several(form: Any, element: _Kind | None) -> _Kind:
    """Return a kind for lists and the like; an iterator is read into a list, but not of batches."""
    lazy = form is Iterable

    def read(value: Any) -> Any:
        if isinstance(value, str):  # a list of characters only where texts are wanted
            texts = element is not None and type(element.read(value)) is not _Misfit
            return value if texts else _Misfit()
        if isinstance(value, type | np.generic | bytes | bytearray) or not (
            hasattr(value, "__iter__") or (lazy and hasattr(value, "__getitem__"))
        ):
            return _Misfit()
        if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
            return _Misfit()
        if lazy and element is None:
            return value
        if not lazy and not isinstance(value, Collection | Tensor | np.ndarray):
            return _Misfit()
        if form is not Iterable and form is not Collection and isinstance(value, Set | Mapping):
            return _Misfit()
        if element is None:
            return value
        originals = list(value)
        results = [element.read(each) for each in originals]
        for result, original in zip(results, originals, strict=True):
            if type(result) is _Misfit:
                return result if result.found else _Misfit(f"{describe(original)} in it")
        # The same object if nothing was converted, so that a caller's subclass of a list stays.
        same = all(one is other for one, other in zip(results, originals, strict=True))
        is_array = isinstance(value, Iterator | np.ndarray | Tensor)  # which are no list to `if`
        return value if same and not is_array else results

    if lazy and element is None:
        return _Kind(read, "a loader or list", "pass a DataLoader or a list")
    words = "a list" if element is None else f"a list (of each: {element.words})"
    return _Kind(read, words, "pass a list")


def _scalar_of(value: Any) -> Any:
    """Return the number in an array, tensor or NumPy scalar of one element; other values stay."""
    if isinstance(value, np.generic):
        return value.item() if value.dtype != np.longdouble else float(value)
    if isinstance(value, np.ndarray | Tensor):
        try:
            return value.item()
        except (ValueError, RuntimeError, TypeError):  # several elements, no values, no numbers
            return value
    return value


def _read_integer(value: Any) -> Any:
    number = _scalar_of(value)
    if isinstance(number, bool) or not hasattr(type(number), "__index__"):
        return _Misfit()
    try:
        number = operator.index(number)
    except (TypeError, ValueError, RuntimeError):
        return _Misfit()
    return number if -(2**63) <= number < 2**63 else _Misfit()


def _read_number(value: Any) -> Any:
    if type(value) is float and math.isfinite(value):  # nearly every call
        return value
    if isinstance(value, Tensor) and value.requires_grad:
        return _Misfit("a tensor that requires a gradient, which would be lost")
    number = _read_any_number(value)
    return number if type(number) is _Misfit or math.isfinite(number) else _Misfit()


def _read_any_number(value: Any) -> Any:
    number = _scalar_of(value)
    if isinstance(number, bool) or not isinstance(number, Real):
        return _Misfit()
    try:
        return float(number)
    except (TypeError, ValueError, OverflowError):
        return _Misfit()


def _read_bool(value: Any) -> Any:
    flag = _scalar_of(value)
    return flag if isinstance(flag, bool) else _Misfit()


def _read_text(value: Any) -> Any:
    return value if isinstance(value, str) else _Misfit()


def _read_path(value: Any) -> Any:
    if not isinstance(value, str | PathLike):
        return _Misfit()
    text = fspath(value)
    if not isinstance(text, str) or "\0" in text:
        return _Misfit()
    return value if isinstance(value, str | Path) else Path(text)


def _read_device(value: Any) -> Any:
    if not isinstance(value, str | torch.device):
        return _Misfit()
    try:
        device = torch.device(value)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):  # by the build of torch
        return _Misfit(f"{str(value)!r}, on which torch cannot compute here")
    return _Misfit() if device.type == "meta" else value


def _read_dense(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return _Misfit()
    if value.layout != torch.strided or value.is_nested or value.is_quantized:
        kind = "nested" if value.is_nested else "quantised" if value.is_quantized else "sparse"
        return _Misfit(f"a {kind} tensor")
    return _Misfit("a tensor without values (meta device)") if value.is_meta else value


_CHOOSE = "choose one of them"

_PLAIN: dict[Any, _Kind] = {
    int: _Kind(_read_integer, "an integer", "pass a whole number below 2**63", scalar=True),
    SupportsInt: _Kind(_read_integer, "an integer", "pass a whole number below 2**63", scalar=True),
    float: _Kind(_read_number, "a finite number", "pass a number, such as 0.1", scalar=True),
    SupportsFloat: _Kind(_read_any_number, "a number", "pass a number, such as 0.1", scalar=True),
    bool: _Kind(_read_bool, "True or False", "pass True or False", scalar=True),
    str: _Kind(_read_text, "text", "pass {name} in quotes", scalar=True),
    Path: _Kind(_read_path, "a path", "pass the path as text", scalar=True),
    types.NoneType: _Kind(lambda v: None if v is None else _Misfit(), "None", "", scalar=True),
    torch.device: _Kind(
        _read_device,
        "a device of this machine",
        "pass 'cpu', 'cuda' or a torch.device",
        scalar=True,
    ),
    Tensor: _Kind(
        _read_dense,
        "a dense torch tensor",
        "pass torch.as_tensor({name}), {name}.to_dense() or {name}.dequantize()",
    ),
}
