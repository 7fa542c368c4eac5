"""A classifier given as arrays, checked at the boundary."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope.stats.batch import as_tensor


def check_head(weight: Any, bias: Any) -> None:
    """Refuse a bias without a weight.

    Raises:
        InputError: If a bias is given and no weight.
    """
    if bias is not None and weight is None:
        fix = "pass the weight too"
        raise InputError(expected="a weight along with the bias", found="no weight", fix=fix)


def checked_weight(
    weight: Any, num_classes: int, dim: int, device: torch.device | str
) -> Float[Tensor, "k d"]:
    """Check the classifier's weight and return it in float64.

    Raises:
        InputError: If it is not K x d, not real or not finite.
    """
    return _checked("weight", weight, (num_classes, dim), device)


def checked_bias(bias: Any, num_classes: int, device: torch.device | str) -> Float[Tensor, " k"]:
    """Check the classifier's bias and return it in float64.

    Raises:
        InputError: If its length is not K, or it is not real or not finite.
    """
    return _checked("bias", bias, (num_classes,), device)


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
