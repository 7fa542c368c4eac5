"""Plain vectors and matrices of 50-digit numbers.

Inputs are float64, converted exactly. Fifty digits leave about 34 beyond float64, so a large common
offset or nearly collapsed features cost the reference nothing. What the input cannot resolve is
decided by the cut of `pseudo_inverse`, which is float64's, as in the spec.
"""

from dataclasses import dataclass

import numpy as np
from mpmath.ctx_mp import MPContext

mp = MPContext()  # a context of its own: nobody else's precision is touched
mp.dps = 50

EPSILON = mp.mpf(2) ** -52  # the machine epsilon of float64, in which the library accumulates
ROUNDING = mp.mpf(10) ** -80  # a squared length below this, relative to the data's, is exactly zero


def vectors(array):
    """Each row of a float array (n, d) as a list of exact numbers."""
    array = np.asarray(array, dtype=np.float64)
    return [[mp.mpf(float(value)) for value in row] for row in array]


def dot(x, y):
    return mp.fdot(x, y)


def add(x, y):
    return [a + b for a, b in zip(x, y, strict=True)]


def subtract(x, y):
    return [a - b for a, b in zip(x, y, strict=True)]


def scale(factor, x):
    return [factor * value for value in x]


def squared_norm(x):
    return mp.fdot(x, x)


def norm(x):
    return mp.sqrt(squared_norm(x))


def weighted_sum(weights, points):
    """sum_i weights_i points_i."""
    return [mp.fdot(weights, column) for column in zip(*points, strict=True)]


def mean(points):
    return [mp.fsum(column) / len(points) for column in zip(*points, strict=True)]


def average(values):
    values = list(values)
    return mp.fsum(values) / len(values)


def population_std(values):
    """Standard deviation that divides by the count."""
    values = list(values)
    centre = average(values)
    return mp.sqrt(average((value - centre) ** 2 for value in values))


def ratio(numerator, denominator, zero_below):
    """numerator / denominator, where both are squared lengths: NaN for 0/0, infinity for x/0."""
    if denominator > zero_below:
        return numerator / denominator
    return mp.inf if numerator > zero_below else mp.nan


def matrix(rows):
    return mp.matrix([list(row) for row in rows])


def outer_sum(weights, points):
    """sum_i weights_i p_i p_i^T, entry by entry."""
    columns = list(zip(*points, strict=True))
    weighted = [[w * value for w, value in zip(weights, c, strict=True)] for c in columns]
    result = mp.matrix(len(columns), len(columns))
    for a in range(len(columns)):
        for b in range(a + 1):
            result[a, b] = result[b, a] = mp.fdot(weighted[a], columns[b])
    return result


def trace(a):
    return mp.fsum(a[i, i] for i in range(a.rows))


def frobenius(a):
    return mp.sqrt(mp.fsum(value**2 for value in a))


def times(a, x):
    """The product of a matrix and a plain vector, as a plain vector."""
    return [mp.fdot((a[i, j] for j in range(a.cols)), x) for i in range(a.rows)]


def symmetric_eigen(a):
    """Eigenvalues, largest first, and their eigenvectors, a list of vectors."""
    values, columns = mp.eigsy(a)
    order = sorted(range(a.rows), key=lambda i: values[i], reverse=True)
    return [values[i] for i in order], [[columns[r, i] for r in range(a.rows)] for i in order]


@dataclass(frozen=True)
class PseudoInverse:
    """A positive semi-definite matrix's pseudo-inverse, the projector on its columns, its rank."""

    inverse: object
    projector: object
    rank: int
    eigenvalues: list


def pseudo_inverse(a, *, at_most, zero_below):
    """Invert the leading `at_most` eigenpairs, less those below eps * d * lambda_max.

    A matrix whose largest eigenvalue is below `zero_below` (rounding of the 50 digits) is zero.
    """
    d = a.rows
    eigenvalues, eigenvectors = symmetric_eigen(a)
    cut = max(EPSILON * d * eigenvalues[0], zero_below)
    inverse, projector, rank = mp.matrix(d, d), mp.matrix(d, d), 0
    for value, vector in list(zip(eigenvalues, eigenvectors, strict=True))[:at_most]:
        if value < cut:
            continue
        rank += 1
        column = mp.matrix(vector)
        projector += column * column.T
        inverse += column * column.T / value
    return PseudoInverse(inverse, projector, rank, eigenvalues)
