r"""The MSE loss, split along the central path (MSE theorems 1 and 2), for any prior.

With $R=\Sigma_W+\lambda I$, $A=[\sqrt{\pi_c}(\mu_c-\mu_G)]=CV^\top$ as in `Discriminants`,
$B=[C,\mu_G]$ and orthonormal $N=[V,\sqrt\pi]$, the weighted class means are $BN^\top$. With the
canonical residual $F=N[I-B^\top(R+BB^\top)^\dagger B]N^\top$ (and the identity on the class
contrasts that $N$ leaves out), the least-squares classifier is
$\operatorname{diag}(\sqrt\pi)N[(R+BB^\top)^\dagger B]^\top$,
$\mathcal L_{NC1}=\frac12\sum_c\pi_c(F-F^2)_{cc}$ and
$\mathcal L_{NC2/3}=\frac12\sum_c\pi_c(F^2)_{cc}$. A bias is the weight of a constant feature:
$C$ then has one more row, of zeros, and $\mu_G$ one more entry, 1. Without weight decay the bias
compensates all of $\mu_G$.

If there are more classes than dimensions, $\mu_G$ is a combination of the columns of $C$. The
factor $B$ is therefore replaced by $BP$ with orthogonal columns, some of which may be zero.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.canonical import Canonical, Spread, canonical, spread_within
from ncscope.math.pairs import row_blocks
from ncscope.math.symmetric import Gram, comparable_scales, energies, rescale
from ncscope.metrics.discriminants import Discriminants
from ncscope.metrics.metric import metric
from ncscope.stats.statistics import ClassStatistics

_BEYOND = (
    "the value is beyond the range of float64, or there is weight decay and features are beyond "
    "1e-141..1e141"
)


@dataclass(frozen=True)
class MseParts:
    r"""The MSE loss with weight decay, and its parts, whose sum is the loss.

    $\frac12\operatorname{Ave}\lVert\tilde W\tilde h-y\rVert^2+\frac\lambda2\lVert\tilde W\rVert^2$.

    Attributes:
        loss: The loss, squared errors summed over classes and averaged over samples.
        nc1: Part of the least-squares loss due to variation within classes.
        nc23: Part due to the class means' deviation from the frame.
        off_path: Excess of the classifier's loss over that of the least-squares classifier.
    """

    loss: Float[Tensor, ""]
    nc1: Float[Tensor, ""]
    nc23: Float[Tensor, ""]
    off_path: Float[Tensor, ""]


@dataclass(frozen=True)
class RidgeUnits:
    r"""Decomposed features in the units in which a problem with $R=\Sigma_W+\lambda I$ is solved.

    Attributes:
        scales: Factors of the features and divisors of the classifier; None for 1.
        within: $\Sigma_W$.
        factor: $C$.
        mean: $\mu_G$.
        rounding: Squared length of a class mean that rounding error alone may cause.
        spread: Decomposition of $R$ without the shift.
        shift: Multiple of the identity that is added to obtain $R$.
    """

    scales: Float[Tensor, " d"] | None
    within: Float[Tensor, "d d"] | Gram
    factor: Float[Tensor, "d r"]
    mean: Float[Tensor, " d"]
    rounding: float
    spread: Spread
    shift: float


@dataclass(frozen=True)
class _Problem:
    r"""The weighted ridge regression of one-hot labels.

    Its terms are sums over classes, with one row of the classifier for each class; see `parts`.

    Attributes:
        stats: Statistics of the features.
        contrasts: $V$.
        weight: $W$.
        bias: $b$, or None.
        decay: $\lambda$.
        units: Features in the units of the solution.
        canonical: Canonical residual and solution, in the coordinates of $N$.
    """

    stats: ClassStatistics
    contrasts: Float[Tensor, "k r"]
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"] | None
    decay: float
    units: RidgeUnits
    canonical: Canonical

    @cached_property
    def root(self) -> Float[Tensor, " k"]:
        r"""$\sqrt{\pi_c}$."""
        return self.stats.prior.sqrt()

    @cached_property
    def residual(self) -> Float[Tensor, "q q"]:
        r"""$F$ in the coordinates of $N$."""
        return self.canonical.residual

    @cached_property
    def off_orthonormal(self) -> Float[Tensor, "q q"]:
        r"""$N^\top N-I$."""
        gram = self.residual.new_zeros(self.residual.shape)
        for rows in row_blocks(self.stats.k, len(gram)):
            classes = torch.cat([self.contrasts[rows], self.root[rows, None]], 1)
            gram.addmm_(classes.mT, classes)
        gram.diagonal().sub_(1)
        return gram

    def parts(self, rows: slice) -> Float[Tensor, "4"]:
        """Return twice the contributions of some classes: loss, NC1, NC2/3 and off-path part."""
        classes = torch.cat([self.contrasts[rows], self.root[rows, None]], 1)
        residual = classes @ self.residual
        prior, root = self.stats.prior[rows], self.root[rows, None]
        weight = self.weight[rows]
        weight = weight if self.units.scales is None else weight / self.units.scales
        best = root * (classes @ self.canonical.solution.mT)
        fitted = torch.cat([weight @ self.units.factor, (weight @ self.units.mean)[:, None]], 1)
        loss, off_path = self._energy(weight), self._energy(weight - best)
        if self.bias is not None:
            bias = self.bias[rows]
            fitted[:, -1] += bias
            best_bias = (prior - best @ self.units.mean) / (1 + self.decay)
            loss = loss + self.decay * bias.square().sum()
            off_path = off_path + self.decay * (bias - best_bias).square().sum()
        loss = loss + self._misfit(fitted, rows)
        # Not `best` times the factor: if class means hardly differ, the weights of `best` are
        # large, and so are the rounding errors of their products with the means.
        fitted -= root * (classes - residual)
        off_path = off_path + fitted.square().sum()
        return torch.stack([loss, *self._least_squares(classes, residual, rows), off_path])

    def _energy(self, weight: Float[Tensor, "b d"]) -> Float[Tensor, ""]:
        """Return the variation of the outputs within classes plus the decay of the weight."""
        in_units = weight if self.units.scales is None else weight * self.units.scales
        energy = energies(self.units.within, weight.mT).sum()
        return energy + self.decay * in_units.square().sum()

    def _misfit(self, fitted: Float[Tensor, "b q"], rows: slice) -> Float[Tensor, ""]:
        r"""Sum $\sum_{c'}\pi_{c'}(W\mu_{c'}+b-e_{c'})_c^2$ over these rows."""
        if self.stats.k > 2 * fitted.shape[1]:
            return self._misfit_from_small_side(fitted, rows)
        missed = torch.outer(fitted[:, -1], self.root)
        missed.addmm_(fitted[:, :-1], self.contrasts.mT)
        missed.diagonal(offset=rows.start).sub_(self.root[rows])
        return missed.square_().sum()

    def _misfit_from_small_side(
        self, fitted: Float[Tensor, "b q"], rows: slice
    ) -> Float[Tensor, ""]:
        r"""Sum the misfit without a $K\times K$ product.

        With $N=[V,\sqrt\pi]$ and $g=f-\sqrt{\pi_c}N_c$ the row $f$ of a class misses by
        $gN^\top-\sqrt{\pi_c}(e_c-N_cN^\top)$. The two parts are orthogonal but for
        $E=N^\top N-I$, which is only rounding error.
        """
        classes = torch.cat([self.contrasts[rows], self.root[rows, None]], 1)
        off, root = self.off_orthonormal, self.root[rows]
        within = fitted - root[:, None] * classes
        turned = classes @ off
        along = (within * (within + within @ off)).sum() + 2 * root @ (within * turned).sum(1)
        return along + root.square() @ (1 - classes.square().sum(1) + (turned * classes).sum(1))

    def _least_squares(
        self, classes: Float[Tensor, "b q"], residual: Float[Tensor, "b q"], rows: slice
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        r"""Return twice $\mathcal L_{NC1}$ and $\mathcal L_{NC2/3}$, from $F$."""
        prior = self.stats.prior[rows]
        unseparated = torch.zeros_like(prior)
        if classes.shape[1] < self.stats.k:
            unseparated = (1 - classes.square().sum(1)).clamp(min=0)
        nc1 = prior @ (classes @ self.canonical.spread_root.mT).square().sum(1)
        return nc1, prior @ (residual.square().sum(1) + unseparated)


@metric(
    key="mse_loss",
    group="mse",
    meaning="Squared error of the logits against one-hot labels.",
    formula=(
        r"\tfrac12\operatorname{Ave}\lVert\tilde W\tilde h-y\rVert^2+"
        r"\tfrac\lambda2\lVert\tilde W\rVert_F^2"
    ),
    source="MSE (1)",
    result="mse.loss",
    needs={"scatter", "head", "outputs"},
    zero="the logits are the one-hot labels",
    log_scale=True,
    undefined=_BEYOND,
)
@metric(
    key="mse_nc1",
    group="mse",
    meaning=(
        "Part of the squared error that variation within classes causes under the best classifier."
    ),
    formula=(r"\tfrac12\operatorname{tr}\tilde W_{LS}[\tilde\Sigma_W+\lambda I]\tilde W_{LS}^\top"),
    source="MSE theorem 2",
    result="mse.nc1",
    needs={"scatter", "head", "outputs"},
    zero="the least-squares classifier loses nothing to variability",
    log_scale=True,
    undefined=_BEYOND,
    inverts=True,
)
@metric(
    key="mse_nc23",
    group="mse",
    meaning="Part of the squared error that the class means cause under the best classifier.",
    formula=r"\tfrac12\sum_c\pi_c\lVert\tilde W_{LS}\tilde\mu_c-e_c\rVert^2",
    source="MSE theorem 2",
    result="mse.nc23",
    needs={"scatter", "head", "outputs"},
    zero="the least-squares classifier fits the class means",
    log_scale=True,
    undefined=_BEYOND,
    inverts=True,
)
@metric(
    key="mse_off_path",
    group="mse",
    meaning=(
        "Part of the squared error that comes from a classifier other than the best for "
        "these features."
    ),
    formula=(
        r"\tfrac12\operatorname{tr}(\tilde W-\tilde W_{LS})(\tilde\Sigma_T+"
        r"\tilde\mu_G\tilde\mu_G^\top+\lambda I)(\tilde W-\tilde W_{LS})^\top"
    ),
    source="MSE theorem 1",
    result="mse.off_path",
    needs={"scatter", "head", "outputs"},
    zero="the classifier is the least-squares one",
    log_scale=True,
    undefined=_BEYOND,
    inverts=True,
)
def mse_parts(
    stats: ClassStatistics,
    discriminants: Discriminants,
    weight: Float[Tensor, "k d"],
    bias: Float[Tensor, " k"] | None,
    weight_decay: float,
) -> MseParts:
    r"""Decompose the MSE loss of a classifier on one-hot labels.

    Args:
        stats: Statistics with the pooled within-class scatter.
        discriminants: Decomposition of the statistics.
        weight: $W$, rows of the classes present.
        bias: $b$, or None for a classifier without a bias (features are then not extended).
        weight_decay: $\lambda$ on $W$ and $b$.

    $\frac1C\tilde M^\top$ of the theorems is replaced by $\operatorname{diag}(\pi)\tilde M^\top$.
    Cost: $2K^2d$ operations in blocks of classes, $8Kd^2$ for $K>2d$; without a bias one singular
    value decomposition of d x min(d + 1, k); with decay and features in units that differ by more
    than 1,000, one eigen-decomposition of size d.
    """
    units = ridge_units(stats, discriminants, bias is not None, weight_decay)
    if bias is not None and weight_decay == 0:
        solved = _with_bias(discriminants.canonical)
    elif bias is not None and units.shift > 0:
        args = (units.spread, units.factor, units.shift, units.mean)
        solved = canonical(*args, rounding=units.rounding)
    else:
        solved = _with_mean(units, bias is not None)
    problem = _Problem(stats, discriminants.classes, weight, bias, weight_decay, units, solved)
    parts = [problem.parts(rows) for rows in row_blocks(stats.k, stats.k)]
    loss, nc1, nc23, off_path = torch.stack(parts).sum(0) / 2
    return MseParts(loss, nc1, nc23, off_path)


def ridge_units(
    stats: ClassStatistics, discriminants: Discriminants, has_bias: bool, decay: float
) -> RidgeUnits:
    r"""Choose the units: any units without decay; with decay, those of the features if possible.

    Args:
        stats: Statistics with the pooled within-class scatter.
        discriminants: Decomposition of the statistics.
        has_bias: True if a constant feature, which decays too, is added to the features.
        decay: $\lambda$.
    """
    assert stats.scatter is not None
    scales, within, spread, mean = (
        discriminants.scales,
        discriminants.within,
        discriminants.spread,
        stats.global_mean,
    )
    noise = discriminants.rounding
    if decay == 0 or (scales is None and spread.scales is None):
        mean = mean if scales is None else mean * scales
        return RidgeUnits(
            scales, within, discriminants.factor, mean, float(noise.sum()), spread, decay
        )
    if scales is not None and comparable_scales(stats.scatter.diagonal()) is None:
        # Only the class means have coordinates of very different size; the spread about them has
        # not, so the units of the features will do.
        within = rescale(within, 1 / scales)
        factor, noise = discriminants.factor / scales[:, None], noise / scales.square()
        spread = spread_within(within)
        return RidgeUnits(None, within, factor, mean, float(noise.sum()), spread, decay)
    # In these units the decay is no multiple of the identity, so it becomes part of the spread.
    units = torch.ones_like(mean) if scales is None else scales
    added = decay * units.square()
    matrix = within.dense() if isinstance(within, Gram) else within
    if has_bias:
        added = torch.nn.functional.pad(added, (0, 1), value=decay)
        matrix = torch.nn.functional.pad(matrix, (0, 1, 0, 1))
    spread = spread_within(matrix + added.diag())
    return RidgeUnits(
        scales, within, discriminants.factor, mean * units, float(noise.sum()), spread, 0.0
    )


def _with_bias(solved: Canonical) -> Canonical:
    """Add a bias without decay, which removes the global mean from the problem."""
    pad = torch.nn.functional.pad
    return replace(
        solved,
        residual_root=pad(solved.residual_root, (0, 0, 0, 1)),
        solve=lambda: (pad(solved.spread_root, (0, 1)), pad(solved.solution, (0, 1))),
    )


def _with_mean(units: RidgeUnits, has_bias: bool) -> Canonical:
    """Solve with the global mean among the columns, made orthogonal to the others."""
    factor = torch.cat([units.factor, units.mean[:, None]], 1)
    if has_bias:
        factor = torch.cat([factor, torch.eye(1, factor.shape[1], device="cpu").to(factor).flip(1)])
    d, q = factor.shape
    vectors, lengths, turn = torch.linalg.svd(factor, full_matrices=q > d)
    orthogonal = torch.nn.functional.pad(vectors * lengths, (0, q - len(lengths)))
    solved = canonical(units.spread, orthogonal, units.shift, rounding=units.rounding)
    return replace(
        solved,
        residual_root=turn.mT @ solved.residual_root,
        solve=lambda: (solved.spread_root @ turn, (solved.solution @ turn)[: len(units.mean)]),
    )
