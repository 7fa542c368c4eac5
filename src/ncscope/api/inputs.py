"""Checks of what the user passes, made once at the public boundary: arrays."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, NamedTuple

from torch import Tensor

from ncscope.errors import InputError
from ncscope.measurement.classifier import check_classifier, has_one_row
from ncscope.measurement.ood import check_ood_features
from ncscope.stats.batch import (
    as_tensor,
    check_features,
    check_labels,
    check_range,
    refuse_marks,
)

_MOST_CLASSES_UNSAID = 100_000
"""A label above this and above the number of samples is more likely an identifier than a class."""


class Samples(NamedTuple):
    """Features and labels as tensors on one device, and the classifier in float64."""

    features: Tensor
    labels: Tensor
    num_classes: int
    weight: Tensor | None
    bias: Tensor | None
    one_logit: bool


def checked_samples(
    features: Any, labels: Any, weight: Any, bias: Any, num_classes: int | None
) -> Samples:
    """Check the inputs of `measure` and return them as tensors.

    Raises:
        InputError: If an input does not fit; the message names it.
    """
    rows = _checked_rows(features, "pass at least one sample of two classes")
    classes = _checked_classes(labels, rows).to(rows.device)
    head = None if weight is None else as_tensor(weight, "weight")
    largest = max(int(classes.max()) + 1, 1)
    one_row = head is not None and head.shape == (1, rows.shape[1])
    if one_row and largest > 2 and num_classes in (None, 2):
        raise InputError(
            expected="labels 0 and 1 beside a weight of one row, which is one logit",
            found=f"labels up to {largest - 1}",
            fix="number the classes: labels = np.unique(labels, return_inverse=True)[1]",
        )
    count = _rows_of(head, rows.shape[1], largest)
    if num_classes is not None:
        if head is not None and count is not None and num_classes not in (count, *head.shape):
            fix = f"leave num_classes out, or pass the weight of {num_classes} classes"
            expected = f"a weight of num_classes={num_classes} rows"
            raise InputError(expected=expected, found=f"{count} rows", fix=fix)
        count = num_classes
    if head is None and count is None and largest > max(len(rows), _MOST_CLASSES_UNSAID):
        fix = "number the classes from 0, or pass num_classes"
        expected = f"labels in 0..{len(rows) - 1} for {len(rows)} samples"
        raise InputError(expected=expected, found=f"label {largest - 1}", fix=fix)
    if count is None:
        refuse_marks(classes)
        count = largest
    check_range(classes, count, of_classifier=head is not None)
    classifier = check_classifier(head, bias, count, rows.shape[1], rows.device)
    return Samples(rows, classes, count, *classifier)


def _checked_classes(labels: Any, rows: Tensor) -> Tensor:
    """Return labels as int64, one for each row; a likely mistake is named in the message."""
    given = as_tensor(labels, "labels")
    try:
        return check_labels(given, len(rows))
    except InputError as error:
        fix = error.fix
        if given.ndim == 1 and len(given) == rows.shape[1] != len(rows):
            fix = "transpose the features: one row a sample"
        elif given.is_floating_point() and given.ndim == 1 and bool(given.isfinite().all()):
            fix += "; numbers to predict are for measure_regression"
        raise InputError(expected=error.expected, found=error.found, fix=fix) from None


def checked_unlabelled(features: Any) -> Tensor:
    """Check features without labels and return them as a tensor.

    Raises:
        InputError: If they are no real n x d matrix with at least one row.
    """
    return _checked_rows(features, "pass at least one sample")


def refuse_without_labels(**given: bool) -> None:
    """Refuse arguments that say nothing about samples without labels.

    Args:
        given: True for each argument that was given, by name.

    Raises:
        InputError: If one was given.
    """
    named = ", ".join(name for name, there in given.items() if there)
    if named:
        fix = f"pass labels, or leave out {named}: without labels the spectra alone are measured"
        raise InputError(expected=f"labels with {named}", found="none", fix=fix)


def _checked_rows(features: Any, if_empty: str) -> Tensor:
    """Return features as a tensor with at least one row.

    Args:
        features: Features to check.
        if_empty: Likely remedy if there are no rows, for the message.
    """
    if isinstance(features, str | PathLike | Mapping):
        fix = "pass the array, for example np.load(path)['features']"
        found = type(features).__name__
        raise InputError(expected="features as a numeric array", found=found, fix=fix)
    rows = as_tensor(features, "features")
    if rows.ndim == 1:
        fix = "pass features[:, None] if a sample has one feature, features[None] for one sample"
        found = f"shape {tuple(rows.shape)}"
        raise InputError(expected="features of shape (n, d)", found=found, fix=fix)
    check_features(rows)
    if len(rows) == 0:
        found = f"features of shape {tuple(rows.shape)}"
        raise InputError(expected="samples", found=found, fix=if_empty)
    return rows


def checked_ood(ood: Any, features: Tensor) -> Tensor:
    """Return the features of OOD samples as a tensor on the device of the features.

    Args:
        ood: Features of OOD samples.
        features: Checked features of the samples.

    Raises:
        InputError: If the OOD features are no m x d matrix of real numbers.
    """
    rows = as_tensor(ood, "OOD features")
    check_ood_features(rows, features.shape[1])
    return rows.to(features.device)


def _rows_of(head: Tensor | None, dim: int, least: int) -> int | None:
    """Return the number of rows of the weight; if the weight seems transposed, of columns.

    A transposed weight is then refused for its shape, with the number of classes it was meant for.
    """
    if head is None:
        return None
    if has_one_row(head) and least <= 2:
        return 2
    if head.ndim != 2:
        return None
    rows, columns = head.shape
    return columns if rows == dim != columns and columns >= least else rows
