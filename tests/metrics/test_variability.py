"""Variation within classes: by hand, and where class means coincide."""

import math

import pytest
import torch
from torch import Tensor

import ncscope
from ncscope.errors import InputError
from ncscope.math.symmetric import spectrum_of
from ncscope.metrics.discriminants import Discriminants, discriminants
from ncscope.metrics.mse import ridge_units
from ncscope.metrics.variability import (
    cdnv,
    class_separation,
    cosine_within,
    fuzziness,
    nc1,
    nc1_quotient,
    within_in_signal,
    within_off_signal,
)
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import ClassStatistics, finish


def statistics(features: Tensor, labels: Tensor) -> ClassStatistics:
    moments = ClassMoments(int(labels.max()) + 1, features.shape[1])
    moments.update(features, labels)
    return finish(moments)


def decomposed(features: Tensor, labels: Tensor) -> tuple[ClassStatistics, Discriminants]:
    stats = statistics(features, labels)
    return stats, discriminants(stats)


# Means (-2, 0) and (2, 0); variances 1/4 along the first axis, 1 along the second.
CROSS = torch.tensor([[-2.5, 1], [-1.5, -1], [1.5, 1], [2.5, -1]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize("scale", [1.0, 1 / 8])
def test_two_classes_by_hand(scale: float) -> None:
    stats, found = decomposed(scale * CROSS, LABELS)
    assert float(nc1_quotient(stats)) == pytest.approx(1.25 / 4, rel=1e-14)
    assert float(fuzziness(stats, found)) == pytest.approx(0.25 / 4, rel=1e-14)
    assert float(nc1(stats, found)) == pytest.approx(0.25 / 8, rel=1e-14)
    assert float(within_in_signal(stats, found)) == pytest.approx(scale**2 / 4, rel=1e-14)
    assert float(within_off_signal(stats, found)) == pytest.approx(scale**2, rel=1e-14)
    assert float(cdnv(stats)) == pytest.approx(2 * 1.25 / (2 * 16), rel=1e-14)


def test_directions_by_hand() -> None:
    """Directions of one class at right angles, of the other one the same twice."""
    stats = statistics(torch.tensor([[2.0, 0], [0, 3], [0, -1], [0, -5]]).double(), LABELS)
    # unit means (1/2, 1/2) and (0, -1): half a unit of variance in the first class
    assert float(cosine_within(stats)) == pytest.approx(1 / 4, rel=1e-14)
    between = (1 / 4 + 9 / 4) / 4
    assert float(class_separation(stats)) == pytest.approx(between / (between + 1 / 4), rel=1e-14)


def test_values_of_coinciding_class_means_are_nan() -> None:
    stats, found = decomposed(CROSS, torch.tensor([0, 1, 1, 0]))
    assert math.isnan(nc1_quotient(stats))
    assert math.isnan(fuzziness(stats, found))
    assert math.isnan(cdnv(stats))
    one_point = statistics(torch.ones(4, 2), LABELS)
    assert math.isnan(nc1_quotient(one_point))
    assert math.isnan(class_separation(one_point))


def test_no_eigenvalue_is_negative() -> None:
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).double()
    values = spectrum_of(rows.mT @ rows)
    assert values.tolist() == sorted(values.tolist(), reverse=True)
    assert (values >= 0).all()
    assert float(spectrum_of(torch.tensor([[-1e-16]]).double())) == 0


def test_with_decay_the_units_are_those_of_the_features_if_these_vary_alike() -> None:
    """Class means 4,096 times as far apart in one coordinate as in the other."""
    shift = torch.tensor([[0.0, 1], [0, -1], [4096, 3], [4096, 1], [-4096, 2], [-4096, 4]]).double()
    stats, found = decomposed(
        shift + CROSS[[0, 1, 0, 1, 0, 1]], torch.arange(3).repeat_interleave(2)
    )
    assert found.scales is not None
    units = ridge_units(stats, found, has_bias=False, decay=0.01)
    assert units.scales is None
    assert units.shift == 0.01
    torch.testing.assert_close(units.within, stats.within, rtol=1e-14, atol=0)
    weighted = stats.centred * stats.prior.sqrt()[:, None]
    between = weighted.mT @ weighted
    torch.testing.assert_close(units.factor @ units.factor.mT, between, rtol=1e-12, atol=0)
    assert torch.equal(units.mean, stats.global_mean)
    # of 32 rounding units of the largest mean in each coordinate, times the root of the count
    largest = stats.means.abs().amax(0)
    rounding = 2 * (32 * 2.0**-52 * largest).square().sum()
    assert units.rounding == pytest.approx(float(rounding), rel=1e-12, abs=0)


def test_no_variation_is_negative_where_all_of_it_is_in_the_signal() -> None:
    """The difference of the two traces would be below 0 by rounding, in a third of the draws."""
    draws = torch.Generator().manual_seed(0)
    along = torch.tensor([[0.0], [1], [5], [7]]).double()
    for _ in range(10):
        line = along * torch.randn(3, generator=draws).double()
        stats, found = decomposed(line, LABELS)
        assert 0 <= float(within_off_signal(stats, found)) < 1e-14
        assert float(within_in_signal(stats, found)) == pytest.approx(float(stats.within_trace))


def test_a_decay_below_0_is_refused() -> None:
    weight = torch.eye(2)
    for decay in (-0.5, -1e-300, math.inf, math.nan):
        with pytest.raises(
            InputError, match=f"weight_decay as a finite number of at least 0, found {decay}"
        ):
            ncscope.measure(CROSS, LABELS, weight, weight_decay=decay)
    for decay in (0.0, 0.5):
        assert ncscope.measure(CROSS, LABELS, weight, weight_decay=decay)["mse_loss"] > 0
