"""Similarity between the layers of one model, or of two models, in one pass over a loader."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.devices import are_equal
from ncscope.errors import InputError
from ncscope.measurement.batches import (
    Batch,
    Loader,
    as_batches,
    find_module_device,
    peek,
    prepare_batch,
    token_labels,
    with_progress,
)
from ncscope.measurement.head_classes import HeadClasses, find_data_names
from ncscope.measurement.sample_stores import count_batches
from ncscope.models.evaluation_mode import evaluation_mode, restore_buffers, restore_generators
from ncscope.models.forward import copy_inputs
from ncscope.models.replicas import data_group
from ncscope.models.taps import HEAD_INPUT, Taps
from ncscope.models.tracing import Trace, trace
from ncscope.models.wrappers import check_callable, check_measurable, unwrap
from ncscope.stats.cka_moments import CkaMoments
from ncscope.stats.merging import merge_in_place
from ncscope.stats.processes import Processes


@dataclass(frozen=True)
class ModelSide:
    """Model to compare, and its layers.

    Attributes:
        model: A classifier, as for `ncscope.measure_model`.
        layers: Names or patterns of layers besides the head's input; None for the repeated blocks.
        head: Name of the head; None to detect the head.
    """

    model: nn.Module
    layers: Sequence[str] | None = None
    head: str | None = None


@dataclass(frozen=True)
class SimilarityRecord:
    """CKA between layers.

    Attributes:
        rows: Names of the layers of the first model, in forward order.
        columns: Names of the layers of the second model; of the first for a single model.
        values: CKA, one row for each layer of the first model; NaN where it is undefined.
        num_samples: Number of samples.
        two_models: True if the columns are layers of another model.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    num_samples: int
    two_models: bool


def layer_similarity(
    sides: Sequence[ModelSide],
    loader: Loader,
    *,
    pool: bool | None = None,
    progress: bool = False,
    process_group: Any = None,
) -> SimilarityRecord:
    """Run one or two models over a loader, and compare their layers.

    The models run in evaluation mode and are left as they were, as by
    `ncscope.measurement.model.measure_layers`.

    Args:
        sides: One model, whose layers are compared with each other, or two.
        loader: Batches, as for `ncscope.measure_model`.
        pool: Average feature maps and sequences, as in `Taps`.
        progress: Show a progress bar on stderr if True.
        process_group: Process group; by default that of all processes with other samples.

    Raises:
        InputError: If there are fewer than 4 samples, a head or a layer is not found, the models
            give different numbers of rows, or the sums of all pairs do not fit into memory.
    """
    for side in sides:
        check_measurable(side.model)
    processes = Processes(data_group(sides[0].model) if process_group is None else process_group)
    with processes.fail_together(), ExitStack() as stack:
        stack.enter_context(restore_generators(loader))
        models = [unwrap(side.model) for side in sides]
        for model in models:
            check_callable(model)
            stack.enter_context(evaluation_mode(model))
            stack.enter_context(restore_buffers(model))
        classes = HeadClasses(of_data=find_data_names(loader), is_option=False)
        source = as_batches(loader)
        length = count_batches(source)
        first, batches, _ = peek(source, models[0])
        runs = [
            _Run.of(stack, model, side, first, pool, classes)
            for model, side in zip(models, sides, strict=True)
        ]
        del first
        moments: CkaMoments | None = None
        for batch in with_progress(batches, length, "Comparing", progress):
            sets = [run.features(batch) for run in runs]
            moments = moments or _start_moments(sets, runs[0].device)
            moments.update(*(rows for each in sets for rows in each.values()))
        for run in runs:
            run.taps.check_step()
        assert moments is not None
        merge_in_place(moments, processes)
        names = [tuple(each) for each in sets]
        cka, first_layers = moments.cka(), len(names[0])
        shown = cka if len(names) == 1 else cka[:first_layers, first_layers:]
        return SimilarityRecord(
            rows=names[0],
            columns=names[-1],
            values=tuple(map(tuple, shown.tolist())),
            num_samples=int(moments.counts),
            two_models=len(names) > 1,
        )


class _Run:
    """Forward passes of one model with taps on its layers."""

    def __init__(self, model: nn.Module, traced: Trace, taps: Taps, classes: HeadClasses) -> None:
        self.model, self.traced, self.taps, self.classes = model, traced, taps, classes
        self.device = find_module_device(model)
        self._last: str | None = None

    @classmethod
    def of(
        cls,
        stack: ExitStack,
        model: nn.Module,
        side: ModelSide,
        first: Batch,
        pool: bool | None,
        classes: HeadClasses,
    ) -> "_Run":
        """Find the head and the layers on the first batch, and attach taps until the stack ends."""
        inputs, labels = prepare_batch(first, model, classes)
        traced = trace(model, inputs, side.layers, side.head, labels=labels, pool=pool)
        return cls(model, traced, stack.enter_context(traced.taps(model, pool=pool)), classes)

    def features(self, batch: Batch) -> dict[str, Float[Tensor, "n _d"]]:
        """Return the features of a batch by layer; a last layer that feeds the head counts once."""
        inputs, labels = prepare_batch(batch, self.model, self.classes)
        # The other model gets the same batch, which this one may change in place.
        self.traced.run(self.model, copy_inputs(inputs), labels)
        features = dict(self.taps.features)
        if self.traced.head.rows == "token":
            taps = self.taps
            tokens, mask = taps.logits.shape[:2], taps.token_mask
            _, kept = token_labels(labels, tokens, False, mask, taps.pixels)
            features = {name: rows[kept.to(rows.device)] for name, rows in features.items()}
        self.taps.release_logits()
        if self._last is None:
            # Decided on the first batch: the columns must be the same in all batches.
            *before, last = features
            feeds_head = before and are_equal(features[before[-1]], features[last])
            self._last = before[-1] if feeds_head else last
        if self._last != HEAD_INPUT:
            del features[HEAD_INPUT]
        return features


def _start_moments(sets: Sequence[Mapping[str, Tensor]], device: torch.device) -> CkaMoments:
    """Return moments of the pairs to compare: all of one model, or those between two models."""
    if len(sets) == 1:
        if len(sets[0]) < 2:
            raise InputError(
                expected="at least two layers to compare",
                found=f"{next(iter(sets[0]))!r} alone",
                fix="name layers=[...], or pass another model",
            )
        return CkaMoments(device=device)
    first, second = (len(each) for each in sets)
    pairs = [(i, first + j) for i in range(first) for j in range(second)]
    return CkaMoments(pairs, device=device)
