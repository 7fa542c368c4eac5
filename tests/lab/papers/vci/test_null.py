"""Null tests: on values exchanged at random, a claim holds in at most 4 of 40 draws."""

from collections import Counter
from collections.abc import Callable, Sequence
from math import exp
from random import Random

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.vci.checkpoints import TEMPERATURE, Checkpoint, printed
from ncscope.lab.papers.vci.imagenet import RECIPE as IMAGENET
from ncscope.lab.papers.vci.training import RECIPE as TRAINING
from ncscope.lab.papers.vci.transfer import claims_on
from ncscope.lab.runs.recipe import Recipe
from ncscope.report.claims import Claim
from tests.lab.papers.vci.courses import COURSES, EPOCHS, made

DRAWS, MOST = 40, 4
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
"""Measured epochs of a run, as at the small scale: all four that claims see are drawn from them."""

NEVER = (
    "there is a setting in which",
    "falls further for",
    "the share of the variance",
)
"""Beginnings or parts of claims that these courses do not bear out, in any order of the epochs."""


def held(claims: Callable[[Random], Sequence[Claim]]) -> Counter[str]:
    """Count the draws in which each claim holds."""
    counts: Counter[str] = Counter()
    for draw in range(DRAWS):
        counts.update(claim.text for claim in claims(Random(draw)) if claim.held)
    return counts


def exchanged(runs: Sequence[str], random: Random, *, in_order: bool = False) -> Results:
    """Make courses of the size of real ones, whose values are exchanged among a run's epochs.

    In order, squared error ends lower than cross-entropy.
    """
    changed = {}
    for run in runs:
        for split in ("train", "test"):
            for key in COURSES:
                first, last = FIRST_AND_LAST[key]
                if in_order and run.startswith("MSE"):
                    last /= 2
                share = [index / (MEASURED - 1) for index in range(MEASURED)]
                course = [first * (last / first) ** at * exp(random.gauss(0, 0.03)) for at in share]
                if not in_order:
                    random.shuffle(course)
                changed[run, split, key] = course[:: MEASURED // (len(EPOCHS) - 1)]
    return made(runs, changed)


@pytest.mark.parametrize("recipe", [TRAINING, IMAGENET], ids=lambda one: one.id)
def test_exchanged_epochs_seldom_bear_out_a_claim(recipe: Recipe) -> None:
    config = recipe.scales["small"]
    runs = list(config.runs)

    def claims(random: Random) -> list[Claim]:
        return recipe.judge(config, exchanged(runs, random))

    assert not {text: count for text, count in held(claims).items() if count > MOST}


@pytest.mark.parametrize("recipe", [TRAINING, IMAGENET], ids=lambda one: one.id)
def test_the_same_courses_in_order_bear_the_claims_out(recipe: Recipe) -> None:
    config = recipe.scales["small"]
    runs = list(config.runs)
    results = exchanged(runs, Random(0), in_order=True)
    failed = [claim.text for claim in recipe.judge(config, results) if not claim.held]
    assert not [text for text in failed if not any(part in text for part in NEVER)]


def of_three_seeds(group: Sequence[Checkpoint], random: Random) -> list[Checkpoint]:
    """Copy the printed checkpoints for three seeds, with noise, and exchange them at random.

    The metrics, the probes and the pretraining accuracies are exchanged among the settings.
    """
    found = []
    for seed in range(3):
        parts = [
            [one.metrics for one in group],
            [one.accuracy for one in group],
            [one.downstream for one in group],
        ]
        for part in parts:
            random.shuffle(part)
        for one, metrics, accuracy, downstream in zip(group, *parts, strict=True):
            noisy = {key: value * exp(random.gauss(0, 0.01)) for key, value in metrics.items()}
            found.append(Checkpoint(one.value, seed, noisy, accuracy, downstream))
    return found


def test_exchanged_checkpoints_seldom_bear_out_a_claim() -> None:
    def claims(random: Random) -> list[Claim]:
        groups = printed()
        assert TEMPERATURE in groups
        return claims_on({name: of_three_seeds(group, random) for name, group in groups.items()})

    assert not {text: count for text, count in held(claims).items() if count > MOST}
