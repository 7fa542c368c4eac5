"""Claims over random starts, of the two-level models and of the plain model."""

from typing import Any

import pytest

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.xufm import plain_starts, starts
from ncscope.lab.surrogates.extended import Activation
from ncscope.report.claims import Claim
from tests.lab.observed import changed, observed, results_of

N = 200
SEEDS = range(10)


def path(activation: Activation, seed: int, **last: float) -> list[Observation]:
    """A descent that arrives, unless some of its last numbers are changed."""
    relu = activation == "relu"
    ends: dict[str, Any] = {"H1": 0.4 if relu else 1e-8, "H2": 1e-6}
    rows = []
    for step in (0, 100):
        for level in ("H1", "H2"):
            row = {
                "step": step,
                "layer": level,
                "objective": 0.06 if step else 0.6,
                "minimum": 0.06,
                "nc1": 10 ** -((4.0 if relu and level == "H1" else 8.0) + 0.1 * seed)
                if step
                else 1.0,
                "nc2_of": ends[level] * (1 + 0.1 * seed) if step else 1.0,
                "nc3_alignment": 1e-5 * (1 + seed) if step else 1.0,
                "nuclear_cost": 1e-9,
                "lost_samples": 0,
                "samples": N,
            }
            rows.append(row | (last if step else {}))
    return list(observed(rows))


def claims(**changes: dict[int, dict[str, float]]) -> list[Claim]:
    return starts.claims(
        {
            name: [path(name, seed, **changes.get(name, {}).get(seed, {})) for seed in SEEDS]
            for name in ("linear", "relu")
        },
        "figures 3 and 4",
    )


def failing(found: list[Claim]) -> list[str]:
    return [f"{claim.text[:30]}: {claim.verdict}" for claim in found if not claim.held]


def lost(samples: int) -> dict[str, float]:
    return {"objective": 0.06 + 0.97 * samples / (2 * N), "lost_samples": samples, "nc2_of": 0.3}


def test_all_claims_hold_where_every_start_arrives() -> None:
    assert len(claims()) == 14
    assert failing(claims()) == []
    assert {claim.source.split(",")[0] for claim in claims()} == {"XUFM", "ours"}


def test_the_share_of_starts_that_arrive_is_judged() -> None:
    few = claims(relu={seed: lost(1 + seed % 2) for seed in range(1, 10)})
    most = "ReLU: gradient descent arrives"
    assert next(claim for claim in few if claim.text.startswith(most)).verdict == "not held"
    half = claims(relu={seed: lost(1) for seed in range(5)})
    assert failing(half) == [f"{most}: undecided"]
    assert "5 of 10 starts" in next(c for c in half if c.text.startswith(most)).evidence


def test_an_excess_that_no_lost_sample_explains_is_seen() -> None:
    found = claims(relu={0: lost(1) | {"lost_samples": 0}})
    assert failing(found) == ["ReLU: every start ends above t: not held"]


@pytest.mark.parametrize(
    ("activation", "last", "count"),
    [("relu", {"nuclear_cost": 1e-4}, 1), ("relu", {"nc2_of": 0.05}, 2), ("linear", {"nc1": 1}, 2)],
)
def test_what_arrives_must_collapse(
    activation: Activation, last: dict[str, float], count: int
) -> None:
    found = claims(**{activation: dict.fromkeys(SEEDS, last)})
    assert len(failing(found)) == count


def test_descents_that_never_arrive_hold_nothing() -> None:
    far = {"objective": 0.5}
    found = claims(linear=dict.fromkeys(SEEDS, far), relu=dict.fromkeys(SEEDS, far))
    assert not any(claim.held for claim in found)


@pytest.fixture(scope="module")
def plain() -> Results:
    parts = plain_starts.parts((3, 8, 12, 0.05, 0.01), rate=0.2, steps=6000, starts=6)
    results = results_of(*parts)
    assert len(results) == 18
    return results


@pytest.mark.slow
def test_only_decays_lead_to_collapse(plain: Results) -> None:
    assert [claim.verdict for claim in plain_starts.claims(plain)] == ["held"] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "key", "value", "which"),
    [
        (plain_starts.DECAYS, "nc1", 0.5, 0),
        (plain_starts.DECAYS, "objective", 0.9, 0),
        (plain_starts.NO_DECAYS, "nc1", 1e-6, 1),
        (plain_starts.NO_DECAYS, "objective", 0.1, 1),
        (plain_starts.RELU, "nc1", 1e-6, 2),
        (plain_starts.RELU, "objective", 0.45, 2),
    ],
)
def test_each_claim_on_the_plain_model_can_fail(
    plain: Results, part: str, key: str, value: float, which: int
) -> None:
    wrong = Results(changed(row, **{key: value}) if row.part == part else row for row in plain)
    verdicts = [claim.verdict for claim in plain_starts.claims(wrong)]
    assert verdicts == ["not held" if index == which else "held" for index in range(3)]
