"""The experiment on perturbed features: rows, claims that can fail, figures."""

import math
from typing import Any

import pytest
import torch
from lab.tests.observed import changed, experiment_results

from ncscope.errors import InputError
from ncscope_lab.experiments.models.perturbed import (
    EXPERIMENT,
    PART,
    PerturbedConfig,
    first_correction,
)
from ncscope_lab.observations import Results
from ncscope_lab.runs.settings import check_settings
from ncscope_lab.surrogates.perturbed import PerturbedUFM

CONFIG = PerturbedConfig(num_classes=3, dim=4, per_class=(100, 400, 1600), seeds=12)


@pytest.fixture(scope="module")
def rows() -> Results:
    (part,) = EXPERIMENT.parts(CONFIG)
    assert part.yields == 36
    return experiment_results(EXPERIMENT, CONFIG)


def held(rows: Results) -> list[bool]:
    return [claim.held for claim in EXPERIMENT.judge(CONFIG, rows)]


def test_the_law_holds(rows: Results):
    assert held(rows) == [True, True]


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_a_prediction_three_per_cent_off_fails(rows: Results, factor: float):
    wrong = Results(changed(row, predicted=factor * float(row["predicted"])) for row in rows)
    assert held(wrong) == [False, True]


@pytest.mark.slow
def test_first_correction_is_the_mean_of_what_the_first_order_leaves():
    config = PerturbedConfig(num_classes=3, dim=12, noise=0.2)
    n, left = 100, []
    for seed in range(800):
        model = PerturbedUFM(3, 12, n, config.weight_decay, config.feature_decay, 0.2, seed)
        (weight,) = model.minimiser().point
        target = model.unperturbed
        means = math.sqrt(config.weight_decay / config.feature_decay) * target.mT
        labels = torch.eye(3, dtype=torch.float64)[model.labels]
        ridge = torch.eye(12, dtype=torch.float64)
        cross = (model.features @ labels).mT / (3 * n)
        gram = model.features @ model.features.mT / (3 * n) + config.weight_decay * ridge
        inverse = torch.linalg.inv(means @ means.mT / 3 + (0.04 + config.weight_decay) * ridge)
        limit = means.mT @ inverse / 3
        # Linear in what is averaged, and so of mean zero; without it the spread is far smaller.
        moved = gram - torch.linalg.inv(inverse)
        first = (cross - means.mT / 3 - limit @ moved) @ inverse
        rest = weight - limit - first
        left.append(float((rest * target).sum() / target.square().sum()))
    found = torch.tensor(left) * n
    error = float(found.std()) / math.sqrt(len(left))
    assert error < 0.1 * abs(first_correction(config))
    assert abs(float(found.mean()) - first_correction(config)) < 4 * error


@pytest.mark.parametrize(
    ("wrong", "needed"),
    [
        ({"per_class": (5, 5)}, "per_class: at least two different values"),
        ({"per_class": (0, 5)}, "per_class: every value at least 1"),
        ({"noise": math.inf}, "noise"),
        ({"feature_decay": math.nan}, "feature_decay"),
    ],
)
def test_settings_out_of_bounds_are_named(wrong: dict[str, Any], needed: str):
    with pytest.raises(InputError, match=needed):
        check_settings(PerturbedConfig, wrong)


def test_claims_can_fail(rows: Results):
    assert held(Results(changed(row, predicted=0.5) for row in rows)) == [False, True]
    assert held(Results(changed(row, deviation=0.1) for row in rows)) == [True, False]


def test_no_noise_leaves_no_deviation():
    config = CONFIG.model_copy(update={"noise": 0.0})
    rows = experiment_results(EXPERIMENT, config)
    assert {row.part for row in rows} == {PART}
    assert [claim.held for claim in EXPERIMENT.judge(config, rows)] == [True, True]
    (drawing,) = EXPERIMENT.draw(config, rows)
    drawing.figure.canvas.draw()


def test_figure_shows_the_limit(rows: Results):
    (drawing,) = EXPERIMENT.draw(CONFIG, rows)
    kept, deviation = drawing.figure.axes
    assert kept.get_legend_handles_labels()[1] == ["theorem 5.1", "fitted"]
    assert deviation.get_yscale() == "log"
    drawing.figure.canvas.draw()


def test_columns_are_in_the_rows(rows: Results):
    assert set(EXPERIMENT.columns) <= set(rows[0].as_line())
