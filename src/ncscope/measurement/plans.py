"""Layers of a measurement, and its form, which processes must share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.array_checks import type_name
from ncscope.devices import are_equal
from ncscope.labels import list_marks
from ncscope.measurement.options import Options
from ncscope.metrics.evaluate import find_needs
from ncscope.models.heads import Head
from ncscope.models.taps import HEAD_INPUT
from ncscope.stats.options import ALL_STATISTICS
from ncscope.stats.processes import Processes

Groups = Collection[str] | None
"""Groups and keys of metrics; None for all."""

_COMPARED = frozenset({*ALL_STATISTICS, "decisions", "hits", "information", "scores"})
"""What processes that measure together must all gather, of the words of `Metric.needs`."""


@dataclass(frozen=True)
class LayerPlan:
    """One layer to measure: name of the tap, groups of metrics, and the head that reads it.

    A head with one output for two classes has two rows here, and ``one_logit`` is true.
    """

    name: str
    tapped: str
    groups: Groups
    weight: Float[Tensor, "k d"] | None = None
    bias: Float[Tensor, " k"] | None = None
    one_logit: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """Needs of the metrics, by the words of `Metric.needs`."""
        return find_needs(self.groups, self.weight is not None)


def plan_layers(
    features: Mapping[str, Float[Tensor, "b _d"]], head: Head, groups: Groups, layer_groups: Groups
) -> list[LayerPlan]:
    """Plan the layers in forward order; a last layer whose output is the head's input counts once.

    Args:
        features: Features of the layers of one forward pass, and of the head's input.
        head: The model's head.
        groups: Groups of metrics of the head's input.
        layer_groups: Groups of metrics of the other layers.
    """
    names = [name for name in features if name != HEAD_INPUT]
    last = HEAD_INPUT
    if names and are_equal(features[names[-1]], features[last]):
        last = names.pop()
    before = [LayerPlan(name, name, layer_groups) for name in names]
    return [*before, LayerPlan(last, HEAD_INPUT, groups, **select_head_weights(head))]


def plan_from_layout(
    layout: Mapping[str, Any], device: torch.device, groups: Groups, layer_groups: Groups
) -> list[LayerPlan]:
    """Plan the layers that another process measures; the values of the head are not set yet.

    Args:
        layout: Form of the measurement, as `describe_layout` returns it.
        device: Device of the head in this process.
        groups: Groups of metrics of the head's input.
        layer_groups: Groups of metrics of the other layers.
    """
    *before, last = layout["layers"]
    k, dtype = layout["classes"], getattr(torch, layout["head_type"])
    weight = torch.empty(k, layout["dims"][-1], dtype=dtype, device=device)
    bias = torch.empty(k, dtype=dtype, device=device) if layout["bias"] else None
    plans = [LayerPlan(name, name, layer_groups) for name in before]
    return [*plans, LayerPlan(last, HEAD_INPUT, groups, weight, bias, layout["one_logit"])]


def describe_layout(
    plans: Sequence[LayerPlan],
    dims: Sequence[int],
    head: str,
    options: Options,
    *,
    counts_logits: bool,
    reference: bool,
    ood: bool,
) -> dict[str, Any]:
    """Describe the form of a measurement, which processes that measure together must share.

    Args:
        plans: Layers to measure.
        dims: Feature dimension of each layer.
        head: Name of the head.
        options: Options of the measurement.
        counts_logits: True if the accuracy is counted from the model's logits.
        reference: True if the class means of a reference are used.
        ood: True if there are samples from outside the distribution to compare with.

    Returns:
        Every property of the form, by the name that the error of two forms that differ says.
    """
    weight, bias = plans[-1].weight, plans[-1].bias
    assert weight is not None
    return {
        "head": head,
        "classes": len(weight),
        "head_type": type_name(weight.dtype),
        "bias": bias is not None,
        "one_logit": plans[-1].one_logit,
        "layers": [plan.name for plan in plans],
        "dims": list(dims),
        "needs": [sorted(plan.needs & _COMPARED) for plan in plans],
        "prior": options.prior,
        "precision": options.precision,
        "second_pass": str(options.second_pass),
        "counts_logits": counts_logits,
        "information_batch": options.information_batch,
        "weight_decay": float(options.weight_decay),
        "baseline": options.baseline,
        "uncertainty": options.uncertainty,
        "reference": reference,
        "ood": ood,
        "ignore_index": list_marks(options.ignore_index),
    }


def share_head(plan: LayerPlan, rank: int, receives: bool, processes: Processes) -> None:
    """Send the head of one process to the processes without a head.

    Args:
        plan: Layer that feeds the head.
        rank: Rank, within the group, of the process that sends its head.
        receives: Overwrite the head of this process if True; otherwise this process keeps it.
        processes: Processes that measure together.
    """
    with processes.fail_together():
        tensors = [tensor for tensor in (plan.weight, plan.bias) if tensor is not None]
        # A copy, because the head may share memory with the model's parameters; contiguous, as a
        # broadcast takes no other tensor.
        form = torch.contiguous_format
        sent = tensors if receives else [each.clone(memory_format=form) for each in tensors]
    processes.send(sent, rank)


def select_head_weights(head: Head) -> dict[str, Any]:
    """Return the head's weight and bias in the head's type: float64 would take twice the memory."""
    return {"weight": head.weight, "bias": head.bias, "one_logit": head.one_logit}
