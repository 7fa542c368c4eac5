"""Measure a model layer by layer, in one pass over a loader."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float, Int
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ncscope.errors import InputError
from ncscope.metrics.evaluate import Needs, needs_of
from ncscope.metrics.information import (
    DatasetInformation,
    dataset_information,
    takes_minutes,
)
from ncscope.metrics.layerwise import geodesic, relative_position
from ncscope.metrics.sources import Sources
from ncscope.models.forward import forward
from ncscope.models.heads import Head, find_head
from ncscope.models.layers import match_layers, residual_blocks
from ncscope.models.measuring import measuring
from ncscope.models.taps import HEAD_INPUT, Taps
from ncscope.probing.compute import layer_record
from ncscope.probing.gather import LayerGatherer
from ncscope.probing.records import GeodesicRecord, ProbeRecord
from ncscope.stats.decisions import Decider, DecisionCounts
from ncscope.stats.moments import ClassMoments, Prior
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope.stats.store import DEFAULT_BUDGET, FeatureStore

LINE = torch.linspace(0, 1, 21, dtype=torch.float64)


@dataclass(frozen=True)
class ProbeOptions:
    """What to measure of a model.

    Attributes:
        layers: Names or glob patterns of layers to tap besides the head's input; None for the
            repeated blocks.
        head: Name of the classifier head; None to find it.
        groups: Groups of metrics of the head's input; None for all.
        layer_groups: Groups of metrics of the other layers.
        prior: Class prior.
        class_counts: Samples of each class, which the uniform prior needs beforehand.
        weight_decay: Decay on the head that the MSE decomposition assumes.
        pool: Average feature maps over space instead of flattening them.
        memory: Bytes of features to hold for the second look; more goes to disk.
        progress: Whether to show a progress bar on stderr.
    """

    layers: Sequence[str] | None = None
    head: str | None = None
    groups: Collection[str] | None = None
    layer_groups: Collection[str] | None = ("pfc",)
    prior: Prior = "empirical"
    class_counts: Int[Tensor, " k"] | None = None
    weight_decay: float = 0.0
    pool: bool = False
    memory: int = DEFAULT_BUDGET
    progress: bool = False


@dataclass(frozen=True)
class Probed:
    """A model's measurement: the plain record, and the statistics it was computed from.

    Attributes:
        record: Metrics of every layer.
        statistics: Layer name to class statistics, in forward order.
    """

    record: ProbeRecord
    statistics: Mapping[str, ClassStatistics]


def probe_model(
    model: nn.Module,
    loader: Iterable[Any],
    options: ProbeOptions | None = None,
    reference: Mapping[str, ClassStatistics] | None = None,
) -> Probed:
    """Run a model over a loader and measure the layers tapped.

    One pass over the loader; the first batch runs twice, once to find the head.

    Args:
        model: A classifier. It runs in evaluation mode and is left exactly as it was: buffers
            that it writes get their values back, also by an exception.
        loader: Yields ``(inputs, labels)``, or mappings with ``labels``.
        options: What to measure.
        reference: Statistics of the training set by layer, in forward order, whose class means
            the nearest-mean rule then uses. Its last layer stands for the last one measured,
            whatever their names; the others are matched by name.

    Raises:
        InputError: If the loader is empty, the head cannot be found, a layer does not exist, or
            the reference lacks a layer or has it in another dimension.
    """
    options = options or ProbeOptions()
    device = _device(model)
    with measuring(model), _kept_buffers(model), FeatureStore(options.memory) as store:
        first, batches = _peek(loader)  # inside: a loader draws its seed when it starts
        head = find_head(model, _split(first, device)[0], options.head)
        with Taps(model, _layer_names(model, options, head), head.name, pool=options.pool) as taps:
            plans: list[_Plan] = []
            for batch in _with_progress(batches, loader, options.progress):
                inputs, labels = _split(batch, device)
                forward(model, inputs)
                if not plans:
                    plans = _plan(taps.features, head, options)
                    gatherer = _gatherer(plans, taps.features, options, store)
                    known = _matched(reference, plans, gatherer)
                gatherer.update({p.name: taps.features[p.tapped] for p in plans}, labels)
        return _measured(gatherer, plans, options, known)


@contextmanager
def _kept_buffers(model: nn.Module) -> Iterator[None]:
    """Undo what a model does to its buffers: written in place, or another tensor in their stead.

    Buffers that a lazy module has yet to fill, or that are added meanwhile, stay.
    """
    kept = [
        (module, name, buffer, _copy(buffer))
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    try:
        yield
    finally:
        for module, name, buffer, copy in kept:
            module._buffers[name] = buffer
            _write_back(buffer, copy)


def _copy(buffer: Tensor | None) -> Tensor | None:
    """A copy to compare with; None for what cannot be compared: absent, unfilled or sparse."""
    if buffer is None or is_lazy(buffer) or buffer.layout != torch.strided:
        return None
    return buffer.detach().clone()


def _write_back(buffer: Tensor | None, copy: Tensor | None) -> None:
    if buffer is not None and copy is not None and not torch.equal(buffer, copy):
        with torch.no_grad():
            buffer.copy_(copy)


@dataclass(frozen=True)
class _Plan:
    """One layer to measure: where its features come from, and what to make of them."""

    name: str
    tapped: str
    groups: Collection[str] | None
    weight: Float[Tensor, "k d"] | None = None
    bias: Float[Tensor, " k"] | None = None

    @property
    def needs(self) -> Needs:
        return needs_of(self.groups, self.weight is not None)


def _peek(loader: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The first batch, and all of them including it."""
    batches = iter(loader)
    first = next(batches, None)
    if first is None:
        fix = "pass a loader with at least one batch"
        raise InputError(expected="batches to measure", found="an empty loader", fix=fix)
    return first, chain([first], batches)


def _split(batch: Any, device: torch.device) -> tuple[Any, Int[Tensor, " b"]]:
    """Inputs and labels of a batch, on the model's device."""
    if isinstance(batch, Mapping) and "labels" in batch:
        inputs: Any = {name: value for name, value in batch.items() if name != "labels"}
        return _moved(inputs, device), batch["labels"].to(device)
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return _moved(batch[0], device), torch.as_tensor(batch[1]).to(device)
    fix = "wrap the loader"
    expected = "batches of (inputs, labels), or mappings with 'labels'"
    raise InputError(expected=expected, found=type(batch).__name__, fix=fix)


def _moved(inputs: Any, device: torch.device) -> Any:
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return {name: _moved(value, device) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return [_moved(value, device) for value in inputs]
    return inputs


def _device(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _with_progress(batches: Iterable[Any], loader: Iterable[Any], show: bool) -> Iterable[Any]:
    total = len(loader) if isinstance(loader, Sized) else None
    console = Console(stderr=True)
    return track(batches, "Measuring", total, console=console, disable=not show, transient=True)


def _layer_names(model: nn.Module, options: ProbeOptions, head: Head) -> list[str]:
    if options.layers is None:
        return residual_blocks(model)
    return [name for name in match_layers(model, options.layers) if name != head.name]


def _plan(
    features: Mapping[str, Float[Tensor, "b _d"]], head: Head, options: ProbeOptions
) -> list[_Plan]:
    """The layers in forward order; a last layer that is itself the head's input counts once."""
    names = [name for name in features if name != HEAD_INPUT]
    last = HEAD_INPUT
    if names and torch.equal(features[names[-1]], features[HEAD_INPUT]):
        last = names.pop()
    weight = head.weight.to(torch.float64)
    bias = None if head.bias is None else head.bias.to(torch.float64)
    before = [_Plan(name, name, options.layer_groups) for name in names]
    return [*before, _Plan(last, HEAD_INPUT, options.groups, weight, bias)]


def _gatherer(
    plans: Sequence[_Plan],
    features: Mapping[str, Float[Tensor, "b _d"]],
    options: ProbeOptions,
    store: FeatureStore,
) -> LayerGatherer:
    head = plans[-1].weight
    assert head is not None
    moments = {
        plan.name: ClassMoments(
            len(head),
            features[plan.tapped].shape[1],
            statistics=plan.needs.statistics,
            prior=options.prior,
            class_counts=options.class_counts,
            device=head.device,
        )
        for plan in plans
    }
    looks = any(plan.needs.decisions or plan.needs.information for plan in plans)
    return LayerGatherer(moments, store if looks else None)


def _matched(
    reference: Mapping[str, ClassStatistics] | None,
    plans: Sequence[_Plan],
    gatherer: LayerGatherer,
) -> dict[str, ClassStatistics]:
    """The reference of every layer that looks at decisions: the last by role, others by name.

    The last layer's name depends on which layers were tapped; what it is does not.
    """
    if not reference:
        return {}
    known = dict(reference) | {plans[-1].name: list(reference.values())[-1]}
    looking = [plan.name for plan in plans if plan.needs.decisions]
    return {name: _known(known, name, gatherer.moments[name].dim) for name in looking}


def _known(reference: Mapping[str, ClassStatistics], name: str, dim: int) -> ClassStatistics:
    expected = f"a reference of dimension {dim} for layer {name!r}"
    if name not in reference:
        found = f"layers {', '.join(reference)}"
        fix = "measure the reference with the same layers"
        raise InputError(expected=expected, found=found, fix=fix)
    if reference[name].dim != dim:
        found = f"dimension {reference[name].dim}"
        fix = "measure the same model on the training set, with the same pool"
        raise InputError(expected=expected, found=found, fix=fix)
    return reference[name]


def _measured(
    gatherer: LayerGatherer,
    plans: Sequence[_Plan],
    options: ProbeOptions,
    known: Mapping[str, ClassStatistics],
) -> Probed:
    """Everything computed from what was gathered, by this process and by all others."""
    gatherer.merge_across_processes()
    stats = {name: finish(moments) for name, moments in gatherer.moments.items()}
    decisions = _decisions(gatherer, plans, stats | dict(known))
    looked = _information(gatherer, plans[-1], stats)
    records = tuple(
        layer_record(plan.name, _sources(plan, stats, decisions, looked, options), plan.groups)
        for plan in plans
    )
    record = ProbeRecord(
        layers=records,
        comparable=gatherer.comparable,
        relative_position=tuple(relative_position(gatherer.step_lengths)),
        geodesic=_geodesic_record(gatherer, stats),
    )
    return Probed(record, stats)


def _sources(
    plan: _Plan,
    stats: Mapping[str, ClassStatistics],
    decisions: Mapping[str, DecisionCounts],
    looked: Mapping[str, DatasetInformation],
    options: ProbeOptions,
) -> Sources:
    return Sources(
        stats[plan.name],
        plan.weight,
        plan.bias,
        decisions.get(plan.name),
        looked.get(plan.name),
        options.weight_decay,
    )


def _information(
    gatherer: LayerGatherer, last: _Plan, stats: Mapping[str, ClassStatistics]
) -> dict[str, DatasetInformation]:
    """The second look's entropies of the head's input against the head."""
    if last.weight is None or not last.needs.information:
        return {}
    counts = gatherer.moments[last.name].counts
    if last.groups is None and takes_minutes(int(counts.sum()), last.weight):
        return {}
    mean = stats[last.name].global_mean
    batches = gatherer.stored(last.name)
    return {last.name: dataset_information(batches, counts, last.weight, mean)}


def _decisions(
    gatherer: LayerGatherer, plans: Sequence[_Plan], means_of: Mapping[str, ClassStatistics]
) -> dict[str, DecisionCounts]:
    """The second look, with the class means of the training set where they are given."""
    if gatherer.store is None:
        return {}
    deciders = {
        plan.name: _decider(plan, means_of[plan.name], gatherer.moments[plan.name].device)
        for plan in plans
        if plan.needs.decisions
    }
    return gatherer.decisions(deciders)


def _decider(plan: _Plan, means_of: ClassStatistics, device: torch.device) -> Decider:
    classes, means = means_of.classes.to(device), means_of.means.to(device)
    return Decider(classes, means, plan.weight, plan.bias)


def _geodesic_record(
    gatherer: LayerGatherer, stats: Mapping[str, ClassStatistics]
) -> GeodesicRecord | None:
    if gatherer.pair is None or gatherer.store is None:
        return None
    ends = stats[gatherer.comparable[0]], stats[gatherer.comparable[-1]]
    line = geodesic(*ends, gatherer.pair)
    positions: list[float] = LINE.tolist()
    return GeodesicRecord(
        t=positions,
        pfc1=[float(line.pfc1(t)) for t in positions],
        pfc2=[float(line.pfc2(t)) for t in positions],
        pfc3=gatherer.accuracy_on_line(LINE),
        alignment=float(line.alignment()),
        transport_cost=float(line.transport_cost()),
    )
