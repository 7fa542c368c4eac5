r"""The central path: features under their least-squares classifier, without weight decay.

$\mathcal L_{LS}(H)=\min_{W,b}\frac1{2N}\lVert WH+b\mathbf 1^\top-Y\rVert_F^2$ for features d x N,
with columns ordered by class (MSE section 3). The bias removes the global means of features and
labels.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.frames import simplex_basis
from ncscope_lab.surrogates.dynamics.snr import FeatureSplit, split, spread_over_samples


def least_squares(
    features: Float[Tensor, "d n"], num_classes: int
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    r"""$W_{LS}=\frac1K\tilde M^\top\Sigma_T^{-1}$, $b_{LS}=\frac1K\mathbf 1-W_{LS}\mu_G$.

    Source: MSE (6).

    Args:
        features: $H$, with $\Sigma_W$ of full rank.
        num_classes: $K$.
    """
    parts, contrasts, _ = _solve(features, num_classes)
    weight = simplex_basis(num_classes) @ contrasts
    return weight, 1 / num_classes - weight @ parts.mean


def least_squares_loss(features: Float[Tensor, "d n"], num_classes: int) -> Float[Tensor, ""]:
    r"""$\mathcal L_{LS}(H)$; autograd can differentiate it.

    Range: from 0 (all samples fitted) to $\frac{K-1}{2K}$ (equal class means). Invariant under
    $H\mapsto AH+v\mathbf 1^\top$ with $A$ invertible.
    """
    _, _, missed = _solve(features, num_classes)
    return missed.trace() / (2 * num_classes)


def least_squares_gradient(
    features: Float[Tensor, "d n"], num_classes: int
) -> Float[Tensor, "d n"]:
    r"""$\nabla\mathcal L_{LS}=\frac1NW_{LS}^\top(W_{LS}H+b_{LS}\mathbf 1^\top-Y)$.

    The classifier is at its minimum, so the derivative through the classifier vanishes. At
    renormalised features $-\nabla\mathcal L_{LS}$ is the flow of MSE lemma 4.
    """
    parts, contrasts, missed = _solve(features, num_classes)
    per_class = features.shape[1] // num_classes
    missed = missed @ simplex_basis(num_classes).mT
    residual = contrasts @ parts.within - spread_over_samples(missed, per_class)
    return contrasts.mT @ residual / features.shape[1]


def _solve(
    features: Float[Tensor, "d n"], num_classes: int
) -> tuple[FeatureSplit, Float[Tensor, "m d"], Float[Tensor, "m m"]]:
    r"""Solve the least-squares problem in contrasts $E$ of the classes, which sum to zero.

    Returns:
        Split of the features; $E^\top W_{LS}$; and $E^\top(I-W_{LS}\tilde M)E$ as
        $(I+\frac1KE^\top\tilde M^\top\Sigma_W^{-1}\tilde ME)^{-1}$, which stays accurate where
        the means are nearly fitted.
    """
    parts = split(features, num_classes)
    means = parts.classes @ simplex_basis(num_classes)
    whitened = torch.linalg.solve(parts.covariance, means)
    snr = means.mT @ whitened / num_classes
    missed = torch.linalg.inv(torch.eye(len(snr), dtype=snr.dtype) + snr)
    return parts, missed @ whitened.mT / num_classes, missed
