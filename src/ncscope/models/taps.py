"""Reading the features of named layers while a model runs."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ncscope.errors import InputError
from ncscope.models.forward import first_tensor, logits_of
from ncscope.models.layers import named_layer

# Under what name the head's input is among the features. The space keeps it apart from modules.
HEAD_INPUT = "head input"


class Taps:
    """Features of layers, the head's input and the logits, after each forward pass.

    Features are copies, detached: a layer may work in place on what the one before returned (a
    ReLU on a batch norm's output). They stay readable after the context has ended.

    Args:
        model: The model that will run. Its own call is what is watched.
        layers: Names of submodules whose outputs to read. Of an output that is not a tensor, the
            first tensor is read.
        head: Name of the head, as `find_head` reports it.
        pool: Average maps (B x C x H x W, or more) over their spatial dimensions. Otherwise maps
            are flattened, like token sequences in any case.

    Raises:
        InputError: On entry, for a name the model does not have. In the forward pass, for a layer
            that runs twice or not at all, returns no tensor or not one row a sample, or, with
            ``pool``, a map that looks channels-last.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> with Taps(model, ["0", "1"], head="2") as taps:
        ...     _ = model(torch.zeros(5, 4))
        >>> {name: tuple(features.shape) for name, features in taps.features.items()}
        {'0': (5, 3), '1': (5, 3), 'head input': (5, 3)}
    """

    def __init__(
        self, model: nn.Module, layers: Sequence[str], head: str, *, pool: bool = False
    ) -> None:
        self._model = model
        self._layers = tuple(dict.fromkeys(layers))
        self._head = head
        self._pool = pool
        self._handles: list[RemovableHandle] = []
        self._running: dict[str, Tensor] = {}
        self._features: Mapping[str, Tensor] | None = None
        self._logits: Tensor | None = None

    @property
    def features(self) -> Mapping[str, Float[Tensor, "b d"]]:
        """Features of the last forward pass, B x d each, in the order in which layers ended.

        The head's input comes last, under `HEAD_INPUT`.

        Raises:
            InputError: The model has not run.
        """
        if self._features is None:
            raise self._not_run()
        return self._features

    @property
    def logits(self) -> Float[Tensor, "b k"]:
        """Logits of the last forward pass.

        Raises:
            InputError: The model has not run.
        """
        if self._logits is None:
            raise self._not_run()
        return self._logits

    def __enter__(self) -> "Taps":
        """Attach to the model."""
        modules = [(name, named_layer(self._model, name)) for name in self._layers]
        head = named_layer(self._model, self._head)
        self._handles.append(self._model.register_forward_pre_hook(self._begin))
        for name, module in modules:
            self._handles.append(module.register_forward_hook(self._output_hook(name)))
        self._handles.append(head.register_forward_pre_hook(self._keep_input, with_kwargs=True))
        self._handles.append(self._model.register_forward_hook(self._end))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the model without a hook."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begin(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._running = {}
        self._features = self._logits = None

    def _output_hook(self, name: str) -> Any:
        def keep(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self._keep(name, output)

        return keep

    def _keep_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._keep(HEAD_INPUT, (args, kwargs))

    def _keep(self, name: str, value: object) -> None:
        if name in self._running:
            layer = f"head {self._head!r}" if name == HEAD_INPUT else f"layer {name!r}"
            fix = "tap the block around it, or give each call a module of its own"
            raise InputError(
                expected=f"{layer} to run once in a forward pass", found="a second call", fix=fix
            )
        tensor = first_tensor(value)
        if tensor is None or tensor.ndim < 1:
            found = type(value).__name__ if tensor is None else "a scalar"
            raise InputError(
                expected=f"layer {name!r} to return a tensor", found=found, fix="tap another layer"
            )
        self._running[name] = _copied_rows(tensor.detach(), name, self._pool)

    def _end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._check_all_ran()
        logits = logits_of(output).detach()
        self._check_rows(len(logits))
        head_input = self._running.pop(HEAD_INPUT)
        self._features = MappingProxyType({**self._running, HEAD_INPUT: head_input})
        self._logits = logits

    def _check_all_ran(self) -> None:
        missing = [name for name in (*self._layers, HEAD_INPUT) if name not in self._running]
        if missing:
            names = _listed(self._head if name == HEAD_INPUT else name for name in missing)
            fix = "leave out modules that the model does not call (in evaluation mode)"
            raise InputError(
                expected="every tapped layer to run", found=f"no call of {names}", fix=fix
            )

    def _check_rows(self, batch: int) -> None:
        for name, rows in self._running.items():
            if len(rows) != batch:
                found = f"{len(rows)} rows for a batch of {batch}"
                fix = "tap the block around it, whose output is batch-first"
                raise InputError(
                    expected=f"layer {name!r} to return one row a sample", found=found, fix=fix
                )

    def _not_run(self) -> InputError:
        fix = "call the model itself inside the context, not a compiled or scripted copy"
        return InputError(expected="a forward pass to read from", found="none", fix=fix)


def _copied_rows(tensor: Tensor, name: str, pool: bool) -> Float[Tensor, "b d"]:
    if pool and tensor.ndim > 3:
        _check_channels_first(tensor, name)
        return tensor.flatten(2).mean(dim=2)
    rows = tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None]
    shared = rows.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    return rows.clone(memory_format=torch.contiguous_format) if shared else rows


def _check_channels_first(tensor: Tensor, name: str) -> None:
    _, first, *middle, last = tensor.shape
    if all(size == first for size in middle) and last != first:
        shape = "x".join(map(str, tensor.shape))
        expected = f"a channels-first map from layer {name!r} to pool"
        raise InputError(
            expected=expected,
            found=f"shape {shape}, which looks channels-last",
            fix="pass pool=False",
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
