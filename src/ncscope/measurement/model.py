"""Measure a model layer by layer, in one pass over a loader.

`measure_layers` runs the model; `LayerwiseMeasurement` takes the passes that it, or a loop of the
user (see `ncscope.measurement.watching`), runs.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ncscope.array_checks import IGNORED, check_labels
from ncscope.devices import move_to
from ncscope.errors import InputError, list_names
from ncscope.labels import is_ignored, list_marks, note_left_out, nothing_left
from ncscope.measurement.batches import (
    EmptyLoaderError,
    Loader,
    as_batches,
    check_next_token,
    check_third_entry,
    find_module_device,
    ood_batches,
    peek,
    prepare_batch,
    token_indices,
    token_labels,
    with_progress,
)
from ncscope.measurement.evaluation import ModelResult, add_note_on_ties, add_notes, evaluate_layers
from ncscope.measurement.head_classes import HeadClasses, find_data_names, find_model_names
from ncscope.measurement.layer_gatherer import LayerGatherer
from ncscope.measurement.ood import OodSource, check_groups
from ncscope.measurement.options import Options
from ncscope.measurement.plans import (
    LayerPlan,
    describe_layout,
    plan_from_layout,
    plan_layers,
    select_head_weights,
    share_head,
)
from ncscope.measurement.sample_stores import (
    Batch,
    Rerun,
    SampleStore,
    check_second_pass,
    count_batches,
    open_store,
)
from ncscope.metrics.evaluate import find_needs
from ncscope.models.evaluation_mode import (
    evaluation_mode,
    restore_buffers,
    restore_generators,
    restore_random_states,
)
from ncscope.models.forward import (
    LABEL_ARGUMENTS,
    argument_names,
    first_tensor,
    mark_ties,
)
from ncscope.models.heads import Head
from ncscope.models.layers import find_layer
from ncscope.models.replicas import check_replicas, data_group, replica_group, share_buffers
from ncscope.models.sharding import predict_classes
from ncscope.models.taps import HEAD_INPUT, Taps
from ncscope.models.tracing import Trace, trace
from ncscope.models.wrappers import check_callable, check_measurable, fsdp1_units, unwrap
from ncscope.stats.classes import BatchClasses
from ncscope.stats.decisions import count_by_class
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import ALL_STATISTICS
from ncscope.stats.processes import Processes, compare_descriptions
from ncscope.stats.statistics import ClassStatistics


def measure_layers(
    model: nn.Module,
    loader: Loader,
    options: Options | None = None,
    reference: Mapping[str, ClassStatistics] | None = None,
    ood: Loader | None = None,
    *,
    data: Any = None,
) -> ModelResult:
    """Run a model over a loader and measure its layers.

    The loader is read once, or twice with ``second_pass="recompute"``. The first batch runs once
    more, to find the head. Two copies of its first sample also run, to find the batch axis of each
    layer. Several processes measure their samples together; the number of samples may differ by
    process. A process without samples takes the layers and the head from another process. An error
    in one process ends all.

    Args:
        model: A classifier; a compiled or data-parallel one is unwrapped, and a sharded one is
            measured as it is, see `ncscope.models.replicas.data_group`. The model runs in
            evaluation mode and is left as it was: buffers that the model writes are restored, even
            after an exception.
        loader: Batches as `split` takes them, or samples as `as_batches` takes them. There is one
            label for each sample, or for each token if the model gives logits for every token.
            Batches without samples are skipped.
        options: Options of the measurement.
        reference: Statistics of the training set by layer, in forward order; the nearest-mean rule
            then uses their class means. The last layer of the reference is matched with the last
            layer measured, whatever the names; the other layers are matched by name.
        ood: Loader of OOD samples to compare the head's input with, read once; labels are ignored.
            None for no such samples.
        data: Loader or data set that may name the classes; by default ``loader``.

    Raises:
        InputError: If the second pass cannot be had as asked for, the features that it stores do
            not fit, or the samples that it computes again differ. Also if the loaders of all
            processes are empty, the head cannot be found, a layer does not exist or does not return
            one row for each sample, the reference lacks a layer or has another dimension there, the
            layers differ between processes, or another process fails.
    """
    options = options or Options()
    # A model that is refused in one process must end the others too: all of them, because which
    # processes measure together is known only once the model is.
    with options.processes.fail_together():
        options, replicas = choose_processes(options, model)
    with options.processes.fail_together():
        check_second_pass(options, loader)
        check_groups(find_needs(options.groups, True), options.groups, given=ood is not None)
        processes, model = options.processes, unwrap(model)
        check_callable(model)
        find_module_device(model)  # refuses a device without float64
        data = loader if data is None else data
        with restore_random_states():  # an item of a data set may be drawn at random
            source = as_batches(loader, options.split_batch)
            ood_source = None if ood is None else as_batches(ood, options.split_batch)
        length = count_batches(source)
        with (
            restore_generators(loader, ood),
            evaluation_mode(model),
            restore_buffers(model),
            open_store(options, batches=length) as kept,
        ):
            measurement = LayerwiseMeasurement(
                model,
                options,
                kept,
                reference,
                replicas=replicas,
                counts_logits=True,
                has_ood=ood is not None,
                data=data,
            )
            measurement.take_buffers(check_replicas(model, processes))
            traced = None
            # A process whose loader is empty takes the layers from another one: see `_join`.
            unless_alone = suppress(EmptyLoaderError) if processes.several else nullcontext()
            with processes.fail_together(), unless_alone:
                # Inside `evaluation_mode`, because a loader that starts draws a seed from torch.
                first, batches, given = peek(source, model, options.split_batch)
                inputs, labels = prepare_batch(first, model, measurement.classes)
                traced = trace(
                    model, inputs, options.layers, options.head, labels=labels, pool=options.pool
                )
                traced = replace(traced, head=_share_memory(model, traced.head))
                check_next_token(
                    traced.head, inputs, labels, options.next_token, options.ignore_index
                )
                check_third_entry(given, len(traced.head.weight), options.split_batch)
                del first, given, inputs, labels
                with traced.taps(model, pool=options.pool) as taps:
                    for batch in with_progress(batches, length, "Measuring", options.progress):
                        inputs, labels = prepare_batch(batch, model, measurement.classes)
                        traced.run(model, inputs, labels)
                        measurement.update(taps, labels, traced)
                    measurement.warn(taps.check_step()[1])
                if isinstance(kept, Rerun):
                    kept.source = partial(_rerun_model, measurement, model, source, traced, options)
            outside = None
            if ood_source is not None:
                outside = partial(run_outside, model, ood_source, traced, options)
            return measurement.result(outside=outside)


def choose_processes(options: Options, model: nn.Module) -> tuple[Options, Any]:
    """Return the options with the processes that have different samples, unless a group is given.

    Args:
        options: Options of the measurement.
        model: Model to measure; tensor-parallel processes have the same samples.

    Returns:
        The options, and the process group of the processes with the samples of this one; None if
        there is no other such process.

    Raises:
        InputError: If the model cannot be measured in this process.
    """
    check_measurable(model)
    if options.process_group is not None:
        return options, None
    return replace(options, process_group=data_group(model)), replica_group(model)


def _rerun_model(
    measurement: "LayerwiseMeasurement",
    model: nn.Module,
    loader: Iterable[Any],
    traced: Trace,
    options: Options,
) -> Iterator[Batch]:
    """Yield the features and labels of another run of the model over the loader."""
    length = count_batches(loader)
    with traced.taps(model, pool=options.pool) as taps:
        try:
            _, batches, _ = peek(loader, model, options.split_batch)
        except EmptyLoaderError:
            return  # the samples are then counted, and are too few
        for batch in with_progress(batches, length, "Deciding", options.progress):
            inputs, labels = prepare_batch(batch, model, measurement.classes)
            traced.run(model, inputs, labels)
            features, classes, _, _ = measurement.rows(taps, labels, traced.head)
            taps.release_logits()
            yield features, classes.labels


def _share_memory(model: nn.Module, head: Head) -> Head:
    """Return the head with its module's own weight instead of a copy, where the two are equal.

    FSDP1 frees the memory of a weight between forward passes, so there the copy stays.
    """
    weight = getattr(head.module, "weight", None)
    if type(weight) not in (Tensor, nn.Parameter) or fsdp1_units(model):
        return head
    assert isinstance(weight, Tensor)
    rows = weight.detach().flatten(1)
    same = rows.dtype == head.weight.dtype and torch.equal(rows, head.weight)
    return replace(head, weight=rows) if same else head


class LayerwiseMeasurement:
    """Measurement of a model's layers, batch by batch.

    Args:
        model: The classifier.
        options: Options of the measurement.
        store: Samples of the second pass; must stay open until `result` returns.
        reference: Statistics of the training set, as in `measure_layers`.
        replicas: Process group of the processes with the samples of this one; None for none.
        counts_logits: Count the accuracy from the logits of the passes if True. If False, or if
            the model changes the outputs of its head, the head decides the samples again in the
            second pass, with its weights of that time.
        has_ood: True if samples from outside the distribution will be compared with.
        data: Loader or data set that may name the classes; None for none.

    Attributes:
        classes: Names of the classes, as far as they are known.
    """

    def __init__(
        self,
        model: nn.Module,
        options: Options,
        store: SampleStore,
        reference: Mapping[str, ClassStatistics] | None = None,
        *,
        replicas: Any = None,
        counts_logits: bool = False,
        has_ood: bool = False,
        data: Any = None,
    ) -> None:
        key = options.split_batch if isinstance(options.split_batch, str) else None
        self.classes = HeadClasses(
            options.class_names,
            of_data=find_data_names(data, key),
            of_model=find_model_names(model),
        )
        self._model, self._options, self._store = model, options, store
        self._reference, self._counts_logits = reference, counts_logits
        self._replicas, self._has_ood = replicas, has_ood
        self._processes = options.processes
        self._labels_seen = 0
        self._left_out = self._samples = 0
        self._notes: tuple[str, ...] = ()
        self._warnings: tuple[str, ...] = ()
        self._head = ""
        self._may_be_headless = False
        self._plans: list[LayerPlan] = []

    def update(self, taps: Taps, labels: Tensor, traced: Trace) -> None:
        """Add the forward pass that the taps recorded last.

        Args:
            taps: Taps on the head's input and the layers to measure.
            labels: Class of each sample, or of each token if the model gives logits for every
                token; any integer type.
            traced: Head, layers and axes of the model.

        Raises:
            InputError: If labels do not fit the features or the head, or a layer has features of
                another dimension than in the first batch.
        """
        head = traced.head
        if not self._plans:
            options = self._options
            self._notes += traced.notes
            self._warnings = traced.head.warnings
            self._may_be_headless = options.head is None and head.last_step.kind == "ReLU"
            plans = plan_layers(taps.features, head, options.groups, options.layer_groups)
            dims = [taps.features[plan.tapped].shape[1] for plan in plans]
            counts = self._counts_logits and head.gives_logits and "hits" in plans[-1].needs
            self._begin(head.name, plans, dims, counts)
        self._check_sizes(taps)
        features, classes, predicted, left_out = self.rows(taps, labels, head)
        self._left_out += left_out
        self._samples += left_out + len(classes)
        if predicted is not None:
            chosen, undecided = predicted
            labels = move_to(classes.labels, chosen.device)
            marks = torch.stack([chosen == labels, undecided > 0])
            self._counted += count_by_class(marks, labels, len(head.weight)).to(self._counted)
        taps.release_logits()
        if self._replicas is not None:
            seen = classes.labels.cpu().numpy().tobytes()
            self._labels_seen = zlib.crc32(seen, self._labels_seen)
        self._gatherer.update(features, classes)

    def rows(
        self, taps: Taps, labels: Tensor, head: Head
    ) -> tuple[dict[str, Tensor], BatchClasses, Int[Tensor, "2 n"] | None, int]:
        """Return what to measure of the last pass, without the samples that are left out.

        Args:
            taps: Taps on the head's input and the layers to measure.
            labels: Class of each sample or token, as for `update`.
            head: The model's classifier head.

        Returns:
            Features by layer; classes; the class of the greatest logit, and 1 where there is no
            such class, or None if the logits do not count; and the number of samples that
            ``ignore_index`` leaves out.

        Raises:
            InputError: If labels do not fit the features or the head.
        """
        features = {plan.name: taps.features[plan.tapped] for plan in self._plans}
        predicted = None
        if self._counts_logits:
            chosen = predict_classes(taps.logits)
            predicted = torch.stack([chosen, mark_ties(taps.logits, chosen)]).flatten(1)
        rows = len(features[self._plans[-1].name])
        marks, left_out, kept = self._options.ignore_index, 0, None
        if head.rows == "token":
            labels, kept = token_labels(
                labels,
                taps.logits.shape[:2],
                self._options.next_token,
                taps.token_mask,
                taps.pixels,
                # Else tokens labelled -100 would not be counted, of which the user asks a note.
                ignored=None if IGNORED in list_marks(marks) else IGNORED,
            )
            rows = len(kept)
        if head.one_logit and labels.shape == (rows, 1):
            labels = labels[:, 0]  # the form that the loss of one logit takes
        if head.rows != "token" and labels.ndim == 2 and len(labels) == rows:
            self._refuse_labels_of_tokens(labels)
        labels = check_labels(labels, rows, of_batch=True)
        if marks is not None:
            remaining = torch.nonzero(~is_ignored(labels, marks)).squeeze(1)
            left_out = rows - len(remaining)
            if left_out:
                labels = labels[remaining]
                kept = remaining if kept is None else kept[remaining]
        if kept is not None:
            kept = move_to(kept, head.weight.device)  # once for all layers on that device
            features = {name: each[move_to(kept, each.device)] for name, each in features.items()}
            predicted = None if predicted is None else predicted[:, kept]
        classes = BatchClasses.from_labels(
            labels, len(head.weight), of_classifier=True, has_ignore_index=True
        )
        return features, classes, predicted, left_out

    def take_buffers(self, names: list[str]) -> None:
        """Measure with the buffers of the first process; the caller restores those of this one.

        Args:
            names: Names of the buffers that differ between the processes.
        """
        if names:
            share_buffers(self._model, names, self._processes)
            self._notes += (_buffers_note(names, "measured with those of the first process"),)

    def warn(self, warnings: Sequence[str]) -> None:
        """Add warnings to the last layer of the result, each once."""
        self._warnings += tuple(each for each in warnings if each not in self._warnings)

    def note_buffers(self, names: list[str]) -> None:
        """Note that the passes of each process ran with buffers of its own."""
        if names:
            self._notes += (_buffers_note(names, "each process ran with its own"),)

    def result(self, head: Head | None = None, outside: OodSource | None = None) -> ModelResult:
        """Compute the measurement from the statistics of all processes.

        Call this once: afterwards, the statistics of this process are those of all processes.

        Args:
            head: Head with its present weights; by default, its weights at the first batch.
            outside: Function that runs the model over the OOD samples of this process; None for
                no comparison with OOD samples.

        Raises:
            InputError: If no process has samples, the layers differ between processes, or another
                process fails.
        """
        if head is not None and self._plans:
            self._plans[-1] = replace(self._plans[-1], **select_head_weights(head))
        self._check_replicas()
        if self._processes.several:
            self._join()
        ignore_index = self._options.ignore_index
        if ignore_index is not None:
            counts = [self._left_out, self._samples]
            both = torch.tensor(counts, device=self._gatherer.device)
            left_out, samples = self._processes.sum(both).tolist()
            if samples and left_out == samples:
                raise nothing_left(samples, ignore_index)
            self._notes += note_left_out(left_out, samples, ignore_index)
        names = self._agree_on_names()
        correct, undecided = None, 0
        if self._counts_logits:
            by_class = self._processes.sum(self._counted).cpu()
            correct, undecided = by_class[0], int(by_class[1].sum())
        result = evaluate_layers(
            self._gatherer, self._plans, self._options, self._known, correct, outside
        )
        head_rows = self._plans[-1].weight
        assert head_rows is not None
        last = result.record.last
        # So do the features of a backbone whose last layer is linear, or a map of one pixel.
        if self._may_be_headless and 2 * last.k <= len(head_rows):
            raise InputError(
                expected="a model that ends in its head",
                found=f"one that ends in the ReLU of the {len(head_rows)} outputs of "
                f"{self._head!r}, and labels of {last.k} classes",
                fix=f"pass head={self._head!r} if these are logits; those of a backbone are "
                "features: collect them and call ncscope.measure(features, labels)",
            )
        warnings = (*self.classes.warnings(len(head_rows)), *self._warnings)
        noted = add_notes(add_note_on_ties(result, undecided), self._notes, warnings)
        return replace(noted, class_names=names)

    def _agree_on_names(self) -> tuple[str, ...]:
        """Return the names of the head's classes, which all processes that know any must share."""
        weight = self._plans[-1].weight
        assert weight is not None
        with self._processes.fail_together():
            names = self.classes.names(len(weight))
        known = {tuple(each) for each in self._processes.gather(names) if each}
        if len(known) > 1:
            raise InputError(
                expected="the same names of classes in all processes",
                found=" and ".join(f"{', '.join(each[:3])}, ..." for each in sorted(known)[:2]),
                fix="give them one data set, or pass class_names",
            )
        return known.pop() if known else ()

    def _refuse_labels_of_tokens(self, labels: Tensor) -> None:
        """Refuse labels of every token beside logits of one token a sample."""
        if labels.is_floating_point() or labels.shape[1] < 2 or int(labels.max()) < 2:
            return
        shown, *others = argument_names(self._model)
        taking = next((name for name in others if name in LABEL_ARGUMENTS), None)
        batch = f'{{"{shown}": X, "{taking}": Y, "labels": Y}}'
        raise InputError(
            expected="logits of every token, for labels of every token",
            found=f"labels of shape {tuple(labels.shape)} and logits of one token a sample",
            fix=f"give the model its targets, for which it returns all tokens: batches {batch}"
            if taking
            else "let the model return the logits of every token, or pass one label a sample",
        )

    def _check_sizes(self, taps: Taps) -> None:
        """Refuse a layer whose features have another dimension than in the first batch."""
        for plan in self._plans:
            dim = self._gatherer.moments[plan.name].dim
            size = taps.features[plan.tapped].shape[1]
            if size != dim:
                of_head = plan.tapped == HEAD_INPUT
                raise InputError(
                    expected=f"features of one dimension from layer {plan.name!r} in all batches",
                    found=f"{dim:,} in the batches before and {size:,} in this one",
                    fix="give the model inputs of one size"
                    if of_head
                    else "pass pool=True to average over positions (of padding too, where the "
                    "model is given no attention_mask), give it inputs of one size, or leave the "
                    "layer out of layers=[...]",
                )

    def _check_replicas(self) -> None:
        """Check that the processes of a tensor-parallel group read the same labels."""
        if self._replicas is None:
            return
        together = Processes(self._replicas)
        if len(set(together.gather(self._labels_seen))) > 1:
            ranks = ", ".join(map(str, together.ranks))
            raise InputError(
                expected=f"the same batches in the tensor-parallel processes {ranks}",
                found="different labels",
                fix="give them one loader, with one seed where it shuffles",
            )

    def set_reference(self, reference: Mapping[str, ClassStatistics] | None) -> None:
        """Replace the reference, before or after samples have been added.

        Args:
            reference: Statistics of the training set, as in `measure_layers`.
        """
        self._reference = reference
        if self._plans:
            self._known = _match_reference(reference, self._plans, self._gatherer)

    def _begin(
        self, head: str, plans: list[LayerPlan], dims: Sequence[int], counts_logits: bool
    ) -> None:
        self._head, self._plans, self._counts_logits = head, plans, counts_logits
        self._gatherer = _build_gatherer(
            plans, dims, self._options, self._store, counts_logits, self._has_ood
        )
        # Hits of the logits, and samples without a single greatest logit, by class.
        head_rows = plans[-1].weight
        assert head_rows is not None
        self._counted = torch.zeros(
            2, len(head_rows), dtype=torch.int64, device=self._gatherer.device
        )
        self._known = _match_reference(self._reference, plans, self._gatherer)

    def _join(self) -> None:
        """Check that all processes measure the same layers; without samples, take them over."""
        processes = self._processes
        layouts = processes.gather(self._describe_layout())
        shared = compare_descriptions(layouts, processes.ranks)
        if shared is None:
            raise processes.no_samples_error()
        if None not in layouts:
            return
        empty = not self._plans
        with processes.fail_together():
            if empty:
                head, options = shared["head"], self._options
                device = find_module_device(find_layer(self._model, head))
                plans = plan_from_layout(shared, device, options.groups, options.layer_groups)
                self._begin(head, plans, shared["dims"], shared["counts_logits"])
        processes.agree_on(self._describe_layout())
        first = next(rank for rank, layout in enumerate(layouts) if layout is not None)
        share_head(self._plans[-1], first, receives=empty, processes=processes)

    def _describe_layout(self) -> dict[str, Any] | None:
        """Describe the measurement of this process; None without samples."""
        if not self._plans:
            return None
        dims = [self._gatherer.moments[plan.name].dim for plan in self._plans]
        return describe_layout(
            self._plans,
            dims,
            self._head,
            self._options,
            counts_logits=self._counts_logits,
            reference=bool(self._known),
            ood=self._has_ood,
        )


def _buffers_note(names: Sequence[str], what: str) -> str:
    return f"buffers differ between processes ({list_names(names, 2)}): {what}"


def _build_gatherer(
    plans: Sequence[LayerPlan],
    dims: Sequence[int],
    options: Options,
    store: SampleStore,
    counts_logits: bool,
    has_ood: bool,
) -> LayerGatherer:
    head = plans[-1].weight
    assert head is not None
    moments = {
        plan.name: ClassMoments(
            len(head),
            dim,
            statistics=ALL_STATISTICS.intersection(plan.needs),
            prior=options.prior,
            class_counts=options.class_counts,
            precision=options.precision,
            device=head.device,
        )
        for plan, dim in zip(plans, dims, strict=True)
    }
    scores = has_ood and "scores" in plans[-1].needs
    looks = (
        options.resamples
        or scores
        or any(
            plan.needs & {"decisions", "information"}
            or ("hits" in plan.needs and not counts_logits)
            for plan in plans
        )
    )
    return LayerGatherer(moments, store if looks else None, options.processes)


def _match_reference(
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
    deciding = [plan.name for plan in plans[:-1] if "decisions" in plan.needs]
    if plans[-1].needs & {"decisions", "ood", "scores"}:
        deciding.append(plans[-1].name)
    return {name: _select_reference(by_name, name, gatherer.moments[name].dim) for name in deciding}


def _select_reference(
    reference: Mapping[str, ClassStatistics], name: str, dim: int
) -> ClassStatistics:
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


def run_outside(
    model: nn.Module, loader: Iterable[Any], traced: Trace | None, options: Options
) -> Iterator[Tensor]:
    """Yield the head's input of a run of the model over OOD samples.

    Args:
        model: The classifier.
        loader: Loader of OOD samples.
        traced: The model's trace; None in a process without other samples, which traces the model.
        options: Options of the measurement.
    """
    outside = ood_batches(loader, model, options.split_batch)
    batches = with_progress(outside, count_batches(loader), "Comparing", options.progress)
    for inputs, given in batches:
        if traced is None:
            traced = trace(model, inputs, options.layers, options.head, pool=options.pool)
        with traced.taps(model, pool=options.pool) as taps:
            # Of samples from elsewhere no class is known: a model that needs labels gets the first.
            count = len(rows) if (rows := first_tensor(inputs)) is not None else 0
            traced.run(model, inputs, torch.zeros(count, dtype=torch.long, device="cpu"))
            features = taps.features[HEAD_INPUT]
            if traced.head.rows == "token":
                tokens = taps.logits.shape[:2]
                kept = token_indices(
                    given, tokens, options.next_token, taps.token_mask, taps.pixels
                )
                features = features[move_to(kept, features.device)]
            taps.release_logits()
        yield features
