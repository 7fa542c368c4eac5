"""Two runs and the networks between them: real, stopped, and claims on made-up numbers."""

from typing import Any

import pytest
import torch
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
from ncscope_lab.quantities import replace_fields
from ncscope_lab.training.settings import Training

SMALL = EXPERIMENT.scales["small"]


def brief(training: Training, **given: Any) -> Training:
    """One epoch of few images."""
    return replace_fields(training, epochs=1, every=1, balanced=150, batch_size=50, **given)


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
