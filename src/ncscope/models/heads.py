"""Detection of a classifier's head from its logits, without a list of names."""

from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.forward import forward, logits_of
from ncscope.models.layers import named_layer
from ncscope.models.linear_calls import (
    KEPT_ROWS,
    CallRows,
    LinearCall,
    Wanted,
    own_tensor,
    recorded_calls,
    whole_tensor,
)
from ncscope.models.linear_check import check_linear
from ncscope.models.measuring import kept_buffers, measuring
from ncscope.models.sharding import is_sharded, local, rows_at, true_in_all_shards
from ncscope.models.wrappers import named_modules

Rows: TypeAlias = Literal["sample", "token", "chosen token"]


@dataclass(frozen=True)
class Head:
    """A linear classifier in a model: outputs are ``features @ weight.T + bias``.

    Attributes:
        name: Name of the module in the model; empty if the head is the whole model.
        module: Module of the head; its inputs are the features, one row for each of ``rows``.
        weight: Weight of shape K x d, as the forward pass used it: after pruning, weight or
            spectral normalisation, and dequantised. A copy from the time of the detection.
        bias: Bias of length K, a copy; None without a bias.
        gives_logits: True if the outputs of the head are the model's logits; False for a head that
            was given by name and whose outputs the model scales, averages or masks.
        rows: Unit to which the head is applied. ``"sample"``: one vector for each sample.
            ``"token"``: every token, and the logits are those of all tokens, as in language models.
            ``"chosen token"``: every token, and the logits of a sample are those of one token, such
            as the last.
        axis: Axis of the input that is the first axis of the logits: 1 for a head on the tokens of
            a sequence-first layer, T x B x d, else 0.
    """

    name: str
    module: nn.Module
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"] | None
    gives_logits: bool = True
    rows: Rows = "sample"
    axis: int = 0


def find_head(model: nn.Module, inputs: object, name: str | None = None) -> Head:
    """Find the linear layer whose output is the model's logits.

    The model runs once, in evaluation mode, with hooks. The head is the innermost module with a
    weight matrix whose output equals the logits up to a reshape: an ``nn.Linear``, plain,
    pruned, quantised or parametrised, a convolution over a map that it reduces to one pixel, or
    any module that acts like one. The head may be applied to every token of a sequence: the logits
    are then its outputs for all tokens, or for one token of each sample. At the end,
    ``features @ weight.T + bias`` is compared with the output of the head.

    Args:
        model: A classifier that returns logits as a tensor, in a tuple, or under ``logits``.
        inputs: One small batch as the loader yields it, without the labels; see `forward`.
        name: Name of the head, if known. The model may change the outputs of a named head, which
            only has to be linear; ``gives_logits`` is then False.

    Returns:
        The head. Cost: one forward pass; a second one if an earlier layer has outputs of the
        logits' shape, or if the logits are those of one token of each sample. At most 32 rows of
        inputs and of outputs are kept.

    Raises:
        InputError: If no module, or more than one, has the logits as its output (a scaled or
            averaged head, a distilled model, a pooled map of logits, a scripted model); the head
            is not linear (normalised, cosine) or runs more than once in a forward pass; or there is
            no module of the given name.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> head = find_head(model, torch.zeros(5, 1, 2, 2))
        >>> head.name, head.weight.shape
        ('3', torch.Size([2, 3]))
    """
    return head_and_shape(model, inputs, name)[0]


def head_and_shape(
    model: nn.Module, inputs: object, name: str | None = None
) -> tuple[Head, torch.Size]:
    """Find the head as `find_head` does, and also return the shape of the logits."""
    with measuring(model):
        return head_of(model, inputs, first_look(model, inputs, name), name)


@dataclass
class Look:
    """Logits of a forward pass, and the calls of linear layers in the order in which they ended."""

    logits: Tensor
    calls: list[LinearCall]


def first_look(model: nn.Module, inputs: object, name: str | None = None) -> Look:
    """Run the model on a batch, and record the calls of its linear layers.

    Args:
        model: A classifier, in the context `measuring`.
        inputs: Batch without the labels.
        name: Name of the head, if known.
    """
    wanted = None
    if name is not None:
        wanted = Wanted({named_layer(model, name)}, KEPT_ROWS, columns=True)
    return _look(model, inputs, wanted, masked=name is not None)


def head_of(
    model: nn.Module, inputs: object, first: Look, name: str | None = None
) -> tuple[Head, torch.Size]:
    """Find the head after the first look at a batch; run the batch again if that must be.

    The first look keeps rows of the last linear calls only. If another call has outputs of the
    logits' shape, or if the logits may be the outputs of one token of each sample, then a second
    pass keeps rows of exactly these calls.

    Args:
        model: A classifier, in the context `measuring`.
        inputs: Batch of the first look.
        first: Result of `first_look`; its logits are dropped before a second pass.
        name: Name of the head, if known.

    Returns:
        Head, and shape of the logits.
    """
    shape = first.logits.shape
    alike = [call for call in first.calls if _readings(call, shape)]
    if name is None and not all(_is_decided(call, first.logits) for call in alike):
        each = max(2, KEPT_ROWS // len(alike))
        wanted = Wanted({call.module for call in alike}, each, columns=True)
        first.logits = first.logits.new_empty(0)
        with kept_buffers(model):
            second = _look(model, inputs, wanted)
        return head_among(model, second.calls, second.logits), shape
    return head_among(model, first.calls, first.logits, name), shape


def head_among(
    model: nn.Module, calls: list[LinearCall], logits: Tensor | None, name: str | None = None
) -> Head:
    """Find the head among the calls of linear layers in one forward pass, as `find_head` does.

    Args:
        model: Model whose layers were called.
        calls: Calls of its linear layers, with rows of those that may be the head.
        logits: Logits of the pass; None for the outputs of the head that is given by name.
        name: Name of the head, if known.
    """
    if name is not None:
        call = _last_call(model, calls, name)
    else:
        assert logits is not None
        call = _innermost(model, calls, logits)
    _check_called_once(call, calls)
    weight, bias = (whole_tensor(model, call.module, part) for part in ("weight", "bias"))
    assert weight is not None
    weight = weight.flatten(1)
    check_linear(call, weight, bias)
    if logits is None:
        return Head(
            call.name, call.module, weight, bias, rows="token" if call.by_token else "sample"
        )
    reading = _reading(call, logits)
    if reading is None and name is None:
        reading = "chosen token", 0
    rows, axis = reading or (_rows_of_scaled(call, logits), 0)
    return Head(call.name, call.module, weight, bias, reading is not None, rows, axis)


def chosen_tokens(
    output: Float[Tensor, "b t k"], logits: Float[Tensor, "b k"]
) -> Bool[Tensor, "b t"]:
    """Mark the tokens whose outputs equal the logits of their sample.

    Example:
        >>> output = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
        >>> chosen_tokens(output, torch.tensor([[3.0, 4.0]]))
        tensor([[False,  True]])
    """
    return (output.to(logits.dtype) == logits[:, None]).all(dim=2)


def _look(model: nn.Module, inputs: object, wanted: Wanted | None, *, masked: bool = False) -> Look:
    with recorded_calls(model, wanted=wanted) as calls:
        logits = logits_of(forward(model, inputs)).detach()
    broken = _nonfinite_rows(logits, masked)
    if broken.any():
        raise InputError(
            expected="finite logits",
            found=f"NaN or infinity in {int(broken.sum())} of {broken.numel()} rows",
            fix="check the inputs' scale and the model's weights; pass head=... if the model masks "
            "classes with -inf",
        )
    return Look(logits, calls)


def _nonfinite_rows(logits: Tensor, masked: bool) -> Bool[Tensor, "..."]:
    """Mark rows with NaN or infinity; extremes take less memory than a mask of all entries.

    Args:
        logits: Logits.
        masked: Allow -inf beside finite logits if True: a model masks the outputs of a head that is
            given by name.
    """
    shard = local(logits)
    if shard.numel() == 0:
        return torch.zeros(shard.shape[:-1], dtype=torch.bool)
    low, high = shard.aminmax(dim=-1)
    finite = high.isfinite() & (low.isfinite() | masked)
    return ~true_in_all_shards(finite, logits)


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


def _is_decided(call: LinearCall, logits: Tensor) -> bool:
    """Return whether the rows that were kept show if a call's outputs are the logits."""
    rows = call.rows
    return rows is not None and not (call.by_token and logits.ndim == 2 and not rows.columns)


def _reading(call: LinearCall, logits: Tensor) -> tuple[Rows, int] | None:
    """Return the unit of a row of the head's input and its batch axis; None without logits."""
    if call.rows is None:
        return None
    for rows, axis in _readings(call, logits.shape):
        if rows == "chosen token":
            if _is_chosen(call.rows, logits, axis):
                return rows, axis
        elif _equal(call.rows.output, _traced(call, logits, axis)):
            return rows, axis
    return None


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
    return bool(chosen_tokens(columns, of_samples).any(dim=1).all())


def _rows_of_scaled(call: LinearCall, logits: Tensor) -> Rows:
    """Return the unit of a head whose outputs the model changes to the logits."""
    if logits.ndim == 3:
        return "token"
    if call.by_token:
        raise InputError(
            expected=f"logits that are outputs of head {call.name!r} for one token a sample",
            found="logits that are not",
            fix="wrap the model so that it returns the outputs of the head",
        )
    return "sample"


def _equal(output: Tensor, logits: Tensor) -> bool:
    return output.shape == logits.shape and torch.equal(output.to(logits.dtype), logits)


def _innermost(model: nn.Module, calls: list[LinearCall], logits: Tensor) -> LinearCall:
    """Return the call of the only innermost module whose output is the logits."""
    matches = [call for call in calls if _reading(call, logits) is not None]
    # In a loop over parts, nothing runs again to show whether one token's outputs are the logits.
    matches = matches or [call for call in calls if _may_be_of_one_token(call, logits)]
    names = {call.name for call in matches}
    inner = [name for name in names if not any(_inside(other, name) for other in names)]
    if not inner:
        _check_whole_logits(model, logits)
        raise _no_head(calls, logits)
    if len(inner) > 1:
        found = " and ".join(map(repr, sorted(inner)))
        raise InputError(
            expected="one layer whose output is the logits", found=found, fix='pass head="..."'
        )
    return next(call for call in matches if call.name == inner[0])


def _may_be_of_one_token(call: LinearCall, logits: Tensor) -> bool:
    """Return whether only columns of all tokens, which were not kept, could decide."""
    kept = call.rows is not None and not call.rows.columns
    return kept and any(rows == "chosen token" for rows, _ in _readings(call, logits.shape))


def _inside(name: str, outer: str) -> bool:
    return name != outer and (outer == "" or name.startswith(f"{outer}."))


def _check_whole_logits(model: nn.Module, logits: Tensor) -> None:
    """Check that plain logits are not those of this process's share of the classes."""
    for name, module in named_modules(model):
        weight = own_tensor(module, "weight")
        if weight is None or is_sharded(logits) or not is_sharded(weight):
            continue
        if len(local(weight)) == logits.shape[-1] < len(weight):
            raise InputError(
                expected="logits of all classes, or as a DTensor",
                found=f"plain ones of {logits.shape[-1]} of the {len(weight)} classes of {name!r}",
                fix="pass use_local_output=False to its ColwiseParallel",
            )


def _no_head(calls: list[LinearCall], logits: Tensor) -> InputError:
    expected = "a linear layer whose output is the logits"
    alike = {
        call.name: (call.rows.output.to(logits.dtype), _traced(call, logits))
        for call in calls
        if call.rows is not None and _alike(call, logits)
    }
    for name, (output, traced) in alike.items():
        scale = (traced * output).sum() / output.square().sum()
        if torch.allclose(scale * output, traced, rtol=1e-4):
            found = f"logits that are {scale:.4g} times the output of {name!r}"
            fix = f'pass head="{name}" to measure it unscaled'
            return InputError(expected=expected, found=found, fix=fix)
    for (one, (output, traced)), (two, (other, _)) in combinations(alike.items(), 2):
        if output.shape != other.shape:
            continue
        if torch.allclose((output + other) / 2, traced, rtol=1e-4, atol=1e-6):
            found = f"the average of {one!r} and {two!r}, as in a distilled model"
            fix = f'pass head="{one}" or head="{two}" to measure one of them'
            return InputError(expected=expected, found=found, fix=fix)
    by_logits = [call for call in calls if not call.by_token or _alike(call, logits)]
    return InputError(expected=expected, found="none", fix=_advice(by_logits))


def _alike(call: LinearCall, logits: Tensor) -> bool:
    """Return whether the call's outputs have the shape of the logits."""
    return any(rows != "chosen token" and axis == 0 for rows, axis in _readings(call, logits.shape))


def _advice(calls: list[LinearCall]) -> str:
    last = list(dict.fromkeys(call.name for call in calls))[-3:]
    if last:
        return f'pass head="..."; the last linear layers are {", ".join(map(repr, last))}'
    return (
        "no layer applies a weight matrix to one vector a sample: pool before the classifier "
        "rather than after it, and pass the model itself, not a scripted one"
    )


def _last_call(model: nn.Module, calls: list[LinearCall], name: str) -> LinearCall:
    module = named_layer(model, name)
    matching = [call for call in calls if call.module is module]
    if not matching:
        expected = f"head {name!r} to apply a weight matrix to one vector a sample"
        found = f"a {type(module).__name__} that does not, or that the forward pass does not use"
        within = [call for call in calls if _inside(call.name, name)] or calls
        raise InputError(expected=expected, found=found, fix=_advice(within))
    return matching[-1]


def _check_called_once(call: LinearCall, calls: list[LinearCall]) -> None:
    times = sum(other.module is call.module for other in calls)
    if times > 1:
        expected = f"head {call.name!r} to run once in a forward pass"
        fix = "wrap the model so that it sees one view of the inputs at a time"
        raise InputError(expected=expected, found=f"{times} calls", fix=fix)
