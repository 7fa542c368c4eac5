"""Every column of the table of classes, literally from its formula, in 50-digit arithmetic.

Where two classes are equally near up to rounding, the reference takes the first.
"""

from .collapse import unit
from .exact import dot, mean, mp, norm, ratio, scale, squared_norm, subtract, trace, vectors
from .moments import count_classes, gather


def cosine(x, y, zero_below):
    if min(squared_norm(x), squared_norm(y)) <= zero_below:
        return mp.nan
    return dot(unit(x, mp.zero), unit(y, mp.zero))


def reference_per_class(
    features, labels, weight=None, bias=None, *, num_classes=None, prior="empirical", **_
):
    """Columns over the classes present.

    Returns:
        dict of column to list of floats; "classes", "samples" and "nearest" to integers.
    """
    classes = gather(vectors(features), labels, count_classes(labels, weight, num_classes), prior)
    k, tiny, ids = len(classes.ids), classes.zero_below, classes.ids
    centred = [subtract(mu, mean(classes.means)) for mu in classes.means]
    typical = mp.sqrt(2 * mp.fsum(squared_norm(x) for x in centred) / (k - 1))
    table = {
        "classes": ids,
        "samples": [len(own) for own in classes.samples],
        "within_share": [],
        "nc1_quotient": [],
        "mean_norm": [norm(x) for x in centred],
        "nearest": [],
        "nearest_distance": [],
        "nearest_cosine": [],
        "nearest_cdnv": [],
        "ncc_accuracy": [],
    }
    for c in range(k):
        variance = trace(classes.scatters[c])
        share = ratio(classes.priors[c] * variance, trace(classes.within), tiny)
        table["within_share"].append(share)
        quotient = ratio(variance, trace(classes.between), tiny)
        table["nc1_quotient"].append(quotient if mp.isfinite(quotient) else mp.nan)
        others = [j for j in range(k) if j != c]
        apart = {j: norm(subtract(classes.means[c], classes.means[j])) for j in others}
        j = min(others, key=lambda other: apart[other])
        table["nearest"].append(ids[j])
        table["nearest_distance"].append(ratio(apart[j], typical, mp.sqrt(tiny)))
        table["nearest_cosine"].append(cosine(centred[c], centred[j], tiny))
        both = variance + trace(classes.scatters[j])
        table["nearest_cdnv"].append(ratio(both, 2 * apart[j] ** 2, tiny))
        right = [c == nearest(x, classes.means) for x in classes.samples[c]]
        table["ncc_accuracy"].append(sum(right) / len(right))
    if weight is not None:
        table |= of_head(classes, centred, vectors(weight), bias)
    return {
        key: [int(v) if key in ("classes", "samples", "nearest") else float(v) for v in values]
        for key, values in table.items()
    }


def nearest(x, points):
    distances = [squared_norm(subtract(x, point)) for point in points]
    return distances.index(min(distances))


def of_head(classes, centred, heads, bias):
    offsets = [mp.zero] * len(heads) if bias is None else vectors([bias])[0]
    rows = [heads[c] for c in classes.ids]
    accuracies = []
    for c, own in zip(classes.ids, classes.samples, strict=True):
        outputs = [[dot(w, x) + b for w, b in zip(heads, offsets, strict=True)] for x in own]
        accuracies.append(sum(z.index(max(z)) == c for z in outputs) / len(own))
    return {
        "head_norm": [norm(w) for w in rows],
        "head_cosine": [
            cosine(scale(1, x), w, mp.zero) for x, w in zip(centred, rows, strict=True)
        ],
        "accuracy": accuracies,
    }
