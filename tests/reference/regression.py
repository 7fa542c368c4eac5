"""Neural regression collapse and CKA, literally from their formulas, slowly, in 50 digits.

NRC: Andriopoulos et al. 2024. The minimum over gamma is searched by thirds of the interval.
CKA: Song et al. 2012, with n x n kernel matrices whose diagonals are zero, and no centring.
"""

from .exact import (
    dot,
    frobenius,
    matrix,
    mean,
    mp,
    norm,
    outer_sum,
    scale,
    squared_norm,
    subtract,
    symmetric_eigen,
    times,
    trace,
    vectors,
)


def regression(features, targets, weight=None, bias=None):
    """Every value of `measure_regression`, for features and targets of full rank."""
    h, y = vectors(features), vectors(targets)
    n, t = len(h), len(y[0])
    centred = [subtract(x, mean(h)) for x in h]
    eigenvalues, components = symmetric_eigen(outer_sum([mp.one] * n, centred))
    unit = [scale(1 / norm(x), x) for x in h if norm(x) > 0]
    spread = [subtract(x, mean(y)) for x in y]
    covariance = outer_sum([mp.one / n] * n, spread)
    total = n * trace(covariance)
    least = least_squares_error(centred, spread)
    values = {
        "nrc1": outside(unit, components[:t]),
        "nrc1_unexplained": mp.fsum(eigenvalues[t:]) / mp.fsum(eigenvalues),
        "mse_least_squares": least / (n * t),
        "r2_least_squares": 1 - least / total,
    }
    if weight is not None:
        w = vectors(weight)
        offset = [mp.zero] * t if bias is None else vectors([bias])[0]
        error = mp.fsum(
            (dot(row, x) + b - value) ** 2
            for x, target in zip(h, y, strict=True)
            for row, b, value in zip(w, offset, target, strict=True)
        )
        values |= {"mse": error / (n * t), "r2": 1 - error / total}
        values["nrc2"] = outside(unit, orthonormal(w))
        if t > 1:
            values["nrc3"], values["nrc3_gamma"] = gram_distance(w, covariance)
    return {key: float(value) for key, value in values.items()}


def outside(points, basis):
    """Mean squared distance from the span of orthonormal vectors."""
    distances = []
    for x in points:
        rest = x
        for axis in basis:
            rest = subtract(rest, scale(dot(axis, x), axis))
        distances.append(squared_norm(rest))
    return mp.fsum(distances) / len(distances)


def orthonormal(rows):
    """An orthonormal basis of independent rows, by Gram and Schmidt."""
    basis = []
    for row in rows:
        rest = row
        for axis in basis:
            rest = subtract(rest, scale(dot(axis, row), axis))
        basis.append(scale(1 / norm(rest), rest))
    return basis


def least_squares_error(points, targets):
    """Sum of squared errors of the fit by normal equations; both sets are centred."""
    inverse = outer_sum([mp.one] * len(points), points) ** -1
    error = mp.zero
    for k in range(len(targets[0])):
        column = [target[k] for target in targets]
        moment = [mp.fdot(column, values) for values in zip(*points, strict=True)]
        slope = times(inverse, moment)
        error += mp.fsum((dot(slope, x) - v) ** 2 for x, v in zip(points, column, strict=True))
    return error


def gram_distance(weight, covariance):
    """NRC3 and the gamma of its minimum over the closed interval."""
    t = covariance.rows
    eigenvalues, axes = symmetric_eigen(covariance)
    root = mp.matrix(t, t)
    for value, axis in zip(eigenvalues, axes, strict=True):
        root += mp.sqrt(value) * mp.matrix(axis) * mp.matrix(axis).T
    gram = matrix(weight) * matrix(weight).T
    gram /= frobenius(gram)

    def distance(gamma):
        model = root - mp.sqrt(gamma) * mp.eye(t)
        return frobenius(gram - model / frobenius(model)) ** 2

    low, high = mp.zero, eigenvalues[-1]
    for _ in range(90):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if distance(left) <= distance(right):
            high = right
        else:
            low = left
    best = min((low, (low + high) / 2, high), key=distance)
    return distance(best), best


def cka(first, second):
    kernels = [kernel(vectors(rows)) for rows in (first, second)]
    own = [hsic(each, each) for each in kernels]
    return float(hsic(*kernels) / mp.sqrt(own[0] * own[1]))


def kernel(points):
    return [
        [dot(x, y) if i != j else mp.zero for j, y in enumerate(points)]
        for i, x in enumerate(points)
    ]


def hsic(first, second):
    n = len(first)
    product = mp.fsum(dot(a, b) for a, b in zip(first, second, strict=True))
    rows = [[mp.fsum(row) for row in each] for each in (first, second)]
    totals = mp.fsum(rows[0]) * mp.fsum(rows[1])
    return (product + totals / ((n - 1) * (n - 2)) - 2 * dot(*rows) / (n - 2)) / (n * (n - 3))
