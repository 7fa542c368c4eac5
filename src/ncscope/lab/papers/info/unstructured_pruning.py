"""Unstructured pruning: the smallest weights of a whole network are set to zero and stay zero."""

import copy

from torch import Tensor, nn
from torch.nn.utils import prune


def pruned(model: nn.Module, sparsity: float) -> nn.Module:
    """Copy a network without the smallest weights of all its convolutions and linear layers.

    A pruned layer's ``weight`` is the product of the parameter ``weight_orig`` and the fixed buffer
    ``weight_mask``, computed before each call, so removed weights stay zero in training. Biases and
    batch norms are not pruned. Source: INFO section 5.4, after Han et al. 2015.

    Args:
        model: Dense network, which is not changed.
        sparsity: Share of these weights to remove, from 0 to below 1.

    Example:
        >>> import torch
        >>> layer = nn.Linear(2, 2)
        >>> with torch.no_grad():
        ...     _ = layer.weight.copy_(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
        >>> pruned(layer, 0.5).weight.tolist()
        [[0.0, -0.0], [3.0, 4.0]]
    """
    sparse = copy.deepcopy(model)
    layers = [(layer, "weight") for layer in _prunable(sparse)]
    total = sum(layer.weight.numel() for layer, _ in layers)
    prune.global_unstructured(
        layers, pruning_method=prune.L1Unstructured, amount=round(sparsity * total)
    )
    return sparse


def sparsity_of(model: nn.Module) -> float:
    """Compute the share of zeros among the weights that `pruned` chooses from.

    Example:
        >>> sparsity_of(pruned(nn.Linear(10, 10), 0.3))
        0.3
    """
    weights: list[Tensor] = [layer.weight for layer in _prunable(model)]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def _prunable(model: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    kinds = (nn.Conv2d, nn.Linear)
    return [module for module in model.modules() if isinstance(module, kinds)]
