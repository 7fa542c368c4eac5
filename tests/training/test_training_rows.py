"""When a training run measures, and the batches it mixes."""

import torch
from torch import nn

from ncscope.training.data.mixing import mixed
from ncscope.training.objectives import objective
from ncscope.training.optimisation import Optimisation
from ncscope.training.settings import Training


def settings(**given) -> Training:
    return Training(data="digits", network="small-resnet", **given)


def test_measured_at_even_distances_and_at_the_end() -> None:
    run = Optimisation(epochs=50)
    assert settings(optimisation=run, every=20).due == [0, 20, 40, 50]
    assert settings(optimisation=run, every=25).due == [0, 25, 50]
    assert settings(optimisation=run, measurements=3).due == [0, 1, 50]


def test_the_objective_of_mixed_batches_is_cross_entropy_with_the_shares() -> None:
    model, images, labels = nn.Flatten(), torch.rand(4, 1, 1, 3), torch.tensor([0, 1, 2, 0])
    mixing = objective(settings(mixing=True, seed=7), 3, torch.device("cpu"))
    torch.manual_seed(5)
    loss = mixing(model, (images, labels))
    blend, shares = mixed(images, labels, 3, 7, 5)
    expected = -(shares * blend.flatten(1).log_softmax(1)).sum(1).mean()
    assert torch.allclose(loss, expected)
    torch.manual_seed(6)
    assert not torch.allclose(mixing(model, (images, labels)), expected)
