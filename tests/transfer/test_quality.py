"""Quality of a ranking against scipy, and baselines that do not see the set."""

import math

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr, weightedtau

from ncscope.errors import InputError
from ncscope.transfer.baselines import (
    AccuracyTable,
    make_accuracy_table,
    read_results,
    static_ranking,
)
from ncscope.transfer.quality import ranking_quality


@pytest.mark.parametrize("seed", range(8))
def test_coefficients_are_those_of_scipy_with_ties_and_nan_last(seed):
    random = np.random.default_rng(seed)
    scores, accuracies = random.integers(0, 6, (2, 9)).astype(float)
    scores[seed % 3] = math.nan
    found = ranking_quality(scores, accuracies, resamples=0)
    last = np.where(np.isnan(scores), -1, scores)
    assert found.weighted_kendall.value == pytest.approx(weightedtau(scores, accuracies).statistic)
    assert found.kendall.value == pytest.approx(kendalltau(last, accuracies).statistic)
    assert found.spearman.value == pytest.approx(spearmanr(last, accuracies).statistic)
    top = accuracies[last == last.max()]
    assert found.regret.value == pytest.approx(accuracies.max() - top.mean())
    assert math.isnan(found.regret.low)


def test_a_score_of_which_less_is_better():
    found = ranking_quality([1.0, 2.0, math.nan], [0.9, 0.8, 0.7], better=-1)
    assert found.weighted_kendall.value == pytest.approx(1)
    assert found.spearman.value == pytest.approx(1)
    assert found.regret.value == 0


def test_equal_scores_have_no_coefficient_and_the_regret_of_a_guess():
    found = ranking_quality([2.0, 2.0, math.nan], [0.9, 0.7, 0.8])
    equal = ranking_quality([2.0, 2.0, 2.0], [0.9, 0.7, 0.8])
    assert found.regret.value == pytest.approx(0.1)
    assert math.isnan(equal.weighted_kendall.value)
    assert math.isnan(equal.kendall.value)
    assert equal.regret.value == pytest.approx(0.1)


def test_several_sets_are_averaged_and_missing_cells_left_out():
    scores = np.array([[3.0, 1, 0], [2, 2, 0], [1, 3, 0]])
    accuracies = np.array([[0.9, 0.9, math.nan], [0.8, 0.8, 0.5], [0.7, math.nan, math.nan]])
    found = ranking_quality(scores, accuracies, resamples=50)
    assert found.kendall.value == pytest.approx((1 - 1) / 2)
    assert found.regret.value == pytest.approx((0 + 0.1) / 2)
    assert found.kendall.low <= found.kendall.high


def test_the_interval_is_that_of_resamples_of_models_and_sets():
    random = np.random.default_rng(0)
    scores, accuracies = random.normal(size=(2, 6, 3))
    found = ranking_quality(scores, accuracies, resamples=40, seed=5, level=0.9)
    draws = np.random.default_rng(5)
    rows, columns = draws.integers(0, 6, (40, 6)), draws.integers(0, 3, (40, 3))
    known = [
        np.nanmean([kendalltau(scores[r, c], accuracies[r, c]).statistic for c in chosen])
        for r, chosen in zip(rows, columns, strict=True)
    ]
    low, high = np.percentile(known, [5, 95])
    assert (found.kendall.low, found.kendall.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("scores", "accuracies", "said"),
    [
        ([1.0], [1.0], "of two models or more"),
        ([1.0, 2.0], [1.0], r"scores of shape \(2,\) and accuracies of shape \(1,\)"),
        ([1.0, 2.0], [math.nan, math.nan], "finite accuracies, found none"),
        ([1.0, 2.0], [math.inf, 0.0], "finite accuracies, found infinite ones"),
    ],
)
def test_what_cannot_be_judged_is_refused(scores, accuracies, said):
    with pytest.raises(InputError, match=said):
        ranking_quality(scores, accuracies)


TABLE = {
    "a": {"one": 0.9, "two": 80.0, "three": 0.5},
    "b": {"one": 0.7, "two": 90.0, "three": 0.5},
    "c": {"one": 0.5, "three": 0.5},
}


def test_a_standing_is_the_mean_z_score_of_the_other_sets():
    ranking = static_ranking(TABLE)
    high = math.sqrt(3 / 2)  # the z-score of the first of three numbers evenly apart
    expected = [
        [-1, high, (high - 1) / 2],
        [1, 0, (0 + 1) / 2],
        [math.nan, -high, -high],
    ]
    np.testing.assert_allclose(ranking.standings, expected, atol=1e-12)
    known = ranking_quality(ranking.standings, make_accuracy_table(TABLE).accuracies)
    assert list(ranking.qualities) == ["other_sets"]
    np.testing.assert_equal(ranking.qualities["other_sets"], known)


def test_facts_of_the_models_are_baselines_too():
    table = make_accuracy_table(TABLE)
    facts = {"parameters": np.array([3.0, 2, 1]), "source_accuracies": np.array([1.0, 2, 3])}
    sized = AccuracyTable(table.models, table.sets, table.accuracies, **facts)
    found = static_ranking(sized).qualities
    assert list(found) == ["other_sets", "parameters", "source_accuracy"]
    assert found["parameters"].kendall.value == pytest.approx((1 - 1) / 2)


def test_one_set_or_model_is_too_little():
    for table in ({"a": {"one": 1.0}, "b": {"one": 0.5}}, {"a": {"one": 1.0, "two": 0.5}}):
        with pytest.raises(InputError, match="two models or more on two sets or more"):
            static_ranking(table)


def test_results_are_read_from_a_file(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text(
        "set,model,accuracy,parameters,note\n"
        "one,a,0.9,100,first\none,b,0.7,,\n two ,a,,100,\ntwo,b,0.8,200,\n"
    )
    table = read_results(path)
    assert (table.models, table.sets) == (("a", "b"), ("one", "two"))
    np.testing.assert_equal(table.accuracies, [[0.9, math.nan], [0.7, 0.8]])
    np.testing.assert_equal(table.parameters, [100, 200])
    assert np.isnan(table.source_accuracies).all()
    np.testing.assert_allclose(table.standings(left_out="two"), [1, -1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found an empty file; name the columns so"),
        ("model,set\n", "a header with model, set, accuracy in .*, found model, set"),
        (
            "model;set;accuracy\na;one;1\n",
            "found model;set;accuracy; separate the columns",
        ),
        ("model,set,accuracy\na,,1\n", "a model and a set in .*, line 2, found an empty one"),
        ("model,set,accuracy\na,one,high\n", "a number as accuracy in .*, line 2, found 'high'"),
        ("model,set,accuracy\na,one,inf\n", "a number as accuracy in .*, found 'inf'"),
        (
            "model,set,accuracy\na,one,1\na,one,2\n",
            "one number for a and one, found 1 and, in .* 2",
        ),
    ],
)
def test_results_that_cannot_be_read_are_refused(tmp_path, text, said):
    path = tmp_path / "results.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_results(path)
    with pytest.raises(InputError, match=r"CSV file of results, found nothing at .*nowhere"):
        read_results(tmp_path / "nowhere.csv")


def test_spaces_after_the_commas_of_a_file_say_nothing(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("model, set, accuracy, parameters\na, one, 0.9, 100\nb, one, 0.7,\n")
    table = read_results(path)
    assert (table.models, table.sets) == (("a", "b"), ("one",))
    np.testing.assert_equal(table.parameters, [100, math.nan])


@pytest.mark.usefixtures("unchecked_signatures")
def test_results_in_another_form_are_refused():
    for results in ([[0.5, 0.6], [0.7, 0.8]], {"a": [0.5, 0.6]}):
        with pytest.raises(InputError, match="dictionary from text to a finite number, found"):
            static_ranking(results)
    with pytest.raises(InputError, match="scores as a numeric array"):
        ranking_quality({"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 0.6})
