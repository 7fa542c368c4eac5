"""Plain records of a measurement: what probing returns, runs store and reports draw."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class LayerRecord:
    """Everything measured of one layer on one set of samples.

    Attributes:
        layer: Name of the layer.
        metrics: Metric key to value; NaN and infinities are explained in ``notes``.
        notes: Sentences for the reader: empty classes, rank cuts, why a value is undefined.
        num_classes: Number of classes asked for, present or not.
        num_samples: Number of samples seen.
        dim: Feature dimension d.
        spectra: ``between``, ``within``, ``total`` eigenvalues (descending) and
            ``snr_singular_values``; empty where they were not asked for.
        gram: Cosines between centred class means, K' x K', or None where not asked for.
    """

    layer: str
    metrics: Mapping[str, float]
    notes: tuple[str, ...]
    num_classes: int
    num_samples: int
    dim: int
    spectra: Mapping[str, list[float]] = field(default_factory=dict)
    gram: list[list[float]] | None = None


@dataclass(frozen=True)
class GeodesicRecord:
    """PFC1-3 on the straight line from the first layer's features to the last's (PFC fig. 3).

    Attributes:
        t: Positions on the line, 0 (first layer) to 1 (last layer).
        pfc1: Trace quotient at each position.
        pfc2: Distance to the simplex ETF at each position.
        pfc3: NCC accuracy at each position.
        alignment: PFC theorem 1's premise, the sum of inner products between the first and
            last layer's centred class means: the theorem needs it non-negative.
        transport_cost: Squared Frobenius distance between the two layers' centred class means.
    """

    t: list[float]
    pfc1: list[float]
    pfc2: list[float]
    pfc3: list[float]
    alignment: float
    transport_cost: float


@dataclass(frozen=True)
class ProbeRecord:
    """All layers of one model, measured on one set of samples in one pass.

    Attributes:
        layers: One record a layer, in forward order; the last one feeds the head.
        relative_position: Share of the total path length travelled up to each of
            ``comparable`` (PFC IV-A).
        comparable: Names of the last two or more successive layers of one dimension, in forward
            order: those on which path length and geodesic are defined.
        geodesic: Prediction from the first to the last comparable layer; None if only one.
    """

    layers: tuple[LayerRecord, ...]
    comparable: tuple[str, ...] = ()
    relative_position: tuple[float, ...] = ()
    geodesic: GeodesicRecord | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the record as nested dictionaries and lists, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Snapshot:
    """A probe record at one moment of training, on one split.

    Attributes:
        step: Optimiser steps taken.
        epoch: Epochs completed.
        split: ``"train"`` or ``"test"``.
        probe: The measurement.
    """

    step: int
    epoch: int
    split: str
    probe: ProbeRecord


Row = dict[str, float | int | str]
"""One measurement, flat: ``step``, ``epoch``, ``split``, ``layer`` and the metrics by key.

A line of ``metrics.jsonl``; ``part`` is added where a run has several parts.
"""
