"""The variability collapse index and the bound behind it (VCI theorem 5.2 to corollary 5.4)."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.metrics.variability import vci
from ncscope.stats.options import Prior
from ncscope_lab.theory.search import Instance, climb, factors, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement
from ncscope_lab.theory.vci_features import (
    ClassFeatures,
    capture_trace,
    draw_balanced,
    draw_imbalanced,
    draw_mixture,
    draw_unstructured,
    draw_unstructured_of,
    label_by_counts,
    measure,
    probe_minimum,
)

TOLERANCE = 1e-9
_PRIORS: tuple[Prior, ...] = ("empirical", "uniform")
_STEPS = 20


def loss_of_vci(index: float, k: int, rank: int) -> float:
    r"""Theorem 5.1 by definition 5.3: $\frac1{2K}(K-1-r+r\,VCI)$ with $r=rank\Sigma_B$."""
    return (k - 1 - rank + rank * index) / (2 * k)


def index_with_rank(trace: float, rank: int) -> float:
    r"""$1-\operatorname{Tr}[\Sigma_T^\dagger\Sigma_B]/r$ (definition 5.3)."""
    return 1 - trace / rank


def dilute(index: float, rank: int, largest: int) -> float:
    r"""Return the index with $\min\{p,K-1\}$ for the rank: $1-\frac r{\min}(1-VCI)$."""
    return 1 - rank / largest * (1 - index)


def shortfall(between: Float[Tensor, " m"], within: Float[Tensor, " m"]) -> float:
    r"""$rank\Sigma_B-Tr[\Sigma_T^\dagger\Sigma_B]=\sum_{\beta_j>0}\frac{\omega_j}{\beta_j+\omega_j}$."""
    moved = between > 0
    return float((within[moved] / (between[moved] + within[moved])).sum())


def contraction(matrix: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Scale a matrix to spectral norm 1."""
    return matrix / torch.linalg.matrix_norm(matrix, 2)


def rank_bound(generator: torch.Generator) -> Iterator[float]:
    r"""VCI theorem 5.2, relative to the rank; equality at $\Sigma_W=0$."""
    for _ in range(12):
        k, size, d = integer(2, 6, generator), integer(2, 4, generator), integer(1, 8, generator)
        rank = integer(1, min(k - 1, d), generator)
        means = _of_norm(1, factors(k, d, rank, generator))
        spread = factors(k * size, d, integer(1, min(k * size, d), generator), generator)
        noise = _of_norm(magnitude(-2, 2, generator), spread)

        def violation(instance: Instance, rank: int = rank) -> float:
            labelled = _with_means(instance[0] @ instance[1], instance[2] @ instance[3])
            return capture_trace(labelled) / rank - 1

        yield from climb(violation, (*means, *noise), generator, _STEPS)
        yield abs(violation((*means, 0 * noise[0], noise[1])))


def equality_case(generator: torch.Generator) -> Iterator[float]:
    r"""Check that theorem 5.2 is an equality if and only if $V_B\cap V_W=\{0\}$.

    The last instances have more dimensions than samples, and are not collapsed.
    """
    for labelled in [*draw_balanced(generator, 40), *draw_imbalanced(generator, 20)]:
        missing = labelled.rank - capture_trace(labelled)
        yield abs(missing - shortfall(labelled.between, labelled.within)) / labelled.rank
    for k in (2, 3, 5):
        wide = draw_unstructured_of(k, 3, 3 * k - 1 + integer(0, 3, generator), generator)
        yield abs(capture_trace(wide) / (k - 1) - 1)
        yield float(vci(*measure(wide)))


def more_collapsed(generator: torch.Generator) -> Iterator[float]:
    r"""VCI 5: with $\Sigma_B$ kept, $\Sigma_W\succeq\Sigma_W'$ lowers the probing loss.

    A contraction $\lVert T\rVert\le1$ of the within-class deviations yields every such
    $\Sigma_W'$.
    """

    def violation(instance: Instance) -> float:
        means, noise, change = instance
        spread = _centre(noise, len(means))
        both = spread, contraction(change) @ spread
        weights = torch.full((len(means),), 1 / len(means), dtype=torch.float64)
        losses = [probe_minimum(_with_means(means, one), weights) for one in both]
        return 2 * (losses[1] - losses[0])

    for start in range(8):
        k, size, d = integer(2, 5, generator), integer(2, 4, generator), integer(1, 6, generator)
        noise = magnitude(-2, 2, generator) * normal(k * size, d, generator=generator)
        change = normal(k * size, k * size, generator=generator)
        if start % 2 == 0:
            change = torch.eye(k * size, dtype=torch.float64)
        instance = normal(k, d, generator=generator), noise, change
        yield from climb(violation, instance, generator, _STEPS // 3)


def index_and_loss(generator: torch.Generator) -> Iterator[float]:
    r"""Definition 5.3: VCI in [0, 1], and the probing loss as a function of it."""
    for labelled in draw_unstructured(generator, 25):
        index = float(vci(*measure(labelled)))
        rank = min(labelled.features.shape[1], labelled.k - 1)
        least = probe_minimum(labelled, labelled.counts / len(labelled.labels))
        yield 2 * abs(least - loss_of_vci(index, labelled.k, rank))
        yield max(-index, index - 1, 0.0)


def rank_as_printed(generator: torch.Generator) -> Iterator[float]:
    r"""VCI 5: with $\min\{p,K-1\}$ for the rank the index equals that of definition 5.3."""
    for labelled in draw_balanced(generator, 20):
        index = index_with_rank(capture_trace(labelled), labelled.rank)
        yield abs(float(vci(*measure(labelled))) - index)


def rank_diluted(generator: torch.Generator) -> Iterator[float]:
    r"""Check the corrected value, for class means in general position or not."""
    for labelled in draw_balanced(generator, 20):
        index = index_with_rank(capture_trace(labelled), labelled.rank)
        largest = min(labelled.features.shape[1], labelled.k - 1)
        expected = dilute(index, labelled.rank, largest)
        yield abs(float(vci(*measure(labelled))) - expected)


def index_invariance(generator: torch.Generator) -> Iterator[float]:
    r"""VCI corollary 5.4, also for shifts; and the value itself, for prescribed spectra."""
    for labelled in [*draw_balanced(generator, 12), *draw_imbalanced(generator, 6)]:
        d = labelled.features.shape[1]
        shift = normal(1, d, generator=generator) * labelled.features.norm()
        features = (labelled.features + shift) @ draw_mixture(d, d, generator).mT
        moved = labelled.with_features(magnitude(-3, 3, generator) * features)
        missing = shortfall(labelled.between, labelled.within)
        full = min(d, labelled.k - 1)
        for prior in _PRIORS:
            before, after = (float(vci(*measure(one, prior))) for one in (labelled, moved))
            yield abs(after - before)
            if prior == "empirical":
                yield abs(full * before - (full - labelled.rank) - missing)


def _of_norm(size: float, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Scale means and noise to comparable size, else rounding removes the smaller from the sum."""
    return size / pair[0].norm() * pair[0], pair[1]


def _with_means(means: Float[Tensor, "k d"], noise: Float[Tensor, "n d"]) -> ClassFeatures:
    """Return features in classes of equal size with exactly the given class means."""
    k, size = len(means), len(noise) // len(means)
    features = means.repeat_interleave(size, 0) + _centre(noise, k)
    return label_by_counts(features, torch.full((k,), size))


def _centre(noise: Float[Tensor, "n d"], k: int) -> Float[Tensor, "n d"]:
    classes = noise.view(k, -1, noise.shape[1])
    return (classes - classes.mean(1, keepdim=True)).flatten(0, 1)


STATEMENTS = (
    Statement(
        id="vci/theorem-5.2",
        statement="Tr[pinv(Sigma_T) Sigma_B] <= rank(Sigma_B), with equality if Sigma_W = 0.",
        source="VCI theorem 5.2",
        tolerance=TOLERANCE,
        printed=rank_bound,
    ),
    Statement(
        id="vci/theorem-5.2-equality",
        statement=(
            "Theorem 5.2 is an equality if and only if no direction is both in V_B and in V_W, "
            "as for any K N <= p + 1 features in general position."
        ),
        source="VCI theorem 5.2, its equality case",
        tolerance=TOLERANCE,
        printed=equality_case,
    ),
    Statement(
        id="vci/remark-5.2",
        statement=(
            "A more collapsed representation (same Sigma_B, Sigma_W' <= Sigma_W as quadratic "
            "forms) has a smaller or equal probing loss."
        ),
        source="VCI 5, after theorem 5.2",
        tolerance=TOLERANCE,
        printed=more_collapsed,
    ),
    Statement(
        id="vci/definition-5.3",
        statement=(
            "0 <= VCI <= 1, and with r = rank(Sigma_B) the probing loss of theorem 5.1 is "
            "(K - 1 - r + r VCI) / (2K)."
        ),
        source="VCI definition 5.3 with theorems 5.1 and 5.2",
        tolerance=TOLERANCE,
        printed=index_and_loss,
    ),
    Statement(
        id="vci/definition-5.3-rank",
        statement=(
            "With min(p, K-1) instead of r = rank(Sigma_B) the index is VCI"
            "; corrected: the index is 1 - r/min(p, K-1) (1 - VCI)."
        ),
        source="VCI 5, after corollary 5.4",
        tolerance=TOLERANCE,
        printed=rank_as_printed,
        corrected=rank_diluted,
        grade="gap",
    ),
    Statement(
        id="vci/corollary-5.4",
        statement="VCI is invariant under every invertible linear map of the features.",
        source="VCI corollary 5.4",
        tolerance=TOLERANCE,
        printed=index_invariance,
    ),
)
