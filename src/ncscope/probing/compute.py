"""Computation of a layer's record from its statistics."""

import math
from collections.abc import Collection

import torch

from ncscope.metrics.class_means import cosines
from ncscope.metrics.evaluate import evaluate, spectra, wants_spectra
from ncscope.metrics.sources import Sources
from ncscope.probing.records import LayerRecord

_LARGEST_PICTURE = 256


def layer_record(
    layer: str, sources: Sources, groups: Collection[str] | None = None
) -> LayerRecord:
    """Evaluate the metrics of one layer.

    Args:
        layer: Name of the layer.
        sources: Statistics of the layer, and the classifier that reads it, if any.
        groups: Groups of metrics; by default all whose statistics are there.
    """
    stats = sources.stats
    values, notes = evaluate(sources, groups)
    pictures = wants_spectra(groups) and stats.within is not None
    drawn = {n: v.tolist() for n, v in spectra(sources).items()} if pictures else {}
    if any(math.isnan(value) for line in drawn.values() for value in line):
        notes.append("spectra: eigenvalues beyond the range of float64 are NaN")
    small = stats.k <= _LARGEST_PICTURE
    return LayerRecord(
        layer=layer,
        metrics=values,
        notes=tuple(notes),
        num_classes=stats.num_classes,
        num_samples=stats.num_samples,
        dim=stats.dim,
        spectra=drawn,
        gram=_without_nan(cosines(stats.frame)) if pictures and small else None,
    )


def _without_nan(matrix: torch.Tensor) -> list[list[float]] | None:
    """Return a matrix as lists; None if a zero vector left NaN in it."""
    rows: list[list[float]] = matrix.tolist()
    return rows if all(math.isfinite(value) for row in rows for value in row) else None
