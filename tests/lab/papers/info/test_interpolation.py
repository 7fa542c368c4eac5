"""Networks between two, statistics of batch norms found anew, and what pruning leaves."""

import pytest
import torch
from torch import nn

from ncscope.lab.papers.info.interpolation import interpolated, reestimated
from ncscope.lab.papers.info.unstructured_pruning import pruned, sparsity_of
from ncscope.models.networks.catalogue import build

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
        assert torch.equal(interpolated(*ends, omega)(IMAGES), expected)
    middle = interpolated(*ends, 0.25)
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
    anew = reestimated(model, batches)
    maps = torch.stack([model.stem(batch).mean((0, 2, 3)) for batch in IMAGES.split(8)])
    first = next(module for module in anew.modules() if isinstance(module, nn.BatchNorm2d))
    assert torch.allclose(first.running_mean, maps.mean(0), atol=1e-5)
    assert first.momentum == 0.1
    assert not anew.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_smallest_weights_of_all_layers_go_and_stay_away() -> None:
    dense = network(1)
    sparse = pruned(dense, 0.7)
    weights = [module.weight for module in dense.modules() if isinstance(module, nn.Conv2d)]
    weights.append(dense.fc.weight)
    magnitudes = torch.cat([weight.detach().abs().flatten() for weight in weights])
    cut = magnitudes.kthvalue(round(0.7 * len(magnitudes))).values
    assert torch.equal(sparse.fc.weight != 0, dense.fc.weight.abs() > cut)
    assert sparsity_of(sparse) == pytest.approx(0.7, abs=1e-4)
    optimiser = torch.optim.SGD(sparse.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(2):
        nn.functional.cross_entropy(sparse(IMAGES), torch.arange(24) % 10).backward()
        optimiser.step()
    sparse(IMAGES)
    assert sparsity_of(sparse) == pytest.approx(0.7, abs=1e-4)
    assert not torch.equal(sparse.fc.weight, pruned(dense, 0.7).fc.weight)
    assert sparsity_of(dense) == 0


def test_nothing_pruned_is_the_network_itself() -> None:
    dense = network(1)
    assert torch.equal(pruned(dense, 0.0)(IMAGES), dense(IMAGES))
