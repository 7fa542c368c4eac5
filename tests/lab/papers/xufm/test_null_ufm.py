"""Null tests of the plain model: its claims seldom hold of random points or exchanged settings.

The claims are mathematics that a computation checks. In place of the points that the solvers reach,
the recipe measures random points. Claims that compare settings or models are also tested on results
that are exchanged among settings or models.
"""

from collections.abc import Collection, Iterator
from random import Random

import pytest
import torch

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.xufm import plain_starts, ufm
from ncscope.lab.papers.xufm.ufm import RECIPE, SWEEP, XUFMConfig
from ncscope.lab.simulations import ufm as simulation
from ncscope.lab.surrogates.descent import SolverResult
from ncscope.lab.surrogates.problem import Point, Problem
from ncscope.report.claims import Claim
from tests.lab.observed import results_of
from tests.lab.papers.chance import mixed, not_held, often_held

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
RUNS = 8
"""Runs on random points, from which the draws take their rows."""
STARTS = (plain_starts.DECAYS, plain_starts.NO_DECAYS, plain_starts.RELU)
COMPARED = (
    *("the minimiser is a simplex exactly", "the solver's objective and mean"),
    *("With decays", "Without decays", "With a ReLU"),
)
"""Parts of the claims that compare settings or models."""


@pytest.fixture(scope="module", autouse=True)
def _small_model() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ufm, "SIZES", ((3, 12, 8, 0.05, 0.02),))
        patch.setattr(ufm, "FIRST", simulation.UFMConfig(rate=1.0))
        yield


def config(steps: int = 1000) -> XUFMConfig:
    """Settings of a short run, with bias decays on both sides of the threshold."""
    shares = (0.05, 0.1, 0.5, 0.99, 1.01, 2, 5, 10)
    decays = tuple(share * ufm.threshold() for share in shares)
    return XUFMConfig(
        settings="first", first_steps=steps, every=steps, starts=6, bias_decays=decays
    )


@pytest.fixture(scope="module")
def real(_small_model: None) -> Results:
    return results_of(*RECIPE.parts(config()))


def test_the_results_bear_out_every_claim(real: Results) -> None:
    claims = RECIPE.judge(config(), real)
    assert len(claims) == 4 + 5 + 3 + 3
    assert not_held(claims) == []


def test_random_points_seldom_bear_out_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    randomly(monkeypatch, torch.Generator().manual_seed(0))
    runs = [results_of(*RECIPE.parts(config(steps=1))) for _ in range(RUNS)]
    assert often_held(lambda random: RECIPE.judge(config(), mixed(runs, random))) == {}


def randomly(patch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    """Let the solvers return random points with entries of deviations between 0.1 and 1."""

    def like(start: Point) -> Point:
        deviation = 10 ** -float(torch.rand((), generator=generator))
        return tuple(
            deviation * torch.randn(part.shape, dtype=torch.float64, generator=generator)
            for part in start
        )

    def descent(
        problem: Problem, start: Point, rate: float, record: Collection[int]
    ) -> Iterator[tuple[int, Point]]:
        return ((step, like(start)) for step in record)

    def solver(problem: Problem, start: Point) -> SolverResult:
        return SolverResult(like(start), 0.0, 0.0, 1)

    patch.setattr(simulation, "gradient_descent", descent)
    patch.setattr(simulation, "quasi_newton", solver)
    patch.setattr(plain_starts, "gradient_descent", descent)


def test_exchanged_settings_and_models_seldom_bear_out_a_comparison(real: Results) -> None:
    def claims(random: Random) -> list[Claim]:
        rows = with_exchanged_settings(list(real), random)
        found = RECIPE.judge(config(), Results(with_exchanged_models(rows, random)))
        compared = [claim for claim in found if any(part in claim.text for part in COMPARED)]
        assert len(compared) == len(COMPARED)
        return compared

    assert often_held(claims) == {}


def with_exchanged_settings(rows: list[Observation], random: Random) -> list[Observation]:
    """Exchange what the closed form states, and the settings, among the rows of the sweep."""
    keys = ("bias_decay", "stated_mean_share", "minimum")
    sweep = [row for row in rows if row.part == SWEEP]
    moved = {key: random.sample([row[key] for row in sweep], len(sweep)) for key in keys}
    others = [row for row in rows if row.part != SWEEP]
    return others + [
        row.with_values({key: values[index] for key, values in moved.items()})
        for index, row in enumerate(sweep)
    ]


def with_exchanged_models(rows: list[Observation], random: Random) -> list[Observation]:
    """Exchange the ends of the descents among the models with decays, without, and with a ReLU."""
    ends = [row for row in rows if row.part in STARTS]
    others = [row for row in rows if row.part not in STARTS]
    moved = random.sample([row.values for row in ends], len(ends))
    return others + [row.with_values(values) for row, values in zip(ends, moved, strict=True)]
