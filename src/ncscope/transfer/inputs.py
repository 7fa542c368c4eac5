"""Labelled features as the probes take them, checked at the front door."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.errors import InputError
from ncscope.stats.batch import as_tensor, check_features, check_labels, refuse_nonfinite


class LabelledSamples(NamedTuple):
    """Features and labels of at least two classes.

    Attributes:
        features: In float64, on the device they came on.
        labels: Labels as given.
        classes: The labels that occur, ascending.
        class_indices: Index of each sample's label in `classes`.
    """

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    classes: Int[Tensor, " k"]
    class_indices: Int[Tensor, " n"]


def checked_labelled(features: Any, labels: Any) -> LabelledSamples:
    """Features and labels as tensors.

    Raises:
        InputError: If they do not fit each other, are not finite or of one class only.
    """
    rows = as_tensor(features, "features")
    check_features(rows)
    refuse_nonfinite(rows)
    known = check_labels(as_tensor(labels, "labels"), len(rows)).to(rows.device)
    if len(known) and int(known.min()) < 0:
        fix = "number the classes from 0"
        raise InputError(expected="labels from 0", found=f"label {int(known.min())}", fix=fix)
    classes, class_indices = torch.unique(known, return_inverse=True)
    if len(classes) < 2:
        found = f"{len(classes)} in {len(rows)} samples"
        fix = "pass samples of several classes"
        raise InputError(expected="at least two classes with samples", found=found, fix=fix)
    return LabelledSamples(rows.double(), known, classes, class_indices)


def checked_strength(strength: float, *, zero: bool = False) -> float:
    """Return a penalty's strength, checked to be positive, or zero where that is allowed.

    Raises:
        InputError: If it is not.
    """
    value = float(strength)
    if not 0 <= value < float("inf") or (value == 0 and not zero):
        expected = f"a finite strength {'of at least' if zero else 'above'} 0"
        raise InputError(expected=expected, found=str(strength), fix="pass a positive number")
    return value
