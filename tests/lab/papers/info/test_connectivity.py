"""Two runs and the networks between them: real, stopped, and claims on made-up numbers."""

from pathlib import Path
from typing import Any

import pytest

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.info.connectivity import RECIPE, InfoConnectivity
from ncscope.lab.papers.info.connectivity_claims import AS_THEY_ARE, REESTIMATED, between
from ncscope.lab.runs.resources import Resources
from tests.lab.observed import results_of
from tests.lab.papers.info.brief import brief, made, recorded, stopped_in, unmeasured

SMALL, PAPER = RECIPE.scales["small"], RECIPE.scales["paper"]


def short(**given: Any) -> InfoConnectivity:
    name, training = next(iter(SMALL.runs.items()))
    return InfoConnectivity(runs={name: brief(training, **given)}, intervals=2)


@pytest.fixture(scope="module")
def results() -> Results:
    (part,) = RECIPE.parts(short())
    return results_of(part)


def ends_of(results: Results, run: str) -> Observation:
    return [row for row in results if row.split == f"test, {run} run"][-1]


@pytest.mark.slow
def test_the_ends_of_the_way_are_the_two_runs(results: Results) -> None:
    path = between(results, results[0].part)
    assert [row["omega"] for row in path] == [0.0, 0.5, 1.0]
    for run, row in (("first", path[0]), ("second", path[-1])):
        end = ends_of(results, run)
        keys = [k for k, value in row.values.items() if isinstance(value, float) and k != "omega"]
        assert {"accuracy", "mir", "hdr", "mir_batch", "hdr_batch", "mir_centered"} <= set(keys)
        assert {key: row[key] for key in keys} == {key: end[key] for key in keys}
    assert ends_of(results, "first")["mir"] != ends_of(results, "second")["mir"]
    start = [row for row in results if row.epoch == 0 and row.split.startswith("test, ")]
    assert [row.split for row in start] == ["test, first run", "test, second run"]
    assert start[0]["mir"] == start[1]["mir"]  # one initialisation
    anew = between(results, results[0].part, REESTIMATED)
    assert [row["omega"] for row in anew] == [0.0, 0.5, 1.0]
    assert all(a["mir"] != b["mir"] for a, b in zip(path, anew, strict=True))


@pytest.mark.slow
def test_stopped_in_the_second_run_it_goes_on_to_the_same_results(tmp_path: Path) -> None:
    (part,) = RECIPE.parts(short(groups=("nc4",)))
    resources = Resources(checkpoints=tmp_path, checkpoint_interval=0.0)
    stopped_in(part, resources, lambda event: event.split.endswith("second run"))
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second"}
    assert recorded(part.run(resources)) == recorded(part.run(Resources()))


@pytest.mark.slow
def test_claims_and_figures_come_out_of_a_short_run(results: Results) -> None:
    claims_and_figures(short(), results, panels=3)


def claims_and_figures(config: InfoConnectivity, results: Results, panels: int) -> None:
    assert all(claim.evidence for claim in RECIPE.judge(config, results))
    (drawing,) = RECIPE.draw(config, results)
    assert len(drawing.figure.axes) == panels


def path(part: str, depth: float, lift: float = 0.0, training: float = 1.0) -> list[Observation]:
    """Accuracy in a valley, MIR with a hill in it, HDR that falls off either end."""
    found = [
        made(part, {"epoch": 16, "split": f"train, {run} run"}, {"accuracy": training})
        for run in ("first", "second")
    ]
    for statistics, share in ((AS_THEY_ARE, 1.0), (REESTIMATED, 0.5)):
        for step in range(11):
            omega = step / 10
            valley = min(1, 1.3 * (1 - abs(2 * omega - 1)))
            values = {
                "accuracy": 0.95 - share * depth * valley,
                "mir": 0.5 - depth * valley / 4 + (lift if 4 <= step <= 6 else 0.0),
                "hdr": 0.2 - depth * valley / 4,
            }
            where = {"omega": omega, "statistics": statistics, "split": "between"}
            found.append(made(part, where, values))
    return found


TOLD = {0.3: 0.85, 0.03: 0.3, 0.003: 0.01}
"""Depth of the valley by rate, as the paper tells it."""


def made_up(
    depths: dict[float, float], lift: float = 0.3, training: dict[float, float] | None = None
) -> Results:
    found = []
    for part, run in SMALL.runs.items():
        rate = run.optimisation.learning_rate
        depth = depths[rate] * (1 + 0.01 * (run.seed - 4))
        found += path(part, depth, lift * (rate == 0.3), (training or {}).get(rate, 1.0))
    return Results(found)


def verdicts(results: Results) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in RECIPE.judge(SMALL, results)}


def lost(results: Results) -> list[str]:
    return [text for text, verdict in verdicts(results).items() if verdict != "held"]


def test_claims_and_figures_come_out_of_made_results_and_of_none() -> None:
    for found in (made_up(TOLD), Results()):
        claims_and_figures(SMALL, found, panels=9)  # three a learning rate


def test_what_the_paper_sees_holds() -> None:
    assert len(verdicts(made_up(TOLD))) == 1 + 2 + 3 + 1 + 3
    assert lost(made_up(TOLD)) == []


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"lift": 0.0}, ["for omega from 0.4 to 0.6, than"]),
        ({"depths": TOLD | {0.03: 0.9}}, ["accuracy varies less", "HDR (batches of 64) varies"]),
        ({"depths": TOLD | {0.003: 0.29}}, ["less than 0.02", *(2 * ["almost unchanged"])]),
        ({"depths": TOLD | {0.3: 0.5}}, ["random guessing"]),
        (
            {"depths": TOLD | {0.3: -0.1, 0.03: -0.05}},
            ["random guessing", "HDR (batches of 64) is lower", "re-estimated"],
        ),
    ],
)
def test_each_claim_can_fail(changed: dict[str, Any], missing: list[str]) -> None:
    texts = lost(made_up(**{"depths": TOLD} | changed))
    assert len(texts) == len(missing)
    assert all(part in text for text, part in zip(texts, missing, strict=True))


def test_rates_are_compared_only_where_networks_are_trained_equally_well() -> None:
    rates = {0.3: 1.0, 0.03: 1.0, 0.003: 0.98}
    open_ = [text for text, verdict in verdicts(made_up(TOLD, training=rates)).items()
             if verdict == "undecided"]  # fmt: skip
    assert len(open_) == 3 + 3
    assert all("every lower learning rate" in text or "rate 0.003" in text for text in open_)
    untrained = verdicts(made_up(TOLD, training=dict.fromkeys(TOLD, 0.1)))
    assert set(untrained.values()) == {"undecided"}


def test_nothing_holds_of_what_was_not_measured() -> None:
    assert len(lost(unmeasured(made_up(TOLD)))) == 10
    good = made_up(TOLD)
    last = [row for row in good if row.part == list(SMALL.runs)[-1]]
    others = [row for row in good if row.part != list(SMALL.runs)[-1]]
    one = lost(Results([*others, *unmeasured(last)]))
    assert len([text for text in one if "rate 0.003" in text]) == 3


def test_the_lowest_rate_learns_for_longer() -> None:
    epochs = {
        run.optimisation.learning_rate: run.optimisation.epochs for run in SMALL.runs.values()
    }
    assert epochs == {0.3: 16, 0.03: 16, 0.003: 64}


def test_pairs_share_weights_and_differ_in_order() -> None:
    firsts = list(PAPER.runs.values())[::3]
    assert [t.optimisation.learning_rate for t in firsts] == [3e-2, 3e-3, 3e-4, 3e-2]
    assert [t.data for t in firsts] == ["cifar10"] * 3 + ["cifar100"]
    assert [run.seed for run in PAPER.runs.values()] == 4 * [0, 1, 2]
    for config in (SMALL, PAPER):
        assert all(training.order_seed is None for training in config.runs.values())
        assert len(RECIPE.parts(config)) == len(config.runs)
