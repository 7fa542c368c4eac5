r"""Renormalised features and their signal-to-noise matrix (MSE sections 3.1, 3.2 and D.2).

Features are d x N with any mean, ordered by class, with n samples of each of K classes. A change of
coordinates does not change the predictions of the least-squares classifier. Features are therefore
studied in the coordinates in which their within-class covariance is the identity.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.symmetric import rank_cut


@dataclass(frozen=True)
class FeatureSplit:
    r"""Features in three orthogonal parts, $H=\mu_G\mathbf 1^\top+\tilde MY+H_W$.

    Attributes:
        mean: Global mean $\mu_G$.
        classes: Class means minus the global mean, $\tilde M$.
        within: Deviation of each sample from its class mean, $H_W$.
    """

    mean: Float[Tensor, " d"]
    classes: Float[Tensor, "d k"]
    within: Float[Tensor, "d n"]

    @property
    def covariance(self) -> Float[Tensor, "d d"]:
        r"""Within-class covariance $\Sigma_W=\frac1{Kn}H_WH_W^\top$."""
        return self.within @ self.within.mT / self.within.shape[1]


@dataclass(frozen=True)
class Alignment:
    r"""Singular value decomposition of the signal-to-noise matrix, $U\Omega V^\top$.

    Attributes:
        left: $U$, orthonormal columns.
        values: $\omega_j$, descending; there are min(K - 1, d) of them.
        right: $V$, orthonormal columns that sum to zero.
    """

    left: Float[Tensor, "d m"]
    values: Float[Tensor, " m"]
    right: Float[Tensor, "k m"]


@dataclass(frozen=True)
class SpectralLoss:
    r"""Parts of the loss on the central path without weight decay, as functions of $\omega_j$.

    Attributes:
        nc1: $\mathcal L_{NC1}$.
        nc23: $\mathcal L_{NC2/3}$.
    """

    nc1: Float[Tensor, ""]
    nc23: Float[Tensor, ""]


def split(features: Float[Tensor, "_d _n"], num_classes: int) -> FeatureSplit:
    """Split balanced features, ordered by class, into global mean, class means and deviations.

    Args:
        features: $H$.
        num_classes: $K$.
    """
    grouped = features.unflatten(1, (num_classes, -1))
    means = grouped.mean(2)
    mean = means.mean(1)
    within = grouped - means[:, :, None]
    # Centre a second time: the rounding error of large means is a spurious class mean of the
    # deviations, and matters if the deviations are small.
    within = within - within.mean(2, keepdim=True)
    return FeatureSplit(mean, means - mean[:, None], within.flatten(1))


def spread_over_samples(columns: Float[Tensor, "d k"], per_class: int) -> Float[Tensor, "d n"]:
    """Repeat the column of each class for its samples: the product with the labels $Y$."""
    return columns.repeat_interleave(per_class, 1)


def renormalise(features: Float[Tensor, "d n"], num_classes: int) -> Float[Tensor, "d n"]:
    r"""$\Sigma_W^{-1/2}(H-\mu_G\mathbf 1^\top)$, by the symmetric root.

    Source: MSE section 3.1. The map is idempotent. Among the features $AH$ with $A$ positive
    definite exactly one is renormalised. Cost: an eigen-decomposition of $\Sigma_W$.

    Args:
        features: $H$; neither the class means nor the global mean need to be zero.
        num_classes: $K$.

    Raises:
        InputError: If $\Sigma_W$ is singular.
    """
    parts = split(features, num_classes)
    values, vectors = torch.linalg.eigh(parts.covariance)
    if values[0] <= rank_cut(values[-1], len(values)):
        raise InputError(
            expected="a within-class covariance of full rank",
            found=f"eigenvalues from {float(values[0]):.2g} to {float(values[-1]):.2g}",
            fix="take at least dim / num_classes + 1 samples in each class",
        )
    root = vectors / values.sqrt() @ vectors.mT
    return root @ (features - parts.mean[:, None])


def snr_matrix(features: Float[Tensor, "_d _n"], num_classes: int) -> Float[Tensor, "d k"]:
    r"""$\Sigma_W^{-1/2}\tilde M$: the class means of the renormalised features.

    Source: MSE (8). Its singular values are invariant under $H\mapsto AH$ with $A$ invertible.
    """
    return split(renormalise(features, num_classes), num_classes).classes


def align(matrix: Float[Tensor, "_d _k"]) -> Alignment:
    """Decompose a signal-to-noise matrix (MSE definition 2).

    Singular vectors of repeated values are not unique; one choice is returned. The singular value
    that is zero because the columns sum to zero is left out.
    """
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    count = min(len(matrix), matrix.shape[1] - 1)
    return Alignment(left[:, :count], values[:count], right.mT[:, :count])


def spectral_loss(values: Float[Tensor, " m"], num_classes: int) -> SpectralLoss:
    r"""Compute the loss on the central path from singular values.

    $\mathcal L_{NC1}=\frac12\sum_j\frac{\omega_j^2}{(K+\omega_j^2)^2}$ and
    $\mathcal L_{NC2/3}=\frac1{2K}\sum_j\frac{K^2}{(K+\omega_j^2)^2}$.

    Source: MSE lemma 1; they sum to $\frac12\sum_j\frac1{K+\omega_j^2}$.

    Args:
        values: All K - 1 values $\omega_j$, including zeros.
        num_classes: $K$.
    """
    square = values.square()
    weight = (num_classes + square).square()
    return SpectralLoss((square / weight).sum() / 2, num_classes * (1 / weight).sum() / 2)


def random_features(
    num_classes: int,
    dim: int,
    per_class: int,
    separation: float,
    generator: torch.Generator,
) -> Float[Tensor, "d n"]:
    r"""Renormalised features with random class means.

    Args:
        num_classes: $K$.
        dim: $d$.
        per_class: $n$.
        separation: Root mean square of $\omega_j$.
        generator: Generator of means and samples, which are standard normal before scaling.

    Raises:
        InputError: If there are too few samples for a within-class covariance of full rank.
    """
    noise = torch.randn(dim, num_classes * per_class, dtype=torch.float64, generator=generator)
    within = split(renormalise(noise, num_classes), num_classes).within
    means = torch.randn(dim, num_classes, dtype=torch.float64, generator=generator)
    means = means - means.mean(1, keepdim=True)
    count = min(dim, num_classes - 1)
    means = separation * count**0.5 * means / means.norm()
    return within + spread_over_samples(means, per_class)
