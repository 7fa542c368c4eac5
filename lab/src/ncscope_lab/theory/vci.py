r"""Covariances within and between classes, their ranges and ranks (VCI 3.1, 4.1 and 4.3)."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from ncscope.metrics.variability import within_in_signal, within_off_signal
from ncscope.stats.options import Prior
from ncscope_lab.theory.search import integer, magnitude, normal
from ncscope_lab.theory.statement import Statement
from ncscope_lab.theory.vci_features import (
    ClassFeatures,
    between_covariance,
    class_means,
    draw_balanced,
    draw_imbalanced,
    draw_unstructured,
    draw_unstructured_of,
    indicator,
    measure,
    total_covariance,
    within_covariance,
)

TOLERANCE = 1e-9
_SEEN = 1e-6  # least share of a direction that counts as seen
_PRIORS: tuple[Prior, ...] = ("empirical", "uniform")


def total_with_weights(labelled: ClassFeatures, prior: Float[Tensor, " k"]) -> Float[Tensor, "d d"]:
    r"""$\sum_c\frac{\pi_c}{n_c}\sum_i(h_i-\mu_G)(h_i-\mu_G)^\top$, $\mu_G=\sum_c\pi_c\mu_c$."""
    spread = labelled.features - prior @ class_means(labelled)
    return spread.mT @ (spread * (prior / labelled.counts)[labelled.labels][:, None])


def within_when_shifted(
    labelled: ClassFeatures, direction: Float[Tensor, " d"], step: float
) -> Float[Tensor, "d d"]:
    r"""$\Sigma_W$ after a shift of every $h_{k,1}$ by $\lambda v$ (VCI A.1).

    $\Sigma_W+\frac\lambda{KN}(vs^\top+sv^\top)+\lambda^2\frac{N-1}{N^2}vv^\top$,
    with $s=\sum_k(h_{k,1}-\mu_k)$.
    """
    k, size = labelled.k, len(labelled.labels) // labelled.k
    lean = (labelled.features[::size] - class_means(labelled)).sum(0)
    cross = torch.outer(direction, lean) * step / (k * size)
    square = torch.outer(direction, direction) * step**2 * (size - 1) / size**2
    return within_covariance(labelled) + cross + cross.mT + square


def decomposition(generator: torch.Generator) -> Iterator[float]:
    r"""VCI (7), and the project's $\Sigma_W$ against (1), relative to $\lVert\Sigma_T\rVert_F$."""
    for labelled in draw_balanced(generator, 20):
        within, total = within_covariance(labelled), total_covariance(labelled)
        gap = (total - between_covariance(labelled) - within).norm()
        kept = measure(labelled)[0].within
        assert kept is not None
        yield float(torch.maximum(gap, (kept - within).norm()) / total.norm())


def decomposition_as_printed(generator: torch.Generator) -> Iterator[float]:
    r"""VCI (7) with (1) to (3) for classes of different size."""
    for labelled in draw_imbalanced(generator, 20):
        total = total_covariance(labelled)
        gap = total - between_covariance(labelled) - within_covariance(labelled)
        yield float(gap.norm() / total.norm())


def decomposition_with_prior(generator: torch.Generator) -> Iterator[float]:
    r"""Check the statement with one prior in all three terms, $n_c/n$ or $1/K$."""
    for labelled in draw_imbalanced(generator, 10):
        for prior in _PRIORS:
            stats, _ = measure(labelled, prior)
            assert stats.within is not None
            total = total_with_weights(labelled, stats.prior)
            between = stats.centred.mT @ (stats.centred * stats.prior[:, None])
            yield float((total - between - stats.within).norm() / total.norm())


def split(generator: torch.Generator) -> Iterator[float]:
    r"""Check VCI fig. 1 by projected samples, relative to $Tr\Sigma_T$."""
    for labelled in draw_balanced(generator, 20):
        means = class_means(labelled)
        basis = torch.linalg.svd(means - means.mean(0))[2][: labelled.rank]
        spread = labelled.features - means[labelled.labels]
        along = (spread @ basis.mT).square().sum() / len(spread)
        whole = spread.square().sum() / len(spread)
        stats, discriminants = measure(labelled)
        size = stats.within_trace + stats.between_trace
        parts = within_in_signal(stats, discriminants), within_off_signal(stats, discriminants)
        yield float((parts[0] - along).abs() / size)
        yield float((parts[1] - (whole - along)).abs() / size)


def off_span(labelled: ClassFeatures) -> float:
    r"""Return the share of the squared deviations within classes that is off $V_B$."""
    means = class_means(labelled)
    along = torch.linalg.pinv(means - means.mean(0), rtol=1e-10) @ (means - means.mean(0))
    spread = labelled.features - means[labelled.labels]
    return float((spread - spread @ along).square().sum() / spread.square().sum())


def off_signal(generator: torch.Generator) -> Iterator[float]:
    """VCI 6.2: the part off the span of the means, by projected samples, with p from 1 to 2K."""
    for k in (2, 3, 5):
        for d in range(1, 2 * k + 1):
            labelled = draw_unstructured_of(k, integer(2, 5, generator), d, generator)
            share = off_span(labelled)
            yield share if d < k else float(share < _SEEN)


def within_without_bound(generator: torch.Generator) -> Iterator[float]:
    r"""VCI proposition 4.1, by the H' of its proof.

    With $v\cdot s\ge0$ the step $\lambda=N\sqrt{C/(N-1)}$ suffices, and it is tight for large C.
    """
    for _ in range(30):
        k, size = integer(2, 6, generator), integer(2, 5, generator)
        labelled = draw_unstructured_of(k, size, k + integer(1, 4, generator), generator)
        weight = normal(k, labelled.features.shape[1], generator=generator)
        direction = torch.linalg.svd(weight)[2][-1]
        lean = (labelled.features[::size] - class_means(labelled)).sum(0)
        direction = direction * torch.where(direction @ lean < 0, -1.0, 1.0)
        bound = magnitude(0, 4, generator) * float(within_covariance(labelled).norm())
        step = size * math.sqrt(bound / (size - 1))
        features = labelled.features.clone()
        features[::size] += step * direction
        moved = labelled.with_features(features)
        yield _loss_when_moved(labelled, moved, weight, normal(k, generator=generator))
        between = between_covariance(labelled)
        yield float((between_covariance(moved) - between).norm() / between.norm())
        within = within_covariance(moved)
        yield float(
            (within - within_when_shifted(labelled, direction, step)).norm() / within.norm()
        )
        yield max(1 - float(within.norm()) / bound, 0.0)


def between_rank(generator: torch.Generator) -> Iterator[float]:
    r"""VCI 4.3: eigenvalues of $\Sigma_B$ past $\min\{p,K-1\}$, relative to the largest."""
    for labelled in draw_unstructured(generator, 25):
        values = torch.linalg.eigvalsh(between_covariance(labelled)).flip(0)
        largest = min(len(values), labelled.k - 1)
        yield float(values[largest:].abs().sum() / values[0])
        yield float(abs(measure(labelled)[1].between.rank - largest))


def _loss_when_moved(
    labelled: ClassFeatures,
    moved: ClassFeatures,
    weight: Float[Tensor, "k d"],
    bias: Float[Tensor, " k"],
) -> float:
    """Return the relative change of two losses; weight decay does not depend on the features."""
    scores = [one.features @ weight.mT + bias for one in (labelled, moved)]
    entropy = [cross_entropy(score, labelled.labels) for score in scores]
    square = [mse_loss(score, indicator(labelled)) for score in scores]
    return max(float((b - a).abs() / a) for a, b in (entropy, square))


STATEMENTS = (
    Statement(
        id="vci/equation-7",
        statement="For classes of one size Sigma_T = Sigma_B + Sigma_W.",
        source="VCI (1), (2), (3), (7)",
        tolerance=TOLERANCE,
        printed=decomposition,
        kind="definition",
    ),
    Statement(
        id="vci/equation-7-imbalanced",
        statement=(
            "Sigma_T = Sigma_B + Sigma_W extends to classes of any sizes; corrected: with one "
            "prior (n_c/n or 1/K) in Sigma_W, Sigma_B, Sigma_T and mu_G, not with (1) to (3)."
        ),
        source="VCI 3.1 with (1), (2), (3)",
        tolerance=TOLERANCE,
        printed=decomposition_as_printed,
        corrected=decomposition_with_prior,
        grade="gap",
    ),
    Statement(
        id="vci/proposition-4.1",
        statement=(
            "If p > K and N >= 2, then for any W, b, H, C there is H' with the same loss and "
            "Sigma_B, and ||Sigma_W(H')||_F > C."
        ),
        source="VCI proposition 4.1 and A.1",
        tolerance=TOLERANCE,
        printed=within_without_bound,
    ),
    Statement(
        id="vci/figure-1",
        statement=(
            "Tr Sigma_W is the sum of its parts along V_B and off it, "
            "1/(KN) sum ||Proj(h - mu)||^2."
        ),
        source="VCI 4.1, fig. 1",
        tolerance=TOLERANCE,
        printed=split,
        kind="definition",
    ),
    Statement(
        id="vci/remark-6.2",
        statement=(
            "For class means in general position the part of Tr Sigma_W off V_B is 0 if p < K, and "
            "is positive if p >= K and the features are in general position too."
        ),
        source="VCI 6.2",
        tolerance=TOLERANCE,
        printed=off_signal,
    ),
    Statement(
        id="vci/remark-4.3",
        statement=(
            "rank(Sigma_B) <= min(p, K-1), which class means in general position reach; "
            "so Sigma_B is singular if K <= p."
        ),
        source="VCI 4.3",
        tolerance=TOLERANCE,
        printed=between_rank,
    ),
)
