"""Detection of a classifier's head: from what the model returns, without a list of names.

The rules, in the order in which they are tried. Rules 2 to 6 are `_find_weighted_head`. A loop that
calls parts of the model, one by one, has its forms of rules 4 and 6 in `PartsObserver`:

1. Any output of the model with a row for each sample or token may be its logits; an output under
   the name ``logits`` is the only one (`possible_logits`).
2. A layer with a weight matrix makes an output if its outputs equal this output, for every row, for
   every token, or for one token of each sample. Only if no layer's outputs equal it, layers count
   whose outputs lead to it by a last step, such as a softmax (`_find_matches`).
3. Of layers around each other that read the same features, the innermost is the head. A layer
   around another that changes the features first, such as an adapter, is the head itself.
4. An output that the layer of another output reads is features, not logits.
5. Of logits and probabilities that one layer makes, the logits are measured.
6. Several layers that are left are refused. So is an output that no layer is known to make, if it
   may be the logits as well (`_note_other_outputs`).
7. If no layer with a weight matrix makes an output, other kinds are tried in this order: modules
   without children, a matrix that multiplies the outputs of a layer, modules around others
   (`_find_head_of_other_kind`).
8. The head must run once in a pass, and its outputs must be ``features @ weight.T + bias``
   (`_build_head`).

A head that is given by name is looked for by rule 2 alone, and checked by rule 8
(`find_head_among_calls`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from ncscope.errors import InputError
from ncscope.metrics.sources import ONE_LOGIT
from ncscope.models.evaluation_mode import evaluation_mode, restore_buffers
from ncscope.models.forward import (
    advise_resolution,
    first_tensor,
    forward,
    is_map,
    no_logits_error,
    possible_logits,
    tensors_by_place,
)
from ncscope.models.last_step import LastStep, find_last_step
from ncscope.models.layers import find_layer
from ncscope.models.linear_calls import (
    KEPT_ROWS,
    Affine,
    LinearCall,
    RecordOptions,
    find_affine_reader,
    read_tensor,
    record_calls,
)
from ncscope.models.sharding import is_sharded, local_shard, rows_at, true_in_all_shards
from ncscope.models.wrappers import walk_modules

Rows: TypeAlias = Literal["sample", "token", "chosen token"]

# Rows of a layer's output that are multiplied by a matrix of the model.
_MATRIX_ROWS = 32
# Distance from 1 within which the factor of such a product is rounding.
_FACTOR_ROUNDING = 1e-5


@dataclass(frozen=True)
class Head:
    """A linear classifier in a model: logits are ``features @ weight.T + bias``.

    Attributes:
        name: Name of the module in the model; empty if the head is the whole model. Name of the
            matrix if the model itself multiplies features by a matrix.
        module: Module of the head; its inputs are the features, one row for each of ``rows``. With
            ``is_matrix``, the module whose outputs are the features.
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
        pixels: Shape H x W of the first map of logits if the tokens are pixels; empty for others.
        is_channels_last: True if the head reads such a map as B x H x W x d, not B x d x H x W.
        axis: Axis of the input that is the first axis of the logits: 1 for a head on the tokens of
            a sequence-first layer, T x B x d, else 0.
        last_step: Last step of the model, from the outputs of the head to its own output.
        logits_place: Place of the logits in the model's output; empty if they are the whole output.
        is_matrix: True if the features are the outputs of ``module``, which a matrix multiplies.
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
    pixels: tuple[int, ...] = ()
    is_channels_last: bool = False
    last_step: LastStep = field(default_factory=LastStep)
    logits_place: str = ""
    is_matrix: bool = False
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

    def refresh(self, step: LastStep | None = None) -> "Head":
        """Return the head with its present weight and bias, which training may have changed.

        Args:
            step: Last step that was seen last; by default, the one with which the head was found.
        """
        affine = None if self.read is None else self.read()
        if affine is None:
            raise InputError(
                expected=f"head {self.name!r} as it was in the passes of the report",
                found="a weight of another shape",
                fix="report before the head grows; the next report finds the new one",
            )
        head = replace(self, weight=affine[0], bias=affine[1]).with_step(step or self.last_step)
        return replace(head, notes=self.notes)

    def with_step(self, step: LastStep) -> "Head":
        """Return the head with the scale of a last step in its weight, and two rows for one logit.

        Args:
            step: Last step of the model; this head is as its module or matrix has it.
        """
        weight, bias = step.apply_to_affine(self.weight, self.bias)
        notes = self.notes
        made = f"head: the model returns {step.describe(f'the outputs of {self.name!r}')}"
        if step.kind == "affine":
            notes += (f"{made}, included in its weight and bias",)
        elif step.kind != "none":
            notes += (made,)
        one_logit = len(weight) == 1
        if one_logit:
            weight = torch.cat([-weight, weight]) / 2
            bias = None if bias is None else torch.cat([-bias, bias]) / 2
            notes += (f"head: {ONE_LOGIT}",)
        return replace(
            self,
            weight=weight,
            bias=bias,
            last_step=step,
            one_logit=one_logit or self.one_logit,
            notes=notes,
        )


def find_head(model: nn.Module, inputs: object, name: str | None = None) -> Head:
    """Find the linear layer that makes the model's logits.

    The model runs in evaluation mode, with hooks. The head is the innermost module with a weight
    matrix whose outputs are an output of the model, up to a reshape and to a last step that keeps
    the order: a scale, a softmax or its logarithm, a sigmoid, a soft cap, a ReLU. A scale and a
    shift belong to the logits, and enter weight and bias. The head may be applied to every token of
    a sequence: the logits are then its outputs for all tokens, or for one token of each sample. The
    rules are listed at the top of this module.

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
        first = record_first_pass(model, inputs, name)
        return find_head_after_pass(model, inputs, first, name)[0]


@dataclass(frozen=True)
class _Match:
    """A call whose outputs are an output of the model, up to a last step; a candidate.

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


def _find_weighted_head(
    model: nn.Module, calls: list[LinearCall], outputs: Mapping[str, Tensor]
) -> Head | None:
    """Return the head among modules with a weight matrix; None if none makes an output."""
    # Rule 2.
    matches = list(_find_matches(calls, outputs))
    if not matches:
        # In a loop over parts, nothing runs again to show whether one token's outputs are the
        # logits: a call of which no columns were kept is believed.
        matches = [
            _Match(call, place, "chosen token", step=LastStep())
            for call in calls
            if call.rows is not None and not call.rows.columns
            for place, output in outputs.items()
            if any(rows == "chosen token" for rows, _ in _possible_rows(call, output.shape))
        ]
    # Rule 3: modules around others go; then go the modules inside of an adapter, which stays.
    matches = [m for m in matches if not any(_is_inside(other, m) for other in matches)]
    names = {match.call.name for match in matches}
    matches = [m for m in matches if not any(m.call.name.startswith(f"{n}.") for n in names)]
    # Rule 4.
    matches = [m for m in matches if not any(_reads(other, m, outputs) for other in matches)]
    # Rule 5: the first match of a name counts, and sorting keeps the order of the others.
    matches.sort(key=lambda match: match.step != LastStep())
    by_name = {match.call.name: match for match in reversed(matches)}
    if not by_name:
        _check_whole_logits(model, outputs)
        return None
    # Rule 6.
    if len(by_name) > 1:
        raise _several_heads_error(by_name, outputs)
    (match,) = by_name.values()
    notes = _note_other_outputs(match, matches, outputs)
    head = _build_head(model, calls, match)
    return replace(head, notes=(*notes, *head.notes))


def _find_matches(
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
        before_step: list[_Match] = []
        for call in calls:
            if call.rows is None:
                continue
            for rows, axis in _possible_rows(call, output.shape):
                if rows == "chosen token":
                    # Which token was chosen may differ from sample to sample. In each sample some
                    # token must have the first columns of the logits.
                    if call.rows.columns:
                        columns = call.rows.columns[axis]
                        logits = rows_at(output, (torch.arange(len(columns), device="cpu"),))
                        same = mark_chosen_tokens(columns, logits[:, : columns.shape[2]])
                        if bool(same.any(dim=1).all()):
                            equal.append(_Match(call, place, rows, axis, LastStep()))
                            break
                    continue
                step = find_last_step(call.rows.output, _logits_of_rows(call, output, axis))
                if step is not None:
                    matches = equal if step == LastStep() else before_step
                    matches.append(_Match(call, place, rows, axis, step))
                    break
        yield from (*equal, *before_step) if every else equal or before_step


def _possible_rows(call: LinearCall, logits: torch.Size) -> list[tuple[Rows, int]]:
    """Return what a row of the head's input may be, and its batch axis, judged by the shapes."""
    *lengths, classes = call.shape
    if classes != logits[-1] or (call.by_pixel and len(logits) == 2):
        return []
    if not call.by_token:
        kind: Rows = "sample" if len(logits) == 2 else "token"
        return [(kind, 0)] if lengths == [logits[:-1].numel()] else []
    axes = [0, 1] if call.may_be_sequence_first else [0]
    if len(logits) == 3:
        orders = (lengths, lengths[::-1])
        return [("token", axis) for axis in axes if orders[axis] == list(logits[:-1])]
    return [("chosen token", axis) for axis in axes if lengths[axis] == logits[0]]


def _is_inside(other: _Match, match: _Match) -> bool:
    """Return whether another match's module is inside of this one's, and reads the same features.

    An adapter such as IA3 scales the features for the layer inside: the adapter is the head.
    """
    name, outer = other.call.name, match.call.name
    if name == outer or not (outer == "" or name.startswith(f"{outer}.")):
        return False
    rows, around = other.call.rows, match.call.rows
    return rows is None or around is None or torch.equal(rows.features, around.features)


def _reads(other: _Match, match: _Match, outputs: Mapping[str, Tensor]) -> bool:
    """Return whether another match's layer reads what this match's makes: features, not logits."""
    rows, reader = match.call.rows, other.call.rows
    if other.call.module is match.call.module or rows is None or reader is None:
        return False
    if feeds(rows.output, reader.features):
        return True
    if match.rows == "chosen token" or len(rows.index) != len(reader.index):
        return False
    # The model may have changed the outputs of the layer before the other layer reads them.
    features = _logits_of_rows(match.call, outputs[match.output], match.axis)
    return feeds(features, reader.features)


def feeds(rows: Tensor | None, features: Tensor) -> bool:
    """Return whether features are rows, or a ReLU of them, or scaled to unit length."""
    if rows is None or rows.shape != features.shape:
        return False
    wide, target = rows.double(), features.double()
    close = 1e-5 + 8 * torch.finfo(features.dtype).eps
    return any(
        torch.allclose(result, target, rtol=close, atol=close * float(target.abs().max()))
        for result in (wide, wide.relu(), functional.normalize(wide, dim=-1))
    )


def _note_other_outputs(
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
    places = {other.output for other in matches if other.call.module is match.call.module}
    for place in others:
        output = outputs[place]
        comparable = output.shape[:-1] == outputs[match.output].shape[:-1]
        # Of a chosen token, the rows that were kept are tokens: no row of an output is theirs.
        if place in places or not comparable or match.rows == "chosen token":
            continue
        logits = _logits_of_rows(match.call, output, match.axis)
        if not (feeds(logits, rows.features) or feeds(rows.features, logits)):
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


@dataclass
class PassRecord:
    """Outputs of a forward pass, and the calls of linear layers in the order of their ends.

    Attributes:
        outputs: Outputs that may be logits, by place. They are dropped before the model runs again:
            two sets of a language model's logits may not fit into memory.
        calls: Calls of linear layers.
    """

    outputs: Mapping[str, Tensor]
    calls: list[LinearCall]


def _find_head_of_other_kind(
    model: nn.Module, record: PassRecord, run: Callable[[], object]
) -> Head | None:
    """Return a head without a weight matrix of its own; None if there is none.

    A module without children comes first, then a matrix of the model, then modules around others:
    a whole model without nonlinearity is affine too.

    Args:
        model: Model that runs.
        record: Pass with the calls of modules of any kind.
        run: Function that runs the model again.
    """
    # The softmax may be a module too, whose outputs are equal: it must not hide the head before it.
    every = _find_matches(record.calls, record.outputs, every=True)
    matches = [match for match in every if match.rows != "chosen token"]
    weights = nn.ParameterDict | nn.ParameterList  # modules that hold parameters and do nothing
    leaves = [
        match
        for match in matches
        if all(isinstance(child, weights) for child in match.call.module.children())
    ]
    around = [match for match in matches if match not in leaves and match.call.name]
    for match in leaves:
        if (head := _build_if_affine(model, record, match)) is not None:
            return head
    matrix_head = _find_matrix_head(model, run, record.outputs)
    if matrix_head is not None:
        return matrix_head
    heads = (_build_if_affine(model, record, match) for match in around)
    return next((head for head in heads if head is not None), None)


def _build_if_affine(model: nn.Module, record: PassRecord, match: _Match) -> Head | None:
    try:
        head = _build_head(model, record.calls, match)
    except InputError:
        return None
    used = head.weight != 0
    square = len(used) == used.shape[1]
    if square and not bool(
        (used & ~torch.eye(len(used), dtype=torch.bool, device=used.device)).any()
    ):
        return None  # a step of each feature by itself, such as a norm at the end of a backbone
    if bool((used.sum(1) == 1).all()) and bool((used.sum(0) <= 1).all()):
        return None  # a choice of some classes, or another order of them
    notes = _note_other_outputs(match, [match], record.outputs)
    return replace(head, notes=(*notes, *head.notes))


def _find_matrix_head(
    model: nn.Module, run: Callable[[], object], outputs: Mapping[str, Tensor]
) -> Head | None:
    """Find a matrix M of the model and a layer with outputs h, such that the model returns h M.

    Args:
        model: Model without a module that is its head, in evaluation mode.
        run: Function that runs the model on a batch.
        outputs: Outputs of this batch that may be logits, by place.

    Returns:
        The head; None if there is none, or several. Cost: one forward pass if the model has a
        matrix with as many rows or columns as an output, else nothing.
    """
    logits = {place: output for place, output in outputs.items() if output.ndim == 2}
    matrices = [
        (name, matrix, is_turned)
        for name, matrix in _walk_matrices(model)
        for is_turned in (True, False)  # d x K, K x d
        if any(output.shape[1] == matrix.shape[is_turned] for output in logits.values())
    ]
    if not matrices:
        return None
    count = len(next(iter(logits.values())))
    widths = {matrix.shape[not is_turned] for _, matrix, is_turned in matrices}
    layers: dict[str, tuple[nn.Module, Tensor]] = {}

    def recorder(name: str) -> Any:
        def record(module: nn.Module, args: object, output: object) -> None:
            tensor = first_tensor(output)
            if tensor is None or tensor.is_nested or not tensor.is_floating_point():
                return
            has_rows = tensor.ndim > 1 and len(tensor) == count
            if has_rows and tensor.numel() // count in widths:
                layers.pop(name, None)  # so that the order is that of the last calls
                rows = spread_rows(tensor.detach().flatten(1), _MATRIX_ROWS)
                layers[name] = module, rows.clone()  # the model may change them in place

        return record

    with restore_buffers(model), ExitStack() as hooks:
        for name, module in walk_modules(model):
            if name:
                hooks.callback(module.register_forward_hook(recorder(name)).remove)
        run()
    heads: dict[tuple[str, str], tuple[str, nn.Module, bool, LastStep]] = {}
    for layer, (module, features) in layers.items():
        for name, matrix, is_turned in matrices:
            right = matrix.detach().double() if is_turned else matrix.detach().double().T
            for place, output in logits.items():
                if features.shape[1] != len(right) or output.shape[1] != right.shape[1]:
                    continue
                product = (features.double() @ right).to(output.dtype)
                step = find_last_step(product, spread_rows(output, _MATRIX_ROWS))
                if step is not None:
                    # A dropout or flatten after the layer has the same outputs: the last one stays.
                    heads[name, place] = layer, module, is_turned, step
    if len(heads) != 1:
        return None
    ((name, place), (layer, module, is_turned, step)) = heads.popitem()
    one = step.kind == "affine" and step.shift is None and isinstance(step.scale, float)
    if one and abs(float(step.scale) - 1) < _FACTOR_ROUNDING:
        # The product here, in float64, differs from the model's by rounding, which shows as a
        # factor beside 1.
        step = LastStep()

    def read() -> Affine:
        weight = dict(_walk_matrices(model))[name].detach()
        weight = weight.T if is_turned else weight
        return weight.clone(memory_format=torch.contiguous_format), None

    head = Head(name, module, *read(), logits_place=place, is_matrix=True, read=read)
    note = f"head: matrix {name!r}, which multiplies the outputs of {layer!r}"
    return replace(head, notes=(note,)).with_step(step)


def _build_head(model: nn.Module, calls: Sequence[LinearCall], match: _Match) -> Head:
    """Build the head of a match; check that it runs once, and is affine."""
    call, step = match.call, match.step
    times = sum(other.module is call.module for other in calls)
    if times > 1:
        raise InputError(
            expected=f"head {call.name!r} to run once in a forward pass",
            found=f"{times} calls",
            fix="wrap the model so that it sees one view of the inputs at a time",
        )
    read = find_affine_reader(model, call)
    affine = read()
    assert affine is not None
    pixels: tuple[int, ...] = ()
    if match.rows == "token" and len(call.sample_shape) > 2:
        pixels = call.sample_shape[1:] if call.by_pixel else call.sample_shape[:-1]
    head = Head(
        call.name,
        call.module,
        *affine,
        gives_logits=step is not None,
        rows=match.rows,
        axis=match.axis,
        pixels=pixels,
        is_channels_last=not call.by_pixel,
        logits_place=match.output,
        read=read,
    )
    return head.with_step(step or LastStep())


def record_first_pass(model: nn.Module, inputs: object, name: str | None = None) -> PassRecord:
    """Run the model on a batch, and record the calls of its linear layers.

    Args:
        model: A classifier, in the context `evaluation_mode`.
        inputs: Batch without the labels.
        name: Name of the head, if known.
    """
    if name is None:
        return _record_pass(model, inputs, None)
    options = RecordOptions({find_layer(model, name)}, KEPT_ROWS, columns=True)
    return _record_pass(model, inputs, options, may_mask=True)


def _record_pass(
    model: nn.Module, inputs: object, options: RecordOptions | None, *, may_mask: bool = False
) -> PassRecord:
    """Run the model; keep its outputs that may be logits, and calls of linear layers.

    Args:
        model: A classifier.
        inputs: Batch without the labels.
        options: Calls and rows to keep.
        may_mask: Allow -inf beside finite logits, and a model without logits, if True: a model may
            mask the outputs of a head that is given by name.
    """
    with record_calls(model, options=options) as calls:
        returned = forward(model, inputs)
    outputs = {place: output.detach() for place, output in possible_logits(returned).items()}
    if not outputs and not may_mask:
        raise no_logits_error(returned)
    finite = {}
    for place, output in outputs.items():
        shard = local_shard(output)
        invalid = torch.zeros(shard.shape[:-1], dtype=torch.bool, device="cpu")
        if shard.numel():
            # Extremes take less memory than a mask of all entries; both are NaN in a row with NaN.
            low, high = shard.aminmax(dim=-1)
            intact = high.isfinite() & (low.isfinite() | may_mask)
            invalid = ~true_in_all_shards(intact, output)
        if not invalid.any():
            finite[place] = output
        elif not may_mask or len(outputs) == 1:
            raise InputError(
                expected="finite logits",
                found=f"NaN or infinity in {int(invalid.sum())} of {invalid.numel()} rows",
                fix="check the inputs' scale and the model's weights; pass head=... if the model "
                "masks classes with -inf, or returns another tensor with NaN",
            )
    return PassRecord(finite, calls)


def find_head_after_pass(
    model: nn.Module, inputs: object, first: PassRecord, name: str | None = None
) -> tuple[Head, torch.Size]:
    """Find the head after a first pass of a batch; run the batch again if that must be.

    The first pass keeps rows of the last linear calls only, because the rows of all layers may not
    fit into memory. If another call has outputs of the logits' shape, or if the logits may be the
    outputs of one token of each sample, a second pass keeps rows of exactly these calls.

    Args:
        model: A classifier, in the context `evaluation_mode`.
        inputs: Batch of the first pass.
        first: Result of `record_first_pass`; its outputs are dropped before a second pass.
        name: Name of the head, if known.

    Returns:
        Head, and shape of its logits; that of its outputs if these are not the logits.
    """

    def run_again(options: RecordOptions) -> PassRecord:
        first.outputs = {}
        # A module that counts its passes must not count this one: the user's loop makes one.
        with restore_buffers(model):
            return _record_pass(model, inputs, options, may_mask=name is not None)

    if name is not None:
        module = find_layer(model, name)
        record = first
        if not any(call.module is module for call in first.calls):
            record = run_again(RecordOptions({module}, KEPT_ROWS, columns=True, widths=()))
        head = find_head_among_calls(model, record.calls, record.outputs, name)
        shape = _logits_shape(head, record)
        widths = {output.shape[-1] for output in record.outputs.values()}
        if not head.gives_logits and len(head.weight) not in widths:
            record.outputs = {}
            with restore_buffers(model):
                _refuse_hidden_layer(model, inputs, head, widths)
        return head, shape
    record = first
    alike = {call.module for call in first.calls if _places(call, first.outputs)}
    again = RecordOptions(alike or None, max(2, KEPT_ROWS // max(1, len(alike))), columns=True)
    for call in first.calls:
        if call.module not in alike:
            continue
        one_token = any(first.outputs[place].ndim == 2 for place in _places(call, first.outputs))
        needs_columns = call.by_token and one_token
        if call.rows is None or (needs_columns and not call.rows.columns):
            record = run_again(again)
            break
    head_or_none = _find_weighted_head(model, record.calls, record.outputs)
    if head_or_none is None:
        widths = {output.shape[-1] for output in record.outputs.values()}
        record = run_again(RecordOptions(each=8, widths=widths))
        head_or_none = _find_head_of_other_kind(model, record, lambda: forward(model, inputs))
    if head_or_none is None:
        record = run_again(again)
        with restore_buffers(model):
            _refuse_maps(model, inputs, record.calls, widths)
        raise _no_head_error(record.calls, record.outputs)
    return head_or_none, _logits_shape(head_or_none, record)


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
    if name is None:
        head = _find_weighted_head(model, calls, outputs)
        if head is None:
            raise _no_head_error(calls, outputs)
        return head
    module = find_layer(model, name)
    of_samples = bool(outputs) and all(output.ndim == 2 for output in outputs.values())
    calls_of_head = [
        call for call in calls if call.module is module and not (call.by_pixel and of_samples)
    ]
    if not calls_of_head:
        raise InputError(
            expected=f"head {name!r} to turn one vector a sample into one output a class",
            found=f"a {type(module).__name__} that does not, or that the forward pass does not use",
            fix="name a layer that reads one vector a sample or token, or collect the features as "
            "rows and call ncscope.measure(features, labels)",
        )
    call = calls_of_head[-1]
    match = next(_find_matches([call], outputs), None)
    if match is None:
        # The model averages, masks or does not return the outputs; their unit shows in the shapes.
        rows: Rows = "token" if call.by_token else "sample"
        output = next(iter(outputs.values())) if len(outputs) == 1 else None
        if output is not None and call.by_token and output.ndim == 2:
            raise InputError(
                expected=f"logits that are outputs of head {call.name!r} for one token a sample",
                found="logits that are not",
                fix="wrap the model so that it returns the outputs of the head",
            )
        if output is not None and not call.by_token and _are_tokens_in_one_axis(call, output):
            rows = "token"
        match = _Match(call, "", rows)
    return _build_head(model, calls, match)


def _refuse_hidden_layer(model: nn.Module, inputs: object, head: Head, widths: set[int]) -> None:
    """Refuse a hidden layer that was named as the head of a model with outputs of another size."""
    try:
        other, _ = find_head_after_pass(model, inputs, record_first_pass(model, inputs))
    except InputError:
        if widths <= {1}:
            return  # losses beside logits that the model does not return
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


def mark_chosen_tokens(
    output: Float[Tensor, "b t k"], logits: Float[Tensor, "b k"]
) -> Bool[Tensor, "b t"]:
    """Mark the tokens whose outputs equal the logits of their sample.

    Example:
        >>> output = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
        >>> mark_chosen_tokens(output, torch.tensor([[3.0, 4.0]]))
        tensor([[False,  True]])
    """
    # Equal bit for bit: to choose a token computes nothing. Near tokens are often alike.
    return (output.to(logits.dtype) == logits[:, None]).all(dim=2)


def _logits_of_rows(call: LinearCall, logits: Tensor, axis: int = 0) -> Tensor:
    """Return the logits of the rows that were kept of a call."""
    return rows_at(logits, call.index_in_logits(logits.shape, axis))


def _places(call: LinearCall, outputs: Mapping[str, Tensor]) -> list[str]:
    """Return the outputs of the model whose shape a call's outputs have."""
    return [place for place, output in outputs.items() if _possible_rows(call, output.shape)]


def _logits_shape(head: Head, record: PassRecord) -> torch.Size:
    """Return the shape of the logits; that of the head's outputs if these are not the logits."""
    if head.gives_logits:
        return record.outputs[head.logits_place].shape
    call = next(call for call in record.calls if call.module is head.module)
    tokens = [output for output in record.outputs.values() if _are_tokens_in_one_axis(call, output)]
    return torch.Size(tokens[0].shape if tokens and head.rows == "token" else call.shape)


def _are_tokens_in_one_axis(call: LinearCall, logits: Tensor) -> bool:
    """Return whether a head reads all tokens as one matrix, and the logits are those of tokens."""
    return logits.ndim == 3 and call.shape[0] == logits.shape[:2].numel()


def spread_rows(rows: Tensor, most: int) -> Tensor:
    """Return rows that are spread over all; a slice, unlike an index, waits for no accelerator.

    Example:
        >>> spread_rows(torch.arange(10), 3).tolist()
        [0, 3, 6]
    """
    return rows[:: max(1, len(rows) // most)][:most]


def _walk_matrices(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the plain parameters and buffers of two axes, each by its first name in the model."""
    visited: set[int] = set()
    for path, module in walk_modules(model):
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is None or tensor.ndim != 2 or is_sharded(tensor) or id(tensor) in visited:
                continue
            visited.add(id(tensor))
            if tensor.is_floating_point() and tensor.layout == torch.strided:
                yield f"{path}.{name}" if path else name, tensor


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


def _several_heads_error(
    matches: Mapping[str, _Match], outputs: Mapping[str, Tensor]
) -> InputError:
    """Return the error for several heads, with the output that each makes."""
    layers = {
        name: f"{name!r}" + (f" (output {match.output!r})" if len(outputs) > 1 else "")
        for name, match in matches.items()
    }
    names = " or ".join(f'head="{name}"' for name in sorted(layers))
    return InputError(
        expected="one layer whose output is the logits",
        found=" and ".join(layers[name] for name in sorted(layers)),
        fix=f"pass {names}",
    )


def _refuse_maps(
    model: nn.Module, inputs: object, calls: Sequence[LinearCall], widths: set[int]
) -> None:
    """Refuse maps of logits that no layer makes, and say if the model enlarges those of a layer.

    A pixel of an enlarged map is a mixture of the head's outputs, and is made of no features.

    Args:
        model: Model without a layer that makes its outputs.
        inputs: Batch without the labels.
        calls: Calls of linear layers in a pass of this batch.
        widths: Numbers of classes that the outputs may have.
    """
    maps: dict[str, Tensor] = {}
    with ExitStack() as hooks:
        for call in calls:
            if call.by_pixel and call.shape[-1] in widths:
                # A function of its own: the name of the loop changes.
                def keep(_: nn.Module, __: object, output: Any, name: str = call.name) -> None:
                    tensor = first_tensor(output)
                    assert tensor is not None  # a call that was recorded
                    maps[name] = tensor.detach().clone()

                hooks.callback(call.module.register_forward_hook(keep).remove)
        returned = forward(model, inputs)
    outputs = {place: each for place, each in tensors_by_place(returned) if is_map(each)}
    if not set(possible_logits(returned)) <= set(outputs):
        return
    for output in outputs.values():
        for name, small in maps.items():
            if small.shape[:2] != output.shape[:2] or small.ndim != 4 or output.ndim != 4:
                continue
            for mode, corners in (("bilinear", False), ("bilinear", True), ("nearest", None)):
                size = output.shape[2:]
                large = functional.interpolate(small, size, mode=mode, align_corners=corners)
                close = 1e-4 * float(output.abs().max())
                if not torch.allclose(large, output.to(large), rtol=1e-4, atol=close):
                    continue
                resolution = " x ".join(map(str, small.shape[2:]))
                advice = advise_resolution(size, small.shape[2:])
                raise InputError(
                    expected="logits that a layer makes",
                    found=f"those of {name!r} for {resolution} pixels, enlarged to "
                    f"{' x '.join(map(str, size))}",
                    fix=f'pass head="{name}", and labels of its resolution: {advice}',
                )
    shapes = " and ".join("x".join(map(str, output.shape)) for output in outputs.values())
    raise InputError(
        expected="a layer that makes the logits of every pixel: a convolution of kernel 1, alone",
        found=f"none, for maps of shape {shapes}",
        fix="return the outputs of that layer from the model; or collect the features as rows, one "
        "a pixel, and call ncscope.measure(features, labels), with weight=... for a linear map",
    )


def _no_head_error(calls: Sequence[LinearCall], outputs: Mapping[str, Tensor]) -> InputError:
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
            call.name: (call.rows.output.to(output.dtype), _logits_of_rows(call, output))
            for call in calls
            if call.rows is not None
            and any(
                rows != "chosen token" and axis == 0
                for rows, axis in _possible_rows(call, output.shape)
            )
        }
        for (one, (first, logits)), (two, (second, _)) in combinations(alike.items(), 2):
            if first.shape != second.shape:
                continue
            if torch.allclose((first + second) / 2, logits, rtol=1e-4, atol=1e-6):
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
