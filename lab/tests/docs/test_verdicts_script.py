"""The script that writes the verdicts of a run, and those of the experiment that it serves."""

import pytest

from ncscope_lab.catalogue import find_experiment
from tests.docs.pages import load_script

SERVES = load_script("verdicts").SERVES


@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize(("name", "other"), SERVES.items())
def test_a_run_that_serves_two_experiments_trains_the_networks_of_both(
    name: str, other: str, scale: str
) -> None:
    ours, theirs = (find_experiment(each).configure(scale) for each in (name, other))
    assert ours.runs == theirs.runs
    assert ours.rates == theirs.rates
