"""Detection of a classifier's head from what the model returns, without a list of names."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from ncscope.errors import InputError
from ncscope.metrics.sources import ONE_LOGIT
from ncscope.models.affine import Affine, find_affine_map
from ncscope.models.evaluation import evaluation_mode, restore_buffers
from ncscope.models.forward import forward, no_logits_error, possible_logits
from ncscope.models.last_step import LastStep, find_last_step
from ncscope.models.layers import find_layer
from ncscope.models.linear_calls import (
    KEPT_ROWS,
    CallRows,
    LinearCall,
    Wanted,
    read_tensor,
    record_calls,
)
from ncscope.models.matrix_heads import find_matrix_head
from ncscope.models.sharding import is_sharded, local_shard, rows_at, true_in_all_shards
from ncscope.models.wrappers import walk_modules

Rows: TypeAlias = Literal["sample", "token", "chosen token"]


@dataclass(frozen=True)
class Head:
    """A linear classifier in a model: logits are ``features @ weight.T + bias``.

    Attributes:
        name: Name of the module in the model; empty if the head is the whole model. Name of the
            matrix if the model itself multiplies features by a matrix.
        module: Module of the head; its inputs are the features, one row for each of ``rows``. With
            ``after``, the module whose outputs are the features.
        weight: Weight of shape K x d, as the forward pass used it: after pruning, weight or
            spectral normalisation, with adapters, and dequantised; a factor by which the model
            scales the outputs is in it. A copy from the time of the detection. K is 2 for a head
            with one logit z: its rows give -z/2 and z/2, which have the same softmax.
        bias: Bias of length K, a copy; None without a bias.
        gives_logits: True if the outputs of the head are the model's logits, apart from the last
            step; False for a head that was given by name and whose outputs the model averages,
            masks or does not return.
        rows: Unit to which the head is applied. ``"sample"``: one vector for each sample.
            ``"token"``: every token, and the logits are those of all tokens, as in language models.
            ``"chosen token"``: every token, and the logits of a sample are those of one token, such
            as the last.
        axis: Axis of the input that is the first axis of the logits: 1 for a head on the tokens of
            a sequence-first layer, T x B x d, else 0.
        step: Last step of the model, from the outputs of the head to its own output.
        output: Place of the logits in the model's output; empty if they are the whole output.
        after: True if the features are the outputs of ``module``, which a matrix multiplies.
        one_logit: True if the head has one output, for two classes.
        notes: Sentences on choices that the detection made.
        read: Function that reads the present weight and bias of the module or matrix.
    """

    name: str
    module: nn.Module
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"] | None
    gives_logits: bool = True
    rows: Rows = "sample"
    axis: int = 0
    step: LastStep = field(default_factory=LastStep)
    output: str = ""
    after: bool = False
    one_logit: bool = False
    notes: tuple[str, ...] = ()
    read: Callable[[], Affine | None] | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on values that may mislead."""
        if self.gives_logits:
            return ()
        return (
            f"head {self.name!r} was given by name, and the model does not return its outputs: "
            "accuracy and NC4 are those of the head alone",
        )

    def present(self, step: LastStep | None = None) -> "Head":
        """Return the head with its present weight and bias, which training may have changed.

        Args:
            step: Last step that was seen last; by default, the one with which the head was found.
        """
        found = None if self.read is None else self.read()
        if found is None:
            raise InputError(
                expected=f"head {self.name!r} as it was in the passes of the report",
                found="a weight of another shape",
                fix="report before the head grows; the next report finds the new one",
            )
        present = _with_step(replace(self, weight=found[0], bias=found[1]), step or self.step)
        return replace(present, notes=self.notes)


def find_head(model: nn.Module, inputs: object, name: str | None = None) -> Head:
    """Find the linear layer that makes the model's logits.

    The model runs once, in evaluation mode, with hooks. The head is the innermost module with a
    weight matrix whose outputs are an output of the model, up to a reshape and to a last step that
    keeps the order: a scale, a softmax or its logarithm, a sigmoid, a soft cap, a ReLU. A scale and
    a shift belong to the logits, and enter weight and bias. An output that the layer of another
    output reads is features, not logits. The head may be applied to every token of a sequence: the
    logits are then its outputs for all tokens, or for one token of each sample.

    If no module with a weight matrix qualifies, modules of any kind are tried, and then the
    products of a module's output and a matrix in the model. Whatever the head is made of, its
    outputs are compared with ``features @ weight.T + bias``.

    Args:
        model: A classifier that returns logits: as a tensor, or among other tensors in a tuple, a
            mapping or an object.
        inputs: One small batch as the loader yields it, without the labels; see `forward`.
        name: Name of the head, if known. The output of the model need not be logits then.

    Returns:
        The head. Cost: one forward pass; a second one if an earlier layer has outputs of the
        logits' shape, or if the logits are those of one token of each sample; up to two more if no
        module with a weight matrix qualifies. At most 32 rows of inputs and of outputs are kept.

    Raises:
        InputError: If no module, or more than one, makes an output of the model (a model with
            several heads, a distilled model, a pooled map of logits, a scripted model); if the
            model returns another tensor that may be its logits; the head is not linear (normalised,
            cosine) or runs more than once in a forward pass; or there is no module of the name.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> head = find_head(model, torch.zeros(5, 1, 2, 2))
        >>> head.name, head.weight.shape
        ('3', torch.Size([2, 3]))
    """
    with evaluation_mode(model):
        return find_head_after_pass(model, inputs, record_first_pass(model, inputs, name), name)[0]


@dataclass
class Look:
    """Outputs of a forward pass, and the calls of linear layers in the order of their ends."""

    outputs: Mapping[str, Tensor]
    calls: list[LinearCall]


def record_first_pass(model: nn.Module, inputs: object, name: str | None = None) -> Look:
    """Run the model on a batch, and record the calls of its linear layers.

    Args:
        model: A classifier, in the context `evaluation_mode`.
        inputs: Batch without the labels.
        name: Name of the head, if known.
    """
    wanted = None
    if name is not None:
        wanted = Wanted({find_layer(model, name)}, KEPT_ROWS, columns=True)
    return _look(model, inputs, wanted, masked=name is not None)


def find_head_after_pass(
    model: nn.Module, inputs: object, first: Look, name: str | None = None
) -> tuple[Head, torch.Size]:
    """Find the head after the first look at a batch; run the batch again if that must be.

    The first look keeps rows of the last linear calls only. If another call has outputs of the
    logits' shape, or if the logits may be the outputs of one token of each sample, then a second
    pass keeps rows of exactly these calls.

    Args:
        model: A classifier, in the context `evaluation_mode`.
        inputs: Batch of the first look.
        first: Result of `record_first_pass`; its outputs are dropped before a second pass.
        name: Name of the head, if known.

    Returns:
        Head, and shape of its logits; that of its outputs if these are not the logits.
    """

    def look_again(wanted: Wanted) -> Look:
        first.outputs = {}
        with restore_buffers(model):
            return _look(model, inputs, wanted, masked=name is not None)

    if name is not None:
        module = find_layer(model, name)
        if not any(call.module is module for call in first.calls):
            first = look_again(Wanted({module}, KEPT_ROWS, columns=True, widths=()))
        head = find_head_among_calls(model, first.calls, first.outputs, name)
        shape = _shape_of(head, first)
        widths = {output.shape[-1] for output in first.outputs.values()}
        if not head.gives_logits and len(head.weight) not in widths:
            first.outputs = {}
            with restore_buffers(model):
                _refuse_hidden(model, inputs, head, widths)
        return head, shape
    look = first
    alike = {call.module for call in first.calls if _places(call, first.outputs)}
    again = Wanted(alike or None, max(2, KEPT_ROWS // max(1, len(alike))), columns=True)
    if not all(_is_decided(call, first.outputs) for call in first.calls if call.module in alike):
        look = look_again(again)
    found = _weighted_head(model, look.calls, look.outputs)
    if found is None:
        widths = {output.shape[-1] for output in look.outputs.values()}
        look = look_again(Wanted(each=8, widths=widths))
        found = _head_of_other_kind(model, look, lambda: forward(model, inputs))
    if found is None:
        look = look_again(again)
        raise _no_head(look.calls, look.outputs)
    return found, _shape_of(found, look)


def _refuse_hidden(model: nn.Module, inputs: object, head: Head, widths: set[int]) -> None:
    """Refuse a hidden layer that was named as the head, if the model has outputs of another size.

    Outputs of one number a sample may be losses beside logits that the model does not return.
    """
    try:
        other, _ = find_head_after_pass(model, inputs, record_first_pass(model, inputs))
    except InputError:
        if widths <= {1}:
            return
        raise InputError(
            expected=f"head {head.name!r} to make the outputs of the model",
            found=f"a layer of {len(head.weight)} outputs, and {min(widths - {1})} of the model",
            fix=_WITHOUT_A_HEAD,
        ) from None
    raise InputError(
        expected=f"head {head.name!r} to make the outputs of the model",
        found=f"a layer of {len(head.weight)} outputs, beside {other.name!r} that makes them",
        fix="leave head out: the head is then found by its outputs",
    )


def find_head_among_calls(
    model: nn.Module,
    calls: list[LinearCall],
    outputs: Mapping[str, Tensor],
    name: str | None = None,
) -> Head:
    """Find the head among the calls of linear layers in one forward pass, as `find_head` does.

    Args:
        model: Model whose layers were called.
        calls: Calls of its linear layers, with rows of those that may be the head.
        outputs: Outputs of the pass that may be logits, by place.
        name: Name of the head, if known.

    Raises:
        InputError: As `find_head`.
    """
    if name is not None:
        call = _last_call(model, calls, name)
        match = next(_matches([call], outputs), None)
        return _built(model, calls, match or _Match(call, "", _rows_of_scaled(call, outputs)))
    head = _weighted_head(model, calls, outputs)
    if head is None:
        raise _no_head(calls, outputs)
    return head


def mark_chosen_tokens(
    output: Float[Tensor, "b t k"], logits: Float[Tensor, "b k"]
) -> Bool[Tensor, "b t"]:
    """Mark the tokens whose outputs equal the logits of their sample.

    Example:
        >>> output = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
        >>> mark_chosen_tokens(output, torch.tensor([[3.0, 4.0]]))
        tensor([[False,  True]])
    """
    return (output.to(logits.dtype) == logits[:, None]).all(dim=2)


@dataclass(frozen=True)
class _Match:
    """A call whose outputs are an output of the model, up to a last step.

    Attributes:
        call: The call.
        output: Place of the output.
        rows: Unit of a row of the call's input.
        axis: Batch axis of the input.
        step: Step from the call's outputs to the model's; None if no output is known.
    """

    call: LinearCall
    output: str
    rows: Rows = "sample"
    axis: int = 0
    step: LastStep | None = None


def _look(model: nn.Module, inputs: object, wanted: Wanted | None, *, masked: bool = False) -> Look:
    with record_calls(model, wanted=wanted) as calls:
        returned = forward(model, inputs)
    outputs = {place: output.detach() for place, output in possible_logits(returned).items()}
    if not outputs and not masked:
        raise no_logits_error(returned)
    finite = {}
    for place, output in outputs.items():
        broken = _nonfinite_rows(output, masked)
        if not broken.any():
            finite[place] = output
        elif not masked or len(outputs) == 1:
            raise InputError(
                expected="finite logits",
                found=f"NaN or infinity in {int(broken.sum())} of {broken.numel()} rows",
                fix="check the inputs' scale and the model's weights; pass head=... if the model "
                "masks classes with -inf, or returns another tensor with NaN",
            )
    return Look(finite, calls)


def _nonfinite_rows(logits: Tensor, masked: bool) -> Bool[Tensor, "..."]:
    """Mark rows with NaN or infinity; extremes take less memory than a mask of all entries.

    Args:
        logits: Logits.
        masked: Allow -inf beside finite logits if True: a model masks the outputs of a head that is
            given by name.
    """
    shard = local_shard(logits)
    if shard.numel() == 0:
        return torch.zeros(shard.shape[:-1], dtype=torch.bool)
    low, high = shard.aminmax(dim=-1)
    finite = high.isfinite() & (low.isfinite() | masked)
    return ~true_in_all_shards(finite, logits)


def _shape_of(head: Head, look: Look) -> torch.Size:
    """Return the shape of the logits; that of the head's outputs if these are not the logits."""
    if head.gives_logits:
        return look.outputs[head.output].shape
    call = next(call for call in look.calls if call.module is head.module)
    tokens = [output for output in look.outputs.values() if _tokens_flat(call, output)]
    return torch.Size(tokens[0].shape if tokens and head.rows == "token" else call.shape)


def _places(call: LinearCall, outputs: Mapping[str, Tensor]) -> list[str]:
    """Return the outputs of the model whose shape a call's outputs have."""
    return [place for place, output in outputs.items() if _readings(call, output.shape)]


def _readings(call: LinearCall, logits: torch.Size) -> list[tuple[Rows, int]]:
    """Return what a row of the head's input may be, and its batch axis, judged by the shapes."""
    *lengths, classes = call.shape
    if classes != logits[-1]:
        return []
    if not call.by_token:
        kind: Rows = "sample" if len(logits) == 2 else "token"
        return [(kind, 0)] if lengths == [logits[:-1].numel()] else []
    axes = [0, 1] if call.turns else [0]
    if len(logits) == 3:
        orders = (lengths, lengths[::-1])
        return [("token", axis) for axis in axes if orders[axis] == list(logits[:-1])]
    return [("chosen token", axis) for axis in axes if lengths[axis] == logits[0]]


def _is_decided(call: LinearCall, outputs: Mapping[str, Tensor]) -> bool:
    """Return whether the rows that were kept decide if a call makes an output of the model."""
    rows = call.rows
    if rows is None:
        return False
    chosen = any(outputs[place].ndim == 2 for place in _places(call, outputs))
    return not (call.by_token and chosen and not rows.columns)


def _matches(
    calls: Sequence[LinearCall], outputs: Mapping[str, Tensor], *, every: bool = False
) -> Iterator[_Match]:
    """Yield the calls that make an output of the model, for each output; equal ones come first.

    Args:
        calls: Calls of linear layers.
        outputs: Outputs of the model that may be logits.
        every: Yield calls before a last step also where the outputs of another call are equal.
    """
    for place, output in outputs.items():
        equal: list[_Match] = []
        stepped: list[_Match] = []
        for call in calls:
            if call.rows is None:
                continue
            for rows, axis in _readings(call, output.shape):
                if rows == "chosen token":
                    if _is_chosen(call.rows, output, axis):
                        equal.append(_Match(call, place, rows, axis, LastStep()))
                        break
                    continue
                returned = _traced(call, output, axis)
                step = find_last_step(call.rows.output, returned)
                if step is not None:
                    (equal if step == LastStep() else stepped).append(
                        _Match(call, place, rows, axis, step)
                    )
                    break
        yield from (*equal, *stepped) if every else equal or stepped


def _traced(call: LinearCall, logits: Tensor, axis: int = 0) -> Tensor:
    """Return the logits of the rows that were kept of a call."""
    return rows_at(logits, call.index_in_logits(logits.shape, axis))


def _is_chosen(rows: CallRows, logits: Tensor, axis: int) -> bool:
    """Return whether the first columns of some token are those of its sample's logits."""
    if not rows.columns:
        return False
    columns = rows.columns[axis]
    samples = torch.arange(len(columns))
    of_samples = rows_at(logits, (samples,))[:, : columns.shape[2]]
    return bool(mark_chosen_tokens(columns, of_samples).any(dim=1).all())


def _weighted_head(
    model: nn.Module, calls: list[LinearCall], outputs: Mapping[str, Tensor]
) -> Head | None:
    """Return the head among modules with a weight matrix; None if none makes an output."""
    matches = list(_matches(calls, outputs))
    # In a loop over parts, nothing runs again to show whether one token's outputs are the logits.
    matches = matches or [
        _Match(call, place, "chosen token", step=LastStep())
        for call in calls
        for place in _places(call, outputs)
        if _may_be_of_one_token(call, outputs[place])
    ]
    inner = [match for match in matches if not any(_inside(other, match) for other in matches)]
    inner = [m for m in inner if not any(_is_part(m, other) for other in inner)]
    inner = [m for m in inner if not any(_reads(other, m, outputs) for other in inner)]
    # Of logits and probabilities that one layer makes, the logits.
    inner.sort(key=lambda match: match.step != LastStep())
    by_name = {match.call.name: match for match in reversed(inner)}
    if not by_name:
        _check_whole_logits(model, outputs)
        return None
    if len(by_name) > 1:
        raise _several(by_name, outputs)
    (match,) = by_name.values()
    notes = _notes_on_others(match, inner, outputs)
    head = _built(model, calls, match)
    return replace(head, notes=(*notes, *head.notes))


def _inside(other: _Match, match: _Match) -> bool:
    """Return whether another match's module is inside of this one's, and reads the same features.

    An adapter such as IA3 scales the features for the layer inside: the adapter is the head.
    """
    name, outer = other.call.name, match.call.name
    if name == outer or not (outer == "" or name.startswith(f"{outer}.")):
        return False
    rows, around = other.call.rows, match.call.rows
    return rows is None or around is None or torch.equal(rows.features, around.features)


def _is_part(match: _Match, other: _Match) -> bool:
    """Return whether a match's module is inside of another match's module."""
    return other.call.name != match.call.name and match.call.name.startswith(f"{other.call.name}.")


def _reads(other: _Match, match: _Match, outputs: Mapping[str, Tensor]) -> bool:
    """Return whether another match's layer reads what this match's makes: features, not logits."""
    rows, reader = match.call.rows, other.call.rows
    if other.call.module is match.call.module or rows is None or reader is None:
        return False
    if feeds(rows.output, reader.features):
        return True
    if match.rows == "chosen token" or len(rows.index) != len(reader.index):
        return False
    return feeds(_traced(match.call, outputs[match.output], match.axis), reader.features)


def feeds(rows: Tensor | None, features: Tensor) -> bool:
    """Return whether features are rows, or a ReLU of them, or scaled to unit length."""
    if rows is None or rows.shape != features.shape:
        return False
    wide, wanted = rows.double(), features.double()
    close = 1e-5 + 8 * torch.finfo(features.dtype).eps
    return any(
        torch.allclose(made, wanted, rtol=close, atol=close * float(wanted.abs().max()))
        for made in (wide, wide.relu(), functional.normalize(wide, dim=-1))
    )


def _notes_on_others(
    match: _Match, matches: Sequence[_Match], outputs: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """Return a note on the other outputs of the model.

    Raises:
        InputError: If another output may be the logits: no layer is known that made it, it is not
            what the head reads, and it has a row for each row of the logits.
    """
    others = [place for place in outputs if place != match.output]
    if not others:
        return ()
    rows = match.call.rows
    assert rows is not None
    known = {other.output for other in matches if other.call.module is match.call.module}
    for place in others:
        output = outputs[place]
        comparable = output.shape[:-1] == outputs[match.output].shape[:-1]
        if place in known or not comparable:
            continue
        if match.rows == "chosen token":
            continue
        traced = _traced(match.call, output, match.axis)
        if not (feeds(traced, rows.features) or feeds(rows.features, traced)):
            name = match.call.name
            raise InputError(
                expected="one output of the model that may be its logits",
                found=f"output {match.output!r}, which layer {name!r} makes, and output {place!r} "
                f"of shape {'x'.join(map(str, output.shape))}, of which no linear layer is known",
                fix=f'pass head="{name}" if output {match.output!r} is the logits; else collect '
                "the features and call ncscope.measure(features, labels)",
            )
    return (
        f"head: {match.call.name!r}, which makes output {match.output!r} of the model; output "
        f"{', '.join(map(repr, others))} is not logits",
    )


def _several(matches: Mapping[str, _Match], outputs: Mapping[str, Tensor]) -> InputError:
    """Return the error for several heads, with the output that each makes."""
    made = {
        name: f"{name!r}" + (f" (output {match.output!r})" if len(outputs) > 1 else "")
        for name, match in matches.items()
    }
    names = " or ".join(f'head="{name}"' for name in sorted(made))
    return InputError(
        expected="one layer whose output is the logits",
        found=" and ".join(made[name] for name in sorted(made)),
        fix=f"pass {names}",
    )


def _built(model: nn.Module, calls: Sequence[LinearCall], match: _Match) -> Head:
    """Build the head of a match; check that it runs once, and is affine."""
    call, step = match.call, match.step
    times = sum(other.module is call.module for other in calls)
    if times > 1:
        raise InputError(
            expected=f"head {call.name!r} to run once in a forward pass",
            found=f"{times} calls",
            fix="wrap the model so that it sees one view of the inputs at a time",
        )
    read = find_affine_map(model, call)
    affine = read()
    assert affine is not None
    head = Head(
        call.name,
        call.module,
        *affine,
        gives_logits=step is not None,
        rows=match.rows,
        axis=match.axis,
        output=match.output,
        read=read,
    )
    return _with_step(head, step or LastStep())


def _with_step(head: Head, step: LastStep) -> Head:
    """Return the head with the scale of a last step in its weight, and two rows for one logit.

    Args:
        head: Head as its module or matrix has it.
        step: Last step of the model.
    """
    weight, bias = step.of_affine(head.weight, head.bias)
    notes = head.notes
    if step.kind not in ("none", "affine"):
        notes += (f"head: the model returns {step.in_words} of the outputs of {head.name!r}",)
    elif step.kind == "affine":
        notes += (f"head: the model returns {step.in_words} of {head.name!r}, in its weight here",)
    if len(weight) == 1:
        weight = torch.cat([-weight, weight]) / 2
        bias = None if bias is None else torch.cat([-bias, bias]) / 2
        notes += (f"head: {ONE_LOGIT}",)
        return replace(head, weight=weight, bias=bias, step=step, one_logit=True, notes=notes)
    return replace(head, weight=weight, bias=bias, step=step, notes=notes)


def _head_of_other_kind(model: nn.Module, look: Look, run: Callable[[], object]) -> Head | None:
    """Return a head without a weight matrix of its own; None if there is none.

    A module without children comes first, then a matrix of the model, then modules around others:
    a whole model without nonlinearity is affine too.

    Args:
        model: Model that runs.
        look: Look at the calls of modules of any kind.
        run: Function that runs the model again.
    """
    # The softmax may be a module too, whose outputs are equal.
    every = _matches(look.calls, look.outputs, every=True)
    matches = [match for match in every if match.rows != "chosen token"]
    weights = nn.ParameterDict | nn.ParameterList
    leaves = [
        match
        for match in matches
        if all(isinstance(child, weights) for child in match.call.module.children())
    ]
    around = [match for match in matches if match not in leaves and match.call.name]
    for match in leaves:
        if (head := _built_if_affine(model, look, match)) is not None:
            return head
    matrix = find_matrix_head(model, run, look.outputs)
    if matrix is not None:

        def read() -> Affine:
            return matrix.weight(model), None

        note = f"head: matrix {matrix.name!r}, which multiplies the outputs of {matrix.layer!r}"
        plain = Head(matrix.name, matrix.module, *read(), output=matrix.output, after=True)
        return _with_step(replace(plain, notes=(note,), read=read), matrix.step)
    built = (_built_if_affine(model, look, match) for match in around)
    return next((head for head in built if head is not None), None)


def _built_if_affine(model: nn.Module, look: Look, match: _Match) -> Head | None:
    try:
        head = _built(model, look.calls, match)
    except InputError:
        return None
    square = len(head.weight) == head.weight.shape[1]
    if square and not bool((head.weight - head.weight.diag().diag()).any()):
        return None  # a step of each feature by itself, such as a norm at the end of a backbone
    return replace(head, notes=(*_notes_on_others(match, [match], look.outputs), *head.notes))


def _may_be_of_one_token(call: LinearCall, logits: Tensor) -> bool:
    """Return whether only columns of all tokens, which were not kept, could decide."""
    kept = call.rows is not None and not call.rows.columns
    return kept and any(rows == "chosen token" for rows, _ in _readings(call, logits.shape))


def _rows_of_scaled(call: LinearCall, outputs: Mapping[str, Tensor]) -> Rows:
    """Return the unit of a head, given by name, whose outputs are not the model's."""
    logits = next(iter(outputs.values()), None) if len(outputs) == 1 else None
    if not call.by_token:
        return "token" if logits is not None and _tokens_flat(call, logits) else "sample"
    if logits is not None and logits.ndim == 2:
        raise InputError(
            expected=f"logits that are outputs of head {call.name!r} for one token a sample",
            found="logits that are not",
            fix="wrap the model so that it returns the outputs of the head",
        )
    return "token"


def _tokens_flat(call: LinearCall, logits: Tensor) -> bool:
    """Return whether a head reads all tokens as one matrix, and the logits are those of tokens."""
    return logits.ndim == 3 and call.shape[0] == logits.shape[:2].numel()


def _check_whole_logits(model: nn.Module, outputs: Mapping[str, Tensor]) -> None:
    """Check that plain logits are not those of this process's share of the classes."""
    widths = {output.shape[-1] for output in outputs.values() if not is_sharded(output)}
    for name, module in walk_modules(model):
        weight = read_tensor(module, "weight")
        if weight is None or not is_sharded(weight):
            continue
        share = len(local_shard(weight))
        if share in widths and share < len(weight):
            raise InputError(
                expected="logits of all classes, or as a DTensor",
                found=f"plain ones of {share} of the {len(weight)} classes of {name!r}",
                fix="pass use_local_output=False to its ColwiseParallel",
            )


def _no_head(calls: Sequence[LinearCall], outputs: Mapping[str, Tensor]) -> InputError:
    """Return the error for an output that no layer makes; a layer is named only if it helps."""
    expected = "a linear layer whose output is the logits"
    for output in outputs.values():
        for call in calls:
            if call.by_token and output.shape == (call.shape[0] * call.shape[1], call.shape[2]):
                return InputError(
                    expected="logits of shape batch x tokens x classes",
                    found=f"{len(output)} rows, batch and tokens in one axis",
                    fix="return logits.view(batch, tokens, -1) from the model, and pass labels of "
                    "shape batch x tokens",
                )
        alike = {
            call.name: (call.rows.output.to(output.dtype), _traced(call, output))
            for call in calls
            if call.rows is not None and _alike(call, output)
        }
        for (one, (first, traced)), (two, (second, _)) in combinations(alike.items(), 2):
            if first.shape != second.shape:
                continue
            if torch.allclose((first + second) / 2, traced, rtol=1e-4, atol=1e-6):
                found = f"the average of {one!r} and {two!r}, as in a distilled model"
                fix = f'pass head="{one}" or head="{two}" to measure one of them'
                return InputError(expected=expected, found=found, fix=fix)
    return InputError(
        expected=expected,
        found="none: neither a layer nor a matrix of the model, alone or before a softmax, sigmoid "
        "or scale, as with a cosine head",
        fix=_WITHOUT_A_HEAD,
    )


_WITHOUT_A_HEAD = (
    "give the last product a layer of its own (nn.Linear) that reads one vector a sample, pooled "
    "before and not after it, and pass the model itself, not a scripted one; or collect the "
    "features and call ncscope.measure(features, labels), with weight=... for a linear map"
)
"""Advice for a model without a head that is affine in its features."""


def _alike(call: LinearCall, logits: Tensor) -> bool:
    """Return whether the call's outputs have the shape of the logits."""
    readings = _readings(call, logits.shape)
    return any(rows != "chosen token" and axis == 0 for rows, axis in readings)


def _last_call(model: nn.Module, calls: Sequence[LinearCall], name: str) -> LinearCall:
    module = find_layer(model, name)
    matching = [call for call in calls if call.module is module]
    if not matching:
        raise InputError(
            expected=f"head {name!r} to turn one vector a sample into one output a class",
            found=f"a {type(module).__name__} that does not, or that the forward pass does not use",
            fix="name a layer that reads one vector a sample or token, or collect the features as "
            "rows and call ncscope.measure(features, labels)",
        )
    return matching[-1]
