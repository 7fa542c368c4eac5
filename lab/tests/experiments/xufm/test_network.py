"""XUFM figures 5 and 10: levels, errors that come back, borders, and the paper's scale."""

import math

import pytest
from lab.tests.experiments.xufm.stories import CE, MSE, made

from ncscope.models.layers import match_layers
from ncscope.models.networks.catalogue import NAMES, build
from ncscope_lab.experiments.xufm.network import (
    EXPERIMENT,
    find_border,
    list_returns,
    name_levels,
    tell_returns,
)
from ncscope_lab.quantities import Runs

SMALL = EXPERIMENT.scales["small"]
FIRST = next(iter(SMALL.runs))


def test_the_map_of_the_last_block_is_not_a_level() -> None:
    first = EXPERIMENT.collect(SMALL, made()).find(FIRST)
    assert name_levels(first) == ["block 1", "block 2", "classifier's input"]


def test_errors_that_come_back_are_told_with_the_loss():
    runs = EXPERIMENT.collect(SMALL, made(name=MSE, accuracy=(0.1, 1.0, 0.99)))
    own = runs.where(loss="mse", data="digits")
    for run in own:
        ((row, rise),) = list_returns(run)
        assert row.epoch == 60
        assert rise == pytest.approx(7, rel=1e-5)
    assert tell_returns(own) == (
        "training error comes back in 8 of 8 networks, at epochs 60 to 60, accuracy 0.990 at "
        "worst; in training mode the loss rises there more than 5 times at 8 of 8 measurements"
    )
    others = runs.where(loss="cross-entropy")
    assert tell_returns(others) == "training error comes back in 0 of 8 networks"


def test_borders_in_the_figure_are_those_of_the_claims():
    runs = EXPERIMENT.collect(SMALL, made())
    for name, frame, duality in (
        (MSE, "nc2_of", "nc3_alignment"),
        (CE, "nc2_etf", "nc3_self_duality"),
    ):
        own = Runs(run for run in runs if run.name.startswith(name))
        first = Runs(own[:1])
        (past,) = (row for row in own[0].path() if row.epoch == 10)
        assert find_border(first, "nc1", "nc1") == pytest.approx(0.1 * past["nc1"])
        for key, metric in ((frame, frame), ("nc3", duality)):
            start = own[0].path()[0][metric]
            assert find_border(first, key, metric) == pytest.approx(start / 2)
    assert math.isnan(find_border(own, "nc2_of", "nc2_of"))


def test_the_paper_s_scale_is_the_paper_s() -> None:
    paper = EXPERIMENT.scales["paper"]
    assert len(EXPERIMENT.parts(paper)) == 4 * 3 + 2
    assert [(run.data, run.loss) for run in paper.runs.values()] == [
        (data, loss)
        for data in ("mnist", "cifar10")
        for loss in ("mse", "cross-entropy")
        for _ in range(3)
    ]
    assert [run.seed for run in paper.runs.values()] == [0, 1, 2] * 4
    for run in (*paper.runs.values(), *SMALL.runs.values()):
        assert run.bias == (run.loss == "cross-entropy")
    for run in paper.runs.values():
        assert run.network in NAMES
        chosen = run.optimisation
        assert (chosen.learning_rate, chosen.weight_decay, chosen.decay) == (0.05, 5e-4, 0.1)
        assert [share * chosen.epochs for share in chosen.milestones] == [40, 80]
    blocks = match_layers(build("resnet18", 10), paper.blocks)
    assert blocks == ["layer1", "layer2", "layer3", "layer4"]
