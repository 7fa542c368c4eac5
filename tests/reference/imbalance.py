"""SELI and minority cosines, literally from their formulas, with matrices of K x K."""

import numpy as np

from .exact import average, dot, frobenius, matrix, mp, norm, squared_norm, symmetric_eigen


def minority_cosine(points, sizes, zero_below):
    """Mean cosine of the pairs of classes smaller than the median size."""
    small = [x for x, n in zip(points, sizes, strict=True) if n < np.median(sizes)]
    if len(small) < 2 or any(squared_norm(x) <= zero_below for x in small):
        return mp.nan
    pairs = [(x, y) for i, x in enumerate(small) for y in small[:i]]
    return average(dot(x, y) / (norm(x) * norm(y)) for x, y in pairs)


def powers(sizes):
    """A^(1/2) and (A^+)^(1/2) of A = P D P; the null vector is the constant one."""
    k = len(sizes)
    centring = mp.eye(k) - mp.ones(k, k) / k
    a = centring * mp.diag([mp.mpf(int(n)) for n in sizes]) * centring
    values, columns = symmetric_eigen(a)
    root, inverse = mp.matrix(k, k), mp.matrix(k, k)
    for value, vector in list(zip(values, columns, strict=True))[: k - 1]:
        outer = mp.matrix(vector) * mp.matrix(vector).T
        root += mp.sqrt(value) * outer
        inverse += outer / mp.sqrt(value)
    return root, inverse


def gram_distance(points, target, zero_below):
    rows = matrix(points)
    gram = rows * rows.T
    if frobenius(gram) <= zero_below:
        return mp.nan
    return frobenius(gram / frobenius(gram) - target / frobenius(target))
