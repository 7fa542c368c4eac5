"""The experiments on the unconstrained features model: rows, claims that can fail, figures."""

import math
from typing import Any

import pytest
from lab.tests.observed import changed, experiment_results
from pydantic import ValidationError

from ncscope.errors import InputError
from ncscope_lab.experiment import Experiment
from ncscope_lab.experiments.models import ufm, ufm_cross_entropy
from ncscope_lab.experiments.models.descents import choose_steps
from ncscope_lab.observations import Results
from ncscope_lab.runs.settings import check_settings

SMALL: dict[str, Any] = {
    "num_classes": 3,
    "dim": 5,
    "per_class": 4,
    "weight_decay": 0.05,
    "feature_decay": 0.05,
    "rate": 1.0,
    "steps": 300,
    "every": 150,
}


def run(experiment: Experiment[Any], **given: Any) -> tuple[Any, Results]:
    config = experiment.config(**SMALL | given)
    return config, experiment_results(experiment, config)


def held(experiment: Experiment[Any], config: Any, rows: Results) -> dict[str, bool]:
    return {claim.text: claim.held for claim in experiment.judge(config, rows)}


@pytest.fixture(scope="module")
def whole() -> tuple[Any, Results]:
    return run(ufm.EXPERIMENT)


EXPERIMENTS = [
    (ufm.EXPERIMENT, {"bias": "none"}, 5),
    pytest.param(ufm.EXPERIMENT, {"bias": "none", "dim": 2}, 4, marks=pytest.mark.slow),
    (ufm.EXPERIMENT, {"bias": "free"}, 6),
    pytest.param(ufm.EXPERIMENT, {"bias": "free", "dim": 2}, 6, marks=pytest.mark.slow),
    (ufm.EXPERIMENT, {"bias": "regularised", "bias_decay": 3.0, "rate": 0.4, "steps": 700}, 6),
    (ufm.EXPERIMENT, {"weight_decay": 0.4, "feature_decay": 0.4}, 2),
    (ufm_cross_entropy.EXPERIMENT, {}, 6),
    pytest.param(
        ufm_cross_entropy.EXPERIMENT,
        {"weight_decay": 0.4, "feature_decay": 0.4},
        2,
        marks=pytest.mark.slow,
    ),
    (ufm_cross_entropy.EXPERIMENT, {"num_classes": 4, "dim": 2}, 1),
]


@pytest.mark.parametrize(("experiment", "given", "count"), EXPERIMENTS)
def test_what_the_closed_form_says_holds(
    experiment: Experiment[Any], given: Any, count: int
) -> None:
    config, rows = run(experiment, **given)
    found = held(experiment, config, rows)
    assert list(found.values()) == [True] * count, found
    (drawing,) = experiment.draw(config, rows)
    titles = [axes.get_title("left") for axes in drawing.figure.axes]
    frame = "OF" if given.get("bias") == "none" or given.get("weight_decay") == 0.4 else "ETF"
    assert experiment is ufm_cross_entropy.EXPERIMENT or titles[2] == f"NC2: distance to {frame}"
    assert len(titles) == 4
    assert {"step", "objective", "layer"} <= rows[0].as_line().keys()
    assert set(experiment.columns) <= rows[-1].as_line().keys()


def test_a_run_too_short_is_seen() -> None:
    config, rows = run(ufm.EXPERIMENT, steps=20)
    found = held(ufm.EXPERIMENT, config, rows)
    assert not found["Gradient descent arrives at the closed form's minimum, to 1e-6"]
    assert not found["NC1: features collapse to their class means"]
    assert found["The fast solver ends at the closed form's minimum, to 1e-9"]


@pytest.mark.parametrize(
    ("part", "key", "claim"),
    [
        ("fast solver", "objective", "The fast solver ends"),
        ("descent", "objective", "Gradient descent arrives"),
        ("descent", "nc1", "NC1: features"),
        ("descent", "nc2_of", "NC2: class means become"),
        ("descent", "nc3_alignment", "NC3: the classifier"),
    ],
)
def test_each_claim_can_fail(whole: tuple[Any, Results], part: str, key: str, claim: str) -> None:
    config, rows = whole
    wrong = Results(
        changed(row, **{key: float(row[key]) + (0.01 if row.part == part else 0.0)}) for row in rows
    )
    failed = [text for text, holds in held(ufm.EXPERIMENT, config, wrong).items() if not holds]
    assert len(failed) == 1
    assert failed[0].startswith(claim)


def test_undefined_metrics_do_not_hold(whole: tuple[Any, Results]) -> None:
    config, rows = whole
    undefined = Results(changed(row, nc1=math.nan) for row in rows)
    assert not held(ufm.EXPERIMENT, config, undefined)[
        "NC1: features collapse to their class means"
    ]


@pytest.mark.parametrize(
    ("experiment", "given", "left_out", "claims"),
    [
        (ufm.EXPERIMENT, {"per_class": 1, "rate": 0.3}, "nc1", 4),
        pytest.param(ufm.EXPERIMENT, {"num_classes": 2}, "nc2_etf", 5, marks=pytest.mark.slow),
        (
            ufm.EXPERIMENT,
            {"num_classes": 2, "per_class": 1, "bias": "free", "rate": 0.2},
            "nc2_etf",
            4,
        ),
        pytest.param(
            ufm_cross_entropy.EXPERIMENT, {"per_class": 1}, "nc1", 5, marks=pytest.mark.slow
        ),
        (ufm_cross_entropy.EXPERIMENT, {"num_classes": 2}, "nc2_etf", 5),
    ],
)
def test_what_is_zero_at_the_start_is_not_claimed(
    experiment: Experiment[Any], given: Any, left_out: str, claims: int
) -> None:
    config, rows = run(experiment, **given)
    found = experiment.judge(config, rows)
    assert len(found) == claims
    assert [claim.evidence for claim in found if claim.evidence.startswith(left_out)] == []
    (drawing,) = experiment.draw(config, rows)
    drawing.figure.canvas.draw()


def test_the_same_seed_gives_the_same_rows() -> None:
    (config, rows), (again, others) = run(ufm.EXPERIMENT, steps=2), run(ufm.EXPERIMENT, steps=2)
    assert config == again
    assert list(rows) == list(others)
    assert rows.measurements == others.measurements
    assert list(rows) != list(run(ufm.EXPERIMENT, steps=2, seed=1)[1])


def test_steps_recorded() -> None:
    assert choose_steps(25, 10) == [0, 1, 3, 10, 20, 25]
    assert choose_steps(20, 10) == [0, 1, 3, 10, 20]
    assert choose_steps(2, 10) == [0, 1, 2]


@pytest.mark.parametrize("experiment", [ufm.EXPERIMENT, ufm_cross_entropy.EXPERIMENT])
def test_settings_are_bounded(experiment: Experiment[Any]) -> None:
    for wrong in ({"rate": math.inf}, {"seed": 2**63}, {"weight_decay": math.nan}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            check_settings(experiment.config, wrong)
    for wrong in ({"num_classes": 1}, {"weight_decay": 0.0}, {"steps": 0}, {"width": 3}):
        with pytest.raises(ValidationError):
            experiment.config(**wrong)
