"""Samples sorted by class and their moments, from the definitions."""

from dataclasses import dataclass

import numpy as np

from .exact import (
    ROUNDING,
    mean,
    mp,
    outer_sum,
    pseudo_inverse,
    squared_norm,
    subtract,
    vectors,
    weighted_sum,
)


@dataclass(frozen=True)
class Classes:
    """Samples sorted by class, and their moments; every list is over the classes present."""

    ids: list  # the classes present, ascending
    num_classes: int  # with the absent ones
    dim: int
    samples: list  # of lists of vectors
    priors: list
    means: list
    grand_mean: list  # weighted by the priors
    scatters: list  # Sigma_c
    within: object
    between: object
    zero_below: object  # squared lengths below it are exactly zero

    @property
    def total(self):
        return self.within + self.between

    def each(self):
        """(class index, sample, its weight pi_c / n_c) for every sample."""
        for c, points in enumerate(self.samples):
            for x in points:
                yield c, x, self.priors[c] / len(points)


def gather(points, labels, num_classes, prior):
    """Sort exact samples by class and take their moments."""
    if prior not in ("empirical", "uniform"):
        raise ValueError(f"prior {prior!r}")
    labels = [int(label) for label in labels]
    ids = sorted(set(labels))
    if len(ids) < 2 or ids[0] < 0 or ids[-1] >= num_classes:
        raise ValueError(f"labels {ids} for {num_classes} classes")
    samples = [[x for x, y in zip(points, labels, strict=True) if y == c] for c in ids]
    if prior == "empirical":
        priors = [mp.mpf(len(own)) / len(points) for own in samples]
    else:
        priors = [mp.mpf(1) / len(ids) for _ in ids]
    d = len(points[0])
    means = [mean(own) for own in samples]
    grand_mean = weighted_sum(priors, means)
    scatters = []
    for own, mu in zip(samples, means, strict=True):
        shares = [mp.mpf(1) / len(own)] * len(own)
        scatters.append(outer_sum(shares, [subtract(x, mu) for x in own]))
    within = mp.matrix(d, d)
    for share, scatter in zip(priors, scatters, strict=True):
        within += share * scatter
    between = outer_sum(priors, [subtract(mu, grand_mean) for mu in means])
    zero_below = ROUNDING * max(squared_norm(x) for x in points)
    return Classes(
        ids,
        num_classes,
        d,
        samples,
        priors,
        means,
        grand_mean,
        scatters,
        within,
        between,
        zero_below,
    )


def inverse_of_between(classes):
    return pseudo_inverse(
        classes.between,
        at_most=min(classes.dim, len(classes.ids) - 1),
        zero_below=classes.zero_below,
    )


def inverse_of_total(classes):
    return pseudo_inverse(classes.total, at_most=classes.dim, zero_below=classes.zero_below)


def count_classes(labels, weight, num_classes):
    if num_classes is not None:
        return num_classes
    return len(weight) if weight is not None else int(max(labels)) + 1


def reference_moments(features, labels, *, num_classes=None, prior="empirical"):
    """Moments over the classes present, rounded once to float64.

    Returns:
        dict of "classes", "counts", "priors" (K'), "means" (K', d), "grand_mean" (d),
        "class_scatters" (K', d, d), "within", "between", "total" (d, d).
    """
    classes = gather(vectors(features), labels, count_classes(labels, None, num_classes), prior)

    def rounded(a):
        return np.array(a.tolist(), dtype=np.float64)

    return {
        "classes": np.array(classes.ids),
        "counts": np.array([len(own) for own in classes.samples]),
        "priors": np.array([float(share) for share in classes.priors]),
        "means": np.array([[float(v) for v in mu] for mu in classes.means]),
        "grand_mean": np.array([float(v) for v in classes.grand_mean]),
        "class_scatters": np.stack([rounded(scatter) for scatter in classes.scatters]),
        "within": rounded(classes.within),
        "between": rounded(classes.between),
        "total": rounded(classes.total),
    }
