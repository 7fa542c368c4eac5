"""The central path: the loss, owners of claims, the paper's scales, two classes."""

from dataclasses import replace

import pytest
from lab.tests.experiments.models.stories import CENTRAL_PATH, FLOW, FOURTH_ROOT, PRINTED_LAW
from lab.tests.observed import changed, experiment_results, results_of

from ncscope_lab.catalogue import find_experiment
from ncscope_lab.experiments.models.central_path import EXPERIMENT, CentralPath
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Results


@pytest.fixture(scope="module")
def rows() -> Results:
    return CENTRAL_PATH.tell()


@pytest.mark.slow
def test_the_printed_law_is_the_papers_and_not_that_of_its_algorithm(rows: Results) -> None:
    claims = {claim.text: claim for claim in CENTRAL_PATH.judge(rows)}
    of_paper = claims[PRINTED_LAW]
    assert (of_paper.source, of_paper.verdict) == ("MSE, proposition 2", "not held")
    for flow in ("Projected", "Renormalised"):
        assert claims[f"{flow} flow: simulated features follow the closed form"].source == "ours"
    steps = [row for row in rows if row.part == "descent in 64 steps"]
    near = changed(steps[-1], projected_deviation=0.001)
    judged = CENTRAL_PATH.judge(Results([*rows, near]))
    assert next(claim for claim in judged if claim.text == PRINTED_LAW).held


@pytest.mark.slow
def test_the_fourth_root_is_judged_on_the_flow_of_the_papers_algorithm(rows: Results) -> None:
    """It fails there, and would hold if the renormalised flow had the growth of the projected."""

    def judge(rows: Results) -> Finding:
        return next(claim for claim in CENTRAL_PATH.judge(rows) if claim.text == FOURTH_ROOT)

    assert (judge(rows).source, judge(rows).verdict) == ("MSE, corollary 1", "not held")
    printed = iter(row.values for row in rows if row.part == "projected")
    swapped = [
        replace(row, values=next(printed)) if row.part == "renormalised" else row for row in rows
    ]
    assert judge(Results(swapped)).verdict == "held"


@pytest.mark.slow
def test_the_panels_of_collapse_say_what_is_seen(rows: Results) -> None:
    (figure,) = (each.figure for each in EXPERIMENT.draw(FLOW, rows) if each.name == "collapse")
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]
    assert titles == [
        "NC1 falls like $t^{-0.50}$ and $t^{-1.00}$ in the end",
        "NC2 falls like $t^{-1.00}$ in the end",
        "NC3 falls like $t^{-2.00}$ in the end",
        "NC4 ends at 0",
    ]


def test_self_duality_departs_most_where_a_signal_is_as_large_as_the_noise(rows: Results) -> None:
    """As the caption says: before, the classifier is parallel to the weak class means."""
    for flow in ("projected", "renormalised"):
        path = [row for row in rows if row.part == flow]
        start, peak = path[0], max(path, key=lambda row: float(row["nc3_self_duality"]))
        assert float(start["omega_1"]) ** 2 < 0.1 * FLOW.num_classes
        assert 0.3 < float(peak["omega_1"]) ** 2 / FLOW.num_classes < 4
        assert float(start["nc3_self_duality"]) < 0.05 * float(peak["nc3_self_duality"])


def test_the_loss_is_that_of_the_singular_values(rows: Results) -> None:
    for row in rows:
        if row.part in ("projected", "renormalised"):
            values = [float(row[f"omega_{j}"]) for j in (1, 2, 3)]
            expected = sum(1 / (4 + value**2) for value in values) / 2
            assert float(row["mse_loss"]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_all_claims_but_the_printed_law_hold_at_the_scales_of_the_paper(scale: str) -> None:
    config = find_experiment("mse/central-path").scales[scale]  # type: ignore[index]
    found = EXPERIMENT.judge(config, results_of(*EXPERIMENT.parts(config)))
    assert [claim.text for claim in found if not claim.held] == [PRINTED_LAW, FOURTH_ROOT]
    assert len(found) == 17


@pytest.mark.slow
def test_two_classes_have_one_singular_value() -> None:
    config = CentralPath(
        num_classes=2, dim=2, per_class=2, points=9, last=1e5, descent_steps=(8, 16)
    )
    two = experiment_results(EXPERIMENT, config)
    claims = EXPERIMENT.judge(config, two)
    assert len(claims) == 15
    assert [claim.text for claim in claims if "ratio" in claim.text] == []
    emerged = [claim.held for claim in claims if "NC1 to NC4" in claim.text]
    assert emerged == [True, True]
    for drawing in EXPERIMENT.draw(config, two):
        drawing.figure.canvas.draw()
    end = max(index for index, row in enumerate(two) if row.part == "projected")
    wrong = Results(
        changed(row, nc2_etf=1e-9) if index == end else row for index, row in enumerate(two)
    )
    failed = [claim.text for claim in EXPERIMENT.judge(config, wrong) if not claim.held]
    assert any(text.startswith("Projected flow: NC1 to NC4 emerge") for text in failed)
