"""The user's arrays, checked once at the front door."""

from typing import Any, NamedTuple

from torch import Tensor

from ncscope.errors import InputError
from ncscope.probing.classifier import check_head, checked_bias, checked_weight
from ncscope.stats.batch import as_tensor, check_features, check_labels

_MOST_CLASSES_UNSAID = 100_000
"""A larger label than this, and than the samples, is more likely an identifier than a class."""


class Samples(NamedTuple):
    """Features and labels as tensors on one device, and the classifier in float64."""

    features: Tensor
    labels: Tensor
    num_classes: int
    weight: Tensor | None
    bias: Tensor | None


def checked_samples(
    features: Any, labels: Any, weight: Any, bias: Any, num_classes: int | None
) -> Samples:
    """Check the inputs of `measure` and return them as tensors.

    Raises:
        InputError: If something does not fit: see the fields of the message.
    """
    rows = as_tensor(features, "features")
    check_features(rows)
    if len(rows) == 0:
        fix = "pass at least one sample of two classes"
        raise InputError(
            expected="samples", found=f"features of shape {tuple(rows.shape)}", fix=fix
        )
    classes = check_labels(as_tensor(labels, "labels"), len(rows)).to(rows.device)
    head = None if weight is None else as_tensor(weight, "weight")
    largest = max(int(classes.max()) + 1, 1)
    known = _rows_of(head, rows.shape[1], largest) if num_classes is None else num_classes
    if head is None and known is None and largest > max(len(rows), _MOST_CLASSES_UNSAID):
        fix = "number the classes from 0, or pass num_classes"
        expected = f"labels in 0..{len(rows) - 1} for {len(rows)} samples"
        raise InputError(expected=expected, found=f"label {largest - 1}", fix=fix)
    known = largest if known is None else known
    check_head(weight, bias)
    checked = None if head is None else checked_weight(head, known, rows.shape[1], rows.device)
    offset = None if bias is None else checked_bias(bias, known, rows.device)
    return Samples(rows, classes, known, checked, offset)


def _rows_of(head: Tensor | None, dim: int, least: int) -> int | None:
    """Rows of the weight; of one that looks transposed, those that it should have."""
    if head is None or head.ndim != 2:
        return None
    rows, columns = head.shape
    return columns if rows == dim != columns and columns >= least else rows
