"""The parts of the MSE loss: every claim both ways, and the weight decay that they assume."""

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.mse.decomposition import CURVES, RECIPE
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import training_events
from tests.lab.observed import results_of
from tests.lab.papers.mse.histories import history_of, small, tiny

CONFIG = small("mse")
ON_PATH = {
    "mse_nc1": (0.1, 0.2, 0.1, 0.01),
    "mse_nc23": (0.4, 0.1, 1e-3, 1e-4),
    "mse_off_path": (0.3, 0.02, 5e-3, 5e-4),
}


def results(**changed: tuple[float, ...]) -> Results:
    """Of networks near the central path; the last with other numbers."""
    *first, last = CONFIG.runs
    found = [row for name in first for row in history_of(name, ON_PATH)]
    return Results([*found, *history_of(last, ON_PATH | changed)])


def held(found: Results) -> list[bool]:
    return [claim.held for claim in RECIPE.claims(CONFIG, found)]


ALL = [True] * 5


def test_all_claims_hold_near_the_path() -> None:
    assert held(results()) == ALL


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"accuracy": (0, 0, 0, 0.9)}, {0, 2, 4}),
        ({"mse_off_path": (0.3, 0.02, 5e-3, 2e-3)}, {1, 2}),
        ({"mse_off_path": (0.3, 0.04, 0.02, 5e-4)}, {2}),
        ({"mse_nc23": (0.4, 0.1, 1e-3, 2e-2)}, {3}),
        ({"mse_nc23": (0.02, 0.01, 1e-2, 1e-4)}, {4}),
    ],
)
def test_each_claim_can_fail(changed: dict[str, tuple[float, ...]], failing: set[int]) -> None:
    assert {index for index, good in enumerate(held(results(**changed))) if not good} == failing


def test_the_epoch_from_which_the_part_off_the_path_is_negligible() -> None:
    _, _, claim, *_ = RECIPE.claims(CONFIG, results())
    assert "from epoch 4 on, zero error from epoch 8 on" in claim.evidence


def test_figure_2() -> None:
    (drawing,) = RECIPE.drawings(CONFIG, results())
    assert drawing.name == "fig-2"
    assert [len(axes.get_lines()) for axes in drawing.figure.axes] == [4] * 3


def test_it_runs_and_the_parts_are_those_of_the_loss() -> None:
    config = tiny(RECIPE.scales["small"])
    found = results_of(*RECIPE.parts(config))
    for row in found:
        assert sum(float(row[key]) for key in CURVES) == pytest.approx(row["mse_loss"], rel=1e-9)
    assert len(RECIPE.claims(config, found)) == 5
    assert len(RECIPE.drawings(config, found)) == 1


def test_the_decay_of_the_loss_is_that_of_training() -> None:
    def loss(decay: float) -> float:
        how = Optimisation(epochs=1, weight_decay=decay)
        one = Training(
            data="digits", network="small-vgg", layers=(), groups=("mse",), optimisation=how
        )
        first = next(training_events(one, Resources()))  # before the first step
        return first.probe.layers[-1].metrics["mse_loss"]

    bare = loss(0.0)
    assert loss(0.2) - bare == pytest.approx(2 * (loss(0.1) - bare), rel=1e-6)
    assert loss(0.1) > bare


def test_a_decoupled_decay_is_no_part_of_the_loss() -> None:
    assert Optimisation(weight_decay=0.1).decay_of_loss == 0.1
    assert Optimisation(weight_decay=0.1, optimiser="adamw").decay_of_loss == 0
