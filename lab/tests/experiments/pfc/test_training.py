"""PFC figures 2 and 3: a run, every claim seen held and seen not held, the order of layers."""

import numpy as np
import pytest
from lab.tests.experiments.pfc.stories import SMALL, made
from lab.tests.observed import measured, measurement
from scipy.stats import spearmanr

from ncscope.measurement.records import Measurement
from ncscope.models.layers import match_layers
from ncscope.models.networks.catalogue import NAMES, build
from ncscope_lab.experiments.pfc.training import (
    EXPERIMENT,
    count_breaks,
    layer_course,
    name_network,
    rank_correlation,
)
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs
from ncscope_lab.training.settings import Training
from tests.pace import others_slow


def test_the_small_scale_has_eight_seeds_of_two_networks_and_controls_without_decay() -> None:
    networks = Runs.of(SMALL.runs, Results()).group(name_network)
    assert {name: len(runs) for name, runs in networks.items()} == {
        "digits": 8, "patterns": 8, "mnist-5k": 3, "digits, no decay": 3, "patterns, no decay": 3,
    }  # fmt: skip
    assert {run.settings.seed for run in networks["digits"]} == set(range(3, 11))
    for name, runs in networks.items():
        decays = {run.settings.optimisation.weight_decay for run in runs}
        assert decays == {0.0 if "no decay" in name else 5e-4}
    for name in ("digits", "patterns"):
        partners = [run.partner(weight_decay=0.0) for run in networks[name]]
        assert partners[:3] == list(networks[f"{name}, no decay"])


def test_four_blocks_of_one_width_and_more_are_compared_at_the_small_scale() -> None:
    for name, count in (("digits", 8), ("patterns", 7), ("mnist-5k", 10)):
        run = SMALL.runs[f"{name}, seed 3"]
        assert run.layers is not None
        model = build(run.network, 10, in_channels=1, image_size=16)
        assert len(match_layers(model, run.layers)) == count + 1


def test_decay_acts_as_long_as_at_the_paper_s_scale() -> None:
    """The sum of rate x decay / (1 - momentum)."""

    def acted(run: Training, images: int) -> float:
        chosen = run.optimisation
        steps = chosen.epochs * (images // chosen.batch_size)
        first, second = chosen.milestones
        mean_rate = first + (second - first) / 10 + (1 - second) / 100
        rate = chosen.learning_rate * mean_rate
        return steps * rate * chosen.weight_decay / (1 - chosen.momentum)

    paper = EXPERIMENT.scales["paper"].runs
    assert acted(SMALL.runs["digits, seed 3"], 1437) == pytest.approx(5.7, abs=0.05)
    assert acted(SMALL.runs["patterns, seed 3"], 2000) == pytest.approx(2.75, abs=0.05)
    assert acted(SMALL.runs["mnist-5k, seed 3"], 4000) == pytest.approx(1.0, abs=0.05)
    assert acted(paper["cifar10, seed 0"], 50_000) == pytest.approx(2.5, abs=0.05)
    assert acted(paper["mnist, seed 0"], 60_000) == pytest.approx(1.5, abs=0.05)
    assert acted(paper["stl10, seed 0"], 5_000) == pytest.approx(0.25, abs=0.05)


def test_without_controls_nothing_is_said_of_decay() -> None:
    paper = EXPERIMENT.scales["paper"]
    assert not any("without" in claim.text for claim in EXPERIMENT.judge(paper, Results()))


def test_the_rank_correlation_is_spearmans() -> None:
    draws = np.random.default_rng(0)
    for size in range(4, 12):
        course = draws.integers(0, 5, size).astype(float).tolist()
        known = spearmanr(range(size), course).statistic
        assert rank_correlation(course) == pytest.approx(known, abs=1e-12)
        assert rank_correlation([*range(size)]) == 1
        assert rank_correlation([*range(size, 0, -1)]) == -1


ORDER_LAYERS = ("first", "a", "b", "c", "d")


def order_at(epoch: int, pfc1: list[float], pfc2: list[float], pfc3: list[float]) -> Measurement:
    values = zip(ORDER_LAYERS, pfc1, pfc2, pfc3, strict=True)
    metrics = {name: {"pfc1": x, "pfc2": y, "pfc3": z} for name, x, y, z in values}
    # The first layer has another dimension, and no position.
    positions = (0.0, 0.3, 0.6, 1.0)
    return measurement(
        "run", epoch, metrics, comparable=ORDER_LAYERS[1:], relative_position=positions
    )


def test_the_order_ends_at_the_effective_depth_of_each_epoch() -> None:
    results = measured(
        [
            order_at(0, [9, 1, 2, 3, 4], [9, 4, 3, 5, 2], [0, 0.5, 0.6, 0.7, 0.8]),
            order_at(7, [9, 4, 3, 2, 1], [9, 4, 5, 3, 9], [0, 0.5, 0.4, 1.0, 0.9]),
        ]
    )
    run = Runs.of({}, results).find("run")
    assert layer_course("pfc2", run, 0) == [4, 3, 5, 2]
    assert layer_course("pfc2", run) == [4, 5, 3]
    counts = [count_breaks(key, layer_course(key, run)) for key in ("pfc1", "pfc2", "pfc3")]
    assert counts == ["0 of 2", "1 of 2, 1", "1 of 2, 0.1"]


def test_tables_show_the_strict_order_the_last_layer_and_the_paths() -> None:
    order, collapse, paths = EXPERIMENT.summarise(SMALL, made())
    assert order.lines["digits, seed 3"] == ["0 of 4"] * 6
    assert collapse.columns[2:4] == ["PFC2, zero error", "PFC2, end"]
    assert collapse.lines["digits, seed 3"] == ["0.402", "0.309", "0.402", "0.309", "1", "1"]
    assert list(collapse.lines) == list(paths.lines) == list(order.lines)
    assert sorted(collapse.lines) == sorted(SMALL.runs)
    line = ["0.597", "0.967", "0.941", "1", "0.9", "0.5", "0.7", "0.07", "0.7"]
    assert paths.lines["digits, seed 3"] == line


def test_the_paper_s_scale_is_the_paper_s() -> None:
    paper = EXPERIMENT.scales["paper"]
    networks = Runs.of(paper.runs, Results()).group(name_network)
    assert list(networks) == ["mnist", "fashion-mnist", "cifar10", "stl10", "cifar100"]
    assert len(EXPERIMENT.parts(paper)) == 15
    for part, run in paper.runs.items():
        name = part.split(", seed ")[0]
        assert (run.data, run.network) == (name, f"pfc-{name}")
        assert run.network in NAMES
        chosen = run.optimisation
        assert (chosen.epochs, chosen.batch_size, chosen.weight_decay) == (350, 128, 5e-4)
        assert [round(share * 350) for share in chosen.milestones] == [117, 233]
        assert chosen.learning_rate == (0.005 if name == "mnist" else 0.01)


@pytest.mark.parametrize(
    ("name", "count"),
    others_slow(
        [("mnist", 11), ("fashion-mnist", 5), ("cifar10", 5), ("stl10", 6), ("cifar100", 5)],
        ("mnist", 11),
        ("cifar10", 5),
    ),
)
def test_the_paper_s_layers_are_h0_and_the_last_stage_s_blocks(name: str, count: int) -> None:
    run = EXPERIMENT.scales["paper"].runs[f"{name}, seed 0"]
    assert run.layers is not None
    model = build(run.network, 10, in_channels=1, image_size=28)
    assert len(match_layers(model, run.layers)) == count
