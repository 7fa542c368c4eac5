"""Options of a measurement, its layers, and its form, which processes must share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.arguments import Count, NotNegative, Seed, Size, Within, check_arguments
from ncscope.metrics.evaluate import Needs, needs_of
from ncscope.models.heads import Head
from ncscope.models.replicas import data_group, replica_group
from ncscope.models.taps import HEAD_INPUT
from ncscope.models.wrappers import check_measurable
from ncscope.stats.options import Precision, Prior, Redraw
from ncscope.stats.processes import Processes, type_name
from ncscope.stats.store import DEFAULT_BUDGET

Groups = Collection[str] | None
"""Groups and keys of metrics; None for all."""

SecondPass: TypeAlias = Literal["store", "recompute"] | Annotated[int, Within(2)]
"""Samples of the second pass: stored, computed again, or a random sample of so many."""


@check_arguments
@dataclass(frozen=True)
class ProbeOptions:
    """Options of a model's measurement.

    Attributes:
        layers: Names or glob patterns of layers to measure besides the head's input; None for the
            repeated blocks.
        head: Name of the classifier head; None to detect the head.
        groups: Groups and keys of metrics of the head's input; None for all.
        layer_groups: Groups and keys of metrics of the other layers.
        prior: Class prior.
        class_counts: Number of samples of each class; required for the uniform prior.
        weight_decay: Weight decay on the head that the MSE decomposition assumes.
        pool: Average feature maps over space, and sequences over tokens, if True; flatten both if
            False; None to flatten everything but sequences with an attention mask.
        next_token: Take the label of the following token as a token's class if True.
        baseline: True to measure every layer with permuted labels too; None to do so for small
            samples.
        uncertainty: Estimate standard errors if not False.
        precision: Precision of the moments, ``"float64"`` or ``"blocked"``.
        second_pass: ``"store"`` to keep the features of all samples, ``"recompute"`` to run the
            loader again, or the number of samples that each process draws at random and keeps.
        sample_seed: Seed with which the samples are drawn.
        memory: Bytes of features to hold in memory for the second pass; more goes to disk.
        disk: Bytes of features to write to disk at most; None for half of the free space.
        progress: Show a progress bar on stderr if True.
        information_batch: Batch size of the batch estimate of MIR and HDR, which is computed with
            the group ``information``; None for no such estimate.
        ood: True if there are samples from outside the distribution to compare with.
        group: Process group of ``torch.distributed`` that measures together; None for the default
            group.
        replicas: Process group of the processes that have the same samples; None if there is none.
        by_class: Make the table of classes also where no groups ask for it, up to 1,000 classes, if
            True. A history of many measurements with such tables is large.
    """

    layers: Sequence[str] | None = None
    head: str | None = None
    groups: Collection[str] | None = None
    layer_groups: Collection[str] | None = ("pfc",)
    prior: Prior = "empirical"
    class_counts: Any = None
    weight_decay: NotNegative = 0.0
    pool: bool | None = None
    next_token: bool = False
    baseline: bool | None = False
    uncertainty: Redraw = False
    precision: Precision = "float64"
    second_pass: SecondPass = "store"
    sample_seed: Seed = 0
    memory: Count = DEFAULT_BUDGET
    disk: Count | None = None
    progress: bool = False
    information_batch: Size | None = None
    ood: bool = False
    group: Any = None
    replicas: Any = None
    by_class: bool = False

    @property
    def processes(self) -> Processes:
        """Return the processes that measure together.

        Raises:
            InputError: If this process is not in the group.
        """
        return Processes(self.group)

    @property
    def resamples(self) -> bool:
        """Return whether chance level or standard errors may be measured on stored samples."""
        return self.second_pass == "store" and (
            self.uncertainty is not False or self.baseline is not False
        )


def for_model(options: ProbeOptions, model: nn.Module) -> ProbeOptions:
    """Return the options with the processes that have different samples, unless a group is given.

    Args:
        options: Options of the measurement.
        model: Model to measure; tensor-parallel processes have the same samples.

    Raises:
        InputError: If the model cannot be measured in this process.
    """
    check_measurable(model)
    if options.group is not None:
        return options
    return replace(options, group=data_group(model), replicas=replica_group(model))


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
    def needs(self) -> Needs:
        """Statistics that the metrics need."""
        return needs_of(self.groups, self.weight is not None)


@dataclass(frozen=True)
class Layout:
    """Form of a measurement, which processes that measure together must share.

    Attributes:
        head: Name of the head in the model.
        classes: Number of classes.
        head_type: Type of the head's weight.
        bias: True if the head has a bias.
        one_logit: True if the head has one output for two classes.
        layers: Names of the layers in forward order; the last feeds the head.
        dims: Feature dimension of each layer.
        needs: Statistics that each layer's metrics need.
        prior: Class prior.
        precision: Precision of the moments.
        second_pass: Samples of the second pass, in words.
        counts_logits: True if the accuracy is counted from the model's logits.
        information_batch: Batch size of the batch estimate, or None.
        weight_decay: Weight decay on the head.
        baseline: True if the chance level is measured, None if for small samples only.
        uncertainty: Standard errors to estimate, if any.
        reference: True if the class means of a reference are used.
        ood: True if there are samples from outside the distribution to compare with.
    """

    head: str
    classes: int
    head_type: str
    bias: bool
    one_logit: bool
    layers: list[str]
    dims: list[int]
    needs: list[list[str]]
    prior: str
    precision: str
    second_pass: str
    counts_logits: bool
    information_batch: Size | None
    weight_decay: float
    baseline: bool | None
    uncertainty: Redraw
    reference: bool
    ood: bool


def plans_of(
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
    if names and torch.equal(features[names[-1]], features[HEAD_INPUT]):
        last = names.pop()
    before = [LayerPlan(name, name, layer_groups) for name in names]
    return [*before, LayerPlan(last, HEAD_INPUT, groups, **matrix_of(head))]


def plans_in(
    layout: Layout, device: torch.device, groups: Groups, layer_groups: Groups
) -> list[LayerPlan]:
    """Plan the layers that another process measures; the values of the head are not set yet.

    Args:
        layout: Form of the measurement.
        device: Device of the head in this process.
        groups: Groups of metrics of the head's input.
        layer_groups: Groups of metrics of the other layers.
    """
    *before, last = layout.layers
    dtype = getattr(torch, layout.head_type)
    weight = torch.empty(layout.classes, layout.dims[-1], dtype=dtype, device=device)
    bias = torch.empty(layout.classes, dtype=dtype, device=device) if layout.bias else None
    plans = [LayerPlan(name, name, layer_groups) for name in before]
    return [*plans, LayerPlan(last, HEAD_INPUT, groups, weight, bias, layout.one_logit)]


def layout_of(
    plans: Sequence[LayerPlan],
    dims: Sequence[int],
    head: str,
    options: ProbeOptions,
    *,
    counts_logits: bool,
    reference: bool,
) -> Layout:
    """Describe a measurement.

    Args:
        plans: Layers to measure.
        dims: Feature dimension of each layer.
        head: Name of the head.
        options: Options of the measurement.
        counts_logits: True if the accuracy is counted from the model's logits.
        reference: True if the class means of a reference are used.
    """
    weight, bias = plans[-1].weight, plans[-1].bias
    assert weight is not None
    return Layout(
        head=head,
        classes=len(weight),
        head_type=type_name(weight.dtype),
        bias=bias is not None,
        one_logit=plans[-1].one_logit,
        layers=[plan.name for plan in plans],
        dims=list(dims),
        needs=[_needs_in_words(plan.needs) for plan in plans],
        prior=options.prior,
        precision=options.precision,
        second_pass=str(options.second_pass),
        counts_logits=counts_logits,
        information_batch=options.information_batch,
        weight_decay=float(options.weight_decay),
        baseline=options.baseline,
        uncertainty=options.uncertainty,
        reference=reference,
        ood=options.ood,
    )


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
        # A copy, because the head may share memory with the model's parameters.
        sent = tensors if receives else [_copy(tensor) for tensor in tensors]
    processes.send(sent, rank)


def matrix_of(head: Head) -> dict[str, Any]:
    """Return the head's weight and bias in the head's type: float64 would take twice the memory."""
    return {"weight": head.weight, "bias": head.bias, "one_logit": head.one_logit}


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _needs_in_words(needs: Needs) -> list[str]:
    looks = {
        "decisions": needs.decisions,
        "hits": needs.hits,
        "information": needs.information,
        "scores": needs.scores,
    }
    return [*sorted(needs.statistics), *(name for name, wanted in looks.items() if wanted)]
