"""A classifier given as arrays, checked at the boundary."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ncscope.errors import InputError
from ncscope.stats.batch import as_tensor


class Classifier(NamedTuple):
    """Weight and bias of a classifier in float64; all None without a classifier.

    A classifier with one output z for two classes has two rows here, which give -z/2 and z/2 and
    have the same softmax; ``one_logit`` is then true. Rows of 0 and z would not do: their mean is
    not zero, and perfect collapse would look like failure.
    """

    weight: Tensor | None = None
    bias: Tensor | None = None
    one_logit: bool = False


def check_head(weight: Any, bias: Any) -> None:
    """Refuse a bias without a weight.

    Raises:
        InputError: If a bias is given and no weight.
    """
    if bias is not None and weight is None:
        fix = "pass the weight too"
        raise InputError(expected="a weight along with the bias", found="no weight", fix=fix)


def has_one_row(weight: Any) -> bool:
    """Return whether a weight is that of one logit: 1 x d, as scikit-learn's for two classes."""
    return weight is not None and as_tensor(weight, "weight").shape[:-1].numel() == 1


def check_classifier(
    weight: Any, bias: Any, num_classes: int, dim: int, device: torch.device | str
) -> Classifier:
    """Check a classifier that is given as arrays, and return it in float64.

    Args:
        weight: Weight K x d; 1 x d or d numbers for one logit of two classes; None for none.
        bias: Bias of length K, or one number for one logit; None for none.
        num_classes: K.
        dim: d.
        device: Device of the result.

    Raises:
        InputError: If there is a bias alone, or an array has another shape, or is not real or not
            finite.

    Example:
        >>> check_classifier([[2.0, 4.0]], [1.0], 2, 2, "cpu").weight.tolist()
        [[-1.0, -2.0], [1.0, 2.0]]
    """
    check_head(weight, bias)
    if weight is None:
        return Classifier()
    if num_classes == 2 and has_one_row(weight):
        row = _checked("weight", as_tensor(weight, "weight").reshape(1, -1), (1, dim), device) / 2
        offset = None
        if bias is not None:
            half = _checked("bias", as_tensor(bias, "bias").reshape(-1), (1,), device) / 2
            offset = torch.cat([-half, half])
        return Classifier(torch.cat([-row, row]), offset, one_logit=True)
    head = _checked("weight", weight, (num_classes, dim), device)
    return Classifier(
        head, None if bias is None else _checked("bias", bias, (num_classes,), device)
    )


def _checked(name: str, value: Any, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
    tensor = as_tensor(value, name)
    if tuple(tensor.shape) != shape:
        meaning = "(num_classes, dim)" if len(shape) == 2 else "(num_classes,)"
        fix = f"pass the classifier that reads these features (shape is {meaning})"
        if tuple(tensor.shape) == shape[::-1]:
            fix = f"transpose it (shape is {meaning})"
        found = f"shape {tuple(tensor.shape)}"
        raise InputError(expected=f"a {name} of shape {shape}", found=found, fix=fix)
    if tensor.is_complex():
        found, fix = f"dtype {tensor.dtype}", "pass its real part, if that is what classifies"
        raise InputError(expected=f"a real {name}", found=found, fix=fix)
    if not torch.isfinite(tensor).all():
        fix = "check that training did not diverge"
        raise InputError(expected=f"a finite {name}", found="NaN or Inf in it", fix=fix)
    return tensor.to(device, torch.float64)
