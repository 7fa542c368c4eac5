r"""Paths of a sample of training images through a network in training, as rows.

The rows have the split `SAMPLE`. One row for each step between layers of one dimension, named after
the later layer, compares the step with optimal transport and its energy with the block's weights.
The row `WHOLE` has the numbers of the whole path and the premises of PFC's theorems.

Source: PFC II-C (proposition 1, the Benamou-Brenier formula; assumption 1), III-B, III-C. All
distances are between empirical distributions of n samples with weights 1/n.

The formula says $W_2^2(\mu_0,\mu_1)\le\int_0^1\lVert v_t\rVert^2dt$. A network of L blocks that
take equal times has the velocity $v_t=L(h^{l+1}-h^l)$, so that its energy is
$L\sum_l\frac1n\sum_i\lVert h_i^{l+1}-h_i^l\rVert^2$. The regulariser of PFC (12) has no factor L:
without it the sum is no upper bound, because L equal steps along the optimal line have $W_2^2/L$.

In high dimensions the first of the three conditions of `Route` says little: samples lie so far
apart that even an untrained network pairs the samples of its layers optimally.

For $v_l(x)=\sigma(W_lx)$ and bounded features the paper states $C\sum_l\lVert W_l\rVert_F^2\ge
\sum_l\lVert v_l\rVert_{L^2(\mu_l)}^2$ without a value of C. Its argument gives
$C=\max_{l,i}\lVert x_i^{(l)}\rVert^2$, because $\lVert\sigma(Wx)\rVert\le\lVert Wx\rVert\le\lVert
W\rVert_F\lVert x\rVert$. With the bias that our blocks have, the bound is that of the matrix
$[W,b]$ and the features $(x,1)$.

The constant depends on the features, and through them on the weights. There is none for blocks of
two or more layers: with both matrices scaled by s, the energy of two layers without bias grows like
$s^4$ and the decay like $s^2$. There is none either with batch normalisation, which makes the
energy independent of the scale.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise

import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from ncscope.data.loaders import make_measurement_loader
from ncscope.models.evaluation_mode import evaluation_mode, restore_buffers
from ncscope.models.layers import find_layer, match_layers
from ncscope.models.networks.catalogue import layers_to_tap
from ncscope.models.networks.residual import ResidualBlock
from ncscope.models.wrappers import unwrap
from ncscope_lab.observations import Observation, Value
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.supervised import Bench

SAMPLE = "sample"
"""Split of the rows: a balanced sample of the training images."""

WHOLE = "first to last"
"""Layer of the row of the whole path."""


def path_observations(bench: Bench, end: EpochEnd, samples: int) -> list[Observation]:
    """Measure the path of a sample of training images through the layers of one dimension.

    The layers are the last successive ones of one dimension.

    Args:
        bench: The run, with the network at the end of the epoch.
        end: State of training at the end of the epoch.
        samples: Number of images, equally many for each class; fewer if the training set is
            smaller.

    Returns:
        One row for each step, and one for the whole path; none if fewer than two successive layers
        have one dimension.
    """
    model, device = unwrap(bench.learner.evaluated), bench.fabric.device
    images = bench.data.train
    if samples < len(images):
        images = images.draw_balanced(samples)
    patterns = bench.settings.layers
    names = layers_to_tap(model) if patterns is None else match_layers(model, patterns)
    outputs: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str, module: nn.Module, inputs: object, output: Tensor) -> None:
        outputs[name].append(output.detach().flatten(1).to(torch.float64))

    labels = []
    with ExitStack() as stack:
        stack.enter_context(evaluation_mode(model))
        stack.enter_context(restore_buffers(model))
        for name in names:
            hook = find_layer(model, name).register_forward_hook(partial(keep, name))
            stack.callback(hook.remove)
        for pixels, classes in make_measurement_loader(images, batch_size=100):
            model(pixels.to(device))
            labels.append(classes)
    whole = {name: torch.cat(batches) for name, batches in outputs.items()}
    by_dim = [list(group) for _, group in groupby(whole, key=lambda name: whole[name].shape[1])]
    layers = next((group for group in reversed(by_dim) if len(group) > 1), [])
    if not layers:
        return []
    path = route([whole[name] for name in layers])
    rows: dict[str, dict[str, Value]] = {}
    for step, (name, following) in zip(path.steps, pairwise(layers), strict=True):
        block = find_layer(model, following)
        rows[following] = {
            **list_values(step),
            **block_energy(block, whole[name], whole[following]),
        }
    rows[WHOLE] = {
        **list_values(path.ends),
        "samples": len(images),
        "path_energy": path.energy,
        "path_straight": path.straight,
        "path_even": path.even,
        "path_optimality": path.optimality,
        "path_geodesic": path.geodesic,
        **premises(whole[layers[0]], whole[layers[-1]], torch.cat(labels).to(device)),
    }
    return [
        Observation(end.step, end.epoch, SAMPLE, layer, values=values)
        for layer, values in rows.items()
    ]


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


def list_values(step: Displacement) -> dict[str, Value]:
    """List the numbers of a step, or of the whole path, by the keys of a row."""
    return {
        "wasserstein": step.optimal,
        "displacement": step.network,
        "random_displacement": step.random,
        "pairing_efficiency": step.efficiency,
        "pairing_advantage": step.advantage,
    }


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


def premises(
    first: Float[Tensor, "n d"], last: Float[Tensor, "n d"], labels: Tensor
) -> dict[str, float]:
    r"""Compute the premises of PFC's theorems 1 and 2 for the line between two layers.

    Args:
        first: Features of the samples in the first layer.
        last: Features of the same samples in the last layer.
        labels: Class of each sample.

    Returns:
        ``alignment_cosine``, the cosine of the matrices of centred class means,
        $\langle\tilde H(0),\tilde H(1)\rangle/(\lVert\tilde H(0)\rVert\lVert\tilde H(1)\rVert)$;
        theorem 1 needs at least 0. ``remaining_pfc1``, PFC1 of the last layer over PFC1 of the
        first; theorem 1 needs 0: features that are equal to their class means. ``relative_cost``,
        $\lVert\tilde H(1)-\tilde H(0)\rVert_F^2/\lVert\tilde H(1)\rVert_F^2$, which theorem 2 needs
        to be small.
    """
    ends = [_split(features.to(torch.float64), labels) for features in (first, last)]
    (m0, pfc1_first), (m1, pfc1_last) = ends
    norms = float(m0.norm() * m1.norm())
    return {
        "alignment_cosine": _ratio(float((m0 * m1).sum()), norms),
        "remaining_pfc1": _ratio(pfc1_last, pfc1_first),
        "relative_cost": _ratio(float((m1 - m0).square().sum()), float(m1.square().sum())),
    }


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


def block_energy(
    block: nn.Module, before: Float[Tensor, "n d"], after: Float[Tensor, "n d"]
) -> dict[str, float]:
    r"""Compare the energy of one residual block with its weights.

    The energy is the mean squared displacement of the samples,
    $\frac1n\sum_i\lVert h_i^{l+1}-h_i^l\rVert^2$.

    Args:
        block: Residual block.
        before: Features that enter the block, flattened.
        after: Features that leave the block, flattened.

    Returns:
        ``weight_norm``, the sum of squares of all weights and biases of the block that are decayed;
        ``energy_constant``, the energy over the weights, the least constant for which the bound
        holds; for a block of one layer also ``energy_bound``, the constant
        $\max_i\lVert x_i\rVert^2+1$ that its argument gives. Other blocks have no constant.
    """
    x, y = before.to(torch.float64), after.to(torch.float64)
    energy = float((y - x).square().sum() / len(x))
    weights = float(sum(each.detach().double().square().sum() for each in block.parameters()))
    values = {"weight_norm": weights, "energy_constant": _ratio(energy, weights)}
    if isinstance(block, ResidualBlock):
        values["energy_bound"] = float(x.square().sum(1).max()) + 1
    return values
