"""Claims on methods, losses, smoothness and sparsity hold by chance in at most 4 of 40 draws."""

from collections.abc import Callable, Iterable, Mapping
from math import exp
from random import Random

import pytest

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.info import label_smoothing, pruning, semi_supervised, supervised
from ncscope.lab.papers.info.few_labels import by_setting
from ncscope.lab.papers.info.pruning import UNTRAINED
from ncscope.lab.runs.recipe import Recipe
from tests.lab.papers.chance import not_held, often_held
from tests.lab.papers.info.test_pruning import made_up
from tests.lab.papers.info.test_semi_supervised import made as few_labels
from tests.lab.papers.info.test_sweeps import smoothed, with_losses

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
AXES = ("sparsity", "num_classes", "epoch")
GROUPS = {
    name: str(setting)
    for setting, runs in by_setting(semi_supervised.RECIPE.scales["small"]).items()
    for names in runs.values()
    for name in names
}
"""Setting of each run with few labels; values are exchanged within a setting."""

BEFORE: Mapping[str, float] = {"accuracy": 0.1, "error": 0.9, "mir": 0.06, "hdr": 0.88}
"""Values of networks before training, of the small scales."""


def results_of(recipe: Recipe) -> Results:
    """Results of the small scale in which all claims hold."""
    kinds: Mapping[str, Callable[[], Results]] = {
        pruning.RECIPE.id: made_up,
        label_smoothing.RECIPE.id: lambda: smoothed(0.02),
        supervised.RECIPE.id: lambda: with_losses(0.005, 0.1, -0.1),
        semi_supervised.RECIPE.id: few_labels,
    }
    rows = kinds[recipe.id]()
    return Results(row for row in rows if "threshold" not in row)


def metrics(rows: Iterable[Observation]) -> list[str]:
    """Keys of the metrics in the rows."""
    keys = {k for row in rows for k, value in row.values.items() if isinstance(value, float)}
    return sorted(keys - set(AXES))


def permuted(results: Results, random: Random) -> Results:
    """The results, each metric's values exchanged among runs, epochs and stages."""
    rows = list(results)
    for group in {GROUPS.get(row.part, "") for row in rows}:
        for key in metrics(rows):
            own = [
                i for i, row in enumerate(rows) if GROUPS.get(row.part, "") == group and key in row
            ]
            values = [rows[i][key] * exp(random.gauss(0, 0.01)) for i in own]
            random.shuffle(values)
            for i, value in zip(own, values, strict=True):
                rows[i] = rows[i].with_values({key: value})
    return Results(rows)


def untrained(results: Results, random: Random) -> Results:
    """The results, each network as before training but for a few per cent.

    The dense network beside itself, which pruned networks are compared with, is left as it is.
    """
    chance = {
        key: float(row[key])
        for row in results
        for key in metrics(results)
        if row.get("stage") == UNTRAINED and key in row
    }

    def changed(row: Observation) -> Observation:
        if row.get("stage") == pruning.PRUNED and row["sparsity"] == 0:
            return row
        values = {
            key: chance.get(key, BEFORE.get(key.removesuffix("_batch"), 0.5))
            * exp(random.gauss(0, 0.05))
            for key in metrics([row])
        }
        return row.with_values(values)

    return Results(map(changed, results))


RECIPES = (pruning.RECIPE, label_smoothing.RECIPE, supervised.RECIPE, semi_supervised.RECIPE)


@pytest.mark.parametrize("change", [permuted, untrained])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
def test_noise_seldom_bears_out_a_claim(
    recipe: Recipe, change: Callable[[Results, Random], Results]
) -> None:
    small = recipe.scales["small"]
    real = results_of(recipe)
    assert not_held(recipe.judge(small, real)) == []
    assert often_held(lambda random: recipe.judge(small, change(real, random))) == {}
