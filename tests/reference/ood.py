"""OOD metrics from their definitions, in 50 digits: every pair of samples is compared."""

from collections.abc import Mapping

import numpy as np

from .exact import (
    average,
    dot,
    mean,
    mp,
    norm,
    squared_norm,
    subtract,
    symmetric_eigen,
    vectors,
)
from .moments import count_classes, gather

NCI_WEIGHT = mp.mpf(1e-4)
EQUAL = mp.mpf(10) ** -25  # scores closer than this, relative to the larger, are equal


def reference_ood(
    features,
    labels,
    ood,
    weight=None,
    bias=None,
    *,
    reference=None,
    num_classes=None,
    prior="empirical",
    weight_decay=0.0,
) -> dict[str, float]:
    """Return every OOD metric; `reference` are features and labels of the training set."""
    del weight_decay
    fitted, classes = (features, labels) if reference is None else reference
    known = gather(vectors(fitted), classes, count_classes(classes, weight, num_classes), prior)
    inside, outside = vectors(features), vectors(ood)
    mean_outside = mean(outside)
    centred = [subtract(m, known.grand_mean) for m in known.means]
    found = {
        "nc5": mean_cosine(known.means, mean_outside),
        "nc5_centred": mean_cosine(centred, subtract(mean_outside, known.grand_mean)),
    }
    for name, score in scores_of(known, weight, bias).items():
        here, there = [score(h) for h in inside], [score(h) for h in outside]
        found[f"{name}_auroc"] = auroc(here, there)
        found[f"{name}_fpr95"] = fpr95(here, there)
    return {key: float(value) for key, value in found.items()}


def scores_of(known, weight, bias) -> Mapping:
    mu = known.grand_mean
    _, directions = symmetric_eigen(known.total)
    kept = directions[: min(len(known.ids) - 1, known.dim)]

    def neco(h):
        z = subtract(h, mu)
        return mp.sqrt(sum(dot(z, u) ** 2 for u in kept) / squared_norm(z))

    def uncentred(h):
        return mp.sqrt(sum(dot(h, u) ** 2 for u in kept) / squared_norm(h))

    # A constant feature is centred alone, as by scikit-learn's StandardScaler.
    spread = [mp.sqrt(known.total[j, j]) or mp.mpf(1) for j in range(known.dim)]
    correlations = mp.matrix(known.dim, known.dim)
    for i in range(known.dim):
        for j in range(known.dim):
            correlations[i, j] = known.total[i, j] / (spread[i] * spread[j])
    _, axes = symmetric_eigen(correlations)

    def standardised(h):
        z = [each / size for each, size in zip(subtract(h, mu), spread, strict=True)]
        return mp.sqrt(sum(dot(z, u) ** 2 for u in axes[: len(kept)]) / squared_norm(z))

    forms = {"neco": neco, "neco_uncentred": uncentred, "neco_standardised": standardised}
    if weight is None:
        return forms
    rows = vectors(weight)
    offsets = [mp.mpf(0)] * len(rows) if bias is None else [mp.mpf(float(b)) for b in bias]

    def logits(h):
        return [dot(w, h) + b for w, b in zip(rows, offsets, strict=True)]

    def nci(h):
        outputs, z = logits(h), subtract(h, mu)
        chosen = rows[outputs.index(max(outputs))]
        return dot(chosen, z) / norm(z) + NCI_WEIGHT * mp.fsum(map(abs, h))

    def energy(h):
        return mp.log(mp.fsum(map(mp.exp, logits(h))))

    def msp(h):
        # 1 - p instead of p: 50 digits may not tell p from 1
        outputs = sorted(map(mp.exp, logits(h)))
        return -mp.fsum(outputs[:-1]) / mp.fsum(outputs)

    return {
        **forms,
        "neco_logit": lambda h: standardised(h) * max(logits(h)),
        "nci": nci,
        "msp": msp,
        "max_logit": lambda h: max(logits(h)),
        "energy": energy,
    }


def mean_cosine(rows, other):
    return average(abs(dot(m, other)) / (norm(m) * norm(other)) for m in rows)


def compared(one, other) -> int:
    """1, 0 or -1, as the first is larger, equal or smaller."""
    if abs(one - other) <= EQUAL * max(abs(one), abs(other)):
        return 0
    return 1 if one > other else -1


def auroc(inside, outside):
    wins = sum(mp.mpf(1 + compared(s, t)) / 2 for s in inside for t in outside)
    return wins / (len(inside) * len(outside))


def fpr95(inside, outside):
    """Try every threshold: the largest that keeps 95 % of the samples."""
    for threshold in sorted(inside, reverse=True):
        kept = sum(compared(s, threshold) >= 0 for s in inside)
        if 100 * kept >= 95 * len(inside):
            return mp.mpf(sum(compared(t, threshold) >= 0 for t in outside)) / len(outside)
    raise AssertionError(threshold)


def ood_for(features: np.ndarray, seed: int = 0, size: int = 24) -> np.ndarray:
    """OOD samples around another point, partly among the features, with one sample repeated."""
    rng = np.random.default_rng(seed)
    spread, d = features.std(), features.shape[1]
    drawn = features.mean(0) + spread * (rng.normal(size=(size, d)) + 0.4 * rng.normal(size=d))
    drawn[1] = drawn[0]
    drawn[-1] = features[0]
    return drawn
