"""Table 1 as transcribed agrees with the improvements in its caption."""

from statistics import mean, median

import pytest

from ncscope.lab.papers.mse.printed import ACCURACIES, MEAN_GAIN, MEDIAN_GAIN
from ncscope.lab.papers.mse.training import MSETraining, by_network, paper_runs


def test_the_gains_are_those_of_the_caption() -> None:
    gains = [one.gain for one in ACCURACIES.values()]
    assert median(gains) == pytest.approx(MEDIAN_GAIN, abs=0.005)
    assert mean(gains) == pytest.approx(MEAN_GAIN, abs=0.005)


def test_every_network_has_a_printed_accuracy() -> None:
    config = MSETraining(runs=paper_runs(("mse",), ()))
    assert set(by_network(config, dict.fromkeys(config.runs, 0))) == set(ACCURACIES)
