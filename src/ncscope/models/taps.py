"""Features of named layers, read while a model runs."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AvgPoolNd, _MaxPoolNd

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
_CHECKED_ROWS = 64


class BatchAxis(NamedTuple):
    """Tensor of a layer's output that holds the features, and its batch axis.

    Attributes:
        tensor: Index of the tensor in the output, counted depth first.
        axis: Index of the batch axis; if tokens are rows, of the axis that is the first axis of the
            logits.
        channels: Index of the axis of the channels of a map whose pixels are rows, once the batch
            axis is the first: 1, or -1 for the last; None for what is no such map.
    """

    tensor: int = 0
    axis: int = 0
    channels: int | None = None


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
        of_pairs: Masks of pairs of tokens, as for `PassMasks`.
        on_error: Function that is called with an exception of a hook; by default, the exception is
            raised in the forward pass.

    Attributes:
        token_mask: Mask of the tokens of the logits of the last pass, false for padding, or None.
        pixels: Shape H x W of the head's outputs of the last pass if the tokens are pixels; else
            empty.

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
        of_pairs: Collection[tuple[nn.Module, str]] = (),
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._model = model
        self._layers = tuple(dict.fromkeys(layers))
        self._head_name = head.name if isinstance(head, Head) else head
        self._head = head if isinstance(head, Head) else None
        self._pool = pool
        self._rows = rows
        self._axes = axes or {}
        self._whole, self._on_error = whole, on_error
        self._handles = ExitStack()
        # The head's own input is never pooled. Its mask tells which tokens of the logits are real.
        is_matrix = self._head is not None and self._head.is_matrix
        self._masked_name = "" if is_matrix else self._head_name
        self._masks = PassMasks(model, [*self._layers, self._masked_name], of_pairs)
        self._head_module: nn.Module | None = None
        self._place: tuple[nn.Module, str] | None = None
        self._in_pass = not whole
        self._head_is_model = False
        self._calls: Counter[str] = Counter()
        self._modules: dict[str, nn.Module] = {}
        self._running: dict[str, Tensor] = {}
        self._outputs: Tensor | None = None
        self._features: Mapping[str, Tensor] | None = None
        self._logits: Tensor | None = None
        self._agree: Tensor | None = None
        self._training_rows: tuple[Tensor, Tensor] | None = None
        self.token_mask: Tensor | None = None
        self.pixels: tuple[int, ...] = ()

    @property
    def has_pass(self) -> bool:
        """True if a forward pass has been read."""
        return self._features is not None

    @property
    def features(self) -> Mapping[str, Float[Tensor, "b d"]]:
        """Features of the last forward pass, B x d each, in the order in which layers ended.

        With tokens as rows, the shape is B T x d. The head's input comes last, as `HEAD_INPUT`.

        Raises:
            InputError: If the model has not run.
        """
        if self._features is None:
            raise self._no_pass_error()
        return self._features

    @property
    def logits(self) -> Float[Tensor, "b k"] | Float[Tensor, "b t k"]:
        """Logits of the last forward pass, before a softmax or the like; DTensors stay sharded.

        Raises:
            InputError: If the model has not run.
        """
        if self._logits is None:
            raise self._no_pass_error()
        return self._logits

    def release_logits(self) -> None:
        """Forget the logits of the last pass: with many classes they take the most memory."""
        self._logits = self._outputs = None

    def continue_from(self, other: "Taps") -> None:
        """Take over the comparisons of other taps on the same model, of earlier passes."""
        self._agree, self._training_rows = other._agree, other._training_rows

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
        if self._head is None:
            return None, ()
        if self._agree is not None and not bool(self._agree):
            raise InputError(
                expected=f"logits that head {self._head_name!r} makes, in all passes of a report",
                found="other logits in some",
                fix="report before the model uses another head; the next report finds that one. If "
                "the model cuts or mixes logits, collect the features and call "
                "ncscope.measure(features, labels)",
            )
        if self._training_rows is None or step_leads(self._head.last_step, *self._training_rows):
            return None, ()
        step, known = find_last_step(*self._training_rows), self._head.last_step.kind
        if step is not None and {step.kind, known} <= {"none", "affine", known}:
            return step, ()
        return None, (
            f"in training mode the model did not return the outputs of head {self._head_name!r}, "
            "as it does in evaluation mode",
        )

    def __enter__(self) -> "Taps":
        """Attach to the model."""
        with ExitStack() as handles:
            self._handles = handles
            self._modules = {name: find_layer(self._model, name) for name in self._layers}
            if self._head is None:
                head = find_layer(self._model, self._head_name)
            else:
                head = self._head.module
            if not any(module is head for _, module in walk_modules(self._model)):
                raise self._head_replacement_error()
            self._head_module = head
            for parent in self._model.modules():
                for child_name, child in parent._modules.items():
                    if child is head:
                        self._place = parent, child_name
            handles.enter_context(self._masks.record(self._on_error))
            if self._whole:
                self._before(self._model, self.begin)
            for name, module in self._modules.items():
                self._after(module, self._output_hook(name))
            if self._head is not None and self._head.is_matrix:
                self._after(head, self._keep_matrix_features)
            else:
                self._head_is_model = self._whole and head is self._model
                if not self._head_is_model:
                    self._before(head, self._keep_input)
                self._after(head, self._keep_outputs)
            # Hooks of one module run in the order in which they were added. The end of the pass
            # comes last, so that layer and head may be the model itself.
            if self._whole:
                self._after(self._model, self._end_pass)
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
        if self._place is not None:  # else the head is the model, or in a list of Keras
            parent, name = self._place
            if name not in parent._modules or parent._modules[name] is not self._head_module:
                raise self._head_replacement_error()  # the weight of the old one would be measured
        self._masks.forget()  # those of a pass that did not end
        self._masks.note(module, args, kwargs)
        self._in_pass = True
        self._calls.clear()
        self._running, self._outputs = {}, None
        self._features = self._logits = self.token_mask = None
        if self._head_is_model:  # a hook that is added in a pass runs from the next pass on
            self._keep_input(module, args, kwargs)

    def _head_replacement_error(self) -> InputError:
        return InputError(
            expected=f"head {self._head_name!r} in the model for all samples of a report",
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
            if self._in_pass and not in_backward():
                self._calls[layer] += 1
                self._keep(call_name(layer, self._calls[layer]), output)

        return keep

    def _keep_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._in_pass or in_backward():
            return
        if HEAD_INPUT in self._running:
            raise InputError(
                expected=f"head {self._head_name!r} to run once in a forward pass",
                found="a second call",
                fix="wrap the model so that it calls its head once",
            )
        self._keep(HEAD_INPUT, (args, kwargs))

    def _keep_matrix_features(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._in_pass and not in_backward():
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
        if at.channels is not None and rows.ndim > 2:
            rows = _copy_if_shared(rows.movedim(at.channels, -1).flatten(0, -2), rows)
        elif self._rows == "token" and rows.ndim > 2:
            rows = _copy_if_shared(rows.flatten(0, 1).flatten(1), rows)
        elif self._rows == "chosen token" and rows.ndim > 2:
            # Whole sequences, until the logits show which token was chosen.
            rows = rows.clone()
        elif name == HEAD_INPUT:
            rows = _flatten(rows)
        else:
            # Without a mask, nothing tells a sequence of tokens from a one-dimensional feature map.
            mask = check_mask(self._masks, name, rows.shape, self._pool)
            pool = self._pool or (mask is not None and self._pool is None)
            module = self._modules.get(name.partition("#")[0])
            rows = _average(rows, name, mask, module) if pool else _flatten(rows)
        self._running[name] = rows

    def _keep_outputs(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        outputs = first_tensor(output)
        if not self._in_pass or outputs is None or in_backward():
            return
        channels = self._axes.get(HEAD_INPUT, BatchAxis()).channels
        if channels is not None and outputs.ndim > 2:
            outputs = outputs.movedim(channels, -1)
            self.pixels = tuple(outputs.shape[1:-1])
            outputs = outputs.flatten(1, -2)
        if self._head is not None:
            classes = 1 if self._head.one_logit else len(self._head.weight)
            width = outputs.shape[-1] if self._rows != "sample" else outputs[:1].numel()
            if width != classes and len(outputs):  # the head has grown in place
                raise InputError(
                    expected=f"{classes} outputs of head {self._head_name!r} for all samples of a "
                    "report",
                    found=f"{width} in this pass",
                    fix="report before the head grows; the next report finds the new one",
                )
        # The model may change the outputs in place: no token would equal the logits, no step would
        # lead to them, and a change of some would not be seen. The outputs of a head on tokens are
        # copied for a step alone: a copy takes gigabytes for a language model.
        has_step = self._head is not None and self._head.last_step != LastStep()
        outputs = outputs.clone() if has_step or self._rows != "token" else outputs
        self._outputs = dequantize(outputs.detach())

    def _end_pass(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._in_pass = False
        self._check_all_ran(self._running)
        returned = possible_logits(output)
        logits = self._find_logits(returned)
        mask = self._masks.mask_of(self._masked_name)
        self.token_mask = mask if mask is not None and mask.shape == logits.shape[:-1] else None
        if self._rows == "chosen token":
            assert self._outputs is not None
            axis = self._axes.get(HEAD_INPUT, BatchAxis()).axis
            outputs = gather_shards(self._outputs).movedim(axis, 0).flatten(1, -2)
            self._choose_tokens(outputs, gather_shards(logits))
        else:
            self._compare_outputs(returned, training=module.training)
        self._outputs = None
        self._check_rows(self._running, len(logits.flatten(0, -2)))
        self._features = _in_order(self._running)
        self._logits = logits
        self._masks.forget()

    def _find_logits(self, returned: Mapping[str, Tensor]) -> Tensor:
        """Return the logits of a pass: outputs of the model, or of the head before a last step."""
        head = self._head
        place = "" if head is None else head.logits_place
        if head is not None and self._outputs is not None and self._rows != "chosen token":
            logits = self._as_logits(returned)
            # A scale belongs to the logits. The outputs of a softmax or sigmoid are not taken: they
            # round large logits to ties, and accuracy would be that of the first class of a tie.
            if head.gives_logits and head.last_step.kind == "affine" and place in returned:
                output = dequantize(returned[place].detach())
                logits = output if output.shape == logits.shape else logits
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
            place = "" if self._head is None else self._head.logits_place
            raise InputError(
                expected=f"logits at output {place!r} of the model",
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

    def _compare_outputs(self, returned: Mapping[str, Tensor], *, training: bool) -> None:
        """Compare rows of the head's outputs with what the model returned.

        On an accelerator nothing is read before the report, so that no pass waits.
        """
        head = self._head
        if head is None or not head.gives_logits:
            return
        if head.is_matrix:
            affine = head.read() if head.read is not None else None
            if affine is None:
                return
            features = spread_rows(self._running[HEAD_INPUT], _CHECKED_ROWS)
            outputs = (features.double() @ affine[0].double().T).to(features.dtype)
        else:
            whole = self._as_logits(returned)
            if is_sharded(whole):
                return
            outputs = spread_rows(whole.flatten(0, -2), _CHECKED_ROWS)
        possible = (
            [returned[head.logits_place]]
            if head.logits_place in returned
            else list(returned.values())
        )
        for output in possible:
            if is_sharded(output) or output.shape[-1] != outputs.shape[1]:
                continue
            rows = spread_rows(dequantize(output.detach()).flatten(0, -2), _CHECKED_ROWS)
            if rows.shape != outputs.shape:
                continue
            if training:
                # Only the last pass counts: a learned factor moves from pass to pass.
                self._training_rows = outputs.clone(), rows.clone()
            else:
                # A tensor on the device; `check_step` asks for its value, once a report.
                agree = step_agrees(head.last_step, outputs, rows)
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
        # Nothing else tells where the next pass begins, also if the checks below fail.
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
            if missing == [HEAD_INPUT] and self._head is not None:
                raise InputError(
                    expected=f"head {self._head_name!r} to run in all passes of a report",
                    found="a pass without it",
                    fix="report before the model uses another head; the next report finds that one",
                )
            names = [self._head_name if name == HEAD_INPUT else name for name in missing]
            fix = "leave out modules that the model does not call (in evaluation mode)"
            raise InputError(
                expected="every tapped layer to run",
                found=f"no call of {', '.join(map(repr, names))}",
                fix=fix,
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
        in_all = same.any(dim=1).all()
        at = torch.arange(len(same), device=same.device), same.int().argmax(dim=1)
        inputs = self._running[HEAD_INPUT]
        differ = (inputs != inputs[at][:, None]).any(dim=2)
        # Tokens of equal features have equal outputs; either may be taken.
        if not in_all or (same & differ).any():
            raise InputError(
                expected=f"logits that are the outputs of head {self._head_name!r} for one token",
                found="several such tokens" if in_all else "no such token in some sample",
                fix="wrap the model so that its head gets that token only",
            )
        for name, tensor in self._running.items():
            sequence = tensor.shape[:2] == same.shape
            self._running[name] = _flatten(tensor[at]) if sequence else _flatten(tensor)

    def _check_rows(self, running: Mapping[str, Tensor], count: int) -> None:
        for name, rows in running.items():
            if len(rows) != count:
                one = "token" if self._rows == "token" else "sample"
                raise InputError(
                    expected=f"layer {name!r} to return one row a {one}",
                    found=f"{len(rows)} rows for a batch of {count}",
                    fix="tap the block around it, whose output is batch-first",
                )

    def _no_pass_error(self) -> InputError:
        return InputError(
            expected="a forward pass to read from",
            found="none",
            fix="call the model itself inside the context, not a scripted or compiled copy",
        )


def _in_order(running: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the features of a pass, those of the head last."""
    layers = {name: rows for name, rows in running.items() if name != HEAD_INPUT}
    return MappingProxyType({**layers, HEAD_INPUT: running[HEAD_INPUT]})


_CHANNELS_FIRST = (_ConvNd, _BatchNorm, _MaxPoolNd, _AvgPoolNd, _AdaptiveAvgPoolNd)
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.RNNBase, nn.MultiheadAttention, nn.Embedding)


def _average(
    tensor: Tensor, name: str, mask: Tensor | None, module: nn.Module | None
) -> Float[Tensor, "b d"]:
    """Average maps over space and sequences over their tokens; leave vectors as they are."""
    parts = [] if module is None else list(module.modules())
    first_by_parts = any(isinstance(part, _CHANNELS_FIRST) for part in parts)
    last_by_parts = any(isinstance(part, _CHANNELS_LAST) for part in parts)
    if tensor.ndim > 3:
        _, first, *middle, last = tensor.shape
        looks_last = all(size == first for size in middle) and last != first
        if looks_last or (last_by_parts and not first_by_parts):
            raise InputError(
                expected=f"a channels-first map from layer {name!r} to pool",
                found=f"shape {'x'.join(map(str, tensor.shape))}, which looks channels-last",
                fix="pass pool=False",
            )
        return tensor.flatten(2).mean(dim=2)
    if tensor.ndim < 3:
        return _flatten(tensor)
    if mask is None:  # a map of one dimension, or a sequence of tokens
        return tensor.mean(dim=2 if first_by_parts and not last_by_parts else 1)
    is_real = mask.to(tensor.device)[:, :, None]
    # Not a product: padding may be infinite or NaN.
    return torch.where(is_real, tensor, 0).sum(dim=1) / is_real.sum(dim=1)


def _flatten(tensor: Tensor) -> Float[Tensor, "b d"]:
    return _copy_if_shared(tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None], tensor)


def _copy_if_shared(rows: Tensor, tensor: Tensor) -> Tensor:
    """Return rows that share no memory with the tensor from which they were read.

    The next layer may write into the tensor, and a view of a slice would keep all of it alive.
    """
    if rows.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr():
        return rows
    return rows.clone(memory_format=torch.contiguous_format)
