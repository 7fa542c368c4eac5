r"""The manifold of features whose within-class covariance is the identity (MSE D.2).

$\mathcal X=\{X:X\mathbf CX^\top=I\}$, $\mathbf C=\frac1N(I-\frac1nY^\top Y)$, for X of d x N,
N = Kn. The paper calls two different maps onto its tangent space *the* projection. The flows that
they define from a gradient differ as well.

Both maps are implemented for any covariance $\Sigma$. If $\Sigma$ were replaced by the identity,
rounding errors off the manifold would grow like $e^{\omega^2/K}$ along the flow.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope_lab.surrogates.dynamics.snr import split


def centre_in_class(features: Float[Tensor, "d n"], num_classes: int) -> Float[Tensor, "d n"]:
    r"""$X\mathbf C$: the within-class part over N (MSE (21))."""
    return split(features, num_classes).within / features.shape[1]


def constraint_derivative(
    features: Float[Tensor, "d n"], direction: Float[Tensor, "d n"], num_classes: int
) -> Float[Tensor, "d d"]:
    r"""$X\mathbf CZ^\top+Z\mathbf CX^\top$, which is zero iff Z is tangent (MSE proposition 3)."""
    half = centre_in_class(features, num_classes) @ direction.mT
    return half + half.mT


def orthogonal_projection(
    features: Float[Tensor, "d n"], direction: Float[Tensor, "d n"], num_classes: int
) -> Float[Tensor, "d n"]:
    r"""Nearest tangent vector: $Z-NSX\mathbf C$, $S=\frac12(X\mathbf CZ^\top+Z\mathbf CX^\top)$.

    Normal vectors are $SX\mathbf C$ with S symmetric. MSE (27) describes the flow of this
    projection.

    Args:
        features: Point X. If its covariance is not I, S solves $S\Sigma+\Sigma S=2S_I$.
        direction: Z.
        num_classes: K.
    """
    correction = _correction(features, direction, num_classes)
    return direction - correction @ split(features, num_classes).within


def oblique_projection(
    features: Float[Tensor, "d n"], direction: Float[Tensor, "d n"], num_classes: int
) -> Float[Tensor, "d n"]:
    r"""$Z-SX$ with $S=\frac12(X\mathbf CZ^\top+Z\mathbf CX^\top)$, along changes of coordinates.

    This map is the derivative of renormalisation (MSE lemma 2). It is a projection onto the tangent
    space (MSE proposition 4), but not self-adjoint.

    Args:
        features: Point X. If its covariance is not I, S solves $S\Sigma+\Sigma S=2S_I$.
        direction: Z.
        num_classes: K.
    """
    return direction - _correction(features, direction, num_classes) @ features


def oblique_adjoint(
    features: Float[Tensor, "d n"], direction: Float[Tensor, "d n"], num_classes: int
) -> Float[Tensor, "d n"]:
    r"""$Z-\frac12(XZ^\top+ZX^\top)X\mathbf C$, the adjoint of `oblique_projection` at $\Sigma=I$.

    The gradient of a loss that is invariant under changes of coordinates is a fixed point of it.

    Args:
        features: Point X of the manifold.
        direction: Z.
        num_classes: K.
    """
    product = features @ direction.mT
    centred = centre_in_class(features, num_classes)
    return direction - (product + product.mT) @ centred / 2


def _correction(
    features: Float[Tensor, "d n"], direction: Float[Tensor, "d n"], num_classes: int
) -> Float[Tensor, "d d"]:
    """Return the symmetric S such that SX changes the covariance to first order as Z does."""
    change = constraint_derivative(features, direction, num_classes)
    values, vectors = torch.linalg.eigh(split(features, num_classes).covariance)
    turned = vectors.mT @ change @ vectors / (values[:, None] + values)
    return vectors @ turned @ vectors.mT
