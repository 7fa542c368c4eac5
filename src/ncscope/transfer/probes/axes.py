"""Features in coordinates of their own, where the path over the penalties is short."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.symmetric import factor_eigen
from ncscope.transfer.graded import left_singular, reciprocal

_LARGEST = 2.0**480  # the squares of larger numbers, summed over samples, leave float64


class PrincipalAxes:
    r"""Coordinates of centred features along their principal axes, and a 1 for the bias.

    A turn leaves $\lVert W\rVert$ as it is, so that the penalty is that of the features as given.
    Directions without variance fall away. Which these are does not depend on the units of the
    features.

    Args:
        features: Finite features, in float64.

    Attributes:
        columns: Coordinates, one sample a column; the last row is all 1.
        penalised: 1 for each row of the coordinates, but 0 for the last.

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
                fix="divide all features by their largest",
            )
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
        """Return weight and bias for the features as they came."""
        weight = weights[:, :-1] @ self._vectors.mT
        return weight, weights[:, -1] - weight @ self._mean


def _axes(rows: Float[Tensor, "n d"], varied: int) -> Float[Tensor, "d r"]:
    """Return orthonormal axes that span the rows, of which so many columns are not all 0."""
    limit = min(len(rows) - 1, varied)
    quick = factor_eigen(rows.mT, limit)[0]
    if quick.rank == limit:
        return quick.vectors
    # Something fell below the rounding of the squares: look for it without squares, in features
    # of equal size.
    sizes = torch.linalg.vector_norm(rows, dim=0)
    triangle = torch.linalg.qr(rows * reciprocal(sizes), mode="r").R
    _, values, right = torch.linalg.svd(triangle, full_matrices=False)
    cut = torch.finfo(rows.dtype).eps * max(rows.shape) * values[0]
    kept = min(limit, int((values > cut).sum()))
    return left_singular(sizes[:, None] * right[:kept].mT * values[:kept])[0]
