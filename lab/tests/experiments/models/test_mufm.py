"""The multilayer model: rows, claims that can fail, figures."""

import math

import pytest
from lab.tests.observed import changed, experiment_results

from ncscope_lab.experiments.models.mufm import EXPERIMENT, MUFMConfig
from ncscope_lab.observations import Results

SMALL = {"num_classes": 3, "dim": 5, "per_class": 8, "steps": 400, "every": 100}


def run(**settings: object) -> tuple[MUFMConfig, Results]:
    config = MUFMConfig(**(SMALL | settings))
    return config, experiment_results(EXPERIMENT, config)


@pytest.mark.slow
@pytest.mark.parametrize(("price", "unique"), [(1.0, True), (0.001, False)])
def test_several_minima_are_noticed(price: float, unique: bool):
    """Theory promises one from lambda * lambda_W >= 1 on; here there are several far below."""
    config, rows = run(scaling="printed", weight_decay=1.0 if unique else 0.005, transport=price)
    held = {claim.text: claim.held for claim in EXPERIMENT.judge(config, rows)}
    assert held["The solver finds the same minimum from 4 random starts"] == unique


@pytest.mark.slow
def test_claims_fail_where_the_rows_say_otherwise():
    config, rows = run(model="layered", depth=3)
    wrong = Results(
        changed(
            row,
            pfc1=0.0 if row.layer == "X" else 1e-12,
            objective=float(row.get("start", 99) + 1),
        )
        for row in rows
    )
    assert [claim.held for claim in EXPERIMENT.judge(config, wrong)] == [False] * 5


@pytest.mark.slow
def test_a_nearly_collapsed_minimum_counts_as_collapsed():
    config, rows = run(steps=1)
    low = Results(changed(row, pfc1=0.009) if row.layer == "H" else row for row in rows)
    held = {claim.text: claim.held for claim in EXPERIMENT.judge(config, low)}
    assert not held["The minimum is not collapsed: PFC1 above 0.01"]


@pytest.mark.slow
def test_layered_and_reduced_minima_agree_at_a_depth_fold_price():
    _, reduced = run(transport=0.001, steps=1)
    _, layered = run(transport=0.004, steps=1, model="layered", depth=4)
    ends = [[row for row in rows if row.part == "fast solver"][-1] for rows in (reduced, layered)]
    for key in ("objective", "pfc1", "data_distance"):
        assert math.isclose(ends[0][key], ends[1][key], rel_tol=1e-6)
