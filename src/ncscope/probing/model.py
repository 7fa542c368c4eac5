"""Measure a model layer by layer, in one pass over a loader."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.forward import forward
from ncscope.models.heads import Head
from ncscope.models.layers import named_layer
from ncscope.models.measuring import kept_buffers, measuring, unwrapped
from ncscope.models.taps import Taps
from ncscope.models.tracing import trace
from ncscope.models.wrappers import check_callable
from ncscope.probing.batches import (
    EmptyLoaderError,
    check_next_token,
    device_of,
    peek,
    split,
    token_labels,
)
from ncscope.probing.evaluation import Probed, measured
from ncscope.probing.gather import LayerGatherer
from ncscope.probing.plans import (
    LayerPlan,
    Layout,
    ProbeOptions,
    for_model,
    layout_of,
    matrix_of,
    plans_in,
    plans_of,
    share_head,
)
from ncscope.stats.batch import check_labels, check_range
from ncscope.stats.moments import ClassMoments
from ncscope.stats.processes import Processes
from ncscope.stats.statistics import ClassStatistics
from ncscope.stats.store import FeatureStore


def probe_model(
    model: nn.Module,
    loader: Iterable[Any],
    options: ProbeOptions | None = None,
    reference: Mapping[str, ClassStatistics] | None = None,
) -> Probed:
    """Run a model over a loader and measure its layers.

    The loader is read once. The first batch runs twice, once to find the head. Two copies of its
    first sample also run, to find the batch axis of each layer. Several processes measure their
    samples together; the number of samples may differ by process. A process without samples takes
    the layers and the head from another process. An error in one process ends all.

    Args:
        model: A classifier; a compiled or data-parallel one is unwrapped, and a sharded one is
            measured as it is, see `ncscope.models.replicas.data_group`. The model runs in
            evaluation mode and is left as it was: buffers that the model writes are restored, even
            after an exception.
        loader: Iterable of ``(inputs, labels)``, or of mappings with ``labels``. There is one label
            for each sample, or for each token if the model gives logits for every token. Batches
            without samples are skipped.
        options: Options of the measurement.
        reference: Statistics of the training set by layer, in forward order; the nearest-mean rule
            then uses their class means. The last layer of the reference is matched with the last
            layer measured, whatever the names; the other layers are matched by name.

    Raises:
        InputError: If the loaders of all processes are empty, the head cannot be found, a layer
            does not exist or does not return one row for each sample, the reference lacks a layer
            or has another dimension there, the layers differ between processes, or another process
            fails.
    """
    options = for_model(options or ProbeOptions(), model)
    with options.processes.ending_together():
        return _probed(model, loader, options, reference)


def _probed(
    model: nn.Module,
    loader: Iterable[Any],
    options: ProbeOptions,
    reference: Mapping[str, ClassStatistics] | None,
) -> Probed:
    processes, model = options.processes, unwrapped(model)
    check_callable(model)
    device = device_of(model)
    with measuring(model), kept_buffers(model), FeatureStore(options.memory) as store:
        probe = LayerwiseProbe(model, options, store, reference)
        with processes.ending_together(), _empty_beside_others(processes):
            # Inside `measuring`, because a loader that starts draws a seed from torch.
            first, batches = peek(loader)
            inputs, labels = split(first, device)
            traced = trace(model, inputs, options.layers, options.head)
            check_next_token(traced.head, inputs, labels, options.next_token)
            with traced.taps(model, pool=options.pool) as taps:
                for batch in _with_progress(batches, loader, options.progress):
                    inputs, labels = split(batch, device)
                    forward(model, inputs)
                    probe.update(taps, labels, traced.head)
        return probe.result()


@contextmanager
def _empty_beside_others(processes: Processes) -> Iterator[None]:
    """Allow an empty loader if other processes may have samples."""
    try:
        yield
    except EmptyLoaderError:
        if not processes.several:
            raise


class LayerwiseProbe:
    """Measurement of a model's layers, batch by batch.

    Args:
        model: The classifier.
        options: Options of the measurement.
        store: Store of features for the second pass; must stay open until `result` returns.
        reference: Statistics of the training set, as in `probe_model`.
    """

    def __init__(
        self,
        model: nn.Module,
        options: ProbeOptions,
        store: FeatureStore,
        reference: Mapping[str, ClassStatistics] | None = None,
    ) -> None:
        self._model, self._options, self._store = model, options, store
        self._reference = reference
        self._processes = options.processes
        self._head = ""
        self._plans: list[LayerPlan] = []

    def update(self, taps: Taps, labels: Tensor, head: Head) -> None:
        """Add the forward pass that the taps recorded last.

        Args:
            taps: Taps on the head's input and the layers to measure.
            labels: Class of each sample, or of each token if the model gives logits for every
                token; any integer type.
            head: The model's classifier head.

        Raises:
            InputError: If labels do not fit the features or the head.
        """
        if not self._plans:
            options = self._options
            plans = plans_of(taps.features, head, options.groups, options.layer_groups)
            dims = [taps.features[plan.tapped].shape[1] for plan in plans]
            self._begin(head.name, plans, dims)
        features = {plan.name: taps.features[plan.tapped] for plan in self._plans}
        if head.rows == "token":
            tokens = taps.logits.shape[:2]
            labels, kept = token_labels(labels, tokens, self._options.next_token)
            features = {name: rows[kept] for name, rows in features.items()}
        labels = check_labels(labels, len(features[self._plans[-1].name]))
        check_range(labels, len(head.weight), of_classifier=True)
        self._gatherer.update(features, labels)

    def result(self, head: Head | None = None) -> Probed:
        """Compute the measurement from the statistics of all processes.

        Call this once: afterwards, the statistics of this process are those of all processes.

        Args:
            head: Head with its present weights; by default, its weights at the first batch.

        Raises:
            InputError: If no process has samples, the layers differ between processes, or another
                process fails.
        """
        if head is not None and self._plans:
            self._plans[-1] = replace(self._plans[-1], **matrix_of(head))
        if self._processes.several:
            self._join()
        return measured(self._gatherer, self._plans, self._options, self._known)

    def set_reference(self, reference: Mapping[str, ClassStatistics] | None) -> None:
        """Replace the reference, before or after samples have been added.

        Args:
            reference: Statistics of the training set, as in `probe_model`.
        """
        self._reference = reference
        if self._plans:
            self._known = _matched(reference, self._plans, self._gatherer)

    def _begin(self, head: str, plans: list[LayerPlan], dims: Sequence[int]) -> None:
        self._head, self._plans = head, plans
        self._gatherer = _gatherer(plans, dims, self._options, self._store)
        self._known = _matched(self._reference, plans, self._gatherer)

    def _join(self) -> None:
        """Check that all processes measure the same layers; without samples, take them over."""
        processes = self._processes
        layouts = processes.values(self._layout())
        shared = processes.common_description(layouts)
        if shared is None:
            raise processes.nothing_to_measure()
        if None not in layouts:
            return
        empty = not self._plans
        with processes.ending_together():
            if empty:
                self._begin_empty(Layout(**shared))
        processes.common_description(processes.values(self._layout()))
        first = next(rank for rank, layout in enumerate(layouts) if layout is not None)
        share_head(self._plans[-1], first, receives=empty, processes=processes)

    def _begin_empty(self, layout: Layout) -> None:
        device = device_of(named_layer(self._model, layout.head))
        groups, layer_groups = self._options.groups, self._options.layer_groups
        plans = plans_in(layout, device, groups, layer_groups)
        self._begin(layout.head, plans, layout.dims)

    def _layout(self) -> dict[str, Any] | None:
        """Describe the measurement of this process; None without samples."""
        if not self._plans:
            return None
        dims = [self._gatherer.moments[plan.name].dim for plan in self._plans]
        refers = bool(self._known)
        return asdict(layout_of(self._plans, dims, self._head, self._options, reference=refers))


def _with_progress(batches: Iterable[Any], loader: Iterable[Any], show: bool) -> Iterable[Any]:
    total = len(loader) if isinstance(loader, Sized) else None
    console = Console(stderr=True)
    hidden = not (show and console.is_terminal)  # outside of a terminal, rich writes an empty line
    return track(batches, "Measuring", total, console=console, disable=hidden, transient=True)


def _gatherer(
    plans: Sequence[LayerPlan], dims: Sequence[int], options: ProbeOptions, store: FeatureStore
) -> LayerGatherer:
    head = plans[-1].weight
    assert head is not None
    moments = {
        plan.name: ClassMoments(
            len(head),
            dim,
            statistics=plan.needs.statistics,
            prior=options.prior,
            class_counts=options.class_counts,
            device=head.device,
        )
        for plan, dim in zip(plans, dims, strict=True)
    }
    asked = options.uncertainty or options.baseline is not False
    looks = asked or any(plan.needs.decisions or plan.needs.information for plan in plans)
    return LayerGatherer(moments, store if looks else None, options.processes)


def _matched(
    reference: Mapping[str, ClassStatistics] | None,
    plans: Sequence[LayerPlan],
    gatherer: LayerGatherer,
) -> dict[str, ClassStatistics]:
    """Match the reference to every layer with decisions: the last by position, others by name.

    The last layer always feeds the head, but its name depends on the layers that were tapped.
    """
    if not reference:
        return {}
    by_name = dict(reference) | {plans[-1].name: list(reference.values())[-1]}
    deciding = [plan.name for plan in plans if plan.needs.decisions]
    return {name: _known(by_name, name, gatherer.moments[name].dim) for name in deciding}


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
