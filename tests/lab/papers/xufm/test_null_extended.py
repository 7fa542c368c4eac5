"""Null tests of the two-level models, their landscape and perturbed features.

The claims are mathematics that a computation checks. Two of the claims on descents from many starts
are undecided in the real run, so their test begins with made-up descents that bear all of them out.
The tests of the landscape and of perturbed features begin with the real, quick computations.
"""

from collections.abc import Callable, Sequence
from math import exp
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.xufm import landscape, starts
from ncscope.lab.simulations import perturbed
from ncscope.lab.surrogates.extended import ExtendedUFM
from ncscope.lab.surrogates.problem import Point
from ncscope.report.claims import Claim
from tests.lab.observed import results_of
from tests.lab.papers.chance import mixed, not_held, often_held
from tests.lab.papers.xufm.test_landscape import MODEL, SADDLES
from tests.lab.papers.xufm.test_starts import SEEDS, lost, path

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
RUNS = 4
"""Runs on random points, from which the draws take their rows."""
ACTIVATIONS = ("linear", "relu")
"""Activations of the two models."""
METRICS = ("nc1", "nc2_of", "nc3_alignment", "nuclear_cost")
Paths = dict[Any, list[list[Observation]]]


def descents() -> Paths:
    """Descents that arrive, but for one ReLU start that loses a sample."""
    last = {("relu", 9): lost(1)}
    return {
        name: [begun(path(name, seed, **last.get((name, seed), {}))) for seed in SEEDS]
        for name in ACTIVATIONS
    }


def begun(rows: Sequence[Observation]) -> list[Observation]:
    """The descent with the cost of its start, as real starts have it."""
    return [row if row.step else row.with_values({"nuclear_cost": 0.005}) for row in rows]


def claims_on(paths: Paths) -> list[Claim]:
    return starts.claims(paths, "figures 3 and 4")


def moved(paths: Paths, keys: Sequence[str], random: Random) -> Paths:
    """Exchange each metric's values among steps, levels, starts and models."""
    rows = [row for name in ACTIVATIONS for each in paths[name] for row in each]
    for key in keys:
        values = random.sample([row[key] for row in rows], len(rows))
        rows = [row.with_values({key: v}) for row, v in zip(rows, values, strict=True)]
    return shaped_like(paths, rows)


def untrained(paths: Paths, keys: Sequence[str], random: Random) -> Paths:
    """Set metrics to values of the start, but for a few per cent, at both ends of every descent."""
    start = {"objective": 0.6, "nuclear_cost": 0.005, "lost_samples": 0}
    rows = [
        row.with_values({key: start.get(key, 1.0) * exp(random.gauss(0, 0.05)) for key in keys})
        for name in ACTIVATIONS
        for each in paths[name]
        for row in each
    ]
    return shaped_like(paths, rows)


def shaped_like(paths: Paths, rows: Sequence[Observation]) -> Paths:
    """Divide rows into the descents that they came from."""
    left = iter(rows)
    return {name: [[next(left) for _ in each] for each in paths[name]] for name in ACTIVATIONS}


def test_the_descents_bear_out_every_claim() -> None:
    assert not_held(claims_on(descents())) == []


@pytest.mark.parametrize("change", [moved, untrained])
@pytest.mark.parametrize(
    "keys", [("objective", "lost_samples", *METRICS), METRICS], ids=["all", "metrics"]
)
def test_claims_seldom_hold_of_descents_that_mean_nothing(
    change: Callable[[Paths, Sequence[str], Random], Paths], keys: Sequence[str]
) -> None:
    """The metrics mean nothing, and in half of the cases the objectives do not either."""
    found = often_held(lambda random: claims_on(change(descents(), keys, random)))
    on_objectives = ("gradient descent arrives", "for each lost sample")
    kept = () if "objective" in keys else on_objectives
    assert not [text for text in found if not any(part in text for part in kept)]


@pytest.fixture(scope="module")
def around() -> Results:
    return results_of(*landscape.parts(MODEL, rate=0.5, steps=1500, starts=3))


def test_the_landscape_bears_out_every_claim_but_the_papers_remark(around: Results) -> None:
    """The landscape has no non-strict saddle, so the paper's remark holds of no real points."""
    assert not_held(landscape.claims(around)) == [f"not held: {SADDLES}"]


def test_random_points_and_factors_seldom_bear_out_a_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(0)

    def point(model: ExtendedUFM, products: Sequence[float]) -> Point:
        return model.start(generator)

    def factors(product: Tensor, inner: int, *_: Any) -> tuple[Tensor, Tensor]:
        left = torch.randn(len(product), inner, dtype=torch.float64, generator=generator)
        return left, torch.linalg.pinv(left) @ product

    def descent(problem: Any, start: Point, *_: Any) -> list[tuple[int, Point]]:
        return [(1, tuple(10 * torch.randn(p.shape, generator=generator).double() for p in start))]

    monkeypatch.setattr(landscape, "MODELS", landscape.MODELS[-2:])
    monkeypatch.setattr(landscape, "critical_point", point)
    monkeypatch.setattr(landscape, "cheapest_factors", factors)
    monkeypatch.setattr(landscape, "balanced_factors", factors)
    monkeypatch.setattr(landscape, "gradient_descent", descent)
    parts = landscape.parts(MODEL, rate=0.5, steps=1, starts=3)
    runs = [results_of(*parts) for _ in range(RUNS)]
    assert often_held(lambda random: landscape.claims(mixed(runs, random))) == {}


FITS = perturbed.PerturbedConfig(per_class=(10, 100, 1000, 10000), seeds=10)


@pytest.fixture(scope="module")
def fits() -> Results:
    return results_of(*perturbed.STUDY.parts(FITS))


def test_the_fits_bear_out_both_claims(fits: Results) -> None:
    assert not_held(perturbed.STUDY.judge(FITS, fits)) == []


def test_exchanged_sizes_seldom_bear_out_a_claim_on_perturbed_features(fits: Results) -> None:
    """The numbers of samples are exchanged among the fits, seed by seed."""
    assert often_held(lambda random: perturbed.STUDY.judge(FITS, resized(fits, random))) == {}


def resized(fits: Results, random: Random) -> Results:
    rows = []
    for seed in range(FITS.seeds):
        own = [row for row in fits if row["seed"] == seed]
        sizes = random.sample([row["per_class"] for row in own], len(own))
        rows += [row.with_values({"per_class": size}) for row, size in zip(own, sizes, strict=True)]
    return Results(rows)
