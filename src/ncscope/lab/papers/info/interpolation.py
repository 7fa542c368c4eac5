"""Networks interpolated between two networks, and re-estimation of batch-norm statistics."""

import copy
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from ncscope.models.evaluation_mode import evaluation_mode


def interpolated(first: nn.Module, second: nn.Module, omega: float) -> nn.Module:
    r"""Return the network with weights $(1-\omega)\theta_1+\omega\theta_2$, real buffers likewise.

    Running means and variances are thus interpolated too; see `reestimated` for the alternative.
    Integer buffers, such as counts, are taken from the first network. The values 0 and 1 return the
    two networks themselves.

    Source: INFO section 5.2, after Frankle et al. 2020.

    Args:
        first: The network at 0.
        second: The network at 1, of the same kind.
        omega: Position between the networks, from 0 to 1.

    Example:
        >>> ends = [nn.Linear(1, 1, bias=False) for _ in range(2)]
        >>> for end, value in zip(ends, (1.0, 3.0)):
        ...     _ = nn.init.constant_(end.weight, value)
        >>> interpolated(*ends, 0.25).weight.item()
        1.5
    """

    def mixed(one: Tensor, other: Tensor) -> Tensor:
        return (1 - omega) * one + omega * other if one.is_floating_point() else one

    between, other = copy.deepcopy(first), second.state_dict()
    state = {name: mixed(value, other[name]) for name, value in first.state_dict().items()}
    between.load_state_dict(state)
    return between


def reestimated(model: nn.Module, loader: Iterable[Any]) -> nn.Module:
    """Return the network with re-estimated batch-norm statistics, by torch's `update_bn`.

    Running means and variances become averages over the batches, with the network in training
    mode. Random layers draw from torch's global generators, whose states are restored.

    Args:
        model: The network, which is not changed.
        loader: Batches of images, or of tuples with the images first.

    Example:
        >>> import torch
        >>> data = [torch.tensor([[1.0], [3.0]])]
        >>> reestimated(nn.BatchNorm1d(1), data).running_mean.item()
        2.0
    """
    copied = copy.deepcopy(model)
    parameter = next(copied.parameters(), None)
    with evaluation_mode(copied):  # restores the random states; `update_bn` sets the modes itself
        update_bn(loader, copied, None if parameter is None else parameter.device)
    return copied
