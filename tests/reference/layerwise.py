"""Progressive feedforward collapse, by literally forming the features of every layer and time.

Conventions where the spec leaves a choice: class means of the transport cost and the alignment are
centred at their unweighted mean (frame quantities); layers are counted from 0, the first given.
"""

from itertools import pairwise

import numpy as np

from .collapse import centred_means, etf_distance, nearest_class
from .exact import add, average, dot, mp, norm, ratio, scale, squared_norm, subtract, trace, vectors
from .moments import gather


def reference_relative_position(layers):
    """Share of the path length travelled up to each layer: starts at 0, ends at 1; (L + 1,)."""
    exact = [vectors(layer) for layer in layers]
    lengths = []
    for before, after in pairwise(exact):
        steps = zip(before, after, strict=True)
        lengths.append(mp.fsum(norm(subtract(end, start)) for start, end in steps))
    whole = mp.fsum(lengths)
    if whole == 0:
        return np.full(len(layers), np.nan)
    return np.array([float(mp.fsum(lengths[:layer]) / whole) for layer in range(len(layers))])


def reference_pfc(points, labels, num_classes, prior):
    """PFC1, PFC2, PFC3 of exact features."""
    classes = gather(points, labels, num_classes, prior)
    centres = dict(zip(classes.ids, classes.means, strict=True))
    right = [nearest_class(x, centres) == classes.ids[c] for c, x, _ in classes.each()]
    return (
        ratio(trace(classes.within), trace(classes.between), classes.zero_below),
        etf_distance(classes.means, classes.zero_below),
        average(right),
    )


def reference_geodesic(first, last, labels, times, *, num_classes=None, prior="empirical"):
    """PFC1-3 along h(t) = (1 - t) h(0) + t h(1), the interpolated features formed at each t.

    Returns:
        dict of "pfc1", "pfc2", "pfc3" to arrays as long as `times`.
    """
    start, end = vectors(first), vectors(last)
    k = int(max(labels)) + 1 if num_classes is None else num_classes
    values = []
    for time in times:
        t = mp.mpf(float(time))
        points = [add(scale(1 - t, x), scale(t, y)) for x, y in zip(start, end, strict=True)]
        values.append([float(v) for v in reference_pfc(points, labels, k, prior)])
    table = np.array(values)
    return {"pfc1": table[:, 0], "pfc2": table[:, 1], "pfc3": table[:, 2]}


def reference_effective_depth(ncc_accuracies, epsilon):
    """The least layer, from 0, whose NCC error 1 - accuracy is at most epsilon; None if none."""
    for layer, accuracy in enumerate(ncc_accuracies):
        if 1 - accuracy <= epsilon:
            return layer
    return None


def reference_monotonicity_breaks(values, *, decreasing):
    """(layer, amount) of every step layer -> layer + 1 against the order; amounts positive.

    PFC1 and PFC2 should decrease through the layers, PFC3 (an accuracy) increase.
    """
    breaks = []
    for layer in range(len(values) - 1):
        step = values[layer + 1] - values[layer]
        against = step if decreasing else -step
        if against > 0:
            breaks.append((layer, against))
    return breaks


def centred_class_means(features, labels):
    labels = np.asarray(labels)
    classes = gather(vectors(features), labels, int(labels.max()) + 1, "uniform")
    return centred_means(classes.means)


def reference_transport_cost(first, last, labels):
    """||H~(1) - H~(0)||_F^2, H~ the centred class means of the classes present."""
    start, end = centred_class_means(first, labels), centred_class_means(last, labels)
    moves = zip(start, end, strict=True)
    return float(mp.fsum(squared_norm(subtract(y, x)) for x, y in moves))


def reference_alignment(first, last, labels):
    """sum_k <h~_k(0), h~_k(1)>, the premise of PFC thm 1 when not negative."""
    start, end = centred_class_means(first, labels), centred_class_means(last, labels)
    return float(mp.fsum(dot(x, y) for x, y in zip(start, end, strict=True)))
