"""What INFO's pages say about signs, sizes and exact values follows from the verdicts."""

import re

import pytest

from ncscope_lab.experiments.info.connectivity import CHANCE
from ncscope_lab.experiments.info.semi_supervised import ADDED, COLUMNS, gain_in_print
from ncscope_lab.intervals import Interval
from tests.docs.pages import load_hook

results = load_hook("results")
RUNS = results.read_runs(results.FIGURES)


def beside(name: str, part: str, of: str) -> list[float]:
    """Return estimate, low and high of what stands uncounted beside a verdict."""
    told = results.write_measured(f"{name} | {part} | {of}", RUNS)
    return [float(number) for number in re.findall(r"[^\s\[\],]+", told)]


def interval_of(name: str, part: str) -> Interval:
    found = results.find_claim(name, part, RUNS).interval
    assert found is not None
    return found


def test_mir_does_not_rise_between_runs_whatever_the_statistics():
    place = ("info/connectivity", "MIR (batches of 64) is higher in the middle")
    assert interval_of(*place).high < 0
    assert beside(*place, "statistics as they are")[2] < 0


def test_accuracy_falls_near_chance_between_runs_with_statistics_as_they_are_only():
    place = ("info/connectivity", "accuracy falls to random guessing")
    estimate, low, _ = beside(*place, "statistics as they are")
    assert low < CHANCE
    assert estimate < 2
    told = results.find_claim(*place, RUNS).evidence.split("statistics as they are")[1]
    pairs = [float(each) for each in told.split("pairs): ")[1].split(";")[0].split(", ")]
    assert sum(each < CHANCE for each in pairs) > len(pairs) / 2
    assert interval_of(*place).low > 2 * CHANCE


def test_the_exact_mir_differs_little_over_levels_of_smoothing():
    claim = results.find_claim("info/label-smoothing", "MIR (batches of 64) differs", RUNS)
    assert "not counted: on exact values held" in claim.evidence


def test_pruning_takes_of_mir_only_its_exact_values():
    claim = results.find_claim("info/pruning", "above 0, by MIR", RUNS)
    exact, batch = claim.evidence.split("not counted: on batches of 64")
    before = [float(told.split("pruned at 0.9: ")[1].split(",")[0]) for told in (exact, batch)]
    assert before[0] < 0.9
    assert before[1] > 1


TERMS = ("maximising mutual information", "minimising the entropy difference")


@pytest.mark.parametrize(
    ("method", "term", "fewest"), [(ADDED[0], TERMS[0], 3.2), (ADDED[1], TERMS[1], 3.4)]
)
def test_the_printed_gain_with_ten_labels_lies_outside_and_others_could_not_show(
    method: str, term: str, fewest: float
):
    printed = [gain_in_print(method, column) for column in COLUMNS[:3]]
    ours = [
        interval_of("info/semi-supervised", f"{labels} labels: {term} lowers")
        for labels in (10, 20, 40)
    ]
    assert round(printed[0], 1) == fewest
    assert ours[0].high < printed[0]
    for gain, interval in zip(printed[1:], ours[1:], strict=True):
        assert 0.2 <= gain < 0.35
        assert interval.low < gain
        assert 0.4 < (interval.high - interval.low) / 2 < 0.7
