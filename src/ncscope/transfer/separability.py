"""Scores of how far classes lie apart as clouds: GBC, and TransRate from coding rates."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.transfer.inputs import LabelledSamples
from ncscope.transfer.reduction import centred, class_means, principal_scores, unit_power

AXES = 64
_DISTORTION = 1e-4


def gbc(samples: LabelledSamples) -> Float[Tensor, ""]:
    r"""Compute minus the summed overlap of all pairs of classes, as spherical Gaussians.

    $-\sum_{c\ne c'}e^{-D(c,c')}$ over ordered pairs, with the Bhattacharyya distance
    $D=\frac18(\mu_c-\mu_{c'})^\top\Sigma^{-1}(\mu_c-\mu_{c'})
    +\frac12\log\frac{\det\Sigma}{\sqrt{\det\Sigma_c\det\Sigma_{c'}}}$,
    $\Sigma=\frac12(\Sigma_c+\Sigma_{c'})$, on at most 64 principal axes and with
    $\Sigma_c=\sigma_c^2I$, $\sigma_c^2$ the mean variance of an axis within the class. Source:
    Pandy, Agostinelli, Uijlings, Ferrari, Mensink 2022, section 3. Range $[-K(K-1),0]$:
    0 if no classes overlap, the lower end if all have one distribution. Invariant under rotation,
    shift and scale.

    The authors' code counts $\frac12\log(\cdot)$ once instead of once for each axis in the
    spherical case, and raises every variance to at least $10^{-4}$, so that its value depends on
    the scale; both differ from the equations, which are followed here. Known failures: 0 to
    rounding for classes that lie well apart, so that good checkpoints cannot be told from better
    ones; the number of pairs makes sets of different K incomparable; a class with one sample has no
    variance and counts as separate from all others.

    Args:
        samples: Downstream samples.

    Cost: as `principal_scores`, nd² operations for n > d, and 64K² operations.

    Example:
        >>> from ncscope.transfer.inputs import checked_labelled
        >>> apart = checked_labelled([[0.0], [1.0], [9.0], [10.0]], [0, 0, 1, 1])
        >>> round(float(gbc(apart)), 6) == round(float(-2 * torch.exp(torch.tensor(-81 / 2))), 6)
        True
    """
    clouds = _clouds(samples)
    spherical = clouds.variances.mean(1, keepdim=True).expand_as(clouds.variances)
    return _minus_overlap(clouds._replace(variances=spherical))


def gbc_diagonal(samples: LabelledSamples) -> Float[Tensor, ""]:
    r"""Compute `gbc` with a variance of its own for each principal axis of each class.

    $\Sigma_c=\operatorname{diag}(\sigma_{c1}^2,\dots)$. Source, range, invariances, failures and
    cost as `gbc`; the paper prefers it for segmentation. An axis on which one class does not vary
    and another does separates the two completely.

    Args:
        samples: Downstream samples.
    """
    return _minus_overlap(_clouds(samples))


class _Clouds(NamedTuple):
    means: Float[Tensor, "k r"]
    variances: Float[Tensor, "k r"]


def _clouds(samples: LabelledSamples) -> _Clouds:
    rows = principal_scores(centred(samples.features).features, limit=AXES)
    means = class_means(rows, samples).means
    variances = class_means((rows - means[samples.class_indices]).square(), samples).means
    # Features of one class that are equal have no variance; rounding must not give them some.
    eps = torch.finfo(rows.dtype).eps
    largest = rows.square().amax(0) if len(rows) else rows.new_zeros(rows.shape[1])
    return _Clouds(means, torch.where(variances > (32 * eps) ** 2 * largest, variances, 0.0))


def _minus_overlap(clouds: _Clouds) -> Float[Tensor, ""]:
    total = clouds.means.new_zeros(())
    for index in range(len(clouds.means) - 1):
        later = clouds.means[index + 1 :], clouds.variances[index + 1 :]
        apart = _bhattacharyya(clouds.means[index], clouds.variances[index], *later)
        total = total + (-apart).exp().sum()
    return -2 * total


def _bhattacharyya(
    mean: Float[Tensor, " r"],
    variance: Float[Tensor, " r"],
    means: Float[Tensor, "k r"],
    variances: Float[Tensor, "k r"],
) -> Float[Tensor, " k"]:
    """Compute the distance of one class to several; infinite if a point lies outside a point."""
    between = (variances + variance) / 2
    gap = (means - mean).square()
    neither = between == 0  # two points: the same, or infinitely far apart
    shift = torch.where(neither, torch.where(gap > 0, torch.inf, 0.0), gap / between)
    widths = between.log() - (variances.log() + variance.log()) / 2
    return shift.sum(1) / 8 + torch.where(neither, 0.0, widths).sum(1) / 2


def transrate(samples: LabelledSamples) -> Float[Tensor, ""]:
    r"""Compute the coding rate of all features less the mean coding rate within a class.

    $R(Z)-\sum_c\frac{n_c}nR(Z_c)$ with
    $R(Z)=\frac12\log\det(I+\frac1{n\varepsilon}Z^\top Z)$ and
    $\varepsilon=10^{-4}$. Source: Huang, Huang, Rong, Yang, Wei 2022, section 3. Range
    $[0,\frac d2\log(1+\frac1{d\varepsilon})]$; at 0 the classes have equal second moments, and the
    features say nothing of the labels. Invariant under rotation and shift.

    The equation is not invariant under scale: $\varepsilon$ is a squared length. Here the features
    are centred and divided by the root of their mean squared norm, so that the score does not
    depend on their scale. The code printed in the paper and the popular library do not scale, and
    weigh all classes alike; weights by size are those of the coding rate of a partition (Yu et al.
    2020), without which the rate can be negative. Known failures: grows with the dimension, so
    that networks of different widths are compared by their width; for $n_c<d$ the rate within a
    class is too small and the score too large.

    Args:
        samples: Downstream samples.

    Cost: $K+1$ products of features, and eigenvalues on the smaller side.

    Example:
        >>> from ncscope.transfer.inputs import checked_labelled
        >>> float(transrate(checked_labelled(torch.ones(4, 3), [0, 0, 1, 1])))
        0.0
    """
    rows = unit_power(samples.features)
    rate = _coding_rate(rows)
    for index in range(len(samples.classes)):
        within = rows[samples.class_indices == index]
        rate = rate - len(within) / len(rows) * _coding_rate(within)
    return rate


def _coding_rate(rows: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    n, d = rows.shape
    gram = rows.mT @ rows if d <= n else rows @ rows.mT
    values = torch.linalg.eigvalsh(gram).clamp(min=0)
    return torch.log1p(values / (n * _DISTORTION)).sum() / 2
