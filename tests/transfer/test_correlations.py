"""The coefficients against SciPy's, and what the intervals are."""

import numpy as np
import pytest
from scipy import stats

from ncscope.errors import InputError
from ncscope.transfer import correlations

SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


@pytest.mark.parametrize("digits", [6, 0])  # 0: many ties
@pytest.mark.parametrize("count", [4, 15])
def test_the_coefficients_are_scipys(count, digits):
    draws = np.random.default_rng(count)
    scores = draws.normal(size=count)
    accuracies = (2 * scores + draws.normal(size=count)).round(digits)
    found = correlations(scores.round(digits), accuracies, resamples=1)
    for name, known in SCIPY.items():
        value = known(scores.round(digits), accuracies)[0]
        assert found[name].value == pytest.approx(value, abs=1e-12)


@pytest.mark.slow
def test_the_interval_is_that_of_resampled_checkpoints():
    draws = np.random.default_rng(0)
    scores = draws.normal(size=12)
    accuracies = scores + draws.normal(size=12)
    found = correlations(scores, accuracies, resamples=400, level=0.8, seed=7)
    drawn = np.random.default_rng(7).integers(0, 12, (400, 12))
    for name, known in SCIPY.items():
        every = [known(scores[rows], accuracies[rows])[0] for rows in drawn]
        assert found[name][1:] == pytest.approx(np.percentile(every, [10, 90]), abs=1e-9)


def test_what_has_no_coefficient():
    found = correlations([0.1, 0.1, 0.1], [1.0, 2.0, 3.0])
    assert np.isnan([list(each) for each in found.values()]).all()
    # with two checkpoints half of the draws have one of them only, and no coefficient
    pair = correlations([1.0, 2.0], [3.0, 1.0])
    assert [list(each) for each in pair.values()] == [pytest.approx([-1.0] * 3)] * 3


@pytest.mark.parametrize(("scores", "transfer"), [([1.0], [1.0]), ([1.0, 2.0], [1.0])])
def test_bad_input_is_refused(scores, transfer):
    with pytest.raises(InputError, match="two checkpoints or more"):
        correlations(scores, transfer)
    with pytest.raises(InputError, match="NaN"):
        correlations([1.0, float("nan")], [1.0, 2.0])


def test_scores_of_any_size_have_their_coefficients() -> None:
    rng = np.random.default_rng(0)
    scores, transfer = rng.normal(size=(2, 6))
    plain = correlations(scores, transfer, resamples=20)
    for factor in (2.0**900, 2.0**-900):
        assert correlations(factor * scores, transfer, resamples=20) == plain
