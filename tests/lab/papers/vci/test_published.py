"""VCI's tables follow from each other, and say what its figure 7 says."""

import math

import pytest

from ncscope.errors import InputError
from ncscope.lab.papers.vci.published import DOWNSTREAM, REGULARISED, TEMPERATURES
from ncscope.transfer import correlations, mean_log_odds, mean_log_odds_gain

GROUPS = {"temperature": list(TEMPERATURES.values()), "regularised": list(REGULARISED.values())}
EVERY = [row for group in GROUPS.values() for row in group]


def shares(row):
    return [percent / 100 for percent in row.accuracies]


@pytest.mark.parametrize("row", EVERY, ids=lambda row: str(row.mlo))
def test_log_odds_are_those_printed(row):
    assert len(row.accuracies) == len(DOWNSTREAM) == 10
    assert f"{mean_log_odds(shares(row)):.3f}" == f"{row.mlo:.3f}"
    assert mean_log_odds_gain(shares(row), row.accuracy / 100) == pytest.approx(row.mlog, abs=5e-4)


def pearson(group, metric):
    gains = [mean_log_odds_gain(shares(row), row.accuracy / 100) for row in GROUPS[group]]
    return correlations([getattr(row, metric) for row in GROUPS[group]], gains)["pearson"].value


def test_only_vci_goes_with_transfer_in_both_groups():
    """Figure 7; the values are computed from the tables, since its legends are not at hand."""
    assert [round(pearson(group, "vci"), 3) for group in GROUPS] == [0.995, 0.975]
    assert [round(pearson(group, "nc1_quotient"), 3) for group in GROUPS] == [1.0, -0.996]
    assert [round(pearson(group, "fuzziness"), 3) for group in GROUPS] == [0.986, -0.416]
    assert [round(pearson(group, "cosine_similarity"), 3) for group in GROUPS] == [-0.988, 0.978]


def test_log_odds_at_the_ends_and_beyond():
    assert mean_log_odds([0.5]) == 0
    assert mean_log_odds([1.0, 0.5]) == math.inf
    for bad in (91.2, -0.1, math.nan):
        with pytest.raises(InputError, match=r"from 0 to 1|found nan"):
            mean_log_odds([0.5, bad])
    with pytest.raises(InputError, match="at least one"):
        mean_log_odds([])
