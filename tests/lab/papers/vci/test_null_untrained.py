"""Null tests: of networks that learn nothing, a claim of VCI holds in at most 4 of 40 draws.

`test_null` draws exchanged epochs. Its courses, like the real networks, do not bear out some of the
claims; here other courses do, so that these claims could be held by chance.
"""

from math import exp
from random import Random

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.vci.checkpoints import Checkpoint, printed
from ncscope.lab.papers.vci.imagenet import RECIPE as IMAGENET
from ncscope.lab.papers.vci.training import RECIPE as TRAINING
from ncscope.lab.papers.vci.transfer import claims_on
from ncscope.lab.runs.recipe import Recipe
from ncscope.report.claims import Claim
from tests.lab.papers.chance import not_held, often_held
from tests.lab.papers.vci.courses import COURSES, EPOCHS, made
from tests.lab.papers.vci.test_null import FIRST_AND_LAST, NEVER

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
SMALL = TRAINING.scales["small"]
RISING, MANY = "cosine, no decay", "100 classes"
"""Beginnings of the names of runs whose distances rise, and of runs for many classes."""


def flat(recipe: Recipe, random: Random) -> Results:
    """Courses that stay at their first value, but for a few per cent."""
    changed = {
        (run, split, key): [FIRST_AND_LAST[key][0] * exp(random.gauss(0, 0.03)) for _ in EPOCHS]
        for run in recipe.scales["small"].runs
        for split in ("train", "test")
        for key in COURSES
    }
    return made(list(recipe.scales["small"].runs), changed)


@pytest.mark.parametrize("recipe", [TRAINING, IMAGENET], ids=lambda one: one.id)
def test_untrained_networks_seldom_bear_out_a_claim(recipe: Recipe) -> None:
    small = recipe.scales["small"]
    assert often_held(lambda random: recipe.judge(small, flat(recipe, random))) == {}


def as_the_paper_tells(random: Random) -> Results:
    """Courses in which distances rise in one setting, and fall further for many classes."""
    changed = {}
    for run in SMALL.runs:
        for key in COURSES:
            first, last = FIRST_AND_LAST[key]
            if run.startswith(RISING) and key in ("nc1_quotient", "cosine_within"):
                first, last = last, first
            if run.startswith(MANY) and key != "accuracy":
                last /= 9 if key == "within_off_signal" else 3
            slope = random.gauss(1, 0.15)
            share = [slope * index / (len(EPOCHS) - 1) for index in range(len(EPOCHS))]
            course = [first * (last / first) ** at * exp(random.gauss(0, 0.03)) for at in share]
            changed[run, "train", key] = course
    return made(list(SMALL.runs), changed)


def test_other_courses_bear_out_the_claims_that_those_of_test_null_do_not() -> None:
    claims = TRAINING.claims(SMALL, as_the_paper_tells(Random(0)))
    found = [claim for claim in claims if any(part in claim.text for part in NEVER)]
    assert len(found) == 5
    assert not_held(found) == []


def on_checkpoints(random: Random, *, trained: bool) -> list[Claim]:
    """Test the claims on the printed checkpoints for three seeds, or on ones that are all alike."""
    groups = {}
    for name, group in printed().items():
        groups[name] = [
            Checkpoint(
                one.value,
                seed,
                {key: near(value, random) for key, value in like.metrics.items()},
                near(like.accuracy, random),
                {key: near(value, random) for key, value in like.downstream.items()},
            )
            for seed in range(3)
            for one in group
            for like in (one if trained else group[0],)
        ]
    return claims_on(groups)


def near(value: float, random: Random) -> float:
    """The value but for a tenth of a per cent."""
    return value * exp(random.gauss(0, 0.001))


def test_checkpoints_that_are_all_alike_seldom_bear_out_a_claim() -> None:
    assert not_held(on_checkpoints(Random(0), trained=True)) == []
    assert often_held(lambda random: on_checkpoints(random, trained=False)) == {}
