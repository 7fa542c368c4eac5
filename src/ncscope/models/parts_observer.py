"""Analysis of a loop that calls parts of a model, such as a backbone and then a head."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import filterfalse
from types import TracebackType
from typing import Any, NamedTuple

from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.forward import possible_logits, tensors_in
from ncscope.models.heads import Head, feeds, find_head_among_calls
from ncscope.models.hooks import guard_hook, in_backward
from ncscope.models.layers import find_layer, find_repeated_blocks, match_layers
from ncscope.models.linear_calls import KEPT_ROWS, CallRows, RecordOptions, record_calls
from ncscope.models.masks import PassMasks
from ncscope.models.taps import HEAD_INPUT, BatchAxis, Taps, call_name
from ncscope.models.tracing import Trace
from ncscope.models.wrappers import is_scripted


class _PartHead(NamedTuple):
    """Head of a part that the loop called: rows of its call, its output, and the part."""

    head: Head
    rows: CallRows | None
    output: Tensor | None
    part: nn.Module


class PartsObserver:
    """Record of the latest forward pass of a loop that may call parts of a model.

    A module with parameters that the loop itself calls gives the logits. If the last such module is
    the model, `is_whole` is true, and `ncscope.models.tracing.trace` can analyse the model on
    its inputs. Otherwise the parts cannot run a second time, because only the loop knows what it
    does between them; the method `trace` then takes the head and the layers from this one pass. A
    pass ends where the loop calls a part that it has called before.

    Args:
        model: Model whose parts are called.
        layers: Names or patterns of layers; None for the repeated blocks.
        head: Name of the head, if known.
        on_error: Function that is called with an exception of a hook.
        whole: Observe calls of the model itself too if True.

    Example:
        >>> import torch
        >>> model = nn.ModuleDict({"body": nn.Linear(4, 3), "head": nn.Linear(3, 2)})
        >>> with PartsObserver(model, ()) as seen:
        ...     _ = model["head"](model["body"](torch.zeros(5, 4)).relu())
        >>> seen.is_whole, seen.trace().head.name
        (False, 'head')
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[str] | None = None,
        head: str | None = None,
        on_error: Callable[[Exception], None] | None = None,
        *,
        whole: bool = True,
    ) -> None:
        self._model, self._on_error, self._whole = model, on_error, whole
        self._head_name = head
        blocks = find_repeated_blocks(model) if layers is None else match_layers(model, layers)
        self._layers, self._by_name = blocks, layers is not None
        self._masks = PassMasks(model, blocks)
        self._hooks = ExitStack()
        self._is_paused = False
        self._depth = 0
        self._heads: dict[str, _PartHead] = {}  # by the names of the heads
        self._failure: InputError | None = None
        self._start_pass()

    def __enter__(self) -> "PartsObserver":
        with ExitStack() as hooks:
            options = RecordOptions(whole_input=True)
            if self._head_name is not None:
                head = find_layer(self._model, self._head_name)
                options = RecordOptions({head}, KEPT_ROWS, whole_input=True)
            recorder = record_calls(self._model, self._on_error, options)
            self._linear = hooks.enter_context(recorder)
            for module in filterfalse(is_scripted, self._model.modules()):
                if module is not self._model or self._whole:
                    begin = guard_hook(self._begin_call, self._on_error)
                    end = guard_hook(self._end_call, self._on_error)
                    hooks.callback(module.register_forward_pre_hook(begin, with_kwargs=True).remove)
                    hooks.callback(module.register_forward_hook(end).remove)
            hooks.enter_context(self._masks.record(self._on_error))
            for name in self._layers:
                keep = guard_hook(self._output_hook(name), self._on_error)
                module = find_layer(self._model, name)
                hooks.callback(module.register_forward_hook(keep).remove)
            self._hooks = hooks.pop_all()  # without an error; else none is left
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the hooks from the model."""
        self._hooks.close()

    @property
    def has_pass(self) -> bool:
        """True if the loop has called the model or a part with parameters."""
        return self._last is not None

    @property
    def is_whole(self) -> bool:
        """True if the logits are those of the model itself, and not of a part of it."""
        of_model = any(entry.part is self._model for entry in self._heads.values())
        return of_model or self._last is self._model

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Ignore the calls of modules inside the context."""
        calls = list(self._linear)
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            self._linear[:] = calls  # its own hooks know of no pause

    def trace(self) -> Trace:
        """Return the head and the layers of the latest pass.

        The head is the linear layer that makes the output of a module that the loop called, if no
        other such layer reads this output. The batch axis of a layer is the first or else the
        second axis of its output, of which the length is the number of samples.

        Raises:
            InputError: If no layer or several layers qualify as the head, the head is applied to
                tokens, or a layer does not return one row for each sample.
        """
        if not self._heads:
            assert self._failure is not None
            raise self._failure
        if len(self._heads) > 1:  # only the user knows for which of them the labels are
            names = " or ".join(f'head="{name}"' for name in sorted(self._heads))
            raise InputError(
                expected="one part whose output is the logits",
                found=" and ".join(map(repr, sorted(self._heads))),
                fix=f"pass {names}",
            )
        ((head, rows, _, _),) = self._heads.values()
        if head.rows != "sample":
            raise InputError(
                expected="a head on one vector a sample in a model whose parts are called apart",
                found=f"head {head.name!r} on tokens",
                fix="put the parts into one module that returns the logits, and call this module",
            )
        assert rows is not None
        assert rows.whole_input is not None
        self._features = rows.whole_input
        self._outputs.pop(head.name, None)
        count = len(self._features)
        axes: dict[str, BatchAxis] = {}
        for name, tensors in self._outputs.items():
            possible = (
                BatchAxis(index, axis)
                for index, tensor in enumerate(tensors)
                for axis in range(min(2, tensor.ndim))
                if tensor.is_floating_point() and tensor.shape[axis] == count
            )
            batch_axis = next(possible, None)
            if batch_axis is None:
                shapes = " and ".join(str(tuple(tensor.shape)) for tensor in tensors)
                raise InputError(
                    expected=f"layer {name!r} to return one row a sample",
                    found=f"{shapes or 'no tensor'} of {count}",
                    fix="tap the block around it, or leave it out of layers=[...]",
                )
            axes[name] = batch_axis
        layers = [name for name in self._layers if self._by_name or name in axes]
        layers = [name for name in layers if name != head.name]
        axes = {**axes, HEAD_INPUT: BatchAxis()}
        return Trace(head, tuple(layers), axes, whole=False, notes=head.notes)

    def replay(self, taps: Taps) -> None:
        """Let taps of the trace read the latest pass."""
        taps.replay({**self._outputs, HEAD_INPUT: self._features}, self._masks)

    def _start_pass(self) -> None:
        self._tops: set[nn.Module] = set()
        self._last: nn.Module | None = None
        self._masks.forget()
        self._calls: Counter[str] = Counter()
        self._outputs: dict[str, list[Tensor]] = {}

    def _begin_call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_paused or in_backward():
            return
        # Nothing else tells a new pass: the loop may call the parts in any order.
        if self._depth == 0 and module in self._tops:
            self._start_pass()
            self._linear.clear()
        self._depth += 1

    def _end_call(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._is_paused or in_backward():
            return
        # The hooks may have been attached inside of a call, whose begin they have not seen.
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and next(module.parameters(), None) is not None:
            self._tops.add(module)
            self._last = module
            # Now, because the weights may move before the loop gives the labels.
            try:
                outputs = {at: each.detach() for at, each in possible_logits(output).items()}
                with self.pause():  # an adapter runs on unit vectors, with hooks in it
                    head = find_head_among_calls(
                        self._model, self._linear, outputs, self._head_name
                    )
                rows = [call.rows for call in self._linear if call.module is head.module][-1]
                # What a later part reads are features, not logits.
                self._heads = {
                    name: entry
                    for name, entry in self._heads.items()
                    if rows is None
                    or rows.whole_input is None
                    or not feeds(entry.output, rows.whole_input)
                }
                # A head that a pass of the whole model showed stays if the loop calls it alone.
                before = self._heads.get(head.name)
                if before is None or before.part is not self._model or module is self._model:
                    self._heads[head.name] = _PartHead(
                        head, rows, outputs.get(head.logits_place), module
                    )
            except InputError as error:
                self._failure = error

    def _output_hook(self, layer: str) -> Any:
        def keep(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if not self._is_paused and not in_backward():
                self._calls[layer] += 1
                name = call_name(layer, self._calls[layer])
                self._outputs[name] = [tensor.detach().clone() for tensor in tensors_in(output)]

        return keep
