"""Checks of a batch that every loss makes once, at the public boundary."""

from functools import reduce

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ncscope.array_checks import check_features, check_labels
from ncscope.devices import refuse_without_float64
from ncscope.errors import InputError, list_names


def check_matrix(matrix: Shaped[Tensor, "..."], name: str, rows: int | None = None) -> None:
    """Check that a tensor is a real matrix, with a given number of rows if any.

    Raises:
        InputError: If the shape or the dtype is another; the message names it.
    """
    refuse_unreal(matrix, name)
    if matrix.ndim != 2 or matrix.shape[1] == 0 or (rows is not None and len(matrix) != rows):
        shape = f"({'n' if rows is None else rows}, d)"
        raise InputError(
            expected=f"{name} of shape {shape}",
            found=f"shape {tuple(matrix.shape)}",
            fix="pass one vector a row",
        )


def refuse_unreal(tensor: Shaped[Tensor, "..."], name: str) -> None:
    """Refuse complex and boolean numbers.

    Raises:
        InputError: If the dtype is one of these; the message names it.
    """
    if tensor.is_complex() or tensor.dtype == torch.bool:
        found = f"dtype {tensor.dtype}"
        raise InputError(expected=f"{name} of real numbers", found=found, fix="convert them first")


def check_batch(features: Shaped[Tensor, "n d"], labels: Shaped[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Check that there is one class index for each row of features, and return them as int64.

    Raises:
        InputError: If features are no real n x d matrix, or labels are not n integers.
    """
    check_features(features)
    return check_labels(labels, len(features))


def refuse_out_of_range(labels: Int[Tensor, " n"], num_classes: int) -> None:
    """Refuse labels without a row of the classifier.

    Raises:
        InputError: If there is such a label; the message names the first one.
    """
    broken = labels[(labels < 0) | (labels >= num_classes)]
    if len(broken):
        raise InputError(
            expected=f"labels in 0..{num_classes - 1}",
            found=f"label {int(broken[0])}",
            fix="number the classes from 0, or pass a classifier with a row for every class",
        )


def find_selected(selected: Bool[Tensor, " n"] | None, samples: int) -> Int[Tensor, " m"] | slice:
    """Return the indices of the selected samples; without a selection, a slice of all.

    Raises:
        InputError: If the selection is no boolean mask with one entry for each sample.
    """
    if selected is None:
        return slice(None)
    if selected.dtype != torch.bool or tuple(selected.shape) != (samples,):
        raise InputError(
            expected=f"a boolean mask of shape ({samples},)",
            found=f"{selected.dtype} of shape {tuple(selected.shape)}",
            fix="pass confidence > threshold",
        )
    return selected.nonzero()[:, 0]


def normalise_rows(
    vectors: Shaped[Tensor, "n d"], name: str, numbers: Int[Tensor, " n"] | None = None
) -> Float[Tensor, "n d"]:
    r"""Return the rows $v/\lVert v\rVert$ in float64; differentiable.

    Each row is first divided by its largest entry, so that no square overflows or underflows. The
    divisor is detached: neither the direction nor its derivative depends on it.

    Args:
        vectors: One vector a row, any real dtype.
        name: Description of the rows, for the error.
        numbers: Numbers of the rows for the error; by default, their indices.

    Returns:
        Rows of length 1, float64.

    Raises:
        InputError: If rows are zero, NaN or infinite: they have no direction. Or if the device has
            no float64.

    Example:
        >>> normalise_rows(torch.tensor([[3.0, 4.0], [0.0, 1e-30]]), "features").tolist()
        [[0.6, 0.8], [0.0, 1.0]]
    """
    refuse_without_float64(vectors.device, name)
    rows = vectors.double()
    largest = rows.detach().abs().amax(1, keepdim=True)
    broken = ~((largest > 0) & largest.isfinite())[:, 0]
    if broken.any():
        indices = broken.nonzero()[:, 0] if numbers is None else numbers[broken]
        refused, is_zero = indices.tolist(), bool((largest == 0).any())
        fault = "zero" if is_zero else "NaN or infinite"
        zero_fix = "deselect dead rows, or start the classifier away from zero"
        raise InputError(
            expected=f"every row of {name} to have a direction",
            found=f"{len(refused)} that are {fault} (row {list_names(refused, 5)})",
            fix=zero_fix if is_zero else "check that training did not diverge",
        )
    scaled = rows / largest
    return scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True)


def make_zero_loss(*tensors: Shaped[Tensor, "..."]) -> Float[Tensor, ""]:
    """Return exactly 0, with zero gradients, as a part of the tensors' autograd graph."""
    first, *others = (tensor[:0].sum() for tensor in tensors)
    return sum(others, start=first).to(loss_dtype(*tensors))


def loss_dtype(*tensors: Shaped[Tensor, "..."]) -> torch.dtype:
    """Return the dtype of a loss of these inputs: their widest dtype, at least float32."""
    return reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
