"""Types of settings: finite numbers, with bounds that exclude overflow and excessive memory."""

from typing import Annotated

from pydantic import AfterValidator, Field

LARGEST = 1e6
"""Upper bound of lengths, decays and step sizes; their products stay far from overflow."""
MOST_SAMPLES = 10**6

Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


def _positive(values: tuple[float, ...]) -> tuple[float, ...]:
    # Do not negate this to `value > LARGEST`: the comparison must refuse NaN too.
    if not all(0 < value <= LARGEST for value in values):
        msg = f"every value greater than 0 and at most {LARGEST:,.0f}"
        raise ValueError(msg)
    return values


def _different_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not all(1 <= size <= MOST_SAMPLES for size in sizes):
        msg = f"every value at least 1 and at most {MOST_SAMPLES:,}"
        raise ValueError(msg)
    if len(set(sizes)) < 2:
        msg = "at least two different values"
        raise ValueError(msg)
    return sizes


# The bounds annotate the tuple and not its elements: the command line reads the elements' type.
Positives = Annotated[tuple[float, ...], AfterValidator(_positive)]
DifferentSizes = Annotated[tuple[int, ...], AfterValidator(_different_sizes)]
