"""Closed forms of growth: against quadrature-free references, and at the ends of float64."""

import math

import mpmath
import pytest
import torch
from scipy.special import wrightomega

from ncscope_lab.surrogates.dynamics.laws import Law, law_of_projection, law_of_renormalisation

LAWS = (law_of_projection(4, 50), law_of_renormalisation(4, 50))


def reached(law: Law, start: float, time: float) -> float:
    """In 40 digits, by bisection in the logarithm."""
    with mpmath.workdps(40):
        first = mpmath.mpf(start)

        def elapsed(growth: mpmath.mpf) -> mpmath.mpf:
            c = law.coefficients
            terms = (c[p] / mpmath.mpf(p) * first**p * mpmath.expm1(p * growth) for p in c if p)
            return c[0] * growth + mpmath.fsum(terms)

        low, high = mpmath.mpf(0), mpmath.mpf(time) / law.coefficients[0]
        for _ in range(120):  # to 1e-36 of the width
            middle = (low + high) / 2
            low, high = (middle, high) if elapsed(middle) < time else (low, middle)
        return float(first * mpmath.exp(low))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("start", [1e-8, 1e-3, 1.0, 1e3, 1e8])
def test_inversion_is_exact_over_all_scales(law: Law, start: float) -> None:
    times = torch.logspace(-8, 16, 13, dtype=torch.float64)
    found = law.singular_values(torch.tensor([start], dtype=torch.float64), times)[:, 0]
    for time, value in zip(times.tolist(), found.tolist(), strict=True):
        assert value == pytest.approx(reached(law, start, time), rel=2e-14)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_many_at_once_are_as_one_by_one(law: Law) -> None:
    starts = torch.logspace(-8, 8, 9, dtype=torch.float64)
    times = torch.logspace(-8, 16, 7, dtype=torch.float64)
    table = law.singular_values(starts, times)
    assert table.shape == (7, 9)
    for column, start in enumerate(starts):
        torch.testing.assert_close(
            law.singular_values(start[None], times)[:, 0], table[:, column], rtol=1e-14, atol=0.0
        )


def test_the_second_law_by_wright_s_omega_function() -> None:
    k, n = 4, 50
    law = law_of_renormalisation(k, n)
    start, times = 0.7, torch.logspace(-2, 9, 12, dtype=torch.float64)
    potential = n * (k**2 * math.log(start) + k / 2 * start**2)
    argument = 2 * (potential + times.numpy()) / (n * k**2) - math.log(k)
    expected = torch.from_numpy((k * wrightomega(argument)) ** 0.5)
    found = law.singular_values(torch.tensor([start], dtype=torch.float64), times)[:, 0]
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_the_rate_is_the_slope_of_the_closed_form(law: Law) -> None:
    values = torch.logspace(-3, 3, 9, dtype=torch.float64).requires_grad_()
    (slopes,) = torch.autograd.grad(law.potential(values).sum(), values)
    torch.testing.assert_close(law.rate(values.detach()), 1 / slopes)


@pytest.mark.parametrize(("law", "power"), [(LAWS[0], 4), (LAWS[1], 2)])
def test_all_values_come_to_the_asymptote(law: Law, power: int) -> None:
    starts = torch.tensor([1e-3, 0.5, 40.0], dtype=torch.float64)
    times = torch.tensor([1e30, 1e31], dtype=torch.float64)
    found = law.singular_values(starts, times)
    expected = law.asymptote(times)[:, None].expand_as(found)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0.0)
    assert law.exponent == 1 / power
    assert float((found[1] / found[0]).log10().mean()) == pytest.approx(1 / power)


def test_asymptotes_are_those_named() -> None:
    time = torch.tensor(7.0).double()
    assert float(LAWS[0].asymptote(time)) == pytest.approx((4 * 7 / 50) ** 0.25)
    assert float(LAWS[1].asymptote(time)) == pytest.approx((2 * 7 / 200) ** 0.5)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_zero_stays_and_so_does_everything_at_time_zero(law: Law) -> None:
    starts = torch.tensor([0.0, 0.3], dtype=torch.float64)
    found = law.singular_values(starts, torch.tensor([0.0, 1e6], dtype=torch.float64))
    assert found[:, 0].tolist() == [0.0, 0.0]
    assert float(found[0, 1]) == 0.3
    assert float(found[1, 1]) > 1
