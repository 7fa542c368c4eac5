"""Powers of two: exact, split where one factor would leave the range, decided at the limits."""

import math

import pytest
import torch
from torch import Tensor

from ncscope.math.powers import (
    exponent_beyond,
    exponent_of,
    goes_beyond,
    largest_magnitude,
    rescale_rows,
    times_power,
    times_power_or_nan,
)

LEAST = 2.0**-1022  # the smallest normal number
STEP = 2.0**-52


@pytest.mark.parametrize(
    ("value", "exponent", "expected"),
    [
        (3.0, 0, 3.0),
        (3.0, 1, 6.0),
        (3.0, -1, 1.5),
        (-3.0, 5, -96.0),
        (2.0**-1000, 2000, 2.0**1000),
        (2.0**1000, -2001, 2.0**-1001),
        (1.0, 1100, math.inf),
        (0.0, 2000, 0.0),
    ],
)
def test_times_a_power_of_two(value: float, exponent: int, expected: float) -> None:
    assert times_power(value, exponent) == expected
    tensor = torch.tensor([value, 0.0], dtype=torch.float64)
    assert times_power(tensor, exponent).tolist() == [expected, 0.0]


@pytest.mark.parametrize(
    ("value", "exponent", "expected"),
    [
        (3.0, 1, 6.0),
        (-3.0, -2, -0.75),
        (0.0, 2000, 0.0),
        (0.0, -2000, 0.0),
        (1.0, -1022, LEAST),
        (1.0, -1023, math.nan),
        (LEAST, -1, math.nan),
        (1.0, 1023, 2.0**1023),
        (1.0, 1024, math.nan),
        (-1.0, 1100, math.nan),
        (LEAST / 8, 0, LEAST / 8),  # left as it is
        (LEAST / 8, 1, math.nan),
        (LEAST / 8, 3, LEAST),
        (math.inf, 0, math.inf),
    ],
)
def test_a_value_in_another_unit(value: float, exponent: int, expected: float) -> None:
    assert times_power_or_nan(value, exponent) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


def test_the_largest_magnitude_is_of_either_sign() -> None:
    assert largest_magnitude(torch.tensor([[1.0, -3.0], [2.0, 0.0]])) == 3
    assert largest_magnitude(torch.tensor([2, -5])) == 5
    assert math.isnan(largest_magnitude(torch.tensor([2.0, math.nan])))


@pytest.mark.parametrize(
    ("magnitude", "expected"),
    [
        (0.0, 0),
        (1.0, 0),
        (3.0, 0),
        (2.0**200, 0),
        (2.0**200 * (1 + STEP), 200),
        (2.0**201, 201),
        (2.0**-200, 0),
        (2.0**-200 * (1 - STEP), -201),
        (2.0**-1074, -1074),
    ],
)
def test_the_exponent_of_a_magnitude_beyond_the_limit(magnitude: float, expected: int) -> None:
    assert exponent_beyond(magnitude, 200) == expected
    values = torch.tensor([0.0, -magnitude], dtype=torch.float64)
    assert exponent_of(values, 200) == expected


def test_numbers_of_a_type_without_larger_ones_are_not_read() -> None:
    assert exponent_of(torch.tensor([math.nan]), 150) == 0
    assert exponent_of(torch.tensor([2.0**50]), 40) == 50


@pytest.mark.parametrize(
    ("dtype", "limit", "beyond"),
    [
        (torch.int32, 30, True),
        (torch.int32, 31, False),
        (torch.int64, 62, True),
        (torch.int64, 63, False),
        (torch.uint8, 40, False),
        (torch.float16, 23, True),  # its smallest number is 2^-24
        (torch.float16, 24, False),
        (torch.float32, 148, True),
        (torch.float32, 149, False),
        (torch.float64, 470, True),
        (torch.float64, 1023, True),
    ],
)
def test_types_that_go_beyond_a_limit(dtype: torch.dtype, limit: int, beyond: bool) -> None:
    assert goes_beyond(torch.zeros(1, dtype=dtype), limit) == beyond


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_rows_in_range_are_left_alone() -> None:
    kept = rows([3.0, 4.0], [2.0**470, 0.0], [0.0, 2.0**-470])
    found, length = rescale_rows(kept)
    assert found is kept
    assert length.tolist() == [5.0, 2.0**470, 2.0**-470]


def test_rows_in_range_are_scaled_without_a_read_on_an_accelerator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ncscope.math.powers.is_asynchronous", lambda device: True)
    found, length = rescale_rows(rows([3.0, 4.0], [0.0, 0.0]))
    assert found.tolist() == [[0.375, 0.5], [0.0, 0.0]]
    assert length.tolist() == [0.625, 0.0]


def test_every_row_gets_a_power_of_two_where_one_is_out_of_range() -> None:
    """The largest entry of each row lands between 1/2 and 1."""
    for exponent in (471, -473, 600, -701, 1021, -1072):
        far = rows([3 * 2.0**exponent, 4 * 2.0**exponent], [1, -2], [0, 0])
        if exponent == 1021:
            far[0] /= 2
        found, length = rescale_rows(far)
        assert found.tolist() == [[0.375, 0.5], [0.25, -0.5], [0, 0]]
        assert length.tolist() == pytest.approx([0.625, math.sqrt(0.3125), 0], rel=1e-6)


def test_a_row_just_out_of_range_is_scaled() -> None:
    for entry in (2.0**470 * (1 + STEP), 2.0**-470 * (1 - STEP)):
        found, length = rescale_rows(rows([entry, 0.0], [3.0, 4.0]))
        assert 0.5 <= float(found[0, 0]) == float(length[0]) < 1
        assert found[1].tolist() == [0.375, 0.5]
