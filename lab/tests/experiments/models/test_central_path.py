"""The central path: rows, claims seen to hold and to fail, figures."""

from collections.abc import Callable
from typing import Any

import pytest
from lab.tests.observed import changed, experiment_results, gathered, reread, results_of
from pydantic import ValidationError

from ncscope_lab.catalogue import find_experiment
from ncscope_lab.experiments.models.central_path import EXPERIMENT, CentralPath
from ncscope_lab.observations import Results
from ncscope_lab.runs.resources import Resources

TINY = CentralPath(dim=4, per_class=2, points=9, descent_steps=(16, 64))


@pytest.fixture(scope="module")
def rows() -> Results:
    return experiment_results(EXPERIMENT, TINY)


def test_all_claims_hold(rows: Results) -> None:
    found = EXPERIMENT.judge(TINY, rows)
    assert [claim.text for claim in found if not claim.held] == []
    assert len(found) == 15


def test_the_renormalised_law_is_ours_and_the_projected_law_the_papers(rows: Results) -> None:
    owners = {claim.text: claim.source for claim in EXPERIMENT.judge(TINY, rows)}
    text = "{} flow: simulated features follow the closed form"
    assert owners[text.format("Projected")] == "MSE, proposition 2"
    assert owners[text.format("Renormalised")] == "ours"
    assert "MSE" not in owners.values()


def test_rows_have_what_the_table_shows(rows: Results) -> None:
    flows = [row for row in rows if row.part in ("projected", "renormalised")]
    assert len(flows) == 2 * TINY.points
    for row in flows:
        assert set(EXPERIMENT.columns) <= set(row.as_line())
        assert {"omega_1", "omega_2", "omega_3", "nc4_disagreement", "mse_off_path"} <= set(
            row.as_line()
        )
    assert flows[0]["time"] == 0
    assert flows[TINY.points - 1]["time"] == pytest.approx(TINY.last * TINY.unit)


def test_the_loss_is_that_of_the_singular_values(rows: Results) -> None:
    for row in rows:
        if row.part in ("projected", "renormalised"):
            values = [float(row[f"omega_{j}"]) for j in (1, 2, 3)]
            expected = sum(1 / (4 + value**2) for value in values) / 2
            assert float(row["mse_loss"]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_the_seed_decides_and_the_same_one_gives_the_same(rows: Results) -> None:
    again = [row for row in rows if row.part == "descent in 16 steps"]
    part = EXPERIMENT.parts(TINY)[2]
    found = gathered(part.run(Resources()), part.name)
    assert list(map(reread, found)) == again
    other = EXPERIMENT.parts(TINY.model_copy(update={"seed": 1}))[0]
    (first, *_) = gathered(other.run(Resources()))
    assert first["omega_1"] != rows[0]["omega_1"]


def spoilt(rows: Results, part: str, key: str, change: Callable[[float], float]) -> Results:
    """The last row of a part changed."""
    last = max(index for index, row in enumerate(rows) if row.part == part)
    return Results(
        changed(row, **{key: change(float(row[key]))}) if index == last else row
        for index, row in enumerate(rows)
    )


CASES: list[tuple[str, str, str, Callable[[float], float]]] = [
    ("Projected flow: simulated", "projected", "law_deviation", lambda x: 2e-6),
    ("Renormalised flow: simulated", "renormalised", "law_deviation", lambda x: 2e-6),
    ("Projected flow: singular values grow", "projected", "omega_2", lambda x: 1.1 * x),
    ("Renormalised flow: the ratio", "renormalised", "ratio", lambda x: 1.02),
    ("Projected flow: singular vectors", "projected", "turned", lambda x: 1e-5),
    ("Projected flow: singular vectors", "projected", "within_moved", lambda x: 1e-5),
    ("Projected flow: features divided", "projected", "limit_distance", lambda x: 5.0),
    ("Renormalised flow: NC1 to NC4", "renormalised", "nc2_etf", lambda x: 0.1),
    ("As the step size", "descent in 64 steps", "renormalised_deviation", lambda x: 2 * x),
    ("As the step size", "descent in 64 steps", "projected_deviation", lambda x: 0.01),
    ("Unrestricted, on", "unrestricted, on the path", "mse_off_path", lambda x: 1.0),
    ("Unrestricted, off", "unrestricted, off the path", "mse_off_path", lambda x: 1.0),
]


@pytest.mark.parametrize(("claim", "part", "key", "change"), CASES)
def test_each_claim_can_fail(rows: Results, claim: str, part: str, key: str, change: Any) -> None:
    found = EXPERIMENT.judge(TINY, spoilt(rows, part, key, change))
    (failed,) = [each for each in found if not each.held]
    assert failed.text.startswith(claim)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_all_claims_hold_at_the_scales_of_the_paper(scale: str) -> None:
    config = find_experiment("mse/central-path").scales[scale]  # type: ignore[index]
    found = EXPERIMENT.judge(config, results_of(*EXPERIMENT.parts(config)))
    assert [claim.text for claim in found if not claim.held] == []
    assert len(found) == 15


def test_figures_draw_every_part(rows: Results) -> None:
    drawn = {drawing.name: drawing for drawing in EXPERIMENT.draw(TINY, rows)}
    assert list(drawn) == ["growth", "limits", "collapse", "descent", "unrestricted"]
    assert [len(drawing.figure.axes) for drawing in drawn.values()] == [2, 2, 4, 2, 2]
    for drawing in drawn.values():
        assert drawing.caption.endswith(".")
        for axes in drawing.figure.axes:
            assert axes.get_title(loc="left")
            assert axes.lines


@pytest.mark.slow
def test_two_classes_have_one_singular_value() -> None:
    config = CentralPath(
        num_classes=2, dim=2, per_class=2, points=9, last=1e5, descent_steps=(8, 16)
    )
    two = experiment_results(EXPERIMENT, config)
    claims = EXPERIMENT.judge(config, two)
    assert len(claims) == 13
    assert [claim.text for claim in claims if "ratio" in claim.text] == []
    emerged = [claim.held for claim in claims if "NC1 to NC4" in claim.text]
    assert emerged == [True, True]
    for drawing in EXPERIMENT.draw(config, two):
        drawing.figure.canvas.draw()
    wrong = spoilt(two, "projected", "nc2_etf", lambda x: 1e-9)
    failed = [claim.text for claim in EXPERIMENT.judge(config, wrong) if not claim.held]
    assert any(text.startswith("Projected flow: NC1 to NC4 emerge") for text in failed)


@pytest.mark.parametrize(
    ("wrong", "needed"),
    [
        ({"dim": 2}, "dim of at least num_classes - 1"),
        ({"dim": 40, "per_class": 5}, "per_class of at least"),
        ({"descent_steps": (64, 16)}, "ascending"),
        ({"descent_steps": (10, 16)}, "multiple of 8"),
        ({"separation": float("nan")}, "separation"),
        ({"seed": 2**63}, "seed"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong: dict[str, Any], needed: str) -> None:
    with pytest.raises(ValidationError, match=needed):
        CentralPath.model_validate(wrong)
