"""The fixed classifier is a simplex, and no parameter."""

import pytest
import torch

from ncscope.errors import InputError
from ncscope.models.networks.simplex_head import SimplexHead


def head(in_features: int, num_classes: int, seed: int = 0) -> SimplexHead:
    return SimplexHead(in_features, num_classes, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("d", "k"), [(7, 4), (3, 4), (2, 2)])
def test_rows_are_a_simplex(d: int, k: int) -> None:
    weight = head(d, k).weight
    gram = (k * torch.eye(k) - 1) / (k - 1)
    assert weight.dtype == torch.float32
    torch.testing.assert_close(weight @ weight.T, gram, rtol=0, atol=1e-6)
    torch.testing.assert_close(weight.sum(0), torch.zeros(d), rtol=0, atol=1e-6)


def test_outputs_are_inner_products() -> None:
    net, x = head(6, 3), torch.randn(5, 6)
    torch.testing.assert_close(net(x), x @ net.weight.T)


def test_every_feature_is_read() -> None:
    assert (head(50, 3).weight.norm(dim=0) > 0).all()
    assert not torch.equal(head(50, 3, seed=0).weight, head(50, 3, seed=1).weight)


def test_is_saved_with_the_model_and_has_no_parameters() -> None:
    net, other = head(6, 3), head(6, 3, seed=1)
    assert list(net.parameters()) == []
    other.load_state_dict(net.state_dict())
    assert torch.equal(other.weight, net.weight)
    assert repr(net) == "SimplexHead(in_features=6, out_features=3)"


def test_too_few_features() -> None:
    with pytest.raises(InputError, match="dim >= k - 1 = 9"):
        head(8, 10)
