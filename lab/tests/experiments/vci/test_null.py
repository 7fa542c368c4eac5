"""Null tests: of what means nothing, a claim of VCI holds in at most 4 of 40 draws.

Exchanged epochs and untrained networks for the courses, exchanged and equal checkpoints for
transfer; the same numbers in their order bear the claims out.
"""

from math import exp
from random import Random
from typing import Any

import pytest
from lab.tests.experiments.chance import not_held, often_held
from lab.tests.experiments.vci.checkpoints import from_tables
from lab.tests.experiments.vci.courses import COURSES, made

from ncscope_lab.experiment import Experiment
from ncscope_lab.experiments.vci.imagenet import EXPERIMENT as IMAGENET
from ncscope_lab.experiments.vci.training import EXPERIMENT as TRAINING
from ncscope_lab.experiments.vci.transfer import EXPERIMENT as TRANSFER
from ncscope_lab.experiments.vci.transfer import PAPER
from ncscope_lab.experiments.vci.variability_runs import name_setting
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Observation, Results

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]

FIRST_AND_LAST = {
    "fuzziness": (27.5, 3.8),
    "nc1_quotient": (3.1, 0.98),
    "cosine_within": (0.32, 0.18),
    "vci": (0.40, 0.17),
    "within_in_signal": (28.1, 20.4),
    "within_off_signal": (12.9, 19.2),
    "accuracy": (0.6, 0.99),
}
"""Values of networks of the small scale at the first and at the last measurement."""

MEASURED = 13
"""Measured epochs of a run."""

NEVER = ("there is a setting in which", "over the untrained network's")
"""Beginnings or parts of claims that these courses do not bear out, in any order of the epochs."""

BOTH = pytest.mark.parametrize("experiment", [TRAINING, IMAGENET], ids=lambda each: each.id)


def judge(experiment: Experiment[Any], results: Results) -> list[Finding]:
    return experiment.judge(experiment.scales["small"], results)


def draw_courses(
    experiment: Experiment[Any], random: Random, *, order: bool = False, flat: bool = False
) -> Results:
    """Make courses of the size of real ones, whose values are exchanged among a run's epochs.

    In order, squared error ends lower than cross-entropy. Flat ones stay at their first value.
    """
    changed = {}
    for run in experiment.scales["small"].runs:
        for split in ("train", "test"):
            for key, (first, last) in FIRST_AND_LAST.items():
                end = first if flat else last / 2 if order and run.startswith("MSE") else last
                share = [index / (MEASURED - 1) for index in range(MEASURED)]
                course = [first * (end / first) ** at * exp(random.gauss(0, 0.03)) for at in share]
                if not order:
                    random.shuffle(course)
                changed[run, split, key] = course
    return made(list(experiment.scales["small"].runs), changed)


@BOTH
@pytest.mark.parametrize("flat", [False, True], ids=["exchanged", "untrained"])
def test_courses_that_mean_nothing_seldom_bear_out_a_claim(experiment, flat: bool) -> None:
    assert (
        often_held(lambda random: judge(experiment, draw_courses(experiment, random, flat=flat)))
        == {}
    )


@BOTH
def test_the_same_courses_in_order_bear_the_claims_out(experiment) -> None:
    findings = judge(experiment, draw_courses(experiment, Random(0), order=True))
    possible = [each for each in findings if not any(part in each.text for part in NEVER)]
    assert not_held(possible) == []


def test_other_courses_bear_out_the_other_claims() -> None:
    """Distances rise in one setting, and fall further for many classes."""
    random, changed = Random(0), {}
    runs = list(TRAINING.scales["small"].runs)
    for run in runs:
        for key in COURSES:
            first, last = FIRST_AND_LAST[key]
            if run.startswith("cosine, no decay") and key in ("nc1_quotient", "cosine_within"):
                first, last = last, first
            if run.startswith("100 classes, seed") and key != "accuracy":
                last /= 9 if key == "within_off_signal" else 3
            slope = random.gauss(1, 0.15)
            share = [slope * index / (MEASURED - 1) for index in range(MEASURED)]
            course = [first * (last / first) ** at * exp(random.gauss(0, 0.03)) for at in share]
            changed[run, "train", key] = changed[run, "test", key] = course
    findings = judge(TRAINING, made(runs, changed))
    others = [each for each in findings if any(part in each.text for part in NEVER)]
    assert len(others) == 5
    assert not_held(others) == []


def add_noise(size: float, random: Random, row: Observation) -> Observation:
    return row.with_values({key: x * exp(random.gauss(0, size)) for key, x in row.values.items()})


def exchange(random: Random) -> Results:
    """Exchange metrics, pretraining accuracies and probes among the settings, for each seed."""
    orders: dict[tuple[str, str, str], list[str]] = {}

    def source(run: str, split: str) -> str:
        setting, _, seed = run.partition(", seed ")
        group, kind = setting.rpartition(" ")[0], split if split in ("train", "test") else "probes"
        settings = list(dict.fromkeys(map(name_setting, PAPER.runs)))
        members = [name for name in settings if name.startswith(group)]
        if (group, seed, kind) not in orders:
            orders[group, seed, kind] = random.sample(members, len(members))
        return orders[group, seed, kind][members.index(setting)]

    def change(row: Observation) -> Observation:
        return add_noise(0.01 if row.split == "train" else 0, random, row)

    return from_tables(change, source)


def equal(random: Random) -> Results:
    """Every checkpoint of a group is the group's first, but for a tenth of a per cent."""
    first = {"temperature": "temperature 0.1", "cosine penalty": "cosine penalty 2.5"}

    def source(run: str, split: str) -> str:
        return first[name_setting(run).rpartition(" ")[0]]

    return from_tables(lambda row: add_noise(0.001, random, row), source)


@pytest.mark.parametrize("draw", [exchange, equal])
def test_checkpoints_that_mean_nothing_seldom_bear_out_a_claim(draw) -> None:
    assert often_held(lambda random: TRANSFER.judge(PAPER, draw(random))) == {}


def test_the_paper_s_checkpoints_bear_the_claims_out() -> None:
    results = from_tables(lambda row: add_noise(0.001, Random(repr(row)), row))
    assert not_held(TRANSFER.judge(PAPER, results)) == []
