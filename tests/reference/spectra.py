"""Metrics of the spectra, from the definitions; they need no labels."""

from .exact import EPSILON, ROUNDING, average, mp, outer_sum, squared_norm, symmetric_eigen, vectors

EQUAL = mp.mpf(10) ** -12  # logarithms of eigenvalues this close are those of equal eigenvalues


def exponential_entropy(values):
    """exp of the entropy of the shares; NaN if all values are zero."""
    whole = mp.fsum(values)
    if not whole:
        return mp.nan
    shares = [value / whole for value in values if value]
    return mp.exp(-mp.fsum(p * mp.log(p) for p in shares))


def positive(values, below):
    """Values of a spectrum; those of rounding errors of the 50 digits are zero."""
    return [value if value > below else mp.zero for value in values]


def power_law(eigenvalues):
    """Exponent and R^2 of the line through the logarithms of the eigenvalues above the cut."""
    cut = max(EPSILON * len(eigenvalues), mp.mpf(2) ** -42) * max(eigenvalues)
    kept = [value for value in eigenvalues if value > cut]
    if len(kept) < 3:
        return mp.nan, mp.nan
    x = [mp.log(i) for i in range(1, len(kept) + 1)]
    y = [mp.log(value) for value in kept]
    x_mean, y_mean = average(x), average(y)
    slope = mp.fsum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / mp.fsum(
        (a - x_mean) ** 2 for a in x
    )
    spread = mp.fsum((b - y_mean) ** 2 for b in y)
    missed = mp.fsum((b - y_mean - slope * (a - x_mean)) ** 2 for a, b in zip(x, y, strict=True))
    equal = spread <= len(kept) * EQUAL**2
    return -slope, mp.nan if equal else 1 - missed / spread


def lidar(classes):
    """Rank of discriminant analysis with a ridge of 1e-4, from the inverse root of the scatter."""
    values, vectors = symmetric_eigen(classes.within)
    inverse_root = outer_sum([1 / mp.sqrt(w + mp.mpf(1e-4)) for w in values], vectors)
    eigenvalues = symmetric_eigen(inverse_root * classes.between * inverse_root)[0]
    return exponential_entropy(positive(eigenvalues, ROUNDING * max(eigenvalues)))


def spectral_metrics(weights, points):
    """The rows of the group `spectra` of points that are weighted by shares of one."""
    zero_below = ROUNDING * max(squared_norm(x) for x in points)
    mean = [mp.fdot(weights, column) for column in zip(*points, strict=True)]
    centred = [[a - b for a, b in zip(x, mean, strict=True)] for x in points]
    eigenvalues = positive(symmetric_eigen(outer_sum(weights, centred))[0], zero_below)
    squares = positive(symmetric_eigen(outer_sum(weights, points))[0], zero_below)
    alpha, explained = power_law(eigenvalues)
    total = mp.fsum(eigenvalues)
    return {
        "rankme": exponential_entropy([mp.sqrt(value) for value in squares]),
        "effective_rank_features": exponential_entropy(eigenvalues),
        "participation_ratio": (
            total**2 / mp.fsum(value**2 for value in eigenvalues) if total else mp.nan
        ),
        "alpha_req": alpha,
        "alpha_req_r2": explained,
    }


def reference_unlabelled(features):
    """Every key that needs no labels, of samples that weigh alike."""
    points = vectors(features)
    result = spectral_metrics([mp.mpf(1) / len(points)] * len(points), points)
    return {key: float(value) for key, value in result.items()}
