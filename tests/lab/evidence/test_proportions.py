"""Claims about most trials: exact binomial interval, three verdicts."""

from math import isclose

import pytest

from ncscope.lab.evidence.proportions import in_most


@pytest.mark.parametrize(
    ("hits", "verdict"),
    [(10, "held"), (9, "held"), (8, "undecided"), (2, "undecided"), (1, "not held")],
)
def test_verdicts_of_ten_trials(hits: int, verdict: str) -> None:
    trials = [True] * hits + [False] * (10 - hits)
    claim = in_most("it arrives", source="ours", hits=trials, evidence="more")
    assert claim.verdict == verdict
    assert claim.evidence.startswith(f"{hits} of 10 starts, 95 % interval of the share 0.")
    assert claim.evidence.endswith("; more")


def test_the_interval_is_clopper_and_pearson_s() -> None:
    claim = in_most("it arrives", source="ours", hits=[True] * 10, of="runs")
    assert "10 of 10 runs, 95 % interval of the share 0.69 to 1.00" in claim.evidence
    assert claim.interval is not None
    assert isclose(claim.interval.low, 0.025**0.1)  # at which all ten come out in 2.5 % of cases
    assert (claim.interval.high, claim.interval.method) == (1.0, "binomial")


def test_no_trials_decide_nothing() -> None:
    assert in_most("it arrives", source="ours", hits=[]).verdict == "undecided"
