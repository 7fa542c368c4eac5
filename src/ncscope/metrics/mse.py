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
from functools import cached_property

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
    """The weighted ridge regression of one-hot labels, in coordinates free of the global mean.

    Its terms are sums over classes, each of a row of the classifier: see `parts`.
    """

    stats: ClassStatistics
    contrasts: Float[Tensor, "k r"]
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"] | None
    decay: float
    factor: Float[Tensor, "e q"]
    canonical: Canonical

    @cached_property
    def root(self) -> Float[Tensor, " k"]:
        r"""$\sqrt{\pi_c}$."""
        return self.stats.prior.sqrt()

    @cached_property
    def residual(self) -> Float[Tensor, "q m"]:
        r"""$N(I+\text{odds})^{-1}$, of which $F=N(I+\text{odds})^{-1}N^\top$."""
        identity = torch.eye(len(self.canonical.odds)).to(self.canonical.odds)
        lower = torch.linalg.cholesky(identity + self.canonical.odds)
        return self.canonical.finite @ torch.cholesky_inverse(lower)

    def parts(self, rows: slice) -> Float[Tensor, "4"]:
        """Twice what some classes add to the loss, its NC1, its NC2/3 and its off-path part."""
        classes = torch.cat([self.contrasts[rows], self.root[rows, None]], 1)
        v = self.weight[rows]
        if self.bias is not None:
            v = torch.cat([v, (v @ self.stats.global_mean + self.bias[rows])[:, None]], 1)
        off = v - self.root[rows, None] * (classes @ self.canonical.solution.mT)
        off_path = self._energy(off) + (off @ self.factor).square().sum()
        loss = self._energy(v) + self._misfit(v @ self.factor, rows)
        return torch.stack([loss, *self._least_squares(classes, rows), off_path])

    def _energy(self, v: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
        r"""$\operatorname{tr}VRV^\top$: variation within classes, and weight decay."""
        assert self.stats.within is not None
        weight = v[:, : self.stats.dim]
        energy = ((weight @ self.stats.within) * weight).sum()
        energy = energy + self.decay * weight.square().sum()
        if self.bias is not None:
            bias = v[:, -1] - weight @ self.stats.global_mean
            energy = energy + self.decay * bias.square().sum()
        return energy

    def _misfit(self, fitted: Float[Tensor, "b q"], rows: slice) -> Float[Tensor, ""]:
        r"""Of these rows, $\sum_{c'}\pi_{c'}(V\tilde m_{c'}-e_{c'})_c^2$."""
        missed = torch.outer(fitted[:, -1], self.root)
        missed.addmm_(fitted[:, :-1], self.contrasts.mT)
        missed.diagonal(offset=rows.start).sub_(self.root[rows])
        return missed.square_().sum()

    def _least_squares(
        self, classes: Float[Tensor, "b q"], rows: slice
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        r"""Twice $\mathcal L_{NC1}$ and $\mathcal L_{NC2/3}$, from the canonical residual."""
        prior, residual = self.stats.prior[rows], classes @ self.residual
        unseparated = torch.zeros_like(prior)
        if classes.shape[1] < self.stats.k:
            unseparated = (1 - classes.square().sum(1)).clamp(min=0)
        nc1 = prior @ ((residual @ self.canonical.odds) * residual).sum(1)
        return nc1, prior @ (residual.square().sum(1) + unseparated)


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
    Cost: $2K^2d$ operations in blocks of classes; with a bias and without decay, no decomposition
    beyond those given; with decay one Cholesky factorisation of d + 1; without bias or decay two
    eigen-decompositions of d.
    """
    has_bias, mean = bias is not None, stats.global_mean[:, None]
    factor = _block_diagonal(found.factor) if has_bias else torch.cat([found.factor, mean], 1)
    solved = _canonical(stats, found, factor, has_bias, weight_decay)
    problem = _Problem(stats, found.classes, weight, bias, weight_decay, factor, solved)
    parts = [problem.parts(rows) for rows in row_blocks(stats.k, stats.k)]
    loss, nc1, nc23, off_path = torch.stack(parts).sum(0) / 2
    return MseParts(loss, nc1.clamp(min=0), nc23, off_path)


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


def _block_diagonal(matrix: Float[Tensor, "d r"]) -> Float[Tensor, "e q"]:
    """The matrix with one more row and column, zero but for a one in the corner."""
    padded = torch.nn.functional.pad(matrix, (0, 1, 0, 1))
    padded[-1, -1] = 1
    return padded
