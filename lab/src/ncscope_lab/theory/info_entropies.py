"""Matrix mutual information at neural collapse, and its range (INFO section 4.1)."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.math.frames import orthogonal_frame, simplex_etf
from ncscope.metrics.information import Entropies, collapse_mir, pair_entropies
from ncscope_lab.theory.search import Instance, climb, factors, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9
_CLASSES = (3, 4, 5, 7, 10, 20, 50)


def off_collapse(seen: Entropies, num_classes: int) -> float:
    """Return the distance of (MIR, HDR) from the values at collapse; NaN if one is undefined."""
    return abs(seen.mir - collapse_mir(num_classes)) + seen.hdr


def outside_unit_interval(seen: Entropies, size: int) -> float:
    r"""Measure how far MI leaves $[0,\min\{H(K_1),H(K_2)\}]$, in units of $\log m$.

    This tests that MIR is in [0, 1] without its division, which amplifies rounding if an entropy
    is near 0.
    """
    above = seen.mutual_information - min(seen.first, seen.second)
    return max(above, -seen.mutual_information) / math.log(size)


def class_means(generator: torch.Generator) -> Iterator[Float[Tensor, "k d"]]:
    r"""Yield class means under (NC2) and (NC3) for theorem 4.2, $G(W^\top)$ and $G(\tilde M)$.

    (NC2) is a statement about angles. The only linear relation among simplex vectors is that they
    sum to zero, so $\sum_cn_c\tilde\mu_c=0$ makes the length of $\tilde\mu_c$ proportional to
    $1/n_c$. The instances include classes of unequal size, $\mu_G\ne0$ and any scales.
    """
    for k in _CLASSES:
        for _ in range(4):
            counts = 1 + 9 * torch.rand(k, 1, dtype=torch.float64, generator=generator)
            frame = simplex_etf(k, k - 1 + integer(0, 5, generator), generator) / counts
            mean = magnitude(-2, 1, generator) * normal(1, frame.shape[1], generator=generator)
            means = frame + mean
            centred = means - (counts * means).sum(0) / counts.sum()
            yield magnitude(-8, 8, generator) * centred


def means_at_collapse(generator: torch.Generator) -> Iterator[float]:
    r"""INFO theorem 4.2: HDR = 0 and MIR = `collapse_mir` of the C x C Gram matrices."""
    for centred in class_means(generator):
        weight = magnitude(-8, 8, generator) * centred
        yield off_collapse(pair_entropies(weight, centred), len(centred))


def samples_at_collapse(generator: torch.Generator) -> Iterator[float]:
    r"""INFO corollary 4.3: theorem 4.2 for n x n matrices, balanced classes and $\mu_G=0$."""
    for k in _CLASSES[:-1]:
        for _ in range(3):
            means = simplex_etf(k, k - 1 + integer(0, 5, generator), generator)
            labels = _shuffle_labels(k, integer(1, 5, generator), generator)
            features = magnitude(-8, 8, generator) * means[labels]
            heads = magnitude(-8, 8, generator) * means[labels]
            yield off_collapse(pair_entropies(features, heads), k)


def relu_samples(generator: torch.Generator) -> Iterator[float]:
    r"""Corollary 4.3 applied to non-negative features, whose mean is not 0."""
    for k, features, heads in _relu_collapse(generator):
        yield off_collapse(pair_entropies(features, heads), k)


def relu_samples_centred(generator: torch.Generator) -> Iterator[float]:
    r"""Check the statement of `relu_samples` with $h(x_i)-\mu_G$ for $h(x_i)$."""
    for k, features, heads in _relu_collapse(generator):
        yield off_collapse(pair_entropies(features - features.mean(0), heads), k)


def _relu_collapse(
    generator: torch.Generator,
) -> Iterator[tuple[int, Float[Tensor, "n d"], Float[Tensor, "n d"]]]:
    """Balanced, collapsed, non-negative features on an orthogonal frame; centred heads."""
    for k in _CLASSES[:-1]:
        for _ in range(3):
            means = _non_negative_frame(k, integer(1, 3, generator), generator)
            labels = _shuffle_labels(k, integer(1, 5, generator), generator)
            heads = magnitude(-3, 3, generator) * (means - means.mean(0))
            yield k, magnitude(-3, 3, generator) * means[labels], heads[labels]


def _non_negative_frame(k: int, block: int, generator: torch.Generator) -> Float[Tensor, "k d"]:
    """Return orthonormal rows without negative entries; their supports are disjoint."""
    pattern = torch.rand(k, block, dtype=torch.float64, generator=generator) + 0.1
    unit = pattern / torch.linalg.vector_norm(pattern, dim=1, keepdim=True)
    frame = torch.zeros(k, k, block, dtype=torch.float64)
    frame[torch.arange(k), torch.arange(k)] = unit
    return frame.flatten(1)


def _shuffle_labels(k: int, per_class: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    labels = torch.arange(k).repeat(per_class)
    return labels[torch.randperm(len(labels), generator=generator)]


def unit_interval(generator: torch.Generator) -> Iterator[float]:
    r"""INFO remark after corollary 4.3: MIR and HDR in [0, 1], with a search for violations.

    Instances are pairs of random matrices of any rank, spectrum and scale; matrices with one or
    all directions repeated; opposite pairs; and pairs of equal representations.
    """

    def violation(instance: Instance) -> float:
        left, right, other_left, other_right = instance
        return _range_violation(left @ right, other_left @ other_right)

    for _ in range(12):
        n, d, e = (integer(low, 12, generator) for low in (2, 1, 1))
        first = factors(n, d, integer(1, min(n, d), generator), generator)
        second = factors(n, e, integer(1, min(n, e), generator), generator)
        yield from climb(violation, (*first, *second), generator, steps=20)
    for rows in _repeat_directions(generator):
        yield max(_range_violation(rows, rows), 0.0)
        yield max(_range_violation(rows, normal(len(rows), 4, generator=generator)), 0.0)


def _range_violation(first: Float[Tensor, "n d1"], second: Float[Tensor, "n d2"]) -> float:
    seen = pair_entropies(first, second)
    ratio = 0.0 if math.isnan(seen.hdr) else max(seen.hdr - 1, -seen.hdr)
    return max(outside_unit_interval(seen, len(first)), ratio)


def _repeat_directions(generator: torch.Generator) -> Iterator[Float[Tensor, "n d"]]:
    rows = normal(6, 5, generator=generator)
    nearly = rows[:1] + 1e-7 * rows
    yield from (rows[:1].repeat(6, 1), nearly, rows[[0, 0, 1, 2, 3, 4]], torch.cat([rows, -rows]))


def below_collapse_value(generator: torch.Generator) -> Iterator[float]:
    r"""INFO 5.1: the value at collapse as "theoretical upper limit" of MIR."""
    for frame, weight in _frames(generator):
        seen = pair_entropies(frame, weight)
        yield max(seen.mir - collapse_mir(len(frame)), 0.0)


def below_one(generator: torch.Generator) -> Iterator[float]:
    r"""Check that MIR is at most 1, with equality for features collapsed to an orthogonal frame."""
    for frame, weight in _frames(generator):
        yield max(outside_unit_interval(pair_entropies(frame, weight), len(frame)), 0.0)
    for k in _CLASSES:
        frame = orthogonal_frame(k, k + integer(0, 5, generator), generator)
        weight = frame - frame.mean(0)
        yield abs(pair_entropies(frame, weight).mir - 1)
        yield abs(pair_entropies(frame, frame).mir - 1)


def _frames(
    generator: torch.Generator,
) -> Iterator[tuple[Float[Tensor, "k d"], Float[Tensor, "k d"]]]:
    """Yield class means and heads: simplex and orthogonal frames, exact, noisy or unrelated."""
    for k in _CLASSES:
        d = k + integer(0, 5, generator)
        for frame in (simplex_etf(k, d, generator), orthogonal_frame(k, d, generator)):
            noise = normal(k, d, generator=generator) / d**0.5
            for share in (0.0, 0.1, 1.0):
                yield frame + share * noise, frame
            yield frame, noise


STATEMENTS = (
    Statement(
        id="info/theorem-4.2",
        statement=(
            "At neural collapse of C >= 3 classes HDR(G(W^T), G(M)) = 0 and "
            "MIR(G(W^T), G(M)) = 1/(C-1) + (C-2) log(C-2) / ((C-1) log(C-1))."
        ),
        source="INFO theorem 4.2",
        tolerance=TOLERANCE,
        printed=means_at_collapse,
    ),
    Statement(
        id="info/corollary-4.3",
        statement=(
            "At neural collapse of C >= 3 balanced classes with mean feature 0, the n x n matrices "
            "of features and of their heads have HDR = 0 and the MIR of theorem 4.2."
        ),
        source="INFO corollary 4.3",
        tolerance=TOLERANCE,
        printed=samples_at_collapse,
    ),
    Statement(
        id="info/corollary-4.3-relu",
        statement=(
            "Collapsed ReLU features take the values of corollary 4.3 against their heads; "
            "corrected: the centred features h(x_i) - mu_G take these values."
        ),
        source="INFO 5.1 with corollary 4.3",
        tolerance=TOLERANCE,
        printed=relu_samples,
        corrected=relu_samples_centred,
        grade="gap",
    ),
    Statement(
        id="info/remark-4.3",
        statement="0 <= MIR(K1, K2) <= 1 and 0 <= HDR(K1, K2) <= 1 for all Gram matrices.",
        source="INFO remark after corollary 4.3",
        tolerance=TOLERANCE,
        printed=unit_interval,
    ),
    Statement(
        id="info/mir-limit",
        statement=(
            "The value at neural collapse is the upper limit of MIR; corrected: MIR <= 1, "
            "and features collapsed to an orthogonal frame reach MIR = 1."
        ),
        source="INFO 5.1",
        tolerance=TOLERANCE,
        printed=below_collapse_value,
        corrected=below_one,
        grade="false",
    ),
)
