"""The public interface, walked: every function, constructor and method that a user may call."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ncscope
import ncscope.losses
import ncscope.transfer
from ncscope.api.gather import DecisionPass
from ncscope.api.model import ModelWatch
from ncscope.api.per_class import PerClass
from ncscope.integrations.huggingface import NeuralCollapseTrainerCallback
from ncscope.integrations.lightning import NeuralCollapseCallback
from ncscope.integrations.torchmetrics import NeuralCollapse

REACHED = (DecisionPass, PerClass, ModelWatch)
"""Classes of objects that public functions return or take, and that have methods."""

METRICS = (NeuralCollapse,)
CALLBACKS = (NeuralCollapseCallback, NeuralCollapseTrainerCallback)
"""Classes whose methods the trainer calls; the user calls the constructor alone."""


@dataclass(frozen=True)
class Entry:
    """A function of the interface.

    Attributes:
        name: Name with the class, such as ``History.add``.
        call: The function, with ``self`` as first parameter if it is a method.
        is_record: True for the constructor of a record that functions of ours fill.
    """

    name: str
    call: Callable[..., Any]
    is_record: bool = False


def entries() -> Iterator[Entry]:
    """Yield every entry of the interface once."""
    modules = (ncscope, ncscope.losses, ncscope.transfer)
    values = [getattr(module, name) for module in modules for name in module.__all__]
    for value in dict.fromkeys([*filter(callable, values), *REACHED, *METRICS]):
        if not isinstance(value, type):
            yield Entry(value.__name__, value)
        elif not issubclass(value, Exception):
            yield from _of_class(value)
    for callback in CALLBACKS:
        yield Entry(callback.__name__, callback.__init__)


def _of_class(form: type) -> Iterator[Entry]:
    for name, member in inspect.getmembers_static(form):
        owner = next(base for base in form.__mro__ if name in vars(base))
        if not owner.__module__.startswith("ncscope"):
            continue
        setter = getattr(member, "fset", None)
        function = getattr(member, "__func__", setter or member)
        if not inspect.isfunction(function) or (name.startswith("_") and name != "__init__"):
            continue
        made = inspect.unwrap(function).__code__.co_filename == "<string>"  # by dataclass
        yield Entry(f"{form.__name__}.{name}", function, is_record=made)
