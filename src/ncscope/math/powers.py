"""Scaling by powers of two, which costs no digit: how squares are kept in range."""

import math
from collections.abc import Mapping
from typing import TypeVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

Scalable = TypeVar("Scalable", float, Tensor)

GATHERED: Mapping[torch.dtype, int] = {torch.float64: 470, torch.float32: 40}
"""Largest exponent of 2, of either sign, of the features that a stream sums squares of.

The sums stay in range, and so do those of a spread of 1e-12 of the magnitude.
"""

EVALUATED: Mapping[torch.dtype, int] = {torch.float64: 60, torch.float32: 10}
"""Largest exponent of class means and classifier that metrics are computed from as they are.

Fourth powers stay in range. And LAPACK leaves matrices of squares as they are, also those of a
spread of 1e-100: a norm beyond about 2^485 it scales by no power of two, which rounds otherwise.
"""

UNSCALED = 150
"""Largest exponent of features that are measured without a scaled copy: all that float32 has."""


def times_power(values: Scalable, exponent: int) -> Scalable:
    """Multiply by a power of two, exactly where the result is a normal number.

    Args:
        values: A number, or a tensor of a float type.
        exponent: Exponent of 2, at most twice what float64 has.

    Example:
        >>> times_power(3.0, -2), times_power(1.0, 1100)
        (0.75, inf)
    """
    if exponent == 0:
        return values
    half = exponent // 2  # either factor is in range where their product is not
    return values * 2.0**half * 2.0 ** (exponent - half)


def in_unit(value: float, exponent: int) -> float:
    """Multiply a measured value by a power of two; NaN where it leaves float64's normal numbers.

    Example:
        >>> in_unit(3.0, 1), in_unit(0.0, 2000), in_unit(3.0, -1030)
        (6.0, 0.0, nan)
    """
    scaled = times_power(value, exponent)
    known = exponent == 0 or value == 0 or 2.0**-1022 <= abs(scaled) < math.inf
    return scaled if known else math.nan


def largest_magnitude(values: Shaped[Tensor, "..."]) -> float:
    """Return the largest absolute value, NaN if there is a NaN. Cost: one read."""
    wide = values if values.is_floating_point() else values.to(torch.float64)
    return float(torch.linalg.vector_norm(wide, ord=math.inf))


def exponent_beyond(magnitude: float, limit: int) -> int:
    r"""Return the exponent of 2 of a magnitude outside $2^{\pm limit}$; 0 for others, and for 0.

    Example:
        >>> exponent_beyond(3.0, 200), exponent_beyond(0.0, 200), exponent_beyond(1e100, 200)
        (0, 0, 332)
    """
    if magnitude == 0 or 2.0**-limit <= magnitude <= 2.0**limit:
        return 0
    return math.frexp(magnitude)[1] - 1


def exponent_of(values: Shaped[Tensor, "..."], limit: int) -> int:
    """Return the exponent of the largest magnitude as `exponent_beyond` does.

    Args:
        values: Finite numbers. Those of a type that has none beyond the limit are not read.
        limit: Exponent up to which the result is 0.
    """
    return exponent_beyond(largest_magnitude(values), limit) if goes_beyond(values, limit) else 0


def goes_beyond(values: Shaped[Tensor, "..."], limit: int) -> bool:
    r"""Return whether the values' type has numbers outside $2^{\pm limit}$ besides 0."""
    if not values.is_floating_point():
        return torch.iinfo(values.dtype).max > 2.0**limit
    info = torch.finfo(values.dtype)
    return info.smallest_normal * info.eps < 2.0**-limit  # they reach further down than up


def moderated(
    rows: Float[Tensor, "n d"],
) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """Return rows whose lengths can be computed, and these lengths.

    Args:
        rows: Finite. Where one is so long that its squares overflow, or so short that they vanish,
            each row is multiplied by a power of two of its own, which keeps its direction.

    Cost: one read; three more where a row is that long, that short, or zero.
    """
    limit = GATHERED[rows.dtype]
    length = torch.linalg.vector_norm(rows, dim=1)
    if bool(((length >= 2.0**-limit) & (length <= 2.0**limit)).all()):
        return rows, length
    exponent = torch.frexp(torch.linalg.vector_norm(rows, ord=math.inf, dim=1)).exponent
    half = exponent // 2
    for part in (half, exponent - half):
        rows = rows * _power_of_two(-part).to(rows.dtype)[:, None]
    return rows, torch.linalg.vector_norm(rows, dim=1)


def _power_of_two(exponent: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Set the bits of the exponent: unlike exp2, this is exact on every device."""
    return (exponent.to(torch.int64) + 1023).bitwise_left_shift(52).view(torch.float64)
