r"""Labelled features of prescribed covariances, and literal implementations of the definitions.

Any two covariances can be diagonalised together: $\Sigma_B=G\operatorname{diag}(\beta)G^\top$ and
$\Sigma_W=G\operatorname{diag}(\omega)G^\top$ with $G$ of full column rank. So features drawn from
$\beta$, $\omega$ and $G$ lose no generality, and $\operatorname{Tr}[\Sigma_T^\dagger\Sigma_B]$ is
known.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.metrics.discriminants import Discriminants, discriminants
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import Prior
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope_lab.theory.search import integer, magnitude, normal

_RCOND = 1e-11


@dataclass(frozen=True)
class ClassFeatures:
    r"""Features of K classes, every class present.

    Attributes:
        features: Features, one sample per row.
        labels: Integer class of each sample, 0..K-1.
        between: $\beta$, in the basis $G$; empty if not prescribed.
        within: $\omega$, in the same basis.
    """

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    between: Float[Tensor, " m"]
    within: Float[Tensor, " m"]

    @property
    def k(self) -> int:
        """Number of classes."""
        return int(self.labels.max()) + 1

    @property
    def counts(self) -> Float[Tensor, " k"]:
        """Class sizes, float64."""
        return torch.bincount(self.labels).double()

    @property
    def rank(self) -> int:
        r"""$\operatorname{rank}\Sigma_B$."""
        return int((self.between > 0).sum())

    def with_features(self, features: Float[Tensor, "n e"]) -> "ClassFeatures":
        """Return other features with the same labels and spectra."""
        return ClassFeatures(features, self.labels, self.between, self.within)


def draw_balanced(generator: torch.Generator, count: int) -> Iterator[ClassFeatures]:
    """Draw classes of equal size N >= 2."""
    for _ in range(count):
        k, size = integer(2, 6, generator), integer(2, 5, generator)
        yield _draw_any(torch.full((k,), size), generator)


def draw_imbalanced(generator: torch.Generator, count: int) -> Iterator[ClassFeatures]:
    """Draw 3 to 6 classes of 2 to 20 samples; the first has 20 to 40 more than the second."""
    for _ in range(count):
        counts = torch.randint(2, 21, (integer(3, 6, generator),), generator=generator)
        counts[0] = counts[1] + integer(20, 40, generator)
        yield _draw_any(counts, generator)


def draw_unstructured(generator: torch.Generator, count: int) -> Iterator[ClassFeatures]:
    """Draw normal features with class means of comparable size, in classes of size N >= 2."""
    for _ in range(count):
        k, size, d = integer(2, 6, generator), integer(2, 5, generator), integer(1, 8, generator)
        yield draw_unstructured_of(k, size, d, generator)


def draw_unstructured_of(k: int, size: int, d: int, generator: torch.Generator) -> ClassFeatures:
    """Draw normal features in k classes of the given size."""
    means = normal(k, d, generator=generator).repeat_interleave(size, 0)
    return label_by_counts(means + normal(k * size, d, generator=generator), torch.full((k,), size))


def label_by_counts(features: Float[Tensor, "n d"], counts: Int[Tensor, " k"]) -> ClassFeatures:
    """Return features sorted by class, without prescribed spectra."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), counts)
    unknown = features.new_zeros(0)
    return ClassFeatures(features, labels, unknown, unknown)


def draw(
    counts: Int[Tensor, " k"],
    between: Float[Tensor, " m"],
    within: Float[Tensor, " m"],
    generator: torch.Generator,
) -> ClassFeatures:
    r"""Draw features whose covariances under the prior $n_c/n$ are diagonal in a random basis.

    Args:
        counts: Class sizes.
        between: $\beta\ge0$, at most K - 1 of them positive.
        within: $\omega\ge0$, at most n - K of them positive.
        generator: Generator of directions, basis (of condition 10), dimension, offset and scale.
    """
    k, n, m = len(counts), int(counts.sum()), len(between)
    labels = torch.repeat_interleave(torch.arange(k), counts)
    weight = (counts.double() / n).sqrt()[:, None]
    contrasts = _orthonormal_beside(weight, k - 1, generator) / weight
    indicator = torch.nn.functional.one_hot(labels, k).double()
    noise = _orthonormal_beside(indicator, int((within > 0).sum()), generator) * n**0.5
    coordinates = torch.zeros(n, m, dtype=torch.float64)
    coordinates[:, between > 0] = contrasts[labels, : int((between > 0).sum())]
    coordinates *= between.sqrt()
    coordinates[:, within > 0] += noise * within[within > 0].sqrt()
    features = coordinates @ draw_mixture(m + integer(0, 2, generator), m, generator).mT
    offset = magnitude(-1, 1, generator) * normal(1, features.shape[1], generator=generator)
    return ClassFeatures(magnitude(-6, 6, generator) * (features + offset), labels, between, within)


def draw_mixture(rows: int, columns: int, generator: torch.Generator) -> Float[Tensor, "m n"]:
    """Draw a random matrix of full column rank and condition at most 10."""
    left, _ = torch.linalg.qr(normal(rows, columns, generator=generator))
    right, _ = torch.linalg.qr(normal(columns, columns, generator=generator))
    spread = torch.rand(columns, dtype=torch.float64, generator=generator)
    return left * 10**spread @ right.mT


def measure(
    labelled: ClassFeatures, prior: Prior = "empirical"
) -> tuple[ClassStatistics, Discriminants]:
    """Return the statistics from which the project computes its metrics."""
    moments = ClassMoments(
        labelled.k,
        labelled.features.shape[1],
        statistics={"scatter"},
        prior=prior,
        class_counts=torch.bincount(labelled.labels),
    )
    moments.update(labelled.features, labelled.labels)
    stats = finish(moments)
    return stats, discriminants(stats)


def measure_directions(labelled: ClassFeatures) -> ClassStatistics:
    """Return the statistics from which the project computes its cosine metrics."""
    moments = ClassMoments(labelled.k, labelled.features.shape[1], statistics={"directions"})
    moments.update(labelled.features, labelled.labels)
    return finish(moments)


def indicator(labelled: ClassFeatures) -> Float[Tensor, "n k"]:
    """One-hot labels."""
    return torch.nn.functional.one_hot(labelled.labels, labelled.k).double()


def class_means(labelled: ClassFeatures) -> Float[Tensor, "k d"]:
    r"""$\mu_k$."""
    return indicator(labelled).mT @ labelled.features / labelled.counts[:, None]


def within_covariance(labelled: ClassFeatures) -> Float[Tensor, "d d"]:
    r"""$\Sigma_W$ of VCI (1)."""
    spread = labelled.features - class_means(labelled)[labelled.labels]
    return spread.mT @ spread / len(spread)


def between_covariance(labelled: ClassFeatures) -> Float[Tensor, "d d"]:
    r"""$\Sigma_B$ of VCI (2): every class weighted $1/K$; $\mu_G$ the mean of all samples."""
    spread = class_means(labelled) - labelled.features.mean(0)
    return spread.mT @ spread / len(spread)


def total_covariance(labelled: ClassFeatures) -> Float[Tensor, "d d"]:
    r"""$\Sigma_T$ of VCI (3)."""
    spread = labelled.features - labelled.features.mean(0)
    return spread.mT @ spread / len(spread)


def capture(labelled: ClassFeatures, prior: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    r"""Compute the terms $\pi_c(\mu_c-\mu_G)^\top\Sigma_T^\dagger(\mu_c-\mu_G)$ of the trace.

    They are $\lVert U^\top z_c\rVert^2$, where U holds the left singular vectors of the weighted
    samples and $z_c$ is the unit vector of class c. This form is accurate for any condition number
    and independent of the implementation of the metrics.
    """
    weight = (prior / labelled.counts)[labelled.labels]
    root = weight.sqrt()[:, None]
    left, values, _ = torch.linalg.svd(
        root * (labelled.features - weight @ labelled.features), full_matrices=False
    )
    unit = root * indicator(labelled) / prior.sqrt()
    return (left[:, values > _RCOND * values[0]].mT @ unit).square().sum(0)


def capture_trace(labelled: ClassFeatures) -> float:
    r"""$\operatorname{Tr}[\Sigma_T^\dagger\Sigma_B]$, classes weighted by their size."""
    return float(capture(labelled, labelled.counts / len(labelled.labels)).sum())


def probe_minimum(labelled: ClassFeatures, prior: Float[Tensor, " k"]) -> float:
    r"""$\min_{W,b}\frac12\sum_c\frac{\pi_c}{n_c}\sum_i\lVert Wh_i+b-e_c\rVert^2$."""
    weight = (prior / labelled.counts)[labelled.labels]
    target = indicator(labelled) - prior
    spread = labelled.features - weight @ labelled.features
    root = weight.sqrt()[:, None]
    solved = torch.linalg.lstsq(root * spread, root * target, rcond=_RCOND, driver="gelsd")
    return float((root * (spread @ solved.solution - target)).square().sum() / 2)


def _draw_any(counts: Int[Tensor, " k"], generator: torch.Generator) -> ClassFeatures:
    """Draw features of any ranks, with directions of the means, of the noise, or of both."""
    rank, noise = len(counts) - 1, min(int(counts.sum()) - len(counts), 6)
    signal = integer(1, rank, generator)
    shared = integer(0, min(signal, noise), generator)
    alone = integer(0, min(3, noise - shared), generator)
    between = _spectrum(signal + alone, generator)
    within = _spectrum(signal + alone, generator)
    between[signal:], within[: signal - shared] = 0, 0
    return draw(counts, between, within, generator)


def _spectrum(size: int, generator: torch.Generator) -> Float[Tensor, " m"]:
    return 10 ** (2 * torch.rand(size, dtype=torch.float64, generator=generator) - 1)


def _orthonormal_beside(
    given: Float[Tensor, "n k"], columns: int, generator: torch.Generator
) -> Float[Tensor, "n s"]:
    """Draw random orthonormal columns, orthogonal to the given columns."""
    noise = normal(len(given), columns, generator=generator)
    return torch.linalg.qr(torch.cat([given, noise], 1))[0][:, given.shape[1] :]
