"""The user's arrays, checked once at the front door."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
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
    """The inputs of `measure` as tensors.

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
    rows_of_head = None if head is None or head.ndim != 2 else len(head)
    known = num_classes if num_classes is not None else rows_of_head
    if known is None and largest > max(len(rows), _MOST_CLASSES_UNSAID):
        fix = "number the classes from 0, or pass num_classes"
        expected = f"labels in 0..{len(rows) - 1} for {len(rows)} samples"
        raise InputError(expected=expected, found=f"label {largest - 1}", fix=fix)
    known = largest if known is None else known
    check_head(weight, bias)
    checked = None if head is None else checked_weight(head, known, rows.shape[1], rows.device)
    offset = None if bias is None else checked_bias(bias, known, rows.device)
    return Samples(rows, classes, known, checked, offset)


def check_head(weight: Any, bias: Any) -> None:
    """Refuse a bias without a weight.

    Raises:
        InputError: If that is what is given.
    """
    if bias is not None and weight is None:
        fix = "pass the classifier's weight too"
        raise InputError(expected="a weight along with the bias", found="no weight", fix=fix)


def checked_weight(
    weight: Any, num_classes: int, dim: int, device: torch.device | str
) -> Float[Tensor, "k d"]:
    """The classifier's weight in float64.

    Raises:
        InputError: If it is not K x d or not finite.
    """
    return _checked("weight", weight, (num_classes, dim), device)


def checked_bias(bias: Any, num_classes: int, device: torch.device | str) -> Float[Tensor, " k"]:
    """The classifier's bias in float64.

    Raises:
        InputError: If its length is not K or it is not finite.
    """
    return _checked("bias", bias, (num_classes,), device)


def _checked(name: str, value: Any, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
    tensor = as_tensor(value, name)
    if tuple(tensor.shape) != shape:
        meaning = "(num_classes, dim)" if len(shape) == 2 else "(num_classes,)"
        fix = f"pass the classifier that reads these features (shape is {meaning})"
        found = f"shape {tuple(tensor.shape)}"
        raise InputError(expected=f"a {name} of shape {shape}", found=found, fix=fix)
    if not torch.isfinite(tensor).all():
        fix = "check that training did not diverge"
        raise InputError(expected=f"a finite {name}", found="NaN or Inf in it", fix=fix)
    return tensor.to(device, torch.float64)
