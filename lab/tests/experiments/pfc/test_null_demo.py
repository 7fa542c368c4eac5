"""Null tests of the demo, on courses of the size of a real run's.

The first five claims also have a test on exchanged epochs in `test_demo`.
"""

from math import exp
from random import Random

import pytest
from lab.tests.experiments.chance import not_held, often_held
from lab.tests.observed import measured, measurement

from ncscope_lab.experiments.pfc.demo import EXPERIMENT, PART, DemoConfig
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Results

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
CONFIG = DemoConfig()
LAYERS = ("stem", *(f"blocks.{index}" for index in range(8)))
DEEP = {
    "pfc1": (0.65, 0.5, 0.38, 0.28, 0.21, 0.17, 0.1, 0.05, 0.02),
    "pfc2": (0.76, 0.7, 0.63, 0.57, 0.51, 0.46, 0.35, 0.2, 0.12),
    "pfc3": (0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.0, 1.0, 1.0),
}
FALLING = {"nc1": (0.99, 0.006), "nc2_etf": (0.71, 0.12), "nc3_self_duality": (2.0, 0.04)}
"""First and last values in the last layer."""
EPOCHS = (0, 1, 2, 3, 5, 7, 10, 14, 20, 29, 43, 63, 93, 136, 200)
KNOWN = 7
"""Index of the first measured epoch of zero training error."""


def made(random: Random, *, trained: bool = True, exchanged_layers: bool = False) -> Results:
    """A run that collapses, one that stays at its start, or one whose layers are exchanged."""
    deep = {
        key: random.sample(course, len(course)) if exchanged_layers else course
        for key, course in DEEP.items()
    }
    found = []
    for index, epoch in enumerate(EPOCHS):
        share = index / (len(EPOCHS) - 1) if trained else 0.0
        last = {
            key: first * (end / first) ** share * exp(random.gauss(0, 0.05))
            for key, (first, end) in FALLING.items()
        }
        last["accuracy"] = 1.0 if index >= KNOWN else index / (KNOWN + 1)
        last["nc4_disagreement"] = 0.0 if trained and index >= KNOWN else 0.9
        layers = {
            name: {key: course[at] for key, course in deep.items()}
            for at, name in enumerate(LAYERS)
        }
        layers[LAYERS[-1]] |= last
        found.append(measurement(PART, epoch, layers))
    return measured(found)


def claims(results: Results) -> list[Finding]:
    return EXPERIMENT.judge(CONFIG, results)


def test_a_run_that_collapses_bears_out_every_claim() -> None:
    assert not_held(claims(made(Random(0)))) == []


def test_an_untrained_last_layer_seldom_bears_out_a_claim() -> None:
    """Its accuracy is that of a run that learns, without which nothing is judged."""
    assert often_held(lambda random: claims(made(random, trained=False))[1:5]) == {}


def test_exchanged_layers_seldom_bear_out_an_order() -> None:
    assert often_held(lambda random: claims(made(random, exchanged_layers=True))[5:]) == {}
