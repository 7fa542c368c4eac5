"""The experiments on the unconstrained features model: rows, claims that can fail, figures."""

from typing import Any

import pytest
from lab.tests.experiments.models.stories import SMALL
from lab.tests.observed import experiment_results

from ncscope_lab.experiment import Experiment
from ncscope_lab.experiments.models import ufm, ufm_cross_entropy
from ncscope_lab.experiments.models.descents import choose_steps
from ncscope_lab.observations import Results


def run(experiment: Experiment[Any], **given: Any) -> tuple[Any, Results]:
    config = experiment.config(**{**SMALL, **given})
    return config, experiment_results(experiment, config)


def held(experiment: Experiment[Any], config: Any, rows: Results) -> dict[str, bool]:
    return {claim.text: claim.held for claim in experiment.judge(config, rows)}


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
    title = drawing.figure.axes[2].get_title("left")
    frame = "OF" if given.get("bias") == "none" or given.get("weight_decay") == 0.4 else "ETF"
    assert experiment is ufm_cross_entropy.EXPERIMENT or title == f"NC2: distance to {frame}"


def test_a_run_too_short_is_seen() -> None:
    config, rows = run(ufm.EXPERIMENT, steps=20)
    found = held(ufm.EXPERIMENT, config, rows)
    assert not found["Gradient descent arrives at the closed form's minimum, to 1e-6"]
    assert not found["NC1: features collapse to their class means"]
    assert found["The fast solver ends at the closed form's minimum, to 1e-9"]


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


def test_steps_recorded() -> None:
    assert choose_steps(25, 10) == [0, 1, 3, 10, 20, 25]
    assert choose_steps(20, 10) == [0, 1, 3, 10, 20]
    assert choose_steps(2, 10) == [0, 1, 2]
