"""Mixed images have the shares of the classes that their labels say."""

import pytest
import torch

from ncscope_lab.training.objectives import mix_images


@pytest.fixture
def batch():
    """Image k is all k, so that a pixel says where it is from."""
    labels = torch.arange(1, 5)
    return labels[:, None, None, None].expand(-1, 1, 8, 8).float(), labels


@pytest.mark.parametrize("step", range(12))
def test_shares_are_those_of_the_pixels(batch, step):
    images, shares = mix_images(*batch, num_classes=5, seed=0, step=step)
    torch.testing.assert_close(shares.sum(1), torch.ones(4))
    torch.testing.assert_close(images.mean((1, 2, 3)), shares @ torch.arange(5.0))


def test_both_kinds_occur(batch):
    cut = [bool((mix_images(*batch, 5, 0, step)[0] % 1 == 0).all()) for step in range(40)]
    assert 8 < sum(cut) < 32


def test_the_mixture_follows_from_seed_and_step(batch):
    first, _ = mix_images(*batch, 5, seed=1, step=2)
    torch.rand(3)
    assert torch.equal(mix_images(*batch, 5, seed=1, step=2)[0], first)
    others = [mix_images(*batch, 5, *key)[0] for key in ((2, 2), (1, 3))]
    assert all(not torch.equal(other, first) for other in others)
