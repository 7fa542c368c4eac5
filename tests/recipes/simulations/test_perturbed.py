"""The study of perturbed features: rows, claims that can fail, figures."""

import json

import pytest

from ncscope.probing.records import Row
from ncscope.recipes.simulations.perturbed import PART, STUDY, PerturbedConfig
from ncscope.training.work import Work

CONFIG = PerturbedConfig(num_classes=3, dim=4, per_class=(100, 400, 1600), seeds=6)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    (part,) = STUDY.parts(CONFIG)
    own = list(part.run(Work()))
    assert len(own) == part.yields == 18
    return json.loads(json.dumps([{"part": part.name} | row for row in own]))


def held(rows: list[Row]) -> list[bool]:
    return [claim["held"] for claim in STUDY.claims(CONFIG, rows)]


def test_the_law_holds(rows: list[Row]):
    assert held(rows) == [True, True]


def test_claims_can_fail(rows: list[Row]):
    assert held([row | {"predicted": 0.5} for row in rows]) == [False, True]
    assert held([row | {"deviation": 0.1} for row in rows]) == [True, False]


def test_no_noise_leaves_no_deviation():
    config = CONFIG.model_copy(update={"noise": 0.0})
    (part,) = STUDY.parts(config)
    rows = [{"part": PART} | row for row in part.run(Work())]
    assert [claim["held"] for claim in STUDY.claims(config, rows)] == [True, True]
    (drawing,) = STUDY.drawings(config, rows)
    drawing.figure.canvas.draw()


def test_figure_shows_the_limit(rows: list[Row]):
    (drawing,) = STUDY.drawings(CONFIG, rows)
    kept, deviation = drawing.figure.axes
    assert kept.get_legend_handles_labels()[1] == ["theorem 5.1", "fitted"]
    assert deviation.get_yscale() == "log"
    drawing.figure.canvas.draw()


def test_columns_are_in_the_rows(rows: list[Row]):
    assert set(STUDY.columns) <= set(rows[0])
