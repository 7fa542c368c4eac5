"""Paths of a sample through networks in training: rows by step, and the row of the whole."""

import math
from functools import cache

import pytest
import torch

from ncscope_lab.experiments.pfc.paths import SAMPLE, WHOLE, path_observations
from ncscope_lab.observations import Observation
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Bench, measure_splits, prepare_bench

END = EpochEnd(epoch=3, step=60, loss=0.5)


@cache
def bench(network: str, layers: tuple[str, ...] | None) -> Bench:
    settings = Training(data="digits", network=network, layers=layers, balanced=200)
    return prepare_bench(settings, Resources())


def rows(network: str, layers: tuple[str, ...] | None, samples: int) -> dict[str, Observation]:
    found = path_observations(bench(network, layers), END, samples)
    assert all((row.step, row.epoch, row.split) == (60, 3, SAMPLE) for row in found)
    return {row.layer: row for row in found}


FC = ("small-residual", ("stem", "blocks.*"))


def test_every_block_has_a_row_and_the_whole_path_one() -> None:
    found = rows(*FC, samples=50)
    assert list(found) == [*(f"blocks.{index}" for index in range(8)), WHOLE]
    whole = found.pop(WHOLE)
    assert whole["samples"] == 50
    steps = [float(row["displacement"]) for row in found.values()]
    assert whole["path_energy"] == pytest.approx(8 * sum(steps))
    for row in (*found.values(), whole):
        assert 0 <= float(row["wasserstein"]) <= float(row["displacement"]) * (1 + 1e-9)
        assert float(row["displacement"]) < float(row["random_displacement"])
    for row in found.values():
        assert 0 < float(row["energy_constant"]) < float(row["energy_bound"])


def test_the_weights_are_those_of_the_block_and_the_energy_its_output_s() -> None:
    found = rows(*FC, samples=200)["blocks.2"]
    model = bench(*FC).learner.evaluated
    block = model.get_submodule("blocks.2")
    weights = sum(float(p.detach().double().square().sum()) for p in block.parameters())
    assert found["weight_norm"] == pytest.approx(weights)
    images = torch.stack([pixels for pixels, _ in bench(*FC).data.train])
    with torch.no_grad():
        x = model.blocks[:2](model.stem(images.flatten(1)))
        moved = block(x) - x
    assert found["displacement"] == pytest.approx(float(moved.square().sum() / 200), rel=1e-5)


def test_the_whole_path_is_as_straight_as_the_measurement_says() -> None:
    """Up to the norms: the measurement averages lengths, the row squared lengths."""
    train, _ = measure_splits(bench(*FC), END)
    whole = rows(*FC, samples=200)[WHOLE]
    assert train.model_record.straightness == pytest.approx(
        float(whole["path_straight"]) ** 0.5, rel=0.02
    )
    assert train.model_record.geodesic is not None
    assert math.copysign(1, train.model_record.geodesic.alignment) == math.copysign(
        1, float(whole["alignment_cosine"])
    )
    first, *_, last = train.model_record.layers
    assert whole["remaining_pfc1"] == pytest.approx(last.metrics["pfc1"] / first.metrics["pfc1"])


def test_maps_are_flattened_and_convolutional_blocks_have_no_bound() -> None:
    found = rows("small-resnet", None, samples=20)
    assert list(found) == ["stages.2.blocks.1", WHOLE]
    assert "energy_bound" not in found["stages.2.blocks.1"]
    assert float(found["stages.2.blocks.1"]["energy_constant"]) > 0


def test_a_path_needs_two_layers_of_one_dimension() -> None:
    assert rows("small-conv", ("stages.0", "stages.1"), samples=20) == {}


def test_measuring_leaves_the_network_as_it_was() -> None:
    own = bench("small-resnet", None)
    before = {name: value.clone() for name, value in own.learner.model.state_dict().items()}
    flags = [module.training for module in own.learner.model.modules()]
    state = torch.get_rng_state()
    path_observations(own, END, samples=20)
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in own.learner.model.modules()] == flags
    after = own.learner.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_features_are_those_of_evaluation() -> None:
    """Batch norms use their running statistics, also where the network is in training mode."""
    model = bench("small-resnet", None).learner.evaluated
    found = []
    for mode in (True, False):
        model.train(mode)
        found.append(rows("small-resnet", None, samples=20)[WHOLE]["displacement"])
    assert found[0] == found[1]
