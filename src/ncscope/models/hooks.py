"""Hooks of modules that cannot harm the forward pass in which they run."""

from collections.abc import Callable
from typing import Any

import torch


def guard_hook(hook: Any, on_error: Callable[[Exception], None] | None) -> Any:
    """Return a hook that passes its exceptions to a function instead of raising them.

    Args:
        hook: Function to register as a hook of a module.
        on_error: Function to call with an exception; None to raise the exception.
    """
    if on_error is None:
        return hook

    def call(*args: Any) -> None:
        try:
            hook(*args)
        except Exception as error:
            on_error(error)

    return call


def in_backward() -> bool:
    """Return whether autograd runs: gradient checkpointing calls layers again in that pass.

    Torch has no public question for this. A hook that does not ask takes the repeated calls for
    calls of the next forward pass.
    """
    return torch._C._current_graph_task_id() != -1
