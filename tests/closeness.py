"""One comparison of named numbers for the whole suite; it shows every mismatch, not the first."""

from collections.abc import Mapping

import numpy as np

# The reference works in 50 digits on inputs that are rounded to 16: what it calls smaller than
# this is exactly zero, or would be with exact inputs.
ZERO = 1e-25


def mismatches(
    found: Mapping[str, float], expected: Mapping[str, float], *, rel: float, abs_tol: float
) -> list[str]:
    """Keys whose values differ by more than `rel`, or from an exact zero by more than `abs_tol`.

    NaN agrees with NaN and infinity with infinity; a relative comparison with zero would ask for
    the impossible, and `abs_tol` serves zeros only.
    """
    lines = []
    for key, value in expected.items():
        is_nan = np.isnan(value) and np.isnan(found[key])
        allowed = abs_tol if abs(value) < ZERO else rel * abs(value)
        close = found[key] == value or abs(found[key] - value) <= allowed
        if not (is_nan or close):
            lines.append(f"{key}: found {found[key]!r}, expected {value!r}")
    return lines


def assert_agree(
    found: Mapping[str, float],
    expected: Mapping[str, float],
    *,
    rel: float = 1e-9,
    abs_tol: float = 1e-13,
) -> None:
    """Fail with every mismatch; the keys must be the same."""
    assert set(found) == set(expected)
    lines = mismatches(found, expected, rel=rel, abs_tol=abs_tol)
    assert not lines, "\n" + "\n".join(lines)


def assert_arrays_agree(found, expected, *, rel: float = 1e-9) -> None:
    """Fail unless arrays agree to `rel` of the largest finite entry, infinities exactly."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    scale = np.abs(expected[finite]).max(initial=0)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=0, atol=rel * scale)


def numbers(record: dict) -> dict[str, float]:
    layers = {
        f"{layer['layer']} {key}": value
        for layer in record["layers"]
        for key, value in layer["metrics"].items()
    }
    places = {f"place {i}": value for i, value in enumerate(record["relative_position"])}
    line = {
        f"line {key} {i}": value
        for key in ("pfc1", "pfc2", "pfc3")
        for i, value in enumerate(record["geodesic"][key])
    }
    ends = {key: record["geodesic"][key] for key in ("alignment", "transport_cost")}
    return layers | places | line | ends
