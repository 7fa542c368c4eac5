"""XUFM figures 1-2 and 6-7: every claim seen held, not held, and seldom held of random points."""

import math
from collections.abc import Collection, Iterator
from random import Random

import pytest
import torch
from lab.tests.experiments.chance import mixed, not_held, often_held
from lab.tests.observed import changed, experiment_results, results_of
from pydantic import ValidationError

from ncscope_lab.experiments.models import descents
from ncscope_lab.experiments.xufm import ufm
from ncscope_lab.experiments.xufm.ufm import (
    DECAYS,
    EXPERIMENT,
    NO_DECAYS,
    RELU,
    SWEEP,
    XUFMConfig,
)
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Observation, Results
from ncscope_lab.surrogates import descent as descent_of
from ncscope_lab.surrogates.descent import SolverResult
from ncscope_lab.surrogates.problem import Point, Problem

RUNS = 8
"""Runs on random points, from which the draws take their rows."""
STARTS = (DECAYS, NO_DECAYS, RELU)
COMPARED = (
    *("the minimiser is a simplex exactly", "the solver's objective and mean"),
    *("With decays", "Without decays", "With a ReLU"),
)
"""Parts of the claims that compare settings or models."""


@pytest.fixture
def small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def make_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ufm, "SIZES", ((3, 12, 8, 0.05, 0.02),))
    patch.setattr(ufm, "RATE", 1.0)


def brief(steps: int = 1000) -> XUFMConfig:
    """Settings of a short run, with bias decays on both sides of the threshold."""
    shares = (0.05, 0.1, 0.5, 0.99, 1.01, 2, 5, 10)
    decays = tuple(share * ufm.threshold() for share in shares)
    return XUFMConfig(
        settings="first", first_steps=steps, every=steps, starts=6, bias_decays=decays
    )


@pytest.fixture(scope="module")
def real() -> Results:
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return experiment_results(EXPERIMENT, brief())  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.usefixtures("small_model")
def test_the_results_bear_out_every_claim(real: Results) -> None:
    claims = EXPERIMENT.judge(brief(), real)
    assert len(claims) == 4 + 5 + 3 + 3
    assert not_held(claims) == []
    drawings = EXPERIMENT.draw(brief(), real)
    assert [drawing.name for drawing in drawings] == ["fig-1", "fig-2", "bias-decay"]
    assert [len(drawing.figure.axes) for drawing in drawings] == [4, 4, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("small_model")
@pytest.mark.parametrize(
    ("part", "key", "value", "which"),
    [
        ("K = 3, no bias", "objective", 0.9, "K = 3, no bias: Gradient descent arrives"),
        ("K = 3, free bias", "mean_share", 0.1, "K = 3, free bias: The global mean"),
        (SWEEP, "nc2_etf", 1e-3, "Regularised bias: centred means"),
        (SWEEP, "nc3_alignment", 1e-3, "Regularised bias: centred means"),
        (SWEEP, "bias_decay", 0.01, "Regularised bias: the minimiser is a simplex"),
        (SWEEP, "objective", 0.9, "Regularised bias: the solver's objective"),
        (SWEEP, "stated_mean_share", 0.9, "Regularised bias: the solver's objective"),
        (DECAYS, "nc1", 0.5, "With decays"),
        (DECAYS, "objective", 0.9, "With decays"),
        (NO_DECAYS, "nc1", 1e-6, "Without decays"),
        (NO_DECAYS, "objective", 0.1, "Without decays"),
        (RELU, "nc1", 1e-6, "With a ReLU"),
        (RELU, "objective", 0.49, "With a ReLU"),
    ],
)
def test_each_claim_can_fail(real: Results, part: str, key: str, value: float, which: str) -> None:
    wrong = Results(changed(row, **{key: value}) if row.part == part else row for row in real)
    (failed,) = [claim.text for claim in EXPERIMENT.judge(brief(), wrong) if not claim.held]
    assert failed.startswith(which)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures", "small_model")
def test_random_points_seldom_bear_out_a_claim(
    real: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    randomly(monkeypatch, torch.Generator().manual_seed(0))
    runs = [results_of(*EXPERIMENT.parts(brief(steps=1))) for _ in range(RUNS)]
    assert often_held(lambda random: EXPERIMENT.judge(brief(), mixed(runs, random))) == {}


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

    patch.setattr(descents, "gradient_descent", descent)
    patch.setattr(descents, "quasi_newton", solver)
    patch.setattr(descent_of, "gradient_descent", descent)


@pytest.mark.slow
@pytest.mark.usefixtures("small_model")
def test_exchanged_settings_and_models_seldom_bear_out_a_comparison(real: Results) -> None:
    def claims(random: Random) -> list[Finding]:
        rows = with_exchanged_settings(list(real), random)
        found = EXPERIMENT.judge(brief(), Results(with_exchanged_models(rows, random)))
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
    moved = random.sample([dict(row.values) for row in ends], len(ends))
    seeds = [row["seed"] for row in ends]
    return others + [
        row.with_values({**values, "seed": seed})
        for row, values, seed in zip(ends, moved, seeds, strict=True)
    ]


def test_scales_differ_in_the_settings_alone() -> None:
    small, paper = (EXPERIMENT.scales[scale] for scale in ("small", "paper"))
    assert small == paper.model_copy(update={"settings": "first"})
    names = [f"K = {k}, {bias}" for k in (4, 10) for bias in ("no bias", "free bias")]
    assert [part.name for part in EXPERIMENT.parts(paper)] == [*names, SWEEP, *STARTS]


def test_decays_of_the_bias_are_positive() -> None:
    for wrong in (0.0, math.inf, math.nan):
        with pytest.raises(ValidationError, match=r"bias_decays\n.*every value greater than 0"):
            XUFMConfig(bias_decays=(0.1, wrong))


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
def test_all_claims_hold_at_the_papers_scale() -> None:
    paper = EXPERIMENT.scales["paper"]
    results = results_of(*EXPERIMENT.parts(paper))
    assert not_held(EXPERIMENT.judge(paper, results)) == []
    names = [drawing.name for drawing in EXPERIMENT.draw(paper, results)]
    assert names == ["fig-1", "fig-2", "fig-6", "fig-7", "bias-decay"]
