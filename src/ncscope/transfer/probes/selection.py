"""Probe whose strength of the penalty is chosen on validation samples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ncscope.arguments import Positive, check_arguments
from ncscope.array_checks import as_tensor, check_features, refuse_nonfinite
from ncscope.errors import InputError
from ncscope.labels import find_names
from ncscope.transfer.probes.linear_probe import MEASURES, LinearProbe, Measure
from ncscope.transfer.probes.logistic import TOLERANCE, follow_path
from ncscope.transfer.samples import DownstreamSamples, check_downstream

STRENGTHS: Sequence[float] = [10.0 ** (step / 8) for step in range(-48, 49)]
"""97 values from 1e-6 to 1e6, evenly spaced on a logarithmic scale (VCI 6.3)."""


@check_arguments
def scale_strengths(features: Any) -> list[float]:
    """Return strengths in units of the median variance of a feature, the strongest first.

    A probe on features times c decides as a probe on the features if its strength is c² times
    theirs. With these strengths a common factor, which networks and layers differ by, changes no
    choice. If one feature varies less than a thousandth of the median, up to 24 weaker strengths
    follow, down to a thousandth of its variance: such a feature can separate the classes too.

    Args:
        features: Features of the training samples, n x d array-like.

    Raises:
        InputError: If the features are no matrix of finite numbers.

    Example:
        >>> strengths = scale_strengths([[0.0, 3.0], [0.02, 3.0]])
        >>> print(f"{strengths[0]:g} to {strengths[-1]:g}")
        100 to 1e-10
    """
    rows = as_tensor(features, "features")
    check_features(rows)
    refuse_nonfinite(rows)
    # A constant feature has no variance; its computed one can be rounding.
    varying = rows[:, rows.amin(0) < rows.amax(0)].double()
    if varying.shape[1] == 0:
        return list(reversed(STRENGTHS))
    # In logarithms, and each feature times a power of two: squares can leave the range of float64.
    exponents = torch.frexp(varying.abs().amax(0)).exponent
    variances = torch.ldexp(varying, -exponents).var(0, correction=0)
    decades = variances.log10() + 2 * math.log10(2) * exponents.double()
    unit, least = float(decades.median()), float(decades.min())
    places = [step / 8 for step in range(48, -49, -1)]
    below = least - unit - 3 - places[-1]
    if below < 0:
        count = min(24, math.ceil(-8 * below))
        places += [places[-1] + below * (step + 1) / count for step in range(count)]
    return [10 ** min(max(unit + place, -300), 300) for place in places]


@dataclass(frozen=True)
class ProbeChoice:
    """A probe with the strength that was best on the validation samples.

    Attributes:
        probe: Classifier fitted to training and validation samples.
        strength: λ.
        validation: Accuracy on the validation samples by strength, strongest first.
        passes: Number of passes over the training samples for all strengths together.
    """

    probe: LinearProbe
    strength: float
    validation: Mapping[float, float]
    passes: float


@check_arguments
def choose_probe(
    features: Any,
    labels: Any,
    validation_features: Any,
    validation_labels: Any,
    *,
    measure: Measure = "top-1",
    strengths: Sequence[Positive] = STRENGTHS,
) -> ProbeChoice:
    """Choose the penalty on validation samples, then fit to these and the training samples.

    Among strengths with the same accuracy, the strength with the least validation cross-entropy is
    chosen. Source: VCI 6.3, where the strengths do not depend on the scale of the features: for
    features of small scale, pass ``strengths=scale_strengths(features)``, as `rank_checkpoints`
    does.

    Args:
        features: Features of the training samples, n x d array-like.
        labels: Labels of the training samples.
        validation_features: Features of the validation samples, m x d array-like.
        validation_labels: m integers, each of a class with training samples.
        measure: Accuracy to choose by: ``"top-1"`` or ``"mean per class"``.
        strengths: Strengths of the penalty; see `fit_logistic`.

    Raises:
        InputError: If an input does not fit; the message names it.
    """
    names = find_names(labels, validation_labels)
    train = check_downstream(features, labels, class_names=names)
    held_out = check_downstream(validation_features, validation_labels, class_names=names)
    descending = sorted(strengths, reverse=True)
    if not descending:
        fix = "leave them out for 97 strengths from 1e-6 to 1e6"
        raise InputError(expected="at least one strength", found="none", fix=fix)
    return choose_for_samples(train, held_out, measure, descending)


def choose_for_samples(
    train: DownstreamSamples,
    held_out: DownstreamSamples,
    measure: Measure,
    strengths: Sequence[float],
) -> ProbeChoice:
    """Choose as `choose_probe` does, from samples whose features and labels have been checked.

    Args:
        train: Training samples.
        held_out: Validation samples.
        measure: Accuracy to choose by.
        strengths: Positive strengths, in descending order.

    Raises:
        InputError: If training and validation samples do not fit each other.
    """
    if held_out.features.shape[1] != train.features.shape[1]:
        expected = f"validation features of dimension {train.features.shape[1]}"
        found, fix = f"dimension {held_out.features.shape[1]}", "take them from the same layer"
        raise InputError(expected=expected, found=found, fix=fix)
    strange = held_out.classes[~torch.isin(held_out.classes, train.classes)]
    if len(strange):
        found = f"label {int(strange[0])}, which no training sample has"
        fix = "split each class between training and validation"
        raise InputError(expected="validation labels seen in training", found=found, fix=fix)
    accuracy = MEASURES[measure]
    columns = torch.searchsorted(train.classes, held_out.labels.contiguous())
    # Accuracy, then minus the cross-entropy: with few validation samples many strengths have the
    # same accuracy, and the first or last of these would be a choice by chance.
    quality: dict[float, tuple[float, float]] = {}
    passes = 0.0
    for fit in follow_path(train, strengths):
        scores = fit.probe.scores(held_out.features)
        loss = float(torch.nn.functional.cross_entropy(scores, columns))
        predictions = train.classes[scores.argmax(1)]
        quality[fit.strength] = accuracy(predictions, held_out.labels), -loss
        passes += fit.passes
    best = max(quality, key=lambda strength: quality[strength])
    (fit,) = follow_path(train.join(held_out), [best], TOLERANCE)
    return ProbeChoice(fit.probe, best, {at: value for at, (value, _) in quality.items()}, passes)
