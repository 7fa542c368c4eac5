r"""Neural regression collapse: NRC1, NRC2 and NRC3 of Andriopoulos et al. (NeurIPS 2024).

Features $h_i\in\mathbb R^d$, targets $y_i\in\mathbb R^t$ with covariance $\Sigma$ (divided by n),
head $W\in\mathbb R^{t\times d}$, and $\tilde h_i=h_i/\lVert h_i\rVert$:

$$\mathrm{NRC1}=\frac1n\sum_i\lVert\tilde h_i-\Pi_{\mathrm{PCA}_t}\tilde h_i\rVert^2,\quad
\mathrm{NRC2}=\frac1n\sum_i\lVert\tilde h_i-\Pi_W\tilde h_i\rVert^2,$$

$$\mathrm{NRC3}=\min_{0<\gamma<\lambda_{\min}(\Sigma)}\left\lVert
\frac{WW^\top}{\lVert WW^\top\rVert_F}-\frac{\Sigma^{1/2}-\gamma^{1/2}I}
{\lVert\Sigma^{1/2}-\gamma^{1/2}I\rVert_F}\right\rVert_F^2.$$

The first projects onto the t leading principal components of the features, the second onto the row
space of $W$.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

_EPSILON = torch.finfo(torch.float64).eps
_TIE = 1e-10


class RegressionSource(ABC):
    """Statistics of features and targets, from arrays or from moments."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of samples."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Feature dimension d."""

    @property
    @abstractmethod
    def target_dim(self) -> int:
        """Target dimension t."""

    @property
    @abstractmethod
    def zero_vectors(self) -> int:
        """Number of features that are zero."""

    @abstractmethod
    def principal(self) -> tuple[Float[Tensor, " m"], Float[Tensor, "d m"]]:
        """Return singular values of the centred features, descending, and the components.

        Singular values that cannot be told from zero are zero.
        """

    @abstractmethod
    def target_axes(self) -> tuple[Float[Tensor, " t"], Float[Tensor, "t t"]]:
        """Return the targets' standard deviations along their principal axes, and the axes.

        Deviations that cannot be told from zero are zero.
        """

    @abstractmethod
    def outside(self, basis: Float[Tensor, "d r"]) -> Float[Tensor, ""]:
        """Return the mean squared distance of the unit features from an orthonormal basis."""

    @abstractmethod
    def head_error(
        self, weight: Float[Tensor, "t d"], bias: Float[Tensor, " t"]
    ) -> Float[Tensor, ""]:
        """Return the sum of squared errors of the head."""

    @abstractmethod
    def least_error(self) -> Float[Tensor, ""]:
        """Return the sum of squared errors of least squares with an intercept."""


@dataclass(frozen=True)
class RegressionValues:
    """Values of a regression's collapse, and sentences on them.

    Attributes:
        metrics: Key to value.
        notes: Sentences for the reader: rank cuts, why a value is absent or NaN.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def regression_collapse(
    source: RegressionSource,
    weight: Float[Tensor, "t d"] | None,
    bias: Float[Tensor, " t"] | None,
) -> RegressionValues:
    """Compute all values that the source and the head allow.

    Args:
        source: Statistics of at least two samples with targets that vary.
        weight: Weight of the head; None leaves out what needs a head.
        bias: Bias of the head; None for zero.
    """
    values = RegressionValues()
    if source.zero_vectors:
        values.notes.append(
            f"{source.zero_vectors} features are zero and have no direction: nrc1 and nrc2 leave "
            "them out"
        )
    deviations, axes = source.target_axes()
    _add_principal(values, source)
    if weight is not None:
        _add_row_space(values, source, weight)
        _add_gram(values, weight, deviations, axes)
    total = source.count * deviations.square().sum()
    cells = source.count * source.target_dim
    if weight is not None:
        start = weight.new_zeros(len(weight)) if bias is None else bias
        error = source.head_error(weight, start)
        values.metrics.update({"mse": float(error / cells), "r2": float(1 - error / total)})
        # As for a head of 1e200, or targets of 1e-160.
        beyond = [key for key in ("mse", "r2") if not math.isfinite(values.metrics[key])]
        if beyond:
            values.metrics.update(dict.fromkeys(beyond, math.nan))
            values.notes.append(
                f"the head's error is beyond the range of float64: {' and '.join(beyond)} "
                f"{'are' if beyond[1:] else 'is'} undefined"
            )
    least = source.least_error()
    values.metrics["mse_least_squares"] = float(least / cells)
    values.metrics["r2_least_squares"] = float(1 - least / total)
    if source.count <= source.dim + 1:
        values.notes.append(
            f"{source.count} samples in dimension {source.dim}: least squares can fit any targets, "
            "so its error says nothing about the features"
        )
    return values


def _add_principal(values: RegressionValues, source: RegressionSource) -> None:
    """Add NRC1 and the share of variance outside of the leading components."""
    t = source.target_dim
    spread, components = source.principal()
    rank = int((spread > 0).sum())
    values.metrics["nrc1"] = float(source.outside(components[:, : min(t, rank)]))
    total = spread.square().sum()
    share = float(spread[t:].square().sum() / total) if rank else math.nan
    values.metrics["nrc1_unexplained"] = share
    if rank == 0:
        values.notes.append(
            "the features are constant and have no principal components: nrc1_unexplained is "
            "undefined"
        )
    elif t >= rank == source.dim:
        values.notes.append(
            f"the targets have {t} dimensions and the features {source.dim}: every feature lies in "
            "the span of the components, so nrc1 is 0 for any features"
        )
    elif rank < t:
        values.notes.append(
            f"the features span {rank} dimensions, fewer than the {t} of the targets: nrc1 uses "
            f"{rank} components"
        )
    elif rank > t and float(spread[t - 1] - spread[t]) <= _TIE * float(spread[0]):
        values.notes.append(
            f"principal components {t} and {t + 1} have equal variance: nrc1 depends on the choice "
            "between them"
        )


def _add_row_space(
    values: RegressionValues, source: RegressionSource, weight: Float[Tensor, "t d"]
) -> None:
    _, sizes, rows = torch.linalg.svd(weight, full_matrices=False)
    rank = int((sizes > _EPSILON * max(weight.shape) * sizes[0]).sum())
    values.metrics["nrc2"] = float(source.outside(rows[:rank].mT))
    if rank < min(weight.shape):
        values.notes.append(
            f"the weight has rank {rank} of {min(weight.shape)}: nrc2 uses its {rank} dimensions"
        )


def _add_gram(
    values: RegressionValues,
    weight: Float[Tensor, "t d"],
    deviations: Float[Tensor, " t"],
    axes: Float[Tensor, "t t"],
) -> None:
    """Add NRC3 and its gamma."""
    if len(weight) == 1:
        values.notes.append(
            "the targets have one dimension: nrc3 compares two positive numbers after division by "
            "their size, which are always equal, and is left out"
        )
        return
    rank = int((deviations > 0).sum())
    if rank < len(deviations):
        values.notes.append(
            f"the targets span {rank} of {len(deviations)} dimensions: the interval of gamma is "
            "empty, and nrc3 is for gamma = 0"
        )
    if not bool(weight.any()):
        values.notes.append("the weight is zero: nrc3 and nrc3_gamma are undefined")
        values.metrics.update({"nrc3": math.nan, "nrc3_gamma": math.nan})
        return
    value, gamma, at_end = gram_distance(weight, deviations, axes)
    values.metrics.update({"nrc3": value, "nrc3_gamma": gamma})
    if math.isnan(gamma):
        values.notes.append(
            "the targets have equal variance in all directions and are uncorrelated: nrc3 is the "
            "same for every gamma, and nrc3_gamma is undefined"
        )
    elif at_end and rank == len(deviations):
        values.notes.append(
            f"nrc3 approaches its infimum as gamma goes to {gamma:.6g}, an end of the interval"
        )


def gram_distance(
    weight: Float[Tensor, "t d"], deviations: Float[Tensor, " t"], axes: Float[Tensor, "t t"]
) -> tuple[float, float, bool]:
    r"""Compute NRC3 with the exact minimiser over gamma.

    With $A=WW^\top/\lVert WW^\top\rVert$, $S=\Sigma^{1/2}$, the parts $A_0$ and $S_0$ of trace
    zero, and $u=\operatorname{tr}S/t-\gamma^{1/2}$, the second matrix is proportional to
    $S_0+uI$. Its cosine with $A$,
    $(\langle A_0,S_0\rangle+u\operatorname{tr}A)/\sqrt{\lVert S_0\rVert^2+tu^2}$, grows until
    $u^*=\lVert S_0\rVert^2\operatorname{tr}A/(t\langle A_0,S_0\rangle)$ and falls beyond; it always
    grows if $\langle A_0,S_0\rangle\le0$. So $u^*$, clipped to the interval, is the minimiser.

    Args:
        weight: Weight of the head, not zero.
        deviations: Square roots of the eigenvalues of the targets' covariance, descending.
        axes: Eigenvectors of the covariance, one a column.

    Returns:
        NRC3; its minimiser gamma in the closed interval from 0 to the targets' least eigenvalue,
        NaN if every gamma gives the same value; and whether gamma is an end of the interval, which
        the open interval lacks.
    """
    t = len(deviations)
    # Divided first, because the fourth power of the weight may be out of range.
    scaled = weight / weight.abs().max()
    gram = scaled @ scaled.mT
    gram = axes.mT @ (gram / torch.linalg.matrix_norm(gram)) @ axes
    centred = deviations - deviations.mean()
    along, spread = gram.diagonal() @ centred, centred.square().sum()
    high, low = deviations.mean(), deviations.mean() - deviations[-1]
    isotropic = bool(spread.sqrt() <= _EPSILON * t * deviations[0])
    best = torch.where(along > 0, spread * gram.trace() / (t * along), torch.inf)
    shift = high if isotropic else best.clamp(low, high)
    model = centred + shift
    residual = gram - (model / torch.linalg.vector_norm(model)).diag()
    gamma = (high - shift).clamp(min=0).square()
    at_end = bool((shift == low) | (shift == high))
    return float(residual.square().sum()), math.nan if isotropic else float(gamma), at_end
