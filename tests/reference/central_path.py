"""The MSE loss and its three parts (MSE thms 1-2) from explicit extended matrices.

With weight decay 0 and a bias, the least-squares classifier comes from Sigma_T^+ and a free bias,
W = diag(pi) M~^T Sigma_T^+, b = pi - W mu_G: the same minimiser as the extended formula's, but the
cut of the pseudo-inverse sees Sigma_T and not the square of a common offset.
"""

import numpy as np

from .exact import (
    dot,
    matrix,
    mp,
    outer_sum,
    pseudo_inverse,
    scale,
    squared_norm,
    subtract,
    times,
    trace,
    vectors,
)
from .moments import count_classes, gather, inverse_of_total


def least_squares(classes, *, with_bias, weight_decay, total_inverse=None):
    """W~_LS of MSE thm 1, as K rows; the bias, if any, is the last column."""
    k = len(classes.ids)
    if weight_decay == 0 and with_bias:
        rows = []
        for share, mu in zip(classes.priors, classes.means, strict=True):
            centred = scale(share, subtract(mu, classes.grand_mean))
            row = times(total_inverse, centred)  # Sigma_T^+ is symmetric
            rows.append([*row, share - dot(row, classes.grand_mean)])
        return rows
    means = extended(classes.means, with_bias)
    moment = second_moment(classes, with_bias, weight_decay)
    if weight_decay == 0:
        inverse = pseudo_inverse(moment, at_most=moment.rows, zero_below=classes.zero_below).inverse
    else:
        inverse = mp.inverse(moment)
    return [times(inverse, scale(classes.priors[c], means[c])) for c in range(k)]


def extended(points, with_bias):
    return [[*x, mp.one] for x in points] if with_bias else points


def extended_within(classes, with_bias):
    size = classes.dim + with_bias
    result = mp.matrix(size, size)
    result[: classes.dim, : classes.dim] = classes.within
    return result


def second_moment(classes, with_bias, weight_decay):
    """Sigma~_T + mu~_G mu~_G^T + lambda I."""
    centre = mp.matrix(extended([classes.grand_mean], with_bias)[0])
    means = extended(classes.means, with_bias)
    between = outer_sum(classes.priors, [subtract(mu, list(centre)) for mu in means])
    total = extended_within(classes, with_bias) + between
    return total + centre * centre.T + weight_decay * mp.eye(total.rows)


def mse_decomposition(classes, rows, offsets, weight_decay, total_inverse):
    """The loss from its samples, and the three parts from explicit extended matrices."""
    k, with_bias = len(classes.ids), offsets is not None
    if with_bias:
        rows = [[*row, offset] for row, offset in zip(rows, offsets, strict=True)]
    best = least_squares(
        classes, with_bias=with_bias, weight_decay=weight_decay, total_inverse=total_inverse
    )
    loss = mp.zero
    for c, x, share in classes.each():
        for row in range(k):
            output = dot(rows[row], extended([x], with_bias)[0])
            loss += share * (output - (row == c)) ** 2 / 2
    loss += weight_decay * mp.fsum(squared_norm(row) for row in rows) / 2
    fit = mp.zero
    for c, mu in enumerate(extended(classes.means, with_bias)):
        for row in range(k):
            fit += classes.priors[c] * (dot(best[row], mu) - (row == c)) ** 2 / 2
    within = extended_within(classes, with_bias)
    inner = within + weight_decay * mp.eye(within.rows)
    moment = second_moment(classes, with_bias, weight_decay)
    optimal, gap = matrix(best), matrix(rows) - matrix(best)
    return {
        "mse_loss": loss,
        "mse_nc1": trace(optimal * inner * optimal.T) / 2,
        "mse_nc23": fit,
        "mse_off_path": trace(gap * moment * gap.T) / 2,
    }


def reference_least_squares(
    features, labels, *, with_bias=True, num_classes=None, prior="empirical", weight_decay=0.0
):
    """The central path's classifier W~_LS over the classes present: (K', d) weight, (K',) bias."""
    classes = gather(vectors(features), labels, count_classes(labels, None, num_classes), prior)
    rows = least_squares(
        classes,
        with_bias=with_bias,
        weight_decay=mp.mpf(float(weight_decay)),
        total_inverse=inverse_of_total(classes).inverse,
    )
    solution = np.array([[float(v) for v in row] for row in rows])
    return (solution[:, :-1], solution[:, -1]) if with_bias else (solution, None)
