"""Multi-label neural collapse, literally from its formulas, slowly, in 50 digits.

Li, Li, Wang and Qu 2024. Label sets are Python sets, angles are arc cosines of 50 digits, and the
scale of the tag-wise averages is searched by thirds.
"""

from itertools import combinations

from .exact import (
    add,
    average,
    dot,
    frobenius,
    matrix,
    mean,
    mp,
    norm,
    outer_sum,
    pseudo_inverse,
    ratio,
    scale,
    squared_norm,
    subtract,
    trace,
    vectors,
)


def multilabel(features, targets, weight=None, bias=None):
    """Every value of `measure_multilabel`, for data on which all of them are defined."""
    h, num_classes = vectors(features), len(targets[0])
    labels = [frozenset(k for k in range(num_classes) if row[k]) for row in targets]
    groups = {}
    for x, own in zip(h, labels, strict=True):
        if own:
            groups.setdefault(own, []).append(x)
    means = {own: mean(rows) for own, rows in groups.items()}
    alone = [means[frozenset([k])] for k in range(num_classes)]
    centre = mean(alone)
    centred = [subtract(x, centre) for x in alone]
    values = {
        "ml_nc1": nc1(groups, 1),
        "ml_nc2_means": simplex_distance([[dot(a, b) for b in centred] for a in centred]),
    }
    if weight is not None:
        w = vectors(weight)
        values["ml_nc2_weights"] = simplex_distance([[dot(a, b) for b in w] for a in w])
        values["ml_nc3"] = simplex_distance([[dot(a, b) for b in centred] for a in w])
        offset = [0] * num_classes if bias is None else vectors([bias])[0]
        hits = []
        for x, own in zip(h, labels, strict=True):
            if own:
                order = sorted(range(num_classes), key=lambda k: -(dot(w[k], x) + offset[k]))
                hits.append(mp.mpf(set(order[: len(own)]) == own))
        values["ml_accuracy"] = average(hits)
    for m in sorted({len(own) for own in groups} - {1}):
        sets = {own: x for own, x in means.items() if len(own) == m}
        near = average(degrees(x, total(alone, own)) for own, x in sets.items())
        any_sets = list(combinations(range(num_classes), m))
        typical = average(degrees(x, total(alone, t)) for x in sets.values() for t in any_sets)
        within, between = scatters(groups, m, least=2)
        values[f"ml_nc1_quotient_m{m}"] = ratio(trace(within), trace(between), 0)
        values[f"ml_angle_m{m}"] = near
        values[f"ml_ncm_m{m}"] = near / typical
        pairs = [
            (subtract(x, centre), scale(mp.one / m, total(centred, own))) for own, x in sets.items()
        ]
        values[f"ml_tagwise_m{m}"], values[f"ml_scale_m{m}"] = tagwise(pairs)
    return {key: float(value) for key, value in values.items()}


def nc1(groups, multiplicity):
    within, between = scatters(groups, multiplicity)
    sets = sum(len(own) == multiplicity for own in groups)
    inverse = pseudo_inverse(between, at_most=sets - 1, zero_below=mp.mpf(10) ** -60).inverse
    return trace(within * inverse) / sets


def scatters(groups, multiplicity, least=1):
    """Covariance within label sets and between them, each set of the same weight."""
    sets = [rows for own, rows in groups.items() if len(own) == multiplicity and len(rows) >= least]
    centres = [mean(rows) for rows in sets]
    middle = mean(centres)
    share = mp.one / len(sets)
    between = outer_sum([share] * len(sets), [subtract(x, middle) for x in centres])
    spread = [
        (share / len(rows), subtract(x, centre))
        for rows, centre in zip(sets, centres, strict=True)
        for x in rows
    ]
    return outer_sum(*zip(*spread, strict=True)), between


def simplex_distance(products):
    k = len(products)
    target = (mp.eye(k) - mp.ones(k) / k) / mp.sqrt(k - 1)
    products = matrix(products)
    return frobenius(products / frobenius(products) - target)


def total(points, own):
    result = [mp.zero] * len(points[0])
    for k in own:
        result = add(result, points[k])
    return result


def degrees(x, y):
    cosine = dot(x, y) / (norm(x) * norm(y))
    return mp.degrees(mp.acos(max(-mp.one, min(mp.one, cosine))))


def tagwise(pairs):
    """The least share left over, and the scale of least squares."""

    def left(c):
        return mp.fsum(squared_norm(subtract(x, scale(c, a))) for x, a in pairs)

    def least(low, high):
        for _ in range(200):
            first, second = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, second) if left(first) <= left(second) else (first, high)
        return (low + high) / 2

    whole = mp.fsum(squared_norm(x) for x, _ in pairs)
    bound = mp.mpf(1000)
    return left(least(mp.zero, bound)) / whole, least(-bound, bound)
