"""AUROC and FPR against scikit-learn, and where scores are equal."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from ncscope.math.detection import Detection, compare_scores, share_interval

Scores = list[int]
some_scores = st.lists(st.integers(-3, 3), min_size=1, max_size=45)


def of(inside: Scores, outside: Scores, weights: list[float] | None = None) -> Detection:
    each = [torch.tensor([[float(s), 0.0] for s in scores]) for scores in (inside, outside)]
    return compare_scores(*each, None if weights is None else torch.tensor(weights))


@given(some_scores, some_scores)
@settings(max_examples=30, deadline=None)
def test_equals_scikit_learn_with_many_ties(inside: Scores, outside: Scores) -> None:
    truth = [1] * len(inside) + [0] * len(outside)
    found = of(inside, outside)
    assert found.auroc == pytest.approx(roc_auc_score(truth, inside + outside), abs=1e-14)
    rates = roc_curve(truth, inside + outside, drop_intermediate=False)
    reached = 20 * rates[1] * len(inside) >= 19 * len(inside) - 1e-6
    assert found.fpr95 == pytest.approx(rates[0][reached][0], abs=1e-14)


def test_the_threshold_keeps_exactly_95_percent_where_it_can() -> None:
    """Of 20 samples 19 are kept; of 19 all, because 18 of 19 are fewer than 95 %."""
    twenty, nineteen = list(range(20)), list(range(19))
    assert of(twenty, [0, 0, 0, 1]).fpr95 == 0.25
    assert of(nineteen, [0, 0, 0, 1]).fpr95 == 1.0


def test_all_scores_equal() -> None:
    found = of([2] * 7, [2] * 9)
    assert (found.auroc, found.fpr95, found.standard_error) == (0.5, 1.0, 0.0)


def test_rounding_does_not_decide_an_order() -> None:
    inside = torch.tensor([[1.0, 1e-15], [2.0, 1e-15]], dtype=torch.float64)
    outside = torch.tensor([[1 + 5e-16, 1e-15], [1 + 9e-16, 1e-15]], dtype=torch.float64)
    assert compare_scores(inside, outside).auroc == 0.75
    outside[:, 1] = inside[:, 1] = 0
    assert compare_scores(inside, outside).auroc == 0.5


@given(some_scores, some_scores, st.data())
@settings(max_examples=20, deadline=None)
def test_a_weight_counts_as_so_many_equal_samples(
    inside: Scores, outside: Scores, data: st.DataObject
) -> None:
    counts = data.draw(st.lists(st.integers(1, 3), min_size=len(inside), max_size=len(inside)))
    repeated = [s for s, n in zip(inside, counts, strict=True) for _ in range(n)]
    found, whole = of(inside, outside, [float(n) for n in counts]), of(repeated, outside)
    assert found.auroc == pytest.approx(whole.auroc, abs=1e-14)
    assert found.fpr95 == whole.fpr95


def test_a_few_samples_far_out_have_no_error() -> None:
    """Four of 40 lie inside: each counts once, whatever the number of samples that it passes."""
    inside, some = list(range(100, 300)), list(range(40))
    assert np.isnan(of(inside, some).standard_error)
    assert np.isnan(of(inside, [*some, 150, 151, 152, 153]).standard_error)
    assert of(inside, [*some, 150, 151, 152, 153, 154, 155]).standard_error > 0
    assert np.isnan(of([*some, 150, 151, 152, 153], inside).standard_error)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-6, 9.0))
def test_intervals_of_probabilities_are_those_of_the_complement(value: float, error: float) -> None:
    low, high = share_interval(value, error)
    assert 0 <= low < value < high <= 1
    other = share_interval(1 - value, error)
    assert other == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_an_interval_of_a_share_is_wilsons_to_second_order() -> None:
    """For many samples both are p +- z se (Agresti, Categorical Data Analysis, 3.1)."""
    p, n = 0.3, 10**8
    half = 2 * (p * (1 - p) / n) ** 0.5
    assert share_interval(p, half / (p * (1 - p))) == pytest.approx((p - half, p + half), abs=1e-8)


def test_nan_makes_the_values_undefined() -> None:
    found = compare_scores(torch.tensor([[torch.nan, 0.0]]), torch.tensor([[1.0, 0.0]]))
    assert np.isnan([found.auroc, found.fpr95, found.standard_error]).all()


def test_standard_error_covers_the_spread_over_draws() -> None:
    """DeLong's error against the deviation over 400 draws of both kinds of samples."""
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(400):
        both = (rng.normal(1.0, 1.0, 60), rng.normal(0.0, 2.0, 40))
        draws.append(compare_scores(*(torch.tensor(np.c_[s, 0 * s]) for s in both)))
    spread = np.std([each.auroc for each in draws])
    assert np.mean([each.standard_error for each in draws]) == pytest.approx(spread, rel=0.1)


def test_standard_error_with_ties_and_weights_is_delongs() -> None:
    """Against the placements by all pairs, in which equal scores count by half."""
    rng = np.random.default_rng(1)
    inside, outside = rng.integers(0, 5, 40), rng.integers(-2, 4, 30)
    pairs = (inside[:, None] > outside) + 0.5 * (inside[:, None] == outside)
    for weights in (np.ones(40), rng.integers(1, 4, 40)):
        placed = pairs.mean(1), np.average(pairs, axis=0, weights=weights)
        expected = sum(np.var(each, ddof=1) / len(each) for each in placed) ** 0.5
        found = of(inside.tolist(), outside.tolist(), weights.astype(float).tolist())
        assert found.standard_error == pytest.approx(expected, rel=1e-12)
