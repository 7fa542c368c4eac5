"""NC1 and NC2 of layers that are too wide for a scatter matrix, in the span of the class means."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ncscope.measurement.batches import find_module_device
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.evaluate import evaluate
from ncscope.metrics.sources import Sources
from ncscope.metrics.variability import nc1, nc1_quotient
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.forward import forward
from ncscope.models.taps import HEAD_INPUT
from ncscope.models.tracing import Trace, trace
from ncscope.stats.merging import merge_across_processes
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import Statistic
from ncscope.stats.processes import ALL
from ncscope.stats.statistics import ClassStatistics, finish

Bases = Mapping[str, Float[Tensor, "_d _r"]]


def between_class_metrics(
    model: nn.Module, loader: Iterable[Any], layers: Sequence[str], num_classes: int
) -> dict[str, dict[str, float]]:
    r"""Compute NC1 and NC2 of layers of any width, by two passes over the loader.

    $\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]$ depends on the features only through their
    projection onto the span of the class means, and the metrics of NC2 depend only on the means.
    The first pass computes the means. The second pass measures the features' coordinates in an
    orthonormal basis Q of the span: $\Sigma_B^\dagger=Q(Q^\top\Sigma_BQ)^\dagger Q^\top$.

    Args:
        model: Classifier; it is measured in evaluation mode, and its mode is restored.
        loader: Loader of ``(inputs, labels)`` that yields the same samples in both passes.
        layers: Names or patterns of layers; feature maps are flattened.
        num_classes: Number of classes K.

    Returns:
        Metrics by layer, in forward order: ``nc1``, ``nc1_quotient`` and the class-mean metrics of
        the group ``nc2``. Cost: two forward passes, each with the first batch run twice, and
        $O(ndK)$ operations and $O(dK)$ memory per layer.

    Raises:
        InputError: If a layer or the head is not found, or fewer than two classes are present.
    """
    with ALL.fail_together(), evaluation_mode(model):
        wide = _statistics(model, loader, layers, num_classes, None)
        bases = {name: torch.linalg.qr(stats.means.mT).Q for name, stats in wide.items()}
        narrow = _statistics(model, loader, layers, num_classes, bases)
    return {name: _metrics(wide[name], narrow[name]) for name in wide}


def _metrics(wide: ClassStatistics, narrow: ClassStatistics) -> dict[str, float]:
    values, _ = evaluate(Sources(narrow), ("nc2",))
    variability = {
        "nc1": float(nc1(narrow, discriminants(narrow))),
        "nc1_quotient": float(nc1_quotient(wide)),
    }
    return variability | values


def _statistics(
    model: nn.Module,
    loader: Iterable[Any],
    layers: Sequence[str],
    num_classes: int,
    bases: Bases | None,
) -> dict[str, ClassStatistics]:
    """Gather statistics of the features or, with scatter, of their coordinates in the bases."""
    moments: dict[str, ClassMoments] = {}
    kinds: tuple[Statistic, ...] = () if bases is None else ("scatter",)
    with ALL.fail_together():
        for features, labels in _batches(model, loader, layers):
            for name, batch in features.items():
                seen = batch if bases is None else batch.to(bases[name].dtype) @ bases[name]
                if name not in moments:
                    size = num_classes, seen.shape[1]
                    moments[name] = ClassMoments(*size, statistics=kinds, device=seen.device)
                moments[name].update(seen, labels)
    form = {"layers": list(moments), "dims": [each.dim for each in moments.values()]}
    shared = ALL.agree_on(form if moments else None)
    if shared is None:
        raise ALL.no_samples_error()
    if not moments:
        for name, dim in zip(shared["layers"], shared["dims"], strict=True):
            moments[name] = ClassMoments(
                num_classes, dim, statistics=kinds, device=find_module_device(model)
            )
    return {name: finish(merge_across_processes(each)) for name, each in moments.items()}


def _batches(
    model: nn.Module, loader: Iterable[Any], layers: Sequence[str]
) -> Iterator[tuple[dict[str, Float[Tensor, "b _d"]], Int[Tensor, " b"]]]:
    """Yield the layers' features and the labels, batch by batch."""
    device = next(model.parameters()).device
    traced: Trace | None = None
    for inputs, labels in loader:
        images = inputs.to(device)
        traced = traced or trace(model, images, layers)
        with traced.taps(model) as taps:
            forward(model, images)
        yield {name: rows for name, rows in taps.features.items() if name != HEAD_INPUT}, labels
