"""The landscape of the linear extended model and lemma C.1: claims seen held and not held."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from lab.tests.experiments.chance import mixed, often_held
from lab.tests.observed import changed, results_of
from torch import Tensor

from ncscope_lab.claims import judge
from ncscope_lab.experiments.xufm import landscape
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs
from ncscope_lab.surrogates import descent as descent_of
from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.problem import Point

MODEL = ExtendedUFM(2, 2, 2, weight_decays=(0.02, 0.02), feature_decay=0.02)
SADDLES = "With positive decays the landscape of (23) includes non-strict saddles"


@pytest.fixture(scope="module")
def rows() -> Results:
    parts = landscape.list_parts(MODEL, rate=0.5, steps=1500, seeds=range(2))
    results = results_of(*parts)
    assert len(results) == sum(part.yields for part in parts)
    return results


def verdicts(rows: Results) -> dict[str, str]:
    findings = judge(landscape.list_claims(), Runs.of({}, rows))
    return {finding.text: finding.verdict for finding in findings}


def test_all_holds_but_the_paper_s_remark_on_saddles(rows: Results) -> None:
    found = verdicts(rows)
    assert found.pop(SADDLES) == "not held"
    assert list(found.values()) == ["held"] * 4


@pytest.mark.parametrize(
    ("part", "key", "value", "claim"),
    [
        (landscape.CRITICAL, "curvature_without_decays", 0.1, "Without decays zero"),
        (landscape.CRITICAL, "kind", "strict saddle", "With positive decays zero"),
        (landscape.FAINT, "objective", 0.3, "Descent on (23) needs"),
        (landscape.FACTORS, "reached", 5.0, "The cheapest factors"),
        (landscape.FACTORS, "off_gram", 0.1, "The cheapest factors"),
    ],
)
def test_each_claim_can_fail(
    rows: Results, part: str, key: str, value: float | str, claim: str
) -> None:
    wrong = Results(changed(row, **{key: value}) if row.part == part else row for row in rows)
    found = {text: verdict for text, verdict in verdicts(wrong).items() if verdict != "held"}
    assert [text[: len(claim)] for text in found if text != SADDLES] == [claim]


def test_a_degenerate_saddle_would_be_seen(rows: Results) -> None:
    wrong = Results(
        changed(row, kind="degenerate") if row.part == landscape.CRITICAL else row for row in rows
    )
    assert verdicts(wrong)[SADDLES] == "held"


def test_points_that_are_not_critical_decide_nothing(rows: Results) -> None:
    wrong = Results(
        changed(row, gradient_norm=1e-3) if row.part == landscape.CRITICAL else row for row in rows
    )
    assert verdicts(wrong)[SADDLES] == "undecided"


RUNS = 4
"""Runs on random points, from which the draws take their rows."""


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
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
    monkeypatch.setattr(landscape, "balance_factors", factors)
    monkeypatch.setattr(descent_of, "gradient_descent", descent)
    parts = landscape.list_parts(MODEL, rate=0.5, steps=1, seeds=range(3))
    runs = [results_of(*parts) for _ in range(RUNS)]

    def claims(random: Any) -> Any:
        return judge(landscape.list_claims(), Runs.of({}, mixed(runs, random)))

    assert often_held(claims) == {}
