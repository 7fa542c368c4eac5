"""The least linear probing loss (VCI theorem 5.1 and appendix A.2)."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.metrics.variability import linear_probe_mse
from ncscope.stats.options import Prior
from ncscope_lab.theory.search import integer
from ncscope_lab.theory.statement import Statement
from ncscope_lab.theory.vci_features import (
    ClassFeatures,
    capture,
    capture_trace,
    class_means,
    draw_balanced,
    draw_imbalanced,
    draw_unstructured,
    draw_unstructured_of,
    indicator,
    measure,
    probe_minimum,
    total_covariance,
)

TOLERANCE = 1e-9
_PRIORS: tuple[Prior, ...] = ("empirical", "uniform")


def optimal_loss(k: int, trace: float) -> float:
    r"""Theorem 5.1's $\frac12-\frac1{2K}-\frac1{2K}\operatorname{Tr}[\Sigma_T^\dagger\Sigma_B]$."""
    return (1 - 1 / k - trace / k) / 2


def optimal_loss_of_prior(prior: Float[Tensor, " k"], terms: Float[Tensor, " k"]) -> float:
    r"""$\frac12(1-\sum\pi_c^2)-\frac12\sum\pi_ct_c$, $t_c$ the terms of the trace (`capture`)."""
    return float(1 - prior.square().sum() - prior @ terms) / 2


def optimal_head(
    labelled: ClassFeatures,
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    r"""$W=\frac1K\sum e_k(\mu_k-\mu_G)^\top\Sigma_T^\dagger$, $b=\frac1K\mathbf 1-W\mu_G$ (A.2)."""
    mean = labelled.features.mean(0)
    inverse = torch.linalg.pinv(total_covariance(labelled), rtol=1e-11, hermitian=True)
    weight = (class_means(labelled) - mean) @ inverse / labelled.k
    return weight, 1 / labelled.k - weight @ mean


def rank_of_total(labelled: ClassFeatures) -> int:
    r"""$\operatorname{rank}\Sigma_T$ of features with prescribed spectra."""
    return len(labelled.between)


def probing_loss(generator: torch.Generator) -> Iterator[float]:
    r"""VCI theorem 5.1: least squares, formula and metric, relative to $\frac12$."""
    for labelled in [*draw_balanced(generator, 25), *draw_unstructured(generator, 15)]:
        least = probe_minimum(labelled, labelled.counts / len(labelled.labels))
        yield 2 * abs(least - optimal_loss(labelled.k, capture_trace(labelled)))
        yield 2 * abs(least - float(linear_probe_mse(*measure(labelled))))


def probing_loss_as_printed(generator: torch.Generator) -> Iterator[float]:
    r"""Theorem 5.1's formula for classes of different size, with covariances weighted by size."""
    for labelled in draw_imbalanced(generator, 20):
        least = probe_minimum(labelled, labelled.counts / len(labelled.labels))
        yield 2 * abs(least - optimal_loss(labelled.k, capture_trace(labelled)))


def probing_loss_of_prior(generator: torch.Generator) -> Iterator[float]:
    r"""Check the formula for any prior; at $\pi_c=1/K$ it is the printed formula."""
    for labelled in draw_imbalanced(generator, 12):
        for name in _PRIORS:
            stats, discriminants = measure(labelled, name)
            terms = capture(labelled, stats.prior)
            least = probe_minimum(labelled, stats.prior)
            yield 2 * abs(least - optimal_loss_of_prior(stats.prior, terms))
            yield 2 * abs(least - float(linear_probe_mse(stats, discriminants)))
        yield 2 * abs(least - optimal_loss(labelled.k, float(terms.sum())))


def minimiser(generator: torch.Generator) -> Iterator[float]:
    r"""A.2: the gradient vanishes at `optimal_head`, and the loss is the minimum there."""
    for labelled in draw_balanced(generator, 40):
        weight, bias = optimal_head(labelled)
        error = labelled.features @ weight.mT + bias - indicator(labelled)
        least = probe_minimum(labelled, labelled.counts / len(labelled.labels))
        yield abs(float(error.square().sum()) / len(error) - 2 * least)
        spread = labelled.features - labelled.features.mean(0)
        slope = torch.cat([error.mT @ spread / spread.norm(), error.sum(0)[:, None]], 1)
        yield float(slope.norm() / error.shape[0] ** 0.5)


def eigenvectors_past_classes(generator: torch.Generator) -> Iterator[float]:
    r"""A.2: eigenvectors $u_i$ of $\Sigma_T$, descending, with $i>K$ against the centred means.

    The eigenvalues are distinct, so the eigenvectors are unique up to sign.
    """
    for _ in range(20):
        k = integer(2, 4, generator)
        labelled = draw_unstructured_of(k, 5, k + integer(1, 3, generator), generator)
        yield _lean_past(labelled, k)


def eigenvectors_past_rank(generator: torch.Generator) -> Iterator[float]:
    r"""Check the statement of `eigenvectors_past_classes` for $i>rank\Sigma_T$."""
    for labelled in draw_balanced(generator, 40):
        yield _lean_past(labelled, rank_of_total(labelled))


def nothing_captured(generator: torch.Generator) -> Iterator[float]:
    r"""VCI 5: $Tr[\Sigma_T^\dagger\Sigma_B]\ge0$, and 0 if and only if $\Sigma_B=0$.

    The trace is at least $Tr\Sigma_B/\lambda_{max}(\Sigma_T)$, with equality in one dimension.
    """
    unstructured = list(draw_unstructured(generator, 15))
    on_a_line = [draw_unstructured_of(integer(2, 4, generator), 3, 1, generator) for _ in range(5)]
    for labelled in unstructured + on_a_line:
        stats, _ = measure(labelled)
        largest = torch.linalg.eigvalsh(total_covariance(labelled))[-1]
        yield max(float(stats.between_trace / largest) - capture_trace(labelled), 0.0)
        means = class_means(labelled)[labelled.labels]
        same = labelled.with_features(labelled.features - means)
        yield capture_trace(same)
        yield 2 * abs(float(linear_probe_mse(*measure(same))) - optimal_loss(labelled.k, 0.0))


def _lean_past(labelled: ClassFeatures, index: int) -> float:
    """Return the largest cosine of a centred class mean with the eigenvectors past the index."""
    spread = labelled.features - labelled.features.mean(0)
    means = class_means(labelled) - labelled.features.mean(0)
    past = torch.linalg.svd(spread)[2][index:]
    return float(((means @ past.mT).norm(dim=1) / means.norm(dim=1)).max())


STATEMENTS = (
    Statement(
        id="vci/theorem-5.1",
        statement=(
            "min over W, b of 1/(2KN) sum ||W h + b - e_k||^2 = "
            "-1/(2K) Tr[pinv(Sigma_T) Sigma_B] + 1/2 - 1/(2K)."
        ),
        source="VCI theorem 5.1",
        tolerance=TOLERANCE,
        printed=probing_loss,
    ),
    Statement(
        id="vci/theorem-5.1-imbalanced",
        statement=(
            "Theorem 5.1 extends to classes of any sizes; corrected: the minimum is (1 - sum "
            "pi_c^2)/2 - sum pi_c^2 (mu_c - mu_G)' pinv(Sigma_T) (mu_c - mu_G) / 2, which is no "
            "function of the trace unless every class is weighted 1/K."
        ),
        source="VCI 3.1 with theorem 5.1",
        tolerance=TOLERANCE,
        printed=probing_loss_as_printed,
        corrected=probing_loss_of_prior,
        grade="gap",
    ),
    Statement(
        id="vci/theorem-5.1-minimiser",
        statement=(
            "The minimum of theorem 5.1 is at W = 1/K sum e_k (mu_k - mu_G)' pinv(Sigma_T), "
            "b = 1/K - W mu_G."
        ),
        source="VCI A.2",
        tolerance=TOLERANCE,
        printed=minimiser,
    ),
    Statement(
        id="vci/theorem-5.1-proof",
        statement=(
            "Sigma_T has eigenvectors u_1, u_2, ... with u_i orthogonal to the centred class means "
            "for i > K; corrected: for i > rank(Sigma_T)."
        ),
        source="VCI A.2",
        tolerance=TOLERANCE,
        printed=eigenvectors_past_classes,
        corrected=eigenvectors_past_rank,
        grade="slip",
    ),
    Statement(
        id="vci/remark-5.1",
        statement=(
            "The minimum of Tr[pinv(Sigma_T) Sigma_B] is 0, reached if and only if all class means "
            "coincide."
        ),
        source="VCI 5, after theorem 5.1",
        tolerance=TOLERANCE,
        printed=nothing_captured,
    ),
)
