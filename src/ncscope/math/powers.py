"""Scaling by powers of two, which is exact, to keep squares in range."""

import math
from typing import TypeVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.devices import is_asynchronous

Scalable = TypeVar("Scalable", float, Tensor)

STREAM_LIMIT = 470
"""Largest exponent of 2, of either sign, of features whose squares a stream may sum.

The sums of squares stay in range, even those of a spread of 1e-12 of the magnitude.
"""

METRIC_LIMIT = 60
"""Largest exponent of class means and classifier from which metrics are computed without scaling.

Fourth powers stay in range. LAPACK does not scale a matrix of such squares either, even for a
spread of 1e-100. It scales a matrix with a norm beyond about 2^485, and by a factor that is no
power of two, so that the result would be rounded differently.
"""

COPY_LIMIT = 150
"""Largest exponent of features that are measured without a scaled copy; covers all of float32."""


def times_power(values: Scalable, exponent: int) -> Scalable:
    """Multiply by a power of two; exact if the result is a normal number.

    Args:
        values: A number, or a tensor of a float type.
        exponent: Exponent of 2, at most twice the largest exponent of float64.

    Example:
        >>> times_power(3.0, -2), times_power(1.0, 1100)
        (0.75, inf)
    """
    if exponent == 0:
        return values
    half = exponent // 2  # two factors, because 2**exponent may be out of range
    return values * 2.0**half * 2.0 ** (exponent - half)


def times_power_or_nan(value: float, exponent: int) -> float:
    """Multiply a value by a power of two; NaN if the result is no normal number of float64.

    Example:
        >>> times_power_or_nan(3.0, 1), times_power_or_nan(3.0, -1030)
        (6.0, nan)
    """
    scaled = times_power(value, exponent)
    exact = exponent == 0 or value == 0 or 2.0**-1022 <= abs(scaled) < math.inf
    return scaled if exact else math.nan


def magnitude_of(values: Shaped[Tensor, "..."]) -> Float[Tensor, ""]:
    """Return the largest absolute value, NaN if there is a NaN, on the device. Cost: one read."""
    wide = values if values.is_floating_point() else values.to(torch.float64)
    return torch.linalg.vector_norm(wide, ord=math.inf)


def largest_magnitude(values: Shaped[Tensor, "..."]) -> float:
    """Return the largest absolute value, NaN if there is a NaN. Cost: one read."""
    return float(magnitude_of(values))


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
        values: Finite numbers, which are not read if their type has no numbers beyond the limit.
        limit: Exponent up to which the result is 0.
    """
    return exponent_beyond(largest_magnitude(values), limit) if goes_beyond(values, limit) else 0


def goes_beyond(values: Shaped[Tensor, "..."], limit: int) -> bool:
    r"""Return whether the values' type has numbers outside $2^{\pm limit}$ besides 0."""
    if not values.is_floating_point():  # the smallest besides 0 is 1, within any limit
        return torch.iinfo(values.dtype).max > 2.0**limit
    info = torch.finfo(values.dtype)
    return info.smallest_normal * info.eps < 2.0**-limit  # they reach further down than up


def rescale_rows(
    rows: Float[Tensor, "n d"],
) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """Scale rows so that their lengths can be computed, and return the rows with these lengths.

    If the squares of one row overflow or underflow, every row is multiplied by a power of two that
    is chosen for the row, which keeps its direction. Else the rows are returned as they are.

    Args:
        rows: Finite rows, float64.

    Cost: one read; three more on an accelerator, or if a row overflows, underflows or is zero.
    """
    length = torch.linalg.vector_norm(rows, dim=1)
    safe = (length >= 2.0**-STREAM_LIMIT) & (length <= 2.0**STREAM_LIMIT)
    # On an accelerator, three more reads cost less than waiting for the answer.
    if not is_asynchronous(rows.device) and bool(safe.all()):
        return rows, length
    exponent = torch.frexp(torch.linalg.vector_norm(rows, ord=math.inf, dim=1)).exponent
    # In two steps, because the power of two itself may be out of range.
    half = exponent // 2
    for part in (half, exponent - half):
        rows = rows * power_of_two(-part)[:, None]
    return rows, torch.linalg.vector_norm(rows, dim=1)


def power_of_two(exponent: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return 2 to each exponent, from -1022 to 1023, exactly."""
    # A float64 keeps its exponent, plus 1023, in the bits from 52 on. exp2 is rounded on some
    # devices, and a factor that is no power of two would change digits.
    return (exponent.to(torch.int64) + 1023).bitwise_left_shift(52).view(torch.float64)
