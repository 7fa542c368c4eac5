"""PFC: collapse from layer to layer, and the prediction on the line between two layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.metrics.class_means import etf_distance
from ncscope.stats.paths import CrossMoments
from ncscope.stats.statistics import ClassStatistics


@dataclass(frozen=True)
class Geodesic:
    r"""Straight line $h^{(t)}=(1-t)h^{(0)}+t\,h^{(1)}$ between the features of two layers.

    Attributes:
        first: Statistics of $h^{(0)}$.
        last: Statistics of $h^{(1)}$, of the same samples and dimension.
        cross_traces: $\frac1{n_c}\sum_i\langle h^0_i-\mu^0_c,h^1_i-\mu^1_c\rangle$ by class.
    """

    first: ClassStatistics
    last: ClassStatistics
    cross_traces: Float[Tensor, " k"]

    def pfc1(self, t: float) -> Float[Tensor, ""]:
        r"""$\operatorname{Tr}\Sigma_W/\operatorname{Tr}\Sigma_B$ of $h^{(t)}$, in closed form.

        Both traces are quadratics in $t$. Source: PFC theorem 1, fig. 3.
        """
        u, prior = 1 - t, self.first.prior
        cross = prior @ self.cross_traces
        within = (
            u * u * self.first.within_trace + 2 * t * u * cross + t * t * self.last.within_trace
        )
        means = u * self._mean_deviations[0] + t * self._mean_deviations[1]
        between = prior @ means.square().sum(1)
        return torch.where(between > 0, within / between, torch.nan)

    def pfc2(self, t: float) -> Float[Tensor, ""]:
        """Compute the ETF distance of the class means at a position. Source: PFC theorem 2."""
        distance = etf_distance((1 - t) * self._frames[0] + t * self._frames[1])
        # Two means are a simplex wherever they are: the rest is rounding.
        return distance * 0 if self.first.k == 2 else distance

    def alignment(self) -> Float[Tensor, ""]:
        r"""$\sum_k\langle\tilde h_k^{(0)},\tilde h_k^{(1)}\rangle$ (PFC theorem 1: $\ge0$)."""
        return (self._frames[0] * self._frames[1]).sum()

    def transport_cost(self) -> Float[Tensor, ""]:
        r"""$\lVert\tilde H(1)-\tilde H(0)\rVert_F^2$ of the centred class means (PFC theorem 2)."""
        return (self._frames[1] - self._frames[0]).square().sum()

    @cached_property
    def _mean_deviations(self) -> tuple[Float[Tensor, "k d"], Float[Tensor, "k d"]]:
        return self.first.centred, self.last.centred

    @cached_property
    def _frames(self) -> tuple[Float[Tensor, "k d"], Float[Tensor, "k d"]]:
        return self.first.frame, self.last.frame


def geodesic(first: ClassStatistics, last: ClassStatistics, pair: CrossMoments) -> Geodesic:
    """Return the line between two layers, from their statistics and cross moments.

    Args:
        first: Statistics of the first layer.
        last: Statistics of the last layer, for the same samples and dimension.
        pair: Cross moments of the two layers.
    """
    cross = pair.cross[first.classes] / first.counts
    return Geodesic(first, last, cross.to(first.means))


def relative_position(step_lengths: Sequence[float]) -> list[float]:
    r"""Return the share of the path length up to each layer.

    $\sum_{j<l}\sum_i\lVert h_i^{j+1}-h_i^j\rVert/\sum_{j<L}\sum_i\lVert h_i^{j+1}-h_i^j\rVert$.
    Source: PFC IV-A.

    Args:
        step_lengths: $\sum_i\lVert h_i^{j+1}-h_i^j\rVert$ for j = 0..L-1.

    Returns:
        L + 1 positions from 0 to 1; all but the first are NaN if the path has length 0.

    Example:
        >>> relative_position([1.0, 3.0])
        [0.0, 0.25, 1.0]
    """
    total = sum(step_lengths)
    travelled = [sum(step_lengths[:layer]) for layer in range(1, len(step_lengths) + 1)]
    return [0.0] + [length / total if total > 0 else float("nan") for length in travelled]


def straightness(step_lengths: Sequence[float], chord: float) -> float:
    r"""Return the distance between the end layers over the length of the path between them.

    $\sum_i\lVert h_i^L-h_i^0\rVert/\sum_{j<L}\sum_i\lVert h_i^{j+1}-h_i^j\rVert$. Range [0, 1]: 1
    if every sample moves along a straight line in one direction, as PFC's geodesic curve
    assumption says; $1/\sqrt L$ for L equally long steps at right angles.

    Args:
        step_lengths: $\sum_i\lVert h_i^{j+1}-h_i^j\rVert$ for j = 0..L-1.
        chord: $\sum_i\lVert h_i^L-h_i^0\rVert$.

    Returns:
        Ratio in [0, 1]; NaN if the path has length 0.

    Example:
        >>> straightness([3.0, 4.0], chord=5.0)  # two steps at a right angle
        0.7142857142857143
    """
    total = sum(step_lengths)
    return chord / total if total > 0 else float("nan")


def effective_depth(ncc_accuracies: Sequence[float], epsilon: float = 0.0) -> int | None:
    r"""Return the $\epsilon$-effective depth: the first layer with NCC error at most $\epsilon$.

    Source: PFC III-A (after Galanti et al. 2022).

    Args:
        ncc_accuracies: NCC accuracy of each layer, in forward order.
        epsilon: Allowed NCC error.

    Returns:
        Index of the layer, or None if no layer has such an error.

    Example:
        >>> effective_depth([0.6, 0.98, 1.0], epsilon=0.05)
        1
    """
    good = (layer for layer, hit in enumerate(ncc_accuracies) if hit >= 1 - epsilon)
    return next(good, None)


def order_breaks(values: Sequence[float], falling: bool) -> list[tuple[int, float]]:
    """Return where consecutive layers break the order that progressive collapse predicts.

    Args:
        values: A metric of each layer, in forward order.
        falling: Expect a fall with depth if True (PFC1, PFC2), a rise if False (PFC3).

    Returns:
        Index of the later layer and size of the change in the wrong direction, for each break.

    Example:
        >>> order_breaks([3.0, 1.0, 1.5], falling=True)
        [(2, 0.5)]
    """
    sign = 1 if falling else -1
    steps = [sign * (later - earlier) for earlier, later in pairwise(values)]
    return [(layer, step) for layer, step in enumerate(steps, 1) if step > 0]
