"""Mean log odds by hand, their ends, and what is refused."""

import math

import pytest

from ncscope.errors import InputError
from ncscope.transfer.correlations import mean_log_odds, mean_log_odds_gain


def test_mean_log_odds_by_hand() -> None:
    assert mean_log_odds([0.5]) == 0
    assert mean_log_odds([0.75, 0.9]) == pytest.approx((math.log(3) + math.log(9)) / 2, rel=1e-14)
    assert mean_log_odds([0.25]) == pytest.approx(-math.log(3), rel=1e-14)
    tiny = 2.0**-60  # 1 less it is 1
    assert mean_log_odds([tiny]) == pytest.approx(math.log(tiny), rel=1e-14)


def test_the_gain_is_over_the_pretraining_accuracy() -> None:
    expected = (math.log(3) + math.log(9)) / 2 - math.log(4)
    assert mean_log_odds_gain([0.75, 0.9], 0.8) == pytest.approx(expected, rel=1e-13)
    assert mean_log_odds_gain([0.8], 0.2) == pytest.approx(2 * math.log(4), rel=1e-13)


def test_accuracies_of_0_and_1_are_infinite() -> None:
    assert mean_log_odds([1.0, 0.5]) == math.inf
    assert mean_log_odds([0, 0.5]) == -math.inf
    assert math.isnan(mean_log_odds([0.0, 1.0]))
    assert mean_log_odds_gain([0.5], 1.0) == -math.inf
    assert math.isnan(mean_log_odds_gain([1.0], 1.0))


@pytest.mark.parametrize("share", [-1e-9, 1 + 1e-9, 75.0])
def test_what_is_no_share_is_refused(share: float) -> None:
    for compute in (
        lambda: mean_log_odds([0.5, share]),
        lambda: mean_log_odds_gain([0.5], share),
    ):
        with pytest.raises(InputError, match=f"an accuracy from 0 to 1, found {share};"):
            compute()


def test_no_accuracy_is_refused() -> None:
    with pytest.raises(InputError, match="at least one accuracy, found none"):
        mean_log_odds([])
