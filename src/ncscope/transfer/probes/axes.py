"""Features in principal coordinates, in which the path over the penalties takes few passes."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.symmetric import factor_eigen
from ncscope.transfer.graded import left_singular, reciprocal

_LARGEST = 2.0**480  # sums of squares of larger numbers leave the range of float64


class PrincipalAxes:
    r"""Coordinates of centred features along their principal axes, and a 1 for the bias.

    A rotation does not change $\lVert W\rVert$, so that the penalty is that of the given features.
    Directions without variance are dropped; the choice does not depend on the units of the
    features.

    Args:
        features: Finite features, in float64.

    Attributes:
        columns: Coordinates, one sample a column; all entries of the last row are 1.
        penalised: 1 for each row of the coordinates, but 0 for the last row, the bias.

    Raises:
        InputError: If features are so large that sums of their squares are not finite.
    """

    def __init__(self, features: Float[Tensor, "n d"]) -> None:
        low, high = features.aminmax(dim=0)
        largest = torch.maximum(low.abs(), high.abs()).max()
        if largest > _LARGEST:
            raise InputError(
                expected=f"features of at most {_LARGEST:.0e} for a logistic probe",
                found=f"one of size {float(largest):.3g}",
                fix="divide all features by the largest magnitude",
            )
        # The mean of a constant feature is rounded, and the rounding would count as variation.
        self._mean = torch.where(low == high, low, features.mean(0))
        centred = features - self._mean
        self._vectors = _axes(centred, int((low < high).sum()))
        ones = features.new_ones(1, len(features))
        self.columns = torch.cat([self._vectors.mT @ centred.mT, ones])
        self.penalised = features.new_ones(len(self.columns))
        self.penalised[-1] = 0

    def unturned(
        self, weights: Float[Tensor, "k q"]
    ) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
        """Convert weights for the coordinates to weight and bias for the given features."""
        weight = weights[:, :-1] @ self._vectors.mT
        return weight, weights[:, -1] - weight @ self._mean


def _axes(rows: Float[Tensor, "n d"], varied: int) -> Float[Tensor, "d r"]:
    """Return orthonormal axes that span centred rows.

    Args:
        rows: Centred features.
        varied: Number of columns that are not constant.
    """
    limit = min(len(rows) - 1, varied)
    quick = factor_eigen(rows.mT, limit)[0]
    if quick.rank == limit:
        return quick.vectors
    # A direction is below the rounding of the squares. Decompose without squares, in features of
    # equal size, to find it.
    sizes = torch.linalg.vector_norm(rows, dim=0)
    triangle = torch.linalg.qr(rows * reciprocal(sizes), mode="r").R
    _, values, right = torch.linalg.svd(triangle, full_matrices=False)
    cut = torch.finfo(rows.dtype).eps * max(rows.shape) * values[0]
    kept = min(limit, int((values > cut).sum()))
    return left_singular(sizes[:, None] * right[:kept].mT * values[:kept])[0]
