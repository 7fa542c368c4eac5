"""Every metric of collapse, literally from its formula, slowly, in 50-digit arithmetic.

Sizes it is meant for: d <= 24, K <= 12, N <= 300.

Conventions where the formulas leave a choice:

* a quotient of two zeros is NaN, of a non-zero by zero infinite; `fuzziness` of coinciding class
  means is NaN (their Sigma_B is zero and has nothing to invert);
* the unit vector of a zero feature is the zero vector;
* arg max and arg min take the lowest index among ties;
* `snr_singular_values` for any prior: nu_j are the eigenvalues of
  diag(sqrt pi) M~^T Sigma_T^+ M~ diag(sqrt pi), M~ centred at the weighted mean, which for equal
  priors is the spec's (1/C) M~^T Sigma_T^+ M~ and always lies in [0, 1]; K - 1 values, largest
  first, infinite where 1 - nu_j < eps * d.
"""

import numpy as np

from .central_path import mse_decomposition
from .exact import (
    EPSILON,
    add,
    average,
    dot,
    frobenius,
    matrix,
    mean,
    mp,
    norm,
    population_std,
    ratio,
    scale,
    squared_norm,
    subtract,
    symmetric_eigen,
    times,
    trace,
    vectors,
    weighted_sum,
)
from .imbalance import gram_distance, minority_cosine, powers
from .moments import count_classes, gather, inverse_of_between, inverse_of_total
from .spectra import lidar, spectral_metrics
from .uniformity import lognorm_spread, row_sums, uniform_duality, uniformity


def variability(classes, total_inverse):
    """NC1, but for the cosine metrics."""
    between = inverse_of_between(classes)
    k, d = len(classes.ids), classes.dim
    fuzziness = trace(classes.within * between.inverse) if between.rank else mp.nan
    quotient = ratio(trace(classes.within), trace(classes.between), classes.zero_below)
    off_signal = mp.eye(d) - between.projector
    return {
        "fuzziness": fuzziness,
        "nc1": fuzziness / k,
        "nc1_quotient": quotient,
        "pfc1": quotient,
        "vci": 1 - trace(total_inverse * classes.between) / min(d, k - 1),
        "linear_probe_mse": linear_probe_mse(classes, total_inverse),
        "within_in_signal": trace(between.projector * classes.within),
        "within_off_signal": trace(off_signal * classes.within),
        "cdnv": cdnv(classes),
    }


def linear_probe_mse(classes, total_inverse):
    """Fit weighted least squares with a bias, then average the residuals of every sample."""
    k = len(classes.ids)
    slopes = []
    for row in range(k):  # one output: normal equations Sigma_T w = cov(h, y_row)
        covariance = [mp.zero] * classes.dim
        for c, x, weight in classes.each():
            target = (1 if c == row else 0) - classes.priors[row]
            centred = subtract(x, classes.grand_mean)
            covariance = add(covariance, scale(weight * target, centred))
        slopes.append(times(total_inverse, covariance))
    loss = mp.zero
    for c, x, weight in classes.each():
        centred = subtract(x, classes.grand_mean)
        for row in range(k):
            target = (1 if c == row else 0) - classes.priors[row]
            loss += weight * (dot(slopes[row], centred) - target) ** 2
    return loss / 2


def cdnv(classes):
    """Mean over ordered pairs of distinct classes."""
    values = []
    for a in range(len(classes.ids)):
        for b in range(len(classes.ids)):
            if a != b:
                variance = trace(classes.scatters[a]) + trace(classes.scatters[b])
                distance = squared_norm(subtract(classes.means[a], classes.means[b]))
                values.append(ratio(variance, 2 * distance, classes.zero_below))
    return average(values)


def unit(x, zero_below):
    squared = squared_norm(x)
    return scale(1 / mp.sqrt(squared), x) if squared > zero_below else [mp.zero] * len(x)


def cosine_metrics(classes):
    """Within-class distances over all ordered pairs, i = j included; the total from its sums."""
    directions = [[unit(x, classes.zero_below) for x in own] for own in classes.samples]
    within = mp.zero
    for share, own in zip(classes.priors, directions, strict=True):
        distance = mp.zero
        for i in range(len(own)):
            distance += 1 - dot(own[i], own[i])
            for j in range(i):
                distance += 2 * (1 - dot(own[i], own[j]))
        within += share * distance / len(own) ** 2
    centre = weighted_sum(classes.priors, [mean(own) for own in directions])
    total = 1 - squared_norm(centre)
    return {
        "cosine_within": within,
        "class_separation": 1 - ratio(within, total, mp.mpf(10) ** -40),
    }


def off_diagonal_cosines(points, zero_below):
    """Cosines of ordered pairs of distinct vectors; NaN with a zero vector."""
    values = []
    for a, x in enumerate(points):
        for b, y in enumerate(points):
            if a != b:
                defined = min(squared_norm(x), squared_norm(y)) > zero_below
                values.append(dot(x, y) / (norm(x) * norm(y)) if defined else mp.nan)
    return values


def frame_shape(points, suffix, zero_below):
    """Equal norms, equal angles and widest angles of K vectors."""
    norms = [norm(x) for x in points]
    cosines = off_diagonal_cosines(points, zero_below)
    spread = population_std(norms) / average(norms) if average(norms) ** 2 > zero_below else mp.nan
    return {
        f"nc2_equinorm_{suffix}": spread,
        f"nc2_equiangular_{suffix}": population_std(cosines),
        f"nc2_maxangle_{suffix}": average(
            abs(value + mp.mpf(1) / (len(points) - 1)) for value in cosines
        ),
    }


def simplex(k):
    """(I - 11^T / K) / sqrt(K - 1), the ETF's Gram matrix at unit Frobenius norm."""
    return (mp.eye(k) - mp.ones(k, k) / k) / mp.sqrt(k - 1)


def normalised(a, zero_below):
    """`a` at unit Frobenius norm; all NaN if it is zero."""
    size = frobenius(a)
    return a / size if size > zero_below else a * mp.nan


def centred_means(means):
    """Class means less their unweighted mean."""
    centre = mean(means)
    return [subtract(mu, centre) for mu in means]


def etf_distance(means, zero_below):
    centred = matrix(centred_means(means))  # (K, d): the transpose of M~
    return frobenius(normalised(centred * centred.T, zero_below) - simplex(len(means)))


def mean_frame(classes):
    """NC2 of the class means, compared as equals under either prior."""
    k = len(classes.ids)
    distance = etf_distance(classes.means, classes.zero_below)
    raw = matrix(classes.means)
    gram = normalised(raw * raw.T, classes.zero_below)
    return {
        **frame_shape(centred_means(classes.means), "means", classes.zero_below),
        "nc2_etf": distance,
        "pfc2": distance,
        "nc2_of": frobenius(gram - mp.eye(k) / mp.sqrt(k)),
    }


def self_duality(classes, rows):
    """NC3: the present classes' rows of W against the class means."""
    root = mp.sqrt(classes.zero_below)
    weight = matrix(rows)
    centred, raw = matrix(centred_means(classes.means)), matrix(classes.means)
    unit_weight = normalised(weight, mp.zero)
    product = normalised(weight * centred.T, root)
    return {
        "nc3_self_duality": frobenius(unit_weight - normalised(centred, root)) ** 2,
        "nc3_alignment": frobenius(unit_weight - normalised(raw, root)),
        "nc3_etf": frobenius(product - simplex(len(classes.ids))),
        "seli_logits": frobenius(product - simplex(len(classes.ids))),
    }


def class_sizes(classes):
    return [len(own) for own in classes.samples]


def uneven_means(classes):
    """The class means among metrics of uniformity and of imbalance."""
    centred, zero = centred_means(classes.means), classes.zero_below
    sizes = class_sizes(classes)
    return {
        **uniformity(centred, zero),
        "nc2_lognorm_std_means": lognorm_spread(centred, zero),
        "minority_cosine_means": minority_cosine(centred, sizes, zero),
        "seli_means": gram_distance(centred, powers(sizes)[1], zero),
    }


def uneven_head(classes, rows, heads):
    """The classifier among metrics of uniformity and of imbalance; NC0 is of all its rows."""
    sizes = class_sizes(classes)
    return {
        **row_sums(heads),
        **uniform_duality(rows, centred_means(classes.means), classes.zero_below),
        "nc2_lognorm_std_weights": lognorm_spread(rows, mp.zero),
        "minority_cosine_weights": minority_cosine(rows, sizes, mp.zero),
        "seli_weights": gram_distance(rows, powers(sizes)[0], mp.zero),
    }


def lowest_index(values, best):
    """The first index that attains the maximum or the minimum."""
    target = best(values)
    return next(i for i, value in enumerate(values) if value == target)


def nearest_class(x, centres):
    """The class whose centre is nearest; `centres` maps class to vector."""
    ids = sorted(centres)
    return ids[lowest_index([squared_norm(subtract(x, centres[c])) for c in ids], min)]


def voted_class(x, weight, bias):
    scores = [dot(row, x) + offset for row, offset in zip(weight, bias, strict=True)]
    return lowest_index(scores, max)


def decisions(classes, centres, weight, bias):
    """NC4 and the accuracies: plain shares of samples."""
    near, voted, truth = [], [], []
    for c, x, _ in classes.each():
        truth.append(classes.ids[c])
        near.append(nearest_class(x, centres))
        if weight is not None:
            voted.append(voted_class(x, weight, bias))
    right = average(a == b for a, b in zip(near, truth, strict=True))
    result = {"ncc_accuracy": right, "pfc3": right}
    if weight is not None:
        result["accuracy"] = average(a == b for a, b in zip(voted, truth, strict=True))
        result["nc4_disagreement"] = average(a != b for a, b in zip(voted, near, strict=True))
    return result


def reference_on_request(features, labels, weight=None, *, num_classes=None, prior="empirical"):
    """Every key that is measured on request only; see `reference_metrics`."""
    classes = gather(vectors(features), labels, count_classes(labels, weight, num_classes), prior)
    return {"lidar": float(lidar(classes))}


def reference_metrics(
    features,
    labels,
    weight=None,
    bias=None,
    *,
    num_classes=None,
    prior="empirical",
    weight_decay=0.0,
    reference_means=None,
):
    """Every key; those that need `weight` only with it.

    Args:
        features: (n, d) floats, taken as the exact float64 numbers they are.
        labels: (n,) integers in 0..K-1.
        weight: (K, d) or None.
        bias: (K,) or None, which means a model without bias.
        num_classes: K; else the rows of `weight`, else the largest label + 1.
        prior: "empirical" or "uniform".
        weight_decay: lambda of the last layer, on weight and bias.
        reference_means: (K, d) class means for NC4 and NCC, rows of NaN for classes without one.

    Returns:
        dict of key to float.
    """
    classes = gather(vectors(features), labels, count_classes(labels, weight, num_classes), prior)
    centres = dict(zip(classes.ids, classes.means, strict=True))
    if reference_means is not None:
        given = np.asarray(reference_means, dtype=np.float64)
        known = [c for c in range(len(given)) if np.isfinite(given[c]).all()]
        centres = dict(zip(known, vectors(given[known]), strict=True))
    total_inverse = inverse_of_total(classes).inverse
    result = {
        **variability(classes, total_inverse),
        **cosine_metrics(classes),
        **mean_frame(classes),
        **uneven_means(classes),
        **spectral_metrics(*zip(*((share, x) for _, x, share in classes.each()), strict=True)),
    }
    heads = offsets = None
    if weight is not None:
        heads = vectors(weight)
        offsets = [mp.zero] * len(heads) if bias is None else vectors([bias])[0]
        rows = [heads[c] for c in classes.ids]
        present = None if bias is None else [offsets[c] for c in classes.ids]
        decay = mp.mpf(float(weight_decay))
        result |= frame_shape(rows, "weights", mp.zero)
        result |= self_duality(classes, rows)
        result |= uneven_head(classes, rows, heads)
        result |= mse_decomposition(classes, rows, present, decay, total_inverse)
    result |= decisions(classes, centres, heads, offsets)
    return {key: float(value) for key, value in result.items()}


def reference_mse(
    features, labels, weight, bias=None, *, num_classes=None, prior="empirical", weight_decay=0.0
):
    """The decomposition of the MSE loss alone, of the same arguments as `reference_metrics`."""
    classes = gather(vectors(features), labels, count_classes(labels, weight, num_classes), prior)
    offsets = None if bias is None else vectors([bias])[0]
    found = mse_decomposition(
        classes,
        [vectors(weight)[c] for c in classes.ids],
        None if offsets is None else [offsets[c] for c in classes.ids],
        mp.mpf(float(weight_decay)),
        inverse_of_total(classes).inverse,
    )
    return {key: float(value) for key, value in found.items()}


def reference_spectra(features, labels, *, num_classes=None, prior="empirical"):
    """Eigenvalues of the scatters (d each, largest first) and the SNR singular values (K - 1).

    Returns:
        dict of "between", "within", "total", "snr_singular_values" to float64 arrays.
    """
    classes = gather(vectors(features), labels, count_classes(labels, None, num_classes), prior)
    total = inverse_of_total(classes)
    k = len(classes.ids)
    scaled = matrix(
        scale(mp.sqrt(share), subtract(mu, classes.grand_mean))
        for share, mu in zip(classes.priors, classes.means, strict=True)
    )
    shares = symmetric_eigen(scaled * total.inverse * scaled.T)[0][: k - 1]
    noise = EPSILON * classes.dim
    omegas = [mp.inf if 1 - nu < noise else mp.sqrt(k * max(nu, 0) / (1 - nu)) for nu in shares]
    spectra = {
        "between": symmetric_eigen(classes.between)[0],
        "within": symmetric_eigen(classes.within)[0],
        "total": total.eigenvalues,
    }
    spectra = {name: [max(v, mp.zero) for v in values] for name, values in spectra.items()}
    spectra["snr_singular_values"] = omegas
    return {name: np.array([float(v) for v in values]) for name, values in spectra.items()}
