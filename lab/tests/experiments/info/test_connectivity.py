"""Two runs and the networks between them: real, stopped, and claims on made-up numbers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lab.tests.experiments.info.brief import brief, made, recorded, stopped_in
from lab.tests.observed import results_of
from torch import nn

from ncscope.models.networks.catalogue import build
from ncscope_lab.experiments.info.connectivity import (
    AS_THEY_ARE,
    EXPERIMENT,
    REESTIMATED,
    InfoConnectivity,
    interpolate,
    reestimate_statistics,
)
from ncscope_lab.observations import Observation, Results
from ncscope_lab.runs.resources import Resources

SMALL = EXPERIMENT.scales["small"]


def short(**given: Any) -> InfoConnectivity:
    name, training = next(iter(SMALL.runs.items()))
    return InfoConnectivity(runs={name: brief(training, **given)}, intervals=2)


@pytest.fixture(scope="module")
def results() -> Results:
    (part,) = EXPERIMENT.parts(short())
    return results_of(part)


def ends_of(results: Results, run: str) -> Observation:
    return [row for row in results if row.split == f"test, {run} run"][-1]


@pytest.mark.slow
def test_the_ends_of_the_way_are_the_two_runs(results: Results) -> None:
    path = [row for row in results if row.get("statistics") == AS_THEY_ARE]
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
    anew = [row for row in results if row.get("statistics") == REESTIMATED]
    assert [row["omega"] for row in anew] == [0.0, 0.5, 1.0]
    assert all(a["mir"] != b["mir"] for a, b in zip(path, anew, strict=True))


@pytest.mark.slow
def test_stopped_in_the_second_run_it_goes_on_to_the_same_results(tmp_path: Path) -> None:
    (part,) = EXPERIMENT.parts(short(groups=("nc4",)))
    resources = Resources(checkpoints=tmp_path, checkpoint_interval=0.0)
    stopped_in(part, resources, lambda event: event.split.endswith("second run"))
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second"}
    assert recorded(part.run(resources)) == recorded(part.run(Resources()))


def path(part: str, depth: float, lift: float = 0.0, training: float = 1.0) -> list[Observation]:
    """Accuracy in a valley, MIR with a hill in it, HDR that falls off either end."""
    found = [
        made(part, {"epoch": 16, "split": f"train, {run} run"}, {"accuracy": training})
        for run in ("first", "second")
    ]
    for statistics, share in ((REESTIMATED, 1.0), (AS_THEY_ARE, 1.1)):
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
        depth = depths[rate] * (1 + 0.01 * (run.seed % 3 - 1))
        found += path(part, depth, lift * (rate == 0.3), (training or {}).get(rate, 1.0))
    return Results(found)


def verdicts(results: Results) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in EXPERIMENT.judge(SMALL, results)}


def lost(results: Results) -> list[str]:
    return [text for text, verdict in verdicts(results).items() if verdict != "held"]


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


IMAGES = torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 3 + 1


def network(seed: int) -> nn.Module:
    """A network whose batch norms have seen images."""
    torch.manual_seed(seed)
    model = build("small-wrn", 10, in_channels=1, image_size=8)
    for batch in IMAGES.split(8):
        model(batch + seed)
    return model.eval()


def test_the_ends_are_the_two_networks_and_stay_as_they_are() -> None:
    ends = network(1), network(2)
    before = [end(IMAGES) for end in ends]
    for omega, expected in zip((0.0, 1.0), before, strict=True):
        assert torch.equal(interpolate(*ends, omega)(IMAGES), expected)
    middle = interpolate(*ends, 0.25)
    for name, value in middle.state_dict().items():
        one, other = (end.state_dict()[name] for end in ends)
        if value.is_floating_point():
            assert torch.allclose(value, 0.75 * one + 0.25 * other)
    assert not torch.allclose(middle(IMAGES), before[0])
    assert all(torch.equal(end(IMAGES), old) for end, old in zip(ends, before, strict=True))


def test_statistics_found_anew_are_those_of_the_batches() -> None:
    model = network(1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    batches = [(batch, torch.zeros(8)) for batch in IMAGES.split(8)]
    anew = reestimate_statistics(model, batches)
    maps = torch.stack([model.stem(batch).mean((0, 2, 3)) for batch in IMAGES.split(8)])
    first = next(module for module in anew.modules() if isinstance(module, nn.BatchNorm2d))
    assert torch.allclose(first.running_mean, maps.mean(0), atol=1e-5)
    assert first.momentum == 0.1
    assert not anew.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
