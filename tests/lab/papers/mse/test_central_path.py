"""The recipe at its small size."""

import pytest

from ncscope.lab.papers.mse.central_path import RECIPE
from tests.lab.observed import results_of


def test_it_is_the_study_at_two_sizes() -> None:
    assert RECIPE.id == "mse/central-path"
    assert set(RECIPE.scales) == set(RECIPE.cost) == {"paper", "medium", "small"}
    assert all(RECIPE.cost.values())


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_claim_holds(scale: str) -> None:
    config = RECIPE.scales[scale]
    found = RECIPE.judge(config, results_of(*RECIPE.parts(config)))
    assert len(found) == 15
    assert [claim.text for claim in found if not claim.held] == []
