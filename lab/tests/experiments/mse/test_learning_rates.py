"""The sweep of learning rates: its rates, its runs, and the choice of the best."""

import math

import pytest
from lab.tests.experiments.mse.histories import history_of, small

from ncscope_lab.experiments.mse.collapse import EXPERIMENT
from ncscope_lab.experiments.mse.networks import (
    PAPER,
    list_rates,
    sweep_runs,
    tabulate_rates,
)
from ncscope_lab.observations import Observation, Results
from ncscope_lab.quantities import last, replace_fields

SWEPT = small("mse").model_copy(update={"rates": 3})
FIRST, SECOND, *_ = SWEPT.runs  # seeds of one network


def test_the_rate_of_the_notebook_is_one_of_the_papers_25() -> None:
    rates = list_rates(25)
    assert len(rates) == 25
    assert (rates[0], rates[-1]) == (1e-4, 0.25)
    assert min(abs(rate / PAPER.optimisation.learning_rate - 1) for rate in rates) < 1e-3


def test_every_run_has_every_rate_and_nothing_else_changes() -> None:
    runs = sweep_runs(SWEPT)
    assert len(runs) == 3 * len(SWEPT.runs)
    assert [part.name for part in EXPERIMENT.parts(SWEPT)] == list(runs)
    three = [runs[f"{FIRST}, rate {rate}"] for rate in ("0.0001", "0.005", "0.25")]
    assert [one.optimisation.learning_rate for one in three] == list_rates(3)
    assert three[2] == replace_fields(SWEPT.runs[FIRST], learning_rate=0.25)


def rows(accuracies: dict[str, dict[str, float]]) -> Results:
    """Histories of swept runs with the given held-out accuracies at the end."""
    found: list[Observation] = []
    for name, by_rate in accuracies.items():
        for rate, end in by_rate.items():
            part = f"{name}, rate {rate}"
            found += history_of(part, {"nc1": (4, 3, 2, end)}, {"accuracy": (1, 1, 1, end)})
    return Results(found)


def test_seeds_share_the_rate_that_is_best_in_their_mean() -> None:
    found = rows(
        {
            name: {"0.0001": 0.5, "0.005": 0.8 if name == FIRST else 0.7, "0.25": 0.76}
            for name in list(SWEPT.runs)[:3]
        }
    )
    runs = EXPERIMENT.collect(SWEPT, found)
    assert [run.name for run in runs] == list(SWEPT.runs)
    assert [run.settings for run in runs] == list(SWEPT.runs.values())
    ends = [last("nc1")(run) for run in runs]
    assert ends[:3] == pytest.approx([0.76] * 3)
    assert all(map(math.isnan, ends[3:]))
    (table,) = tabulate_rates(SWEPT, runs)
    assert table.lines["0.25"] == ["76.00%", "", "", ""]


def test_a_rate_without_all_seeds_is_not_chosen() -> None:
    found = rows({FIRST: {"0.005": 0.9, "0.25": 0.5}, SECOND: {"0.25": 0.5}})
    assert not any(run.rows for run in EXPERIMENT.collect(SWEPT, found))


def test_without_a_sweep_rows_and_runs_are_left_alone() -> None:
    config = small("mse")
    found = Results(history_of(FIRST, {"nc1": (4, 3, 2, 1)}))
    runs = EXPERIMENT.collect(config, found)
    assert runs.find(FIRST).rows == list(found)
    assert sweep_runs(config) == config.runs
    assert tabulate_rates(config, runs) == []


@pytest.mark.parametrize("count", [2, 7])
def test_claims_of_a_sweep_are_of_the_best_rates(count: int) -> None:
    config = small("mse").model_copy(update={"rates": count})
    last = f"{list_rates(count)[-1]:.4g}"
    each = {f"{rate:.4g}": 0.5 for rate in list_rates(count)} | {last: 0.9}
    claims = EXPERIMENT.judge(config, rows(dict.fromkeys(config.runs, each)))
    nc1 = next(claim for claim in claims if claim.source == "MSE, figure 7")
    assert "nc1 at the end 0.9" in nc1.evidence
