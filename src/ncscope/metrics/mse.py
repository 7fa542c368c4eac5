r"""The MSE loss, split along the central path (MSE theorems 1 and 2), for any prior.

Everything is computed in coordinates in which the global mean does no harm. With a bias, features
$[h-\mu_G;1]$ and classifier $V=[W,W\mu_G+b]$: the same logits, and weight decay becomes
$\lambda(\lVert W\rVert^2+\lVert\beta-W\mu_G\rVert^2)$. Then with $R$ the within-class part of the
normal matrix (weight decay included), $A=[\sqrt{\pi_c}\tilde m_c]$ and the canonical residual
$F=I-A^\top(R+AA^\top)^\dagger A$, the least-squares classifier is
$\operatorname{diag}(\sqrt\pi)A^\top(R+AA^\top)^\dagger$ and
$\mathcal L_{NC1}=\frac12\sum_c\pi_c(F-F^2)_{cc}$,
$\mathcal L_{NC2/3}=\frac12\sum_c\pi_c(F^2)_{cc}$.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.canonical import Canonical, canonical, canonical_regularised
from ncscope.math.pairs import row_blocks
from ncscope.math.symmetric import rank_cut
from ncscope.metrics.discriminants import Discriminants
from ncscope.stats.statistics import ClassStatistics


@dataclass(frozen=True)
class MseParts:
    r"""The MSE loss with weight decay, and its parts, which sum to it.

    $\frac12\operatorname{Ave}\lVert\tilde W\tilde h-y\rVert^2+\frac\lambda2\lVert\tilde W\rVert^2$.

    Attributes:
        loss: The loss, squared errors summed over classes and averaged over samples.
        nc1: Part of the least-squares loss due to variation within classes.
        nc23: Part due to the class means' deviation from the frame.
        off_path: What the classifier loses against the least-squares one.
    """

    loss: Float[Tensor, ""]
    nc1: Float[Tensor, ""]
    nc23: Float[Tensor, ""]
    off_path: Float[Tensor, ""]


@dataclass(frozen=True)
class _Problem:
    """The weighted ridge regression of one-hot labels, in coordinates free of the global mean."""

    stats: ClassStatistics
    decay: float
    factor: Float[Tensor, "e q"]
    classes: Float[Tensor, "k q"]
    canonical: Canonical
    has_bias: bool

    def energy(self, v: Float[Tensor, "k e"]) -> Float[Tensor, ""]:
        r"""$\operatorname{tr}VRV^\top$: variation within classes, and weight decay."""
        assert self.stats.within is not None
        weight = v[:, : self.stats.dim]
        energy = ((weight @ self.stats.within) * weight).sum()
        energy = energy + self.decay * weight.square().sum()
        if self.has_bias:
            bias = v[:, -1] - weight @ self.stats.global_mean
            energy = energy + self.decay * bias.square().sum()
        return energy


def mse_parts(
    stats: ClassStatistics,
    found: Discriminants,
    weight: Float[Tensor, "k d"],
    bias: Float[Tensor, " k"] | None,
    weight_decay: float,
) -> MseParts:
    r"""The MSE loss of a classifier on one-hot labels, decomposed.

    Args:
        stats: Statistics with the pooled within-class scatter.
        found: Their decomposition.
        weight: $W$, rows of the classes present.
        bias: $b$, or None for a classifier without one (features are then not extended).
        weight_decay: $\lambda$ on $W$ and $b$.

    Source: MSE theorems 1 and 2, with $\frac1C\tilde M^\top$ replaced by
    $\operatorname{diag}(\pi)\tilde M^\top$. Range of each part: $[0,\infty)$.
    Cost: with a bias and without decay, no decomposition beyond those given; with decay one
    Cholesky factorisation of d + 1; without bias or decay two eigen-decompositions of d.
    """
    problem = _problem(stats, found, bias is not None, weight_decay)
    shift = None if bias is None else weight @ stats.global_mean + bias
    v = weight if shift is None else torch.cat([weight, shift[:, None]], 1)
    root = stats.prior.sqrt()[:, None]
    off = v - root * (problem.classes @ problem.canonical.solution.mT)
    off_path = problem.energy(off) + (off @ problem.factor).square().sum()
    loss = problem.energy(v) + _misfit(problem, v @ problem.factor)
    nc1, nc23 = _least_squares_parts(problem, found)
    return MseParts(loss / 2, nc1, nc23, off_path / 2)


def _problem(
    stats: ClassStatistics, found: Discriminants, has_bias: bool, decay: float
) -> _Problem:
    classes = torch.cat([found.classes, stats.prior.sqrt()[:, None]], 1)
    mean = stats.global_mean[:, None]
    factor = _block_diagonal(found.factor) if has_bias else torch.cat([found.factor, mean], 1)
    solved = _canonical(stats, found, factor, has_bias, decay)
    return _Problem(stats, decay, factor, classes, solved, has_bias)


def _canonical(
    stats: ClassStatistics,
    found: Discriminants,
    factor: Float[Tensor, "e q"],
    has_bias: bool,
    decay: float,
) -> Canonical:
    assert stats.within is not None
    total = found.canonical.total
    assert total is not None
    offset = 0.0 if has_bias else float(stats.global_mean.square().sum())
    # A decay below the cut of the other inverses is none: Cholesky would meet a singular matrix.
    negligible = decay <= rank_cut(total.spectrum[0] + offset, stats.dim + 1)
    if negligible and not has_bias:
        return canonical(stats.within, factor)
    if negligible:
        old = found.canonical
        finite = torch.cat([old.finite, old.finite.new_zeros(1, old.finite.shape[1])])
        return Canonical(finite, old.odds, _block_diagonal(old.solution), old.total, old.within)
    within = stats.within + decay * torch.eye(stats.dim).to(stats.within)
    if has_bias:
        mean = stats.global_mean[:, None]
        corner = torch.ones_like(mean[:1])
        decayed = torch.cat(
            [torch.cat([mean @ mean.mT, -mean], 1), torch.cat([-mean.mT, corner], 1)]
        )
        padded = torch.nn.functional.pad(within, (0, 1, 0, 1))
        within = padded + decay * decayed
    return canonical_regularised(within, factor)


def _least_squares_parts(
    problem: _Problem, found: Discriminants
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    r"""$\mathcal L_{NC1}$ and $\mathcal L_{NC2/3}$ from the canonical residual."""
    prior, solved = problem.stats.prior, problem.canonical
    identity = torch.eye(len(solved.odds)).to(solved.odds)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(identity + solved.odds))
    rows = problem.classes @ solved.finite @ inverse
    unseparated = torch.zeros_like(prior)
    if problem.classes.shape[1] < problem.stats.k:
        unseparated = (1 - problem.classes.square().sum(1)).clamp(min=0)
    nc1 = (prior @ ((rows @ solved.odds) * rows).sum(1)).clamp(min=0)
    nc23 = prior @ (rows.square().sum(1) + unseparated)
    return nc1 / 2, nc23 / 2


def _misfit(problem: _Problem, fitted: Float[Tensor, "k q"]) -> Float[Tensor, ""]:
    r"""$\sum_c\pi_c\lVert V\tilde m_c-e_c\rVert^2$, in blocks of classes."""
    root = problem.stats.prior.sqrt()
    total = torch.zeros_like(root[0])
    for rows in row_blocks(len(root), len(root)):
        missed = fitted[rows] @ problem.classes.mT
        missed.diagonal(offset=rows.start).sub_(root[rows])
        total += missed.square().sum()
    return total


def _block_diagonal(matrix: Float[Tensor, "d r"]) -> Float[Tensor, "e q"]:
    """The matrix with one more row and column, zero but for a one in the corner."""
    padded = torch.nn.functional.pad(matrix, (0, 1, 0, 1))
    padded[-1, -1] = 1
    return padded
