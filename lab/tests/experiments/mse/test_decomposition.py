"""The parts of the MSE loss: every claim both ways, their weight decay, and training mode."""

import pytest
import torch
from lab.tests.experiments.mse.histories import small, tiny
from lab.tests.experiments.mse.stories import DECOMPOSITION_SETTINGS, decomposed

from ncscope.models.networks.catalogue import build
from ncscope_lab.experiments.mse.decomposition import (
    TRAINING_MODE,
    copy_with_batch_statistics,
    mean_share,
    measure_shares,
    measure_training_mode,
)
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import prepare_bench, training_events


def test_the_share_is_averaged_over_epochs_and_not_over_measurements() -> None:
    path = [row for row in decomposed() if row.part == next(iter(DECOMPOSITION_SETTINGS.runs))]
    path = [row for row in path if row.split == "train"]
    assert measure_shares(path) == pytest.approx([0.6, 0.04 / 0.3, 8e-3 / 0.101, 8e-4 / 0.0101])
    uneven = [path[0], path[1], path[3]]  # epochs 0, 4 and 12
    first, second, third = measure_shares(uneven)
    expected = (4 * (first + second) / 2 + 8 * (second + third) / 2) / 12
    assert mean_share(uneven) == pytest.approx(expected)


@pytest.mark.slow
def test_the_decay_of_the_loss_is_that_of_training() -> None:
    def loss(decay: float) -> float:
        how = Optimisation(epochs=1, weight_decay=decay)
        one = Training(
            data="digits", network="small-vgg", layers=(), groups=("mse",), optimisation=how
        )
        first = next(training_events(one, Resources()))  # before the first step
        return first.model_record.layers[-1].metrics["mse_loss"]

    bare = loss(0.0)
    assert loss(0.2) - bare == pytest.approx(2 * (loss(0.1) - bare), rel=1e-6)
    assert loss(0.1) > bare


def test_a_decoupled_decay_is_no_part_of_the_loss() -> None:
    assert Optimisation(weight_decay=0.1).decay_of_loss == 0.1
    assert Optimisation(weight_decay=0.1, optimiser="adamw").decay_of_loss == 0


@pytest.mark.parametrize("network", ["small-vgg", "small-resnet", "small-densenet"])
def test_outputs_in_evaluation_mode_are_those_of_a_step(network: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, images = build(network, 10, in_channels=1, image_size=8), torch.randn(32, 1, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    copy = copy_with_batch_statistics(model).eval()
    assert torch.equal(copy(images), copy(images))
    assert not torch.allclose(copy(images), model.eval()(images))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.allclose(copy(images), model.train()(images), atol=1e-6)


def test_batches_are_those_of_the_next_epoch_and_the_run_is_left_alone() -> None:
    (run,) = tiny(small("mse")).runs.values()
    bench = prepare_bench(run, Resources())
    before = {name: value.clone() for name, value in bench.learner.model.state_dict().items()}
    first, again, other = (
        measure_training_mode(bench, EpochEnd(epoch, 0, 0.0))[0] for epoch in (0, 0, 1)
    )
    assert first == again
    assert first.split == TRAINING_MODE
    assert first["mse_off_path"] == pytest.approx(other["mse_off_path"], rel=0.1)
    assert first["mse_off_path"] != other["mse_off_path"]
    after = bench.learner.model.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())
