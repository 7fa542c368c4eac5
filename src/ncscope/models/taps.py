"""Features of named layers, read while a model runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.forward import first_tensor, possible_logits, tensors_in
from ncscope.models.heads import Head, Rows, mark_chosen_tokens, spread_rows
from ncscope.models.hooks import guard_hook, in_backward
from ncscope.models.last_step import LastStep, find_last_step, step_agrees, step_leads
from ncscope.models.layers import find_layer
from ncscope.models.linear_calls import dequantize
from ncscope.models.masks import PassMasks, check_mask
from ncscope.models.sharding import gather_shards, is_sharded
from ncscope.models.wrappers import walk_modules

# Name of the head's input among the features. No module has a space in its name.
HEAD_INPUT = "head input"

# Rows of a pass by which the head is checked.
_SHOWN = 64


class BatchAxis(NamedTuple):
    """Tensor of a layer's output that holds the features, and its batch axis.

    Attributes:
        tensor: Index of the tensor in the output, counted depth first.
        axis: Index of the batch axis; if tokens are rows, of the axis that is the first axis of the
            logits.
    """

    tensor: int = 0
    axis: int = 0


def call_name(layer: str, number: int) -> str:
    """Return the name of a layer's call: ``layer`` for the first, ``layer#2`` for the second.

    Example:
        >>> call_name("encoder.block", 1), call_name("encoder.block", 2)
        ('encoder.block', 'encoder.block#2')
    """
    return layer if number == 1 else f"{layer}#{number}"


class Taps:
    """Features of layers, the head's input and the logits, after each forward pass.

    Features are detached copies, because a layer may change the output of the layer before in place
    (a ReLU on a batch norm's output). They can still be read after the context has ended.

    A layer that a forward pass calls several times, such as a block with shared weights, has
    features for each call: under its name, then under ``name#2``, ``name#3`` and so on.

    Args:
        model: Model that will run; a forward pass begins with a call of this module.
        layers: Names of submodules whose outputs are read.
        head: Head, as `find_head` returns it; or the name of a module whose outputs are the logits.
        pool: Average maps (B x C x H x W, or more) over their spatial dimensions, and sequences
            (B x T x d) over their tokens if True: over the tokens that the mask of the layer keeps,
            see `PassMasks`. Flatten both if False. By default, average sequences with a mask, and
            flatten everything else. In a pass with masks, a sequence that no mask fits is refused
            unless ``pool`` is False: its padding is unknown.
        rows: Unit of a row of the features, as `find_head` reports it: a sample; every token; or
            one chosen token of each sample, whose outputs are the logits. The chosen token is taken
            in the head's input and in every layer with the same tokens.
        axes: Batch axis of every call, as `trace` finds it; every pass must then make these calls.
            By default, the first axis of the first tensor of every output and of the head's input.
        whole: A forward pass is a call of the model if True. If False, the loop calls parts of the
            model, such as a backbone and then a head, and a pass ends with a call of the head.
        on_error: Function that is called with an exception of a hook; by default, the exception is
            raised in the forward pass.

    Raises:
        InputError: On entry, if the model lacks a name. In the forward pass, if the head has been
            replaced since it was found; if a layer does not
            run, runs more or less often than in ``axes``, returns no tensor or not one row for each
            sample (token), or, with ``pool``, returns a map that looks channels-last; if the head
            runs twice; if the logits of a sample are the outputs of no token, or of several tokens
            with different features.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> with Taps(model, ["0", "1"], head="2") as taps:
        ...     _ = model(torch.zeros(5, 4))
        >>> {name: tuple(features.shape) for name, features in taps.features.items()}
        {'0': (5, 3), '1': (5, 3), 'head input': (5, 3)}
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[str],
        head: Head | str,
        *,
        pool: bool | None = None,
        rows: Rows = "sample",
        axes: Mapping[str, BatchAxis] | None = None,
        whole: bool = True,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._model = model
        self._layers = tuple(dict.fromkeys(layers))
        self._head = head.name if isinstance(head, Head) else head
        self._found = head if isinstance(head, Head) else None
        self._pool = pool
        self._rows = rows
        self._axes = axes or {}
        self._whole, self._on_error = whole, on_error
        self._handles = ExitStack()
        # The head's own input is averaged by no mask; its mask tells which tokens are real.
        reads = "" if self._found is not None and self._found.after else self._head
        self._masks = PassMasks(model, [*self._layers, reads])
        self._reads = reads
        self._head_now: nn.Module | None = None
        self._place: tuple[nn.Module, str] | None = None
        self._inside = not whole
        self._head_is_model = False
        self._calls: Counter[str] = Counter()
        self._running: dict[str, Tensor] = {}
        self._outputs: Tensor | None = None
        self._features: Mapping[str, Tensor] | None = None
        self._logits: Tensor | None = None
        self._agree: Tensor | None = None
        self._trained: tuple[Tensor, Tensor] | None = None
        self.token_mask: Tensor | None = None

    @property
    def ran(self) -> bool:
        """Return whether a forward pass has been read."""
        return self._features is not None

    @property
    def features(self) -> Mapping[str, Float[Tensor, "b d"]]:
        """Features of the last forward pass, B x d each, in the order in which layers ended.

        With tokens as rows, the shape is B T x d. The head's input comes last, as `HEAD_INPUT`.

        Raises:
            InputError: If the model has not run.
        """
        if self._features is None:
            raise self._not_run()
        return self._features

    @property
    def logits(self) -> Float[Tensor, "b k"] | Float[Tensor, "b t k"]:
        """Logits of the last forward pass, before a softmax or the like; DTensors stay sharded.

        Raises:
            InputError: If the model has not run.
        """
        if self._logits is None:
            raise self._not_run()
        return self._logits

    def release_logits(self) -> None:
        """Forget the logits of the last pass: with many classes they take the most memory."""
        self._logits = self._outputs = None

    def continue_from(self, other: "Taps") -> None:
        """Take over the comparisons of other taps on the same model, of earlier passes."""
        self._agree, self._trained = other._agree, other._trained

    def check_step(self) -> tuple[LastStep | None, tuple[str, ...]]:
        """Check that the head has made the logits of every pass.

        In training mode a model may change its outputs in ways that it does not in evaluation mode,
        and a factor may be learned: the factor of the last pass is then taken.

        Returns:
            The last step of the latest pass, None for the one that was found; and warnings.

        Raises:
            InputError: If in evaluation mode the model did not return the outputs of its head,
                apart from the last step that was found: another layer made logits.
        """
        if self._found is None:
            return None, ()
        if self._agree is not None and not bool(self._agree):
            raise InputError(
                expected=f"logits that head {self._head!r} makes, in all passes of a report",
                found="logits of another layer in some",
                fix="report before the model uses another head; the next report finds that one",
            )
        if self._trained is None or step_leads(self._found.step, *self._trained):
            return None, ()
        step, known = find_last_step(*self._trained), self._found.step.kind
        if step is not None and {step.kind, known} <= {"none", "affine", known}:
            return step, ()
        return None, (
            f"in training mode the model did not return the outputs of head {self._head!r}, as it "
            "does in evaluation mode",
        )

    def __enter__(self) -> "Taps":
        """Attach to the model."""
        with ExitStack() as handles:
            self._handles = handles
            modules = [(name, find_layer(self._model, name)) for name in self._layers]
            head = self._head_now = self._head_module()
            handles.enter_context(self._masks.record(self._on_error))
            if self._whole:
                self._before(self._model, self.begin)
            for name, module in modules:
                self._after(module, self._output_hook(name))
            after = self._found is not None and self._found.after
            if after:
                self._after(head, self._keep_features)
            else:
                self._head_is_model = self._whole and head is self._model
                if not self._head_is_model:
                    self._before(head, self._keep_input)
                self._after(head, self._keep_outputs)
            if self._whole:
                self._after(self._model, self._end)
            else:
                self._after(head, self._end_at_head)
            self._handles = handles.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the hooks from the model."""
        self._handles.close()

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Start a forward pass; to be called by code that attaches when a pass has just begun."""
        self._check_head()
        self._masks.forget()  # those of a pass that did not end
        self._masks.note(module, args, kwargs)
        self._inside = True
        self._calls.clear()
        self._running, self._outputs = {}, None
        self._features = self._logits = self.token_mask = None
        if self._head_is_model:  # a hook that is added in a pass runs from the next pass on
            self._keep_input(module, args, kwargs)

    def _head_module(self) -> nn.Module:
        """Return the module of the head, and remember where the model has it."""
        head = find_layer(self._model, self._head) if self._found is None else self._found.module
        if not any(module is head for _, module in walk_modules(self._model)):
            raise self._replaced()
        for parent in self._model.modules():
            for name, child in parent._modules.items():
                if child is head:
                    self._place = parent, name
        return head

    def _check_head(self) -> None:
        """Refuse a head that the model does not have any more: its weight would be measured."""
        if self._place is None:  # the head is the model, or in a list of Keras
            return
        parent, name = self._place
        if name not in parent._modules or parent._modules[name] is not self._head_now:
            raise self._replaced()

    def _replaced(self) -> InputError:
        return InputError(
            expected=f"head {self._head!r} in the model for all samples of a report",
            found="another module in its place",
            fix="report before the head is replaced; the next report finds the new one",
        )

    def _before(self, module: nn.Module, hook: Any) -> None:
        """Call a hook with the arguments of every call of the module."""
        handle = module.register_forward_pre_hook(
            guard_hook(hook, self._on_error), with_kwargs=True
        )
        self._handles.callback(handle.remove)

    def _after(self, module: nn.Module, hook: Any) -> None:
        """Call a hook with the output of every call of the module."""
        handle = module.register_forward_hook(guard_hook(hook, self._on_error))
        self._handles.callback(handle.remove)

    def _output_hook(self, layer: str) -> Any:
        def keep(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._inside and not in_backward():
                self._calls[layer] += 1
                self._keep(call_name(layer, self._calls[layer]), output)

        return keep

    def _keep_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._inside or in_backward():
            return
        if HEAD_INPUT in self._running:
            raise InputError(
                expected=f"head {self._head!r} to run once in a forward pass",
                found="a second call",
                fix="wrap the model so that it calls its head once",
            )
        self._keep(HEAD_INPUT, (args, kwargs))

    def _keep_features(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._inside and not in_backward():
            self._keep(HEAD_INPUT, output)

    def _keep(self, name: str, value: object) -> None:
        at = self._axes.get(name, BatchAxis())
        tensor = next(islice(tensors_in(value), at.tensor, None), None)
        if tensor is None or tensor.ndim <= at.axis:
            shape = None if tensor is None else tuple(tensor.shape)
            found = type(value).__name__ if shape is None else f"a tensor of shape {shape}"
            raise InputError(
                expected=f"layer {name!r} to return a tensor", found=found, fix="tap another layer"
            )
        if tensor.is_nested:
            raise InputError(
                expected=f"layer {name!r} to return a plain tensor",
                found="a nested one, without padding",
                fix="call torch.backends.mha.set_fastpath_enabled(False) first",
            )
        rows = gather_shards(dequantize(tensor.detach())).movedim(at.axis, 0)
        self._running[name] = self._read(rows, name)

    def _read(self, tensor: Tensor, name: str) -> Tensor:
        """Return the rows of a tensor, which share no memory with it.

        With a chosen token, sequences stay whole until the logits show which token was chosen.
        """
        if self._rows == "token" and tensor.ndim > 2:
            return _unshared(tensor.flatten(0, 1).flatten(1), tensor)
        if self._rows == "chosen token" and tensor.ndim > 2:
            return tensor.clone()
        if name == HEAD_INPUT:
            return _flat(tensor)
        # Without a mask, nothing tells a sequence of tokens from a one-dimensional feature map.
        mask = check_mask(self._masks, name, tensor.shape, self._pool)
        if self._pool or (mask is not None and self._pool is None):
            return _averaged(tensor, name, mask)
        return _flat(tensor)

    def _keep_outputs(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        outputs = first_tensor(output)
        if self._inside and outputs is not None and not in_backward():
            self._check_width(outputs)
            # The model may change the outputs in place before it chooses a token.
            kept = outputs.clone() if self._rows == "chosen token" else outputs
            self._outputs = dequantize(kept.detach())

    def _check_width(self, outputs: Tensor) -> None:
        """Refuse a head that has grown in place since it was found."""
        if self._found is None:
            return
        classes = 1 if self._found.one_logit else len(self._found.weight)
        made = outputs.shape[-1] if self._rows != "sample" else outputs[:1].numel()
        if made != classes and len(outputs):
            raise InputError(
                expected=f"{classes} outputs of head {self._head!r} for all samples of a report",
                found=f"{made} in this pass",
                fix="report before the head grows; the next report finds the new one",
            )

    def _end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._inside = False
        self._check_all_ran(self._running)
        returned = possible_logits(output)
        logits = self._logits_in(returned)
        mask = self._masks.mask_of(self._reads)
        self.token_mask = mask if mask is not None and mask.shape == logits.shape[:-1] else None
        if self._rows == "chosen token":
            assert self._outputs is not None
            axis = self._axes.get(HEAD_INPUT, BatchAxis()).axis
            outputs = gather_shards(self._outputs).movedim(axis, 0).flatten(1, -2)
            self._choose_tokens(outputs, gather_shards(logits))
        else:
            self._compare(returned, training=module.training)
        self._outputs = None
        self._check_rows(self._running, len(logits.flatten(0, -2)))
        self._features = _in_order(self._running)
        self._logits = logits
        self._masks.forget()

    def _logits_in(self, returned: Mapping[str, Tensor]) -> Tensor:
        """Return the logits of a pass: outputs of the model, or of the head before a last step."""
        head = self._found
        place = "" if head is None else head.output
        if head is not None and self._outputs is not None and self._rows != "chosen token":
            logits = self._as_logits(returned)
            # A scale belongs to the logits. Softmax and sigmoid would round the greatest to ties.
            if head.gives_logits and head.step.kind == "affine" and place in returned:
                scaled = dequantize(returned[place].detach())
                logits = scaled if scaled.shape == logits.shape else logits
        elif head is not None and place in returned:
            logits = dequantize(returned[place].detach())
        elif head is None and returned:
            logits = dequantize(next(iter(returned.values())).detach())
        else:
            logits = self._as_logits(returned)
        if head is not None and head.one_logit:
            logits = torch.cat([-logits, logits], dim=-1) / 2
        return logits

    def _as_logits(self, returned: Mapping[str, Tensor]) -> Tensor:
        """Return the head's outputs in the form that logits have: B x K, or B x T x K."""
        outputs = self._outputs
        if outputs is None:
            raise InputError(
                expected=f"logits at output {getattr(self._found, 'output', '')!r} of the model",
                found="none in this pass",
                fix="let the model return the same outputs in every pass",
            )
        if self._rows == "sample":
            return outputs.flatten(1)
        if outputs.ndim == 3:
            return outputs.movedim(self._axes.get(HEAD_INPUT, BatchAxis()).axis, 0)
        tokens = (output.shape[:2] for output in returned.values() if output.ndim == 3)
        lengths = next((each for each in tokens if each.numel() == len(outputs)), None)
        return outputs if lengths is None else outputs.unflatten(0, lengths)

    def _compare(self, returned: Mapping[str, Tensor], *, training: bool) -> None:
        """Compare rows of the head's outputs with what the model returned.

        On an accelerator nothing is read before the report, so that no pass waits.
        """
        head = self._found
        if head is None or not head.gives_logits:
            return
        if head.after:
            affine = head.read() if head.read is not None else None
            if affine is None:
                return
            features = spread_rows(self._running[HEAD_INPUT], _SHOWN)
            outputs = (features.double() @ affine[0].double().T).to(features.dtype)
        else:
            whole = self._as_logits(returned)
            if is_sharded(whole):
                return
            outputs = spread_rows(whole.flatten(0, -2), _SHOWN)
        given = [returned[head.output]] if head.output in returned else list(returned.values())
        for output in given:
            if is_sharded(output) or output.shape[-1] != outputs.shape[1]:
                continue
            rows = spread_rows(dequantize(output.detach()).flatten(0, -2), _SHOWN)
            if rows.shape != outputs.shape:
                continue
            if training:
                self._trained = outputs.clone(), rows.clone()
            else:
                agree = step_agrees(head.step, outputs, rows)
                self._agree = agree if self._agree is None else self._agree & agree
            return

    def replay(self, outputs: Mapping[str, object], masks: PassMasks) -> None:
        """Read a pass of parts of the model that ran before the taps were attached.

        Args:
            outputs: Outputs of each call of a layer, and the head's input as `HEAD_INPUT`.
            masks: Masks of the pass.
        """
        self._masks.take(masks)
        for name, value in outputs.items():
            self._keep(name, value)
        self._end_of_parts()

    def _end_at_head(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """End a pass of parts of the model: the head is the last of them."""
        if not in_backward():
            self._end_of_parts()

    def _end_of_parts(self) -> None:
        running, self._running = self._running, {}
        self._masks.forget()
        self._calls.clear()
        self._check_all_ran(running)
        self._check_rows(running, len(running[HEAD_INPUT]))
        self._features = _in_order(running)

    def _check_all_ran(self, running: Mapping[str, Tensor]) -> None:
        calls = dict.fromkeys((*self._layers, *self._axes, HEAD_INPUT))
        missing = [name for name in calls if name not in running]
        if missing:
            if missing == [HEAD_INPUT] and self._found is not None:
                raise InputError(
                    expected=f"head {self._head!r} to run in all passes of a report",
                    found="a pass without it",
                    fix="report before the model uses another head; the next report finds that one",
                )
            names = _listed(self._head if name == HEAD_INPUT else name for name in missing)
            fix = "leave out modules that the model does not call (in evaluation mode)"
            raise InputError(
                expected="every tapped layer to run", found=f"no call of {names}", fix=fix
            )
        more = [name for name in running if self._axes and name not in calls]
        if more:
            raise InputError(
                expected="every forward pass to call the tapped layers as often as the first",
                found=f"another call, {more[0]!r}",
                fix="leave the layer out of layers=[...]",
            )

    def _choose_tokens(self, outputs: Float[Tensor, "b t k"], logits: Float[Tensor, "b k"]) -> None:
        """Reduce every sequence to the token whose outputs are the sample's logits."""
        same = mark_chosen_tokens(outputs, logits)
        found = same.any(dim=1).all()
        at = torch.arange(len(same), device=same.device), same.int().argmax(dim=1)
        inputs = self._running[HEAD_INPUT]
        differ = (inputs != inputs[at][:, None]).any(dim=2)
        if not found or (same & differ).any():
            raise InputError(
                expected=f"logits that are the outputs of head {self._head!r} for one token",
                found="several such tokens" if found else "no such token in some sample",
                fix="wrap the model so that its head gets that token only",
            )
        for name, tensor in self._running.items():
            sequence = tensor.shape[:2] == same.shape
            self._running[name] = _flat(tensor[at]) if sequence else _flat(tensor)

    def _check_rows(self, running: Mapping[str, Tensor], count: int) -> None:
        for name, rows in running.items():
            if len(rows) != count:
                one = "token" if self._rows == "token" else "sample"
                found = f"{len(rows)} rows for a batch of {count}"
                fix = "tap the block around it, whose output is batch-first"
                raise InputError(
                    expected=f"layer {name!r} to return one row a {one}", found=found, fix=fix
                )

    def _not_run(self) -> InputError:
        fix = "call the model itself inside the context, not a scripted or compiled copy"
        return InputError(expected="a forward pass to read from", found="none", fix=fix)


def _in_order(running: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the features of a pass, those of the head last."""
    layers = {name: rows for name, rows in running.items() if name != HEAD_INPUT}
    return MappingProxyType({**layers, HEAD_INPUT: running[HEAD_INPUT]})


def _averaged(tensor: Tensor, name: str, mask: Tensor | None) -> Float[Tensor, "b d"]:
    """Average maps over space and sequences over their tokens; leave vectors as they are."""
    if tensor.ndim > 3:
        _check_channels_first(tensor, name)
        return tensor.flatten(2).mean(dim=2)
    if tensor.ndim < 3:
        return _flat(tensor)
    if mask is None:
        return tensor.mean(dim=1)
    kept = mask.to(tensor.device)[:, :, None]
    # Not a product: padding may be infinite or NaN.
    return torch.where(kept, tensor, 0).sum(dim=1) / kept.sum(dim=1)


def _flat(tensor: Tensor) -> Float[Tensor, "b d"]:
    return _unshared(tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None], tensor)


def _unshared(rows: Tensor, tensor: Tensor) -> Tensor:
    """Return rows that share no memory with the tensor from which they were read."""
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
