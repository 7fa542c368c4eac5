"""Two runs and the networks between them: real, stopped, and claims on made-up numbers."""

from pathlib import Path
from typing import Any

import pytest

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.info.connectivity import (
    AS_THEY_ARE,
    RECIPE,
    REESTIMATED,
    InfoConnectivity,
    between,
)
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


def test_claims_and_figures_come_out_of_a_short_run_and_of_none(results: Results) -> None:
    for found in (results, Results()):
        claims = RECIPE.claims(short(), found)
        assert all(claim.evidence for claim in claims)
        (drawing,) = RECIPE.drawings(short(), found)
        assert len(drawing.figure.axes) == 3


def path(part: str, depth: float, lift: float = 0.0) -> list[Observation]:
    """Accuracy in a valley, MIR with a hill in it, HDR that falls off either end."""
    found = []
    for statistics, share in ((AS_THEY_ARE, 1.0), (REESTIMATED, 0.5)):
        for step in range(11):
            omega = step / 10
            valley = 1 - abs(2 * omega - 1)
            values = {
                "accuracy": 0.95 - share * depth * valley,
                "mir": 0.5 - depth * valley / 4 + (lift if step == 5 else 0.0),
                "hdr": 0.2 - depth * valley / 4,
            }
            where = {"omega": omega, "statistics": statistics, "split": "between"}
            found.append(made(part, where, values))
    return found


def made_up(depths: dict[float, float], lift: float = 0.3) -> Results:
    found = []
    for part, training in SMALL.runs.items():
        depth = depths[training.optimisation.learning_rate]
        found += path(part, depth, lift if training.optimisation.learning_rate == 0.3 else 0.0)
    return Results(found)


def held(results: Results) -> dict[str, bool]:
    return {claim.text: claim.held for claim in RECIPE.claims(SMALL, results)}


def test_what_the_paper_sees_holds_and_each_part_of_it_can_fail() -> None:
    seen = held(made_up({0.3: 0.85, 0.03: 0.3, 0.003: 0.01}))
    assert len(seen) == 1 + 4 + 5 + 5 + 1
    assert all(seen.values())
    flat = held(made_up({0.3: 0.85, 0.03: 0.3, 0.003: 0.01}, lift=0.0))
    assert [text for text in flat if not flat[text]] == [
        f"digits, rate 0.3: MIR ({estimate}) rises again for omega from 0.4 to 0.6, in every pair"
        for estimate in ("exact", "batches of 64")
    ]
    apart = held(made_up({0.3: 0.85, 0.03: 0.9, 0.003: 0.5}))
    lost = [text for text in apart if not apart[text]]
    assert len(lost) == 3 + 5  # MIR's hill makes up for the middle rate; nothing is connected
    shallow = held(made_up({0.3: 0.5, 0.03: 0.3, 0.003: 0.01}))
    assert "digits, rate 0.3: accuracy falls to random guessing" in next(
        text for text in shallow if not shallow[text]
    )


def test_nothing_holds_of_what_was_not_measured() -> None:
    good = made_up({0.3: 0.85, 0.03: 0.3, 0.003: 0.01})
    assert not any(held(unmeasured(good)).values())
    one = held(Results([*good[:-30], *unmeasured(good[-30:])]))
    assert not any(one[text] for text in one if "rate 0.003" in text)


def test_pairs_share_weights_and_differ_in_order() -> None:
    assert [t.optimisation.learning_rate for t in PAPER.runs.values()] == [3e-2, 3e-3, 3e-4, 3e-2]
    assert [t.data for t in PAPER.runs.values()] == ["cifar10"] * 3 + ["cifar100"]
    for config in (SMALL, PAPER):
        assert all(training.order_seed is None for training in config.runs.values())
        assert len(RECIPE.parts(config)) == len(config.runs)
