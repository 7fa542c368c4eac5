"""A score that compares similarities of features with similarities of labels: PARC."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.math.detection import group_ties
from ncscope.memory import check_memory
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.coordinates import centre

_ROUNDING = 32.0 * torch.finfo(torch.float64).eps


@check_arguments
def parc(samples: DownstreamSamples) -> Float[Tensor, ""]:
    r"""Compute the rank correlation of feature distances and label distances over all pairs.

    Spearman's coefficient, over pairs of samples, of $1-\operatorname{corr}(\hat h_i,\hat h_j)$ and
    $1-\operatorname{corr}(e_{y_i},e_{y_j})$, with features $\hat h$ standardised coordinate by
    coordinate, one-hot labels $e_y$ and Pearson's correlation over coordinates. Source: Bolya,
    Mittapalli, Hoffman 2021, section 3. Range $[-1,1]$; 1 cannot be reached, as label distances
    have two values only and feature distances do not: the largest value is $\sqrt{3s(1-s)}$ with
    the share $s$ of pairs of one class. Invariant under shift and scale of every single feature,
    not under rotation. NaN if the features of a sample, or the distances of all pairs, are alike,
    as with a single feature. Distances that differ by no more than their rounding errors count as
    equal, so that the order of the samples decides nothing: the correlations of two features are 1
    and -1 alone.

    The authors multiply by 100, and offer a reduction to 32 principal axes before, which is not
    done here. Their code computes label distances in floating point: pairs of one class differ in
    the last digit and are ranked by it, which moves the score by up to 0.04 on small sets. Here
    label distances have exactly two values.

    Known failures: reads pairs, so that with many classes nearly all pairs are of two classes and
    the score is small; the bound above depends on the number of classes.

    Args:
        samples: Downstream samples.

    Raises:
        InputError: If the pairs do not fit into memory.

    Cost: n²d/2 products and a sort of n²/2 numbers.

    Example:
        >>> from ncscope.transfer.samples import check_downstream
        >>> rows = torch.tensor([[1.0, 0, 0], [1, 0.1, 0], [0, 0, 1], [0, 0.1, 1]])
        >>> bool(parc(check_downstream(rows, [0, 0, 1, 1])) > 0.8)
        True
    """
    n = len(samples.labels)
    check_memory(
        8 * 8 * n * n, f"the pairs of {n} samples", "pass fewer samples, or leave PARC out"
    )
    rows, factor = centre(samples.features)
    spread = rows.square().mean(0).sqrt()
    # An offset that dwarfs the spread of a feature has rounded its differences away.
    largest = factor * samples.features.abs().amax(0)
    errors = torch.where(spread > 0, _ROUNDING * largest / spread, 0.0)
    rows = torch.where(spread > 0, rows / spread, 0.0)
    error = torch.linalg.vector_norm(errors) + _ROUNDING * torch.linalg.vector_norm(rows, dim=1)
    rows = rows - rows.mean(1, keepdim=True)
    lengths = torch.linalg.vector_norm(rows, dim=1)
    error = error / lengths  # of a row's direction
    if bool((error >= 1).any()) or not bool((lengths > 0).all()):
        return rows.new_full((), math.nan)
    rows = rows / lengths[:, None]
    first, second = torch.triu_indices(n, n, 1, device=rows.device)
    distances = 1 - (rows @ rows.mT)[first, second]
    a = rank_with_ties(distances, error[first] + error[second])
    b = (samples.class_indices[first] != samples.class_indices[second]).to(rows)
    if bool((a == a[:1]).all()) or bool((b == b[:1]).all()):
        return rows.new_full((), math.nan)
    a, b = a - a.mean(), b - b.mean()
    return (a @ b) / (torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b))


def rank_with_ties(values: Float[Tensor, " m"], errors: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """Return mean ranks; neighbours no farther apart than their errors have one rank.

    Args:
        values: Values to rank.
        errors: Bound on the rounding error of each value.
    """
    order = torch.argsort(values)
    ties = torch.empty_like(order)
    ties[order] = group_ties(torch.stack([values, errors], 1)[order])
    counts = torch.bincount(ties)
    return (counts.cumsum(0) - (counts - 1) / 2)[ties].to(values)
