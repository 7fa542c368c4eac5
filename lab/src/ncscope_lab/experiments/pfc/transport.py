r"""Transport of features by the blocks of a network, compared with optimal transport.

Source: PFC II-C (proposition 1, the Benamou-Brenier formula; assumption 1), III-B, III-C. All
distances are between empirical distributions of n samples with weights 1/n.

The formula says $W_2^2(\mu_0,\mu_1)\le\int_0^1\lVert v_t\rVert^2dt$. A network of L blocks that
take equal times has the velocity $v_t=L(h^{l+1}-h^l)$, so that its energy is
$L\sum_l\frac1n\sum_i\lVert h_i^{l+1}-h_i^l\rVert^2$. The regulariser of PFC (12) has no factor L:
without it the sum is no upper bound, because L equal steps along the optimal line have $W_2^2/L$.

In high dimensions the first of the three conditions of `Route` says little: samples lie so far
apart that even an untrained network pairs the samples of its layers optimally.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def wasserstein_squared(first: Float[Tensor, "n d"], last: Float[Tensor, "n d"]) -> float:
    r"""Compute $W_2^2=\min_\pi\frac1n\sum_i\lVert x_i-y_{\pi(i)}\rVert^2$ by an exact assignment.

    Both layers have equally many samples, so an optimal transport plan is a permutation.
    Cost: $n^2d$ and, in the worst case, $n^3$; 0.05 s for 500 samples.

    Args:
        first: Samples of the one distribution.
        last: Samples of the other, in any order.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> wasserstein_squared(x, x.flip(0) + 3)
        9.0
    """
    x, y = first.to(torch.float64), last.to(torch.float64)
    # Differences, not norms and products: between close layers the latter cancel.
    cost = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
    rows, columns = linear_sum_assignment(cost.cpu().numpy())
    return float(cost[torch.as_tensor(rows), torch.as_tensor(columns)].mean())


@dataclass(frozen=True)
class Displacement:
    r"""Mean squared distances of the samples of two layers, under three pairings.

    Attributes:
        optimal: Under the optimal pairing, $W_2^2$.
        network: Between each sample's features in both layers, $\frac1n\sum_i\lVert
            y_i-x_i\rVert^2$; at least ``optimal``, and equal if the network's pairing is optimal.
        random: Over all pairs, which is the mean for a random pairing.
    """

    optimal: float
    network: float
    random: float

    @property
    def efficiency(self) -> float:
        """Return the optimal over the network's: 1 if no exchange of samples is cheaper."""
        return _ratio(self.optimal, self.network)

    @property
    def advantage(self) -> float:
        """Return 1 for the optimal pairing, and 0 for a pairing that is as costly as a random one.

        It is negative for a pairing that is more costly than a random one.
        """
        return _ratio(self.random - self.network, self.random - self.optimal)


def displacement(first: Float[Tensor, "n d"], last: Float[Tensor, "n d"]) -> Displacement:
    """Compute the mean squared displacement from one layer to another, under three pairings.

    Args:
        first: Features of the samples in the first layer.
        last: Features of the same samples, in the same order, in the second layer.
    """
    x, y = first.to(torch.float64), last.to(torch.float64)
    between = (y.mean(0) - x.mean(0)).square().sum()
    spread = sum((each - each.mean(0)).square().sum() for each in (x, y)) / len(x)
    return Displacement(
        optimal=wasserstein_squared(x, y),
        network=float((y - x).square().sum() / len(x)),
        random=float(between + spread),
    )


@dataclass(frozen=True)
class Route:
    r"""Path of samples through layers of one dimension, and the optimal transport of its ends.

    $W_2^2\le\text{chord}^2\le\text{length}^2\le\text{energy}$, with equality where, in this order,
    the network pairs the samples of both ends optimally, all samples move along straight lines in
    the same proportions, and all steps are equally long.

    Attributes:
        steps: Displacement from each layer to the next.
        ends: Displacement from the first layer to the last.
    """

    steps: tuple[Displacement, ...]
    ends: Displacement

    @property
    def energy(self) -> float:
        r"""Return $L\sum_l\frac1n\sum_i\lVert h_i^{l+1}-h_i^l\rVert^2$, PFC proposition 1."""
        return len(self.steps) * sum(step.network for step in self.steps)

    @property
    def length(self) -> float:
        """Return the sum over the steps of the root mean square displacement."""
        return sum(step.network**0.5 for step in self.steps)

    @property
    def wasserstein_length(self) -> float:
        """Return the length of the curve of distributions, the sum of W2 over the steps."""
        return sum(step.optimal**0.5 for step in self.steps)

    @property
    def straight(self) -> float:
        """Return the squared chord over the squared length."""
        return _ratio(self.ends.network, self.length**2)

    @property
    def even(self) -> float:
        """Return the squared length over the energy: 1 for steps of one length."""
        return _ratio(self.length**2, self.energy)

    @property
    def optimality(self) -> float:
        """Return W2 squared over the energy: efficiency times straight times even; 1 at best."""
        return _ratio(self.ends.optimal, self.energy)

    @property
    def geodesic(self) -> float:
        """Return W2 over the length of the curve of distributions: 1 for a geodesic curve."""
        return _ratio(self.ends.optimal**0.5, self.wasserstein_length)


def route(layers: Sequence[Float[Tensor, "n d"]]) -> Route:
    """Compute the path of samples through two or more layers of one dimension.

    Args:
        layers: Features of the same samples in each layer, in forward order.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> path = route([x, x + 1, x + 4])
        >>> path.ends.optimal, path.length**2, path.energy
        (16.0, 16.0, 20.0)
    """
    steps = tuple(displacement(a, b) for a, b in pairwise(layers))
    return Route(steps, displacement(layers[0], layers[-1]))


@dataclass(frozen=True)
class Premises:
    r"""Premises of PFC's theorems 1 and 2 for the features of two layers.

    Attributes:
        alignment: Cosine of the matrices of centred class means, $\langle\tilde H(0),\tilde
            H(1)\rangle/(\lVert\tilde H(0)\rVert\lVert\tilde H(1)\rVert)$. Theorem 1 needs at
            least 0.
        remaining: PFC1 of the last layer over PFC1 of the first. Theorem 1 needs 0: features that
            are equal to their class means.
        relative_cost: $\lVert\tilde H(1)-\tilde H(0)\rVert_F^2/\lVert\tilde H(1)\rVert_F^2$, which
            theorem 2 needs to be small.
    """

    alignment: float
    remaining: float
    relative_cost: float


def premises(first: Float[Tensor, "n d"], last: Float[Tensor, "n d"], labels: Tensor) -> Premises:
    """Compute the premises of PFC's theorems for the line between two layers.

    Args:
        first: Features of the samples in the first layer.
        last: Features of the same samples in the last layer.
        labels: Class of each sample.
    """
    ends = [_split(features.to(torch.float64), labels) for features in (first, last)]
    (m0, pfc1_first), (m1, pfc1_last) = ends
    norms = float(m0.norm() * m1.norm())
    return Premises(
        alignment=_ratio(float((m0 * m1).sum()), norms),
        remaining=_ratio(pfc1_last, pfc1_first),
        relative_cost=_ratio(float((m1 - m0).square().sum()), float(m1.square().sum())),
    )


def _split(features: Float[Tensor, "n d"], labels: Tensor) -> tuple[Float[Tensor, "k d"], float]:
    """Return the centred class means, and PFC1 with equal weight of all classes."""
    groups = [features[labels == label] for label in labels.unique()]
    means = torch.stack([group.mean(0) for group in groups])
    within = sum(
        float((group - mean).square().sum()) / len(group)
        for group, mean in zip(groups, means, strict=True)
    )
    centred = means - means.mean(0)
    return centred, _ratio(within, float(centred.square().sum()))


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else float("nan")
