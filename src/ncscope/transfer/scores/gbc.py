"""GBC: the Bhattacharyya overlap of classes as Gaussian clouds."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.coordinates import AXES, centre, class_means, principal_coordinates


@check_arguments
def gbc(samples: DownstreamSamples) -> Float[Tensor, ""]:
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

    Cost: as `principal_coordinates`, nd² operations for n > d, and 64K² operations.

    Example:
        >>> from ncscope.transfer.samples import check_downstream
        >>> apart = check_downstream([[0.0], [1.0], [9.0], [10.0]], [0, 0, 1, 1])
        >>> round(float(gbc(apart)), 6) == round(float(-2 * torch.exp(torch.tensor(-81 / 2))), 6)
        True
    """
    means, variances = _clouds(samples)
    spherical = variances.mean(1, keepdim=True).expand_as(variances)
    return _minus_overlap(means, spherical)


@check_arguments
def gbc_diagonal(samples: DownstreamSamples) -> Float[Tensor, ""]:
    r"""Compute `gbc` with a variance of its own for each principal axis of each class.

    $\Sigma_c=\operatorname{diag}(\sigma_{c1}^2,\dots)$. Source, range, invariances, failures and
    cost as `gbc`; the paper prefers it for segmentation. An axis on which one class does not vary
    and another does separates the two completely.

    Args:
        samples: Downstream samples.
    """
    return _minus_overlap(*_clouds(samples))


def _clouds(samples: DownstreamSamples) -> tuple[Float[Tensor, "k r"], Float[Tensor, "k r"]]:
    """Return the mean and the variances of each class on the principal axes."""
    rows = principal_coordinates(centre(samples.features)[0], limit=AXES)
    means, _ = class_means(rows, samples)
    variances, _ = class_means((rows - means[samples.class_indices]).square(), samples)
    # Features of one class that are equal have no variance; rounding must not give them some: the
    # distance divides by the variance, and a class of variance 0 counts as a point.
    eps = torch.finfo(rows.dtype).eps
    largest = rows.square().amax(0) if len(rows) else rows.new_zeros(rows.shape[1])
    return means, torch.where(variances > (32 * eps) ** 2 * largest, variances, 0.0)


def _minus_overlap(
    means: Float[Tensor, "k r"], variances: Float[Tensor, "k r"]
) -> Float[Tensor, ""]:
    total = means.new_zeros(())
    for index in range(len(means) - 1):
        later = means[index + 1 :], variances[index + 1 :]
        distances = _bhattacharyya_distances(means[index], variances[index], *later)
        total = total + (-distances).exp().sum()
    return -2 * total


def _bhattacharyya_distances(
    mean: Float[Tensor, " r"],
    variance: Float[Tensor, " r"],
    means: Float[Tensor, "k r"],
    variances: Float[Tensor, "k r"],
) -> Float[Tensor, " k"]:
    """Compute the distance of one class to several; infinite between two different points."""
    between = (variances + variance) / 2
    gap = (means - mean).square()
    neither = between == 0  # two points: the same, or infinitely far apart
    # Both quotients are 0 / 0 for two points of one place, and NaN would hide all other pairs.
    shift = torch.where(neither, torch.where(gap > 0, torch.inf, 0.0), gap / between)
    widths = between.log() - (variances.log() + variance.log()) / 2
    return shift.sum(1) / 8 + torch.where(neither, 0.0, widths).sum(1) / 2
