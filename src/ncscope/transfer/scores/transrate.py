"""TransRate: the coding rate of features less the coding rates of their classes, in three forms."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.math.symmetric import comparable_scales
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.coordinates import centre, class_means, unit_power

_DISTORTION = 1e-4


@check_arguments
def transrate(samples: DownstreamSamples) -> Float[Tensor, ""]:
    r"""Compute the coding rate of all features less the mean coding rate within a class.

    $R(Z)-\sum_c\frac{n_c}nR(Z_c)$ with
    $R(Z)=\frac12\log\det(I+\frac1{n\varepsilon}Z^\top Z)$ and
    $\varepsilon=10^{-4}$. Source: Huang, Huang, Rong, Yang, Wei 2022, section 3. Range
    $[0,\frac d2\log(1+\frac1{d\varepsilon})]$; at 0 the classes have equal second moments, and the
    features say nothing of the labels. Invariant under rotation and shift.

    The equation is not invariant under scale: $\varepsilon$ is a squared length. Here the features
    are centred and divided by the root of their mean squared norm, so that the score does not
    depend on their scale. The code printed in the paper does not scale, and weighs all classes
    alike (`transrate_listing`); weights by size are those of the coding rate of a partition (Yu et
    al. 2020), without which the rate can be negative. The authors' repository measures in the
    space of the class means (`transrate_projected`). Known failures: grows with the dimension, so
    that networks of different widths are compared by their width, and noise can score best; for
    $n_c<d$ the rate within a class is too small and the score too large.

    Args:
        samples: Downstream samples.

    Cost: singular values of the features, and of those of each class: $4nd^2$ operations for n > d.

    Example:
        >>> from ncscope.transfer.samples import check_downstream
        >>> float(transrate(check_downstream(torch.ones(4, 3), [0, 0, 1, 1])))
        0.0
    """
    rows = unit_power(samples.features)
    rate = _coding_rate(rows)
    for index in range(len(samples.classes)):
        within = rows[samples.class_indices == index]
        rate = rate - len(within) / len(rows) * _coding_rate(within)
    return rate


@check_arguments
def transrate_listing(samples: DownstreamSamples) -> Float[Tensor, ""]:
    r"""Compute the coding rate less the plain mean of the classes' rates, of features as given.

    $R(Z)-\frac1K\sum_cR(Z_c)$ with the rate $R$ and $\varepsilon=10^{-4}$ of `transrate`, of
    centred features that are not scaled. Source: the code printed in Huang, Huang, Rong, Yang, Wei
    2022, which popular libraries copy. Invariant under rotation and shift; the scale of the
    features counts. Negative values are possible for classes of unequal sizes. Known failures:
    as `transrate`, and features in larger units score higher.

    Args:
        samples: Downstream samples.

    Cost: as `transrate`.

    Example:
        >>> from ncscope.transfer.samples import check_downstream
        >>> float(transrate_listing(check_downstream(torch.ones(4, 3), [0, 0, 1, 1])))
        0.0
    """
    rows, factor = centre(samples.features)
    by_class = [
        _coding_rate(rows[samples.class_indices == index], factor)
        for index in range(len(samples.classes))
    ]
    return _coding_rate(rows, factor) - torch.stack(by_class).mean()


def _coding_rate(rows: Float[Tensor, "n d"], factor: float = 1.0) -> Float[Tensor, ""]:
    """Compute the rate of rows that are features times a factor."""
    # Singular values, as the eigenvalues of the product of the rows with themselves are wrong by
    # 1e-16 of the largest: in large units that is far more than the distortion.
    values = torch.linalg.svdvals(rows)
    values = values[values > torch.finfo(rows.dtype).eps * max(rows.shape) * values[:1]]
    unit = 2 * math.log(factor) + math.log(len(rows) * _DISTORTION)
    return torch.logaddexp(2 * values.log() - unit, values.new_zeros(())).sum() / 2


@check_arguments
def transrate_projected(samples: DownstreamSamples) -> Float[Tensor, ""]:
    r"""Compute the coding rate of the class means less that within classes, in the means' space.

    $\frac1r\bigl[R(\Sigma_B)-\sum_c\frac{n_c}nR(\Sigma_c\Sigma_T^\dagger\Sigma_B)\bigr]$ with
    $R(M)=\frac12\sum_j\log\bigl(1+\frac{\sigma_j(M)}{\varepsilon\operatorname{Tr}\Sigma_B}\bigr)$,
    $\sigma_j$ the singular values, r the rank of $\Sigma_B$, and $\varepsilon=10^{-4}$ for every
    set. Source: the repository of Huang, Huang, Rong, Yang, Wei 2022 (Long-Kai/TransRate), as it
    selects models: its $\varepsilon$ is chosen for each target, and some of its targets are not
    scaled by the trace. Not larger than $\frac12\log(1+\frac1{r\varepsilon})$, the value for
    collapsed classes whose means are equally far apart. NaN if all class means coincide. Invariant
    under rotation, shift and scale; features that vary independently of the classes and of all
    others change nothing. Known failures: for n < d the features separate any labels, and the score
    says little.

    Args:
        samples: Downstream samples.

    Cost: a singular value decomposition of the features, about $6nd^2$ operations for n > d, and
    $2d\min(n_c,r)^2$ for each class.

    Example:
        >>> from ncscope.transfer.samples import check_downstream
        >>> apart = check_downstream([[1.0], [1.0], [-1.0], [-1.0]], [0, 0, 1, 1])
        >>> round(float(transrate_projected(apart)), 12) == round(math.log(1 + 1e4) / 2, 12)
        True
    """
    rows, factor = centre(samples.features)
    n, eps = len(rows), torch.finfo(rows.dtype).eps
    # What an offset rounds away must not count as a direction, of features or of class means.
    rounding = 32 * eps * factor * samples.features.abs().amax(0)
    scales = comparable_scales(rows.square().mean(0))
    # Coordinates in which S_T is 1/n; scaled, as features in small units can separate the classes.
    factors = rows.new_ones(()) if scales is None else scales
    left, sizes, _ = torch.linalg.svd(rows * factors, full_matrices=False)
    noise = n**0.5 * torch.linalg.vector_norm(rounding * factors)
    left = left[:, sizes > torch.maximum(noise, eps * max(rows.shape) * sizes[:1].sum())]
    contrasts, lengths, _ = torch.linalg.svd(_root_share_means(rows, samples), full_matrices=False)
    signal = lengths > torch.linalg.vector_norm(rounding)
    contrasts, lengths = contrasts[:, signal], lengths[signal]
    if not len(lengths):
        return rows.new_full((), math.nan)
    projection = n * left @ (_root_share_means(left, samples).mT @ (contrasts * lengths))
    trace, shares = lengths.square().sum(), class_means(left, samples)[1]
    rate = _rate_of_spectrum(lengths.square() / trace)
    for index, share in enumerate(shares):
        of_class = samples.class_indices == index
        member, along = rows[of_class], projection[of_class]
        member, along = member - member.mean(0), along - along.mean(0)
        # The triangle has the rows' products and at most as many rows as the class has samples.
        triangle = torch.linalg.qr(along.mT, mode="r").R
        product = member.mT @ triangle.mT / len(member)
        rate = rate - share * _rate_of_spectrum(torch.linalg.svdvals(product) / trace)
    return rate / len(lengths)


def _root_share_means(
    rows: Float[Tensor, "n d"], samples: DownstreamSamples
) -> Float[Tensor, "k d"]:
    r"""Return $\sqrt{n_c/n}\mu_c$ of each class, of centred rows."""
    means, shares = class_means(rows, samples)
    return shares.sqrt()[:, None] * means


def _rate_of_spectrum(values: Float[Tensor, " r"]) -> Float[Tensor, ""]:
    return torch.log1p(values / _DISTORTION).sum() / 2
