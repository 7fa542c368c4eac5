r"""The loss on the central path as a function of the SNR matrix (MSE section 2, C.2, D.2, D.6).

$\omega_j$ are the singular values of $\Sigma_W^{-1/2}\bar M$. There is no weight decay.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.metrics.class_means import etf_distance
from ncscope.metrics.discriminants import discriminants, snr_singular_values
from ncscope_lab.theory.mse_decomposition import means_part, variability_part
from ncscope_lab.theory.mse_instances import (
    Classes,
    best_classifier,
    draw_separated,
    loss,
    signal_to_noise,
    symmetric_power,
)
from ncscope_lab.theory.search import Instance, choice, climb, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9
_VANISHED = 1e-9
"""A part of the loss counts as 0 if its ratio to its greatest value is below this number."""


def spectral_parts(
    ratios: Float[Tensor, " _r"], k: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    r"""Lemma 1: $\mathcal L_{LS}$, $\mathcal L_{NC1}$, $\mathcal L_{NC2/3}$ of the $\omega_j$."""
    square = ratios.square()
    whole = (1 / (square + k)).sum() / 2
    variability = (square / (k + square).square()).sum() / 2
    return whole, variability, (square / (square + k) - 1).square().sum() / (2 * k)


def turning_point(k: int) -> float:
    r"""$\omega=\sqrt C$, where $\omega^2/(C+\omega^2)^2$ is greatest."""
    return float(k**0.5)


def collapse_bound(least_squares_loss: float, k: int) -> float:
    r"""$2C\mathcal L_{LS}/(1-2C\mathcal L_{LS})$: variability bound for a loss under $1/(2C)$."""
    share = 2 * k * least_squares_loss
    return share / (1 - share)


def means_part_range(smallest: float, k: int) -> tuple[float, float]:
    r"""$\frac C2(C+\omega_{min}^2)^{-2}$ and $C-1$ times this: bounds of $\mathcal L_{NC2/3}$."""
    least = k / 2 / (k + smallest**2) ** 2
    return least, (k - 1) * least


def affine_dimension(means: Float[Tensor, "p k"]) -> int:
    """Compute the dimension of the affine hull of the class means."""
    return int(torch.linalg.matrix_rank(means[:, 1:] - means[:, :1], rtol=1e-7))


def matrix_bound(inverse: Float[Tensor, "p p"], within: Float[Tensor, "p p"]) -> Float[Tensor, ""]:
    r"""$(\lVert\Sigma_B^\dagger\rVert\,\lVert\Sigma_W\rVert\operatorname{tr}\Sigma_B^\dagger\Sigma_W)^{1/2}$."""
    norms = torch.linalg.matrix_norm(inverse, 2) * torch.linalg.matrix_norm(within, 2)
    return (norms * (inverse * within).sum()).sqrt()


def spectral_loss(generator: torch.Generator) -> Iterator[float]:
    r"""MSE lemma 1 with the package's and with the prescribed $\omega_j$, relative to each part."""
    for ratios in signal_to_noise(generator):
        drawn = ratios.clone()
        drawn[0] = 0.0 if len(drawn) > 2 else drawn[0]
        classes = draw_separated(drawn, len(drawn) + integer(0, 4, generator), generator)
        stats = classes.statistics()
        best = best_classifier(classes)
        seen = (
            loss(classes, best),
            variability_part(classes.extended, best, 0.0),
            means_part(classes.extended, best),
        )
        for omega in (drawn, snr_singular_values(stats, discriminants(stats))):
            parts = zip(spectral_parts(omega, classes.k), seen, strict=True)
            yield max(float((formula - value).abs() / value) for formula, value in parts)


def less_noise(generator: torch.Generator) -> Iterator[float]:
    r"""Section 2: $\mathcal L_{NC1}$ falls when $\Sigma_W$ is scaled down; reports its growth."""
    for ratios in signal_to_noise(generator):
        yield from _growth_under_less_noise(ratios, generator)


def less_noise_when_separated(generator: torch.Generator) -> Iterator[float]:
    r"""Check `less_noise` if all $\omega_j\ge\sqrt C$, and for $\mathcal L_{LS}$ in any case."""
    for ratios in signal_to_noise(generator):
        least = turning_point(len(ratios) + 1)
        yield from _growth_under_less_noise(ratios * least / ratios.min(), generator)
        classes = draw_separated(ratios, len(ratios), generator)
        quieter = classes.with_noise(magnitude(-2, -1e-3, generator))
        whole, less = (loss(case, best_classifier(case)) for case in (classes, quieter))
        yield max(float((less - whole) / whole), 0.0)


def _growth_under_less_noise(
    ratios: Float[Tensor, " _r"], generator: torch.Generator
) -> Iterator[float]:
    classes = draw_separated(ratios, len(ratios) + integer(0, 3, generator), generator)
    before = variability_part(classes.extended, best_classifier(classes), 0.0)
    for scale in (0.999, 0.9, magnitude(-2, 0, generator)):
        quieter = classes.with_noise(scale)
        after = variability_part(quieter.extended, best_classifier(quieter), 0.0)
        yield max(float((after - before) / before), 0.0)


def variability_to_zero(generator: torch.Generator) -> Iterator[float]:
    r"""C.2: $\mathcal L_{NC1}\to0$ with fixed means only if $\Sigma_W\to0$.

    The deviation is the size of $\Sigma_W$ at which $\mathcal L_{NC1}$ has vanished, relative to
    its initial size and at most 1. The noise grows, or it shrinks in the span of the means.
    """
    for ratios in signal_to_noise(generator, 0.5, 10.0):
        classes = draw_separated(ratios, len(ratios) + 2, generator, plain=True)
        basis, _, _ = torch.linalg.svd(classes.centred_means)
        signal = basis[:, : len(ratios)]
        inside = (1 - 1e-6) * signal @ (signal.mT @ classes.noise)
        for moved in (classes.with_noise(1e6), Classes(classes.features - inside, classes.k)):
            best = best_classifier(moved)
            part = variability_part(moved.extended, best, 0.0)
            gone = part < _VANISHED * len(ratios) / (8 * classes.k)
            yield min(float(moved.within.norm() / classes.within.norm()), 1.0) if gone else 0.0


def variability_within_bound(generator: torch.Generator) -> Iterator[float]:
    r"""$\operatorname{tr}(\Sigma_B^\dagger\Sigma_W)\le$ `collapse_bound`, renormalised features.

    The deviation is relative to the bound; equality holds for two classes.
    """
    for ratios in signal_to_noise(generator, 0.5):
        k = len(ratios) + 1
        classes = draw_separated(
            ratios, len(ratios) + integer(0, 3, generator), generator, plain=True
        )
        whole = float(loss(classes, best_classifier(classes)))
        if 2 * k * whole < 1 - 1e-2:
            bound = collapse_bound(whole, k)
            yield max((_fuzziness(classes) - bound) / bound, 0.0)


def _fuzziness(classes: Classes) -> float:
    means = classes.centred_means
    between = means @ means.mT / classes.k
    inverse = torch.linalg.pinv(between, rtol=1e-10, hermitian=True)
    return float((inverse * classes.within).sum())


def semimetric(generator: torch.Generator) -> Iterator[float]:
    r"""C.2: $\mathcal L_{NC2/3}$ vanishes at (NC2) and (NC3), and nowhere else.

    Yields the class means' distance from a simplex (PFC (8)) wherever $\mathcal L_{NC2/3}$ is
    almost 0, and, for aligned simplices, $\mathcal L_{NC2/3}$ as a share of its maximum.
    """
    for k in (2, 3, 4, 6):
        crowd = draw_separated(torch.rand(k - 1, generator=generator).double() + 1, k, generator)
        tight = crowd.with_noise(1e-5)
        vanished = means_part(tight.extended, best_classifier(tight))
        gone = vanished < _VANISHED * (k - 1) / (2 * k)
        yield float(etf_distance(tight.centred_means.mT)) if gone else 0.0
        flat = magnitude(-1, 1, generator) * torch.ones(k - 1, dtype=torch.float64)
        frame = draw_separated(flat, k, generator, plain=True)
        part = means_part(frame.extended, best_classifier(frame))
        yield float(part * 2 * k / (k - 1))


def means_part_by_smallest_ratio(generator: torch.Generator) -> Iterator[float]:
    r"""$\mathcal L_{NC2/3}$ within `means_part_range`, relative to the bound that is violated.

    The lower bound is attained as all $\omega_j$ but one grow; the upper one if all are equal.
    """
    for ratios in signal_to_noise(generator):
        classes = draw_separated(ratios, len(ratios) + integer(0, 3, generator), generator)
        part = float(means_part(classes.extended, best_classifier(classes)))
        least, greatest = means_part_range(float(ratios.min()), classes.k)
        yield max((least - part) / least, (part - greatest) / greatest, 0.0)


def full_rank_means(generator: torch.Generator) -> Iterator[float]:
    """MSE definition 2 as printed: the SNR matrix has rank C - 1."""
    for classes in _flat_means(generator):
        yield float(abs(_snr_rank(classes) - (classes.k - 1)))


def rank_of_means(generator: torch.Generator) -> Iterator[float]:
    """Check that the SNR matrix's rank is the dimension of the class means' affine hull."""
    for classes in _flat_means(generator):
        yield float(abs(_snr_rank(classes) - affine_dimension(classes.means)))


def _snr_rank(classes: Classes) -> int:
    root = symmetric_power(classes.within, -0.5)
    return int(torch.linalg.matrix_rank(root @ classes.centred_means, rtol=1e-7))


def _flat_means(generator: torch.Generator) -> Iterator[Classes]:
    """Yield class means in general position, on a line, in a plane, and with two equal means."""
    for k in (3, 4, 5, 8):
        for rank in {1, 2, k - 2, k - 1}:
            dim = k + integer(1, 4, generator)
            spread = normal(dim, rank, generator=generator)
            spread = spread @ normal(rank, k, generator=generator)
            spread[:, 1] = spread[:, choice((0, 1), generator)]
            flat = draw_separated(torch.ones(k - 1, dtype=torch.float64), dim, generator)
            yield Classes(flat.noise + spread.repeat_interleave(flat.per_class, 1), k)


def small_eigenvalues(generator: torch.Generator) -> Iterator[float]:
    r"""MSE D.6: $\Sigma_B^\dagger\Sigma_W\to0$ if its eigenvalues go to 0.

    The deviation is the norm of the matrix, at most 1, when its trace is 1e-10. The trace is the
    sum of the eigenvalues, which are $\ge0$.
    """
    for _ in range(5):
        size, small = integer(2, 8, generator), 1e-10
        within = torch.eye(size, dtype=torch.float64) / small
        within[:2, :2] = torch.tensor([[small, 1.0], [1.0, 4 / small]])
        inverse = torch.zeros_like(within)
        inverse[0, 0] = magnitude(-1, 0, generator)
        yield min(float((inverse @ within).norm()), 1.0)


def matrix_by_trace(generator: torch.Generator) -> Iterator[float]:
    r"""$\lVert\Sigma_B^\dagger\Sigma_W\rVert_F\le$ `matrix_bound`, with a search for violations.

    Deviations are relative to the bound. Equality holds if $\Sigma_B$ has rank one, along a leading
    eigenvector of $\Sigma_W$.
    """

    def violation(instance: Instance) -> float:
        inverse, within = (factor @ factor.mT for factor in instance)
        bound = matrix_bound(inverse, within)
        return float(((inverse @ within).norm() - bound) / bound)

    for _ in range(10):
        p = integer(2, 8, generator)
        noise = normal(p, p + 2, generator=generator)
        signal = normal(p, integer(1, p, generator), generator=generator)
        yield from climb(violation, (signal, noise), generator, steps=15)
        leading = torch.linalg.svd(noise)[0][:, :1]
        yield max(violation((magnitude(-4, 4, generator) * leading, noise)), 0.0)


STATEMENTS = (
    Statement(
        id="mse/lemma-1",
        statement=(
            "On the central path without decay, with w_j the C-1 leading singular values of the "
            "SNR matrix, L_LS = sum 1/(w_j^2 + C) / 2, L_NC1 = sum w_j^2/(C + w_j^2)^2 / 2 and "
            "L_NC2/3 = sum (w_j^2/(w_j^2 + C) - 1)^2 / (2C)."
        ),
        source="MSE lemma 1",
        tolerance=TOLERANCE,
        printed=spectral_loss,
    ),
    Statement(
        id="mse/section-2-noise",
        statement=(
            "Pushing S_W towards 0 always reduces L_NC1; corrected: pushing S_W towards 0 "
            "reduces L_NC1 where every singular value of the SNR matrix is at least sqrt(C), and "
            "always reduces L_LS."
        ),
        source="MSE section 2, after theorem 2",
        tolerance=TOLERANCE,
        printed=less_noise,
        corrected=less_noise_when_separated,
        grade="gap",
    ),
    Statement(
        id="mse/appendix-c.2-nc1",
        statement=(
            "With the class means fixed, L_NC1 goes to 0 only if S_W goes to 0; corrected: L_LS, "
            "not L_NC1, bounds variability, tr(S_B^+ S_W) <= 2C L_LS / (1 - 2C L_LS) for "
            "renormalised features and L_LS < 1/(2C)."
        ),
        source="MSE C.2",
        tolerance=TOLERANCE,
        printed=variability_to_zero,
        corrected=variability_within_bound,
        grade="false",
    ),
    Statement(
        id="mse/appendix-c.2-nc23",
        statement=(
            "L_NC2/3 is 0 where (NC2) and (NC3) hold, and only there; corrected: L_NC2/3 "
            "bounds the smallest singular value w of the SNR matrix, "
            "C/2 <= (C + w^2)^2 L_NC2/3 <= C(C-1)/2, and goes to 0 as w goes to infinity."
        ),
        source="MSE C.2",
        tolerance=TOLERANCE,
        printed=semimetric,
        corrected=means_part_by_smallest_ratio,
        grade="false",
    ),
    Statement(
        id="mse/definition-2",
        statement=(
            "The SNR matrix has rank C - 1 where S_W has full rank; corrected: its rank is the "
            "dimension of the affine hull of the class means."
        ),
        source="MSE definition 2",
        tolerance=TOLERANCE,
        printed=full_rank_means,
        corrected=rank_of_means,
        grade="gap",
    ),
    Statement(
        id="mse/appendix-d.6",
        statement=(
            "S_B^+ S_W goes to 0 where its eigenvalues go to 0; corrected: ||S_B^+ S_W||_F^2 <= "
            "||S_B^+|| ||S_W|| tr(S_B^+ S_W), so this holds while ||S_B^+|| ||S_W|| stays "
            "bounded."
        ),
        source="MSE D.6",
        tolerance=TOLERANCE,
        printed=small_eigenvalues,
        corrected=matrix_by_trace,
        grade="gap",
    ),
)
