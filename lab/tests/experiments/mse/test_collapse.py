"""Collapse under MSE: every claim seen held and seen not held, every figure drawn, table 1."""

from statistics import mean, median

import pytest
from lab.tests.experiments.mse.stories import COLLAPSE_SETTINGS, of_collapse

from ncscope_lab.experiments.mse.collapse import (
    ACCURACIES,
    EXPERIMENT,
    MEAN_GAIN,
    MEDIAN_GAIN,
    PAPER,
)
from ncscope_lab.experiments.mse.networks import (
    name_network,
)
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs


def test_table_1_has_our_numbers_and_the_printed_ones() -> None:
    (table,) = EXPERIMENT.summarise(COLLAPSE_SETTINGS, of_collapse())
    assert table.lines["digits, VGG"] == ["90.00", "95.00", "+5.00", "", "", ""]
    assert table.lines["svhn, DenseNet"] == ["", "", "", "95.61", "95.23", "-0.38"]
    assert table.lines["median gain"] == ["", "", "+5.000", "", "", "+0.962"]
    (empty,) = EXPERIMENT.summarise(COLLAPSE_SETTINGS, Results())
    assert empty.lines["digits, VGG"] == [""] * 6


def test_the_printed_accuracies_are_of_the_papers_networks_with_the_gains_of_the_caption() -> None:
    assert set(Runs.of(PAPER.runs, Results()).group(name_network)) == set(ACCURACIES)
    gains = [final - zero for zero, final in ACCURACIES.values()]
    assert median(gains) == pytest.approx(MEDIAN_GAIN, abs=0.005)
    assert mean(gains) == pytest.approx(MEAN_GAIN, abs=0.005)
