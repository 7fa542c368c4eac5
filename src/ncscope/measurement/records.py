"""Plain records of a measurement, which runs store and reports draw."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class ClassTable:
    r"""Values of each class that has samples, at one layer; every list has an entry for each class.

    Attributes:
        classes: Labels of the classes, ascending.
        samples: Number of samples $n_c$.
        within_share: Share of the within-class variance,
            $\pi_c\operatorname{Tr}\Sigma_c/\operatorname{Tr}\Sigma_W$; the shares add to 1.
        nc1_quotient: Variability quotient of the class,
            $\operatorname{Tr}\Sigma_c/\operatorname{Tr}\Sigma_B$.
        mean_norm: Length of the centred class mean, in units of the features.
        head_norm: Length of the class's row of the head; None without a head.
        head_cosine: Cosine of the centred class mean and the row of the head; None without a head.
        nearest: Label of the class whose mean is nearest.
        nearest_distance: Distance to the nearest class mean over the root mean square of the
            distances of all pairs of class means; 1 at collapse to a simplex.
        nearest_cosine: Cosine of the centred class mean and the nearest class's; $-1/(K-1)$ at
            collapse to a simplex.
        nearest_cdnv: Class-distance normalised variance of the class and the nearest class;
            infinite where the class means coincide and the samples vary.
        ncc_accuracy: Share of the class's samples that are nearest to the mean of the class; None
            if not counted by class.
        accuracy: Share of the class's samples that the head assigns to the class; None without a
            head, or if not counted by class.

    Values that are undefined are NaN, such as the cosine of a zero row.
    """

    classes: list[int]
    samples: list[int]
    within_share: list[float]
    nc1_quotient: list[float]
    mean_norm: list[float]
    head_norm: list[float] | None
    head_cosine: list[float] | None
    nearest: list[int]
    nearest_distance: list[float]
    nearest_cosine: list[float]
    nearest_cdnv: list[float]
    ncc_accuracy: list[float] | None
    accuracy: list[float] | None

    def worst_first(self) -> list[int]:
        """Return the indices of the classes, those least separated from another class first.

        The order is that of the class-distance normalised variance to the nearest class. Classes
        whose mean coincides with another come first.
        """
        # NaN stands for means that coincide without variance; it has no order, and would leave the
        # classes around it unsorted.
        overlaps = [math.inf if math.isnan(value) else value for value in self.nearest_cdnv]
        return sorted(range(len(self.classes)), key=lambda index: -overlaps[index])


@dataclass(frozen=True)
class LayerRecord:
    """Measurement of one layer on one set of samples.

    Attributes:
        layer: Name of the layer.
        metrics: Metric key to value; NaN and infinities are explained in ``notes``.
        notes: Sentences for the reader: empty classes, rank cuts, why a value is undefined.
        num_classes: Number of classes requested, present or not; 0 without labels. With a head, the
            number of its outputs.
        num_samples: Number of samples measured.
        dim: Feature dimension d.
        spectra: ``between``, ``within``, ``total`` eigenvalues (descending) and
            ``snr_singular_values``; ``total`` alone without labels; empty if not requested.
        gram: Cosines between centred class means, K' x K'; None if not requested, for many
            classes, or if a class mean is zero.
        warnings: Short sentences on values that may mislead, such as too few samples.
        baseline: Metric key to the value at chance level, on permuted labels; empty if not
            computed.
        standard_errors: Metric key to standard error, for the metrics that have one; empty if not
            computed.
        bias_corrected: Metric key to the value with its jackknife estimate of bias removed; the
            centre of a confidence interval.
        random_sizes: True if the standard errors are those of samples drawn with their classes;
            False if they hold the sizes of the classes.
        per_class: Values of each class; None if not computed.
        num_present: Number of classes with samples; 0 for as many as requested.
    """

    layer: str
    metrics: Mapping[str, float]
    notes: tuple[str, ...]
    num_classes: int
    num_samples: int
    dim: int
    spectra: Mapping[str, list[float]] = field(default_factory=dict)
    gram: list[list[float]] | None = None
    warnings: tuple[str, ...] = ()
    baseline: Mapping[str, float] = field(default_factory=dict)
    standard_errors: Mapping[str, float] = field(default_factory=dict)
    bias_corrected: Mapping[str, float] = field(default_factory=dict)
    random_sizes: bool = False
    per_class: ClassTable | None = None
    num_present: int = 0

    @property
    def k(self) -> int:
        """Number of classes that the values are of, and so the values at collapse."""
        return self.num_present or self.num_classes


@dataclass(frozen=True)
class GeodesicRecord:
    """PFC1-3 on the straight line from the first layer's features to the last's (PFC fig. 3).

    Attributes:
        t: Positions on the line, 0 (first layer) to 1 (last layer).
        pfc1: Trace quotient at each position.
        pfc2: Distance to the simplex ETF at each position.
        pfc3: NCC accuracy at each position.
        alignment: Sum of inner products between the first and last layer's centred class means;
            PFC theorem 1 assumes that it is non-negative.
        transport_cost: Squared Frobenius distance between the two layers' centred class means.
    """

    t: list[float]
    pfc1: list[float]
    pfc2: list[float]
    pfc3: list[float]
    alignment: float
    transport_cost: float


@dataclass(frozen=True)
class ModelRecord:
    """Measurement of all layers of one model, on one set of samples in one pass.

    Attributes:
        layers: One record for each layer, in forward order; the last layer feeds the head.
        relative_position: Share of the total path length up to each layer of ``comparable``
            (PFC IV-A).
        comparable: Names of the last two or more successive layers of one dimension, in forward
            order; path length and geodesic are defined on these layers.
        geodesic: Prediction on the line from the first to the last comparable layer; None if there
            is one such layer only.
        straightness: Distance between the first and the last of ``comparable`` over the length of
            the path between them, 1 for a straight line; None if there is one such layer only.
    """

    layers: tuple[LayerRecord, ...]
    comparable: tuple[str, ...] = ()
    relative_position: tuple[float, ...] = ()
    geodesic: GeodesicRecord | None = None
    straightness: float | None = None

    @property
    def last(self) -> LayerRecord:
        """Record of the features that the head reads."""
        return self.layers[-1]

    def with_last(self, **changes: Any) -> "ModelRecord":
        """Return a copy with other attributes of the last layer's record."""
        return replace(self, layers=(*self.layers[:-1], replace(self.last, **changes)))


@dataclass(frozen=True)
class Measurement:
    """Record of a model at one step of a run, on one split.

    Attributes:
        model_record: Metrics of every layer.
        step: Position on the run's axis: epochs or iterations completed, or a parameter's value.
        split: Name of the samples: ``"train"``, ``"test"``, ``"val"``.
        run: Name of the run, if a history holds several runs.
        values: Further numbers of the step, such as the loss.
    """

    model_record: ModelRecord
    step: float
    split: str = "train"
    run: str = ""
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, float]:
        """Run, split and step, which identify the measurement in a history."""
        return self.run, self.split, self.step

    @property
    def last_values(self) -> dict[str, float]:
        """Further numbers, and the last layer's metrics."""
        return {**self.values, **self.model_record.last.metrics}

    def with_values(self, values: Mapping[str, float]) -> "Measurement":
        """Return a copy with further numbers."""
        return replace(self, values={**self.values, **values})
