"""Features in training mode: those of a step, and no effect on the network."""

import pytest
import torch

from ncscope.lab.papers.mse.training_mode import TRAINING_MODE, training_mode, with_batch_statistics
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.loop import EpochEnd
from ncscope.lab.training.supervised import prepared
from ncscope.models.networks.catalogue import build
from tests.lab.papers.mse.histories import small, tiny


@pytest.mark.parametrize("network", ["small-vgg", "small-resnet", "small-densenet"])
def test_outputs_in_evaluation_mode_are_those_of_a_step(network: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, images = build(network, 10, in_channels=1, image_size=8), torch.randn(32, 1, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    copy = with_batch_statistics(model).eval()
    assert torch.equal(copy(images), copy(images))
    assert not torch.allclose(copy(images), model.eval()(images))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.allclose(copy(images), model.train()(images), atol=1e-6)


def test_batches_are_those_of_the_next_epoch_and_the_run_is_left_alone() -> None:
    (run,) = tiny(small("mse")).runs.values()
    bench = prepared(run, Resources())
    before = {name: value.clone() for name, value in bench.learner.model.state_dict().items()}
    first, again, other = (training_mode(bench, EpochEnd(epoch, 0, 0.0))[0] for epoch in (0, 0, 1))
    assert first == again
    assert first.split == TRAINING_MODE
    assert first["mse_off_path"] == pytest.approx(other["mse_off_path"], rel=0.1)
    assert first["mse_off_path"] != other["mse_off_path"]
    after = bench.learner.model.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())
