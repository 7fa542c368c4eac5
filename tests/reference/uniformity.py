"""NC0, log-norms, energies of directions and uniform duality, literally from their formulas."""

from .exact import (
    ROUNDING,
    average,
    dot,
    mean,
    mp,
    norm,
    population_std,
    scale,
    squared_norm,
    subtract,
)


def directions(points, zero_below):
    """Unit vectors; None for a zero vector."""
    return [scale(1 / norm(x), x) if squared_norm(x) > zero_below else None for x in points]


def lognorm_spread(points, zero_below):
    if any(squared_norm(x) <= zero_below for x in points):
        return mp.nan
    return population_std(mp.log(norm(x)) for x in points)


def distances(points, zero_below):
    """Distances of the directions of all pairs; NaN with a zero vector."""
    units = directions(points, zero_below)
    values = []
    for a in range(len(units)):
        for b in range(a):
            if units[a] is None or units[b] is None:
                values.append(mp.nan)
            else:
                squared = squared_norm(subtract(units[a], units[b]))
                values.append(mp.sqrt(squared) if squared > ROUNDING else mp.zero)
    return values


def uniformity(centred, zero_below):
    """Energies of the directions of centred class means: infinite if two coincide."""
    apart = distances(centred, zero_below)
    logs = [mp.inf if r == 0 else mp.log(1 / r) for r in apart]
    inverses = [mp.inf if r == 0 else 1 / r for r in apart]
    same = any(r == 0 for r in apart)
    return {
        "gnc2_log": average(logs),
        "gnc2_log_std": mp.nan if same else population_std(logs),
        "gnc2_riesz": average(inverses),
        "gnc2_riesz_cv": mp.nan if same else population_std(inverses) / average(inverses),
        "gnc2_distance": average(apart),
        "gnc2_distance_cv": population_std(apart) / average(apart),
    }


def row_sums(weight):
    """NC0 of all rows of the classifier."""
    total = scale(len(weight), mean(weight))
    size = mp.sqrt(mp.fsum(squared_norm(row) for row in weight))
    longest = mp.sqrt(len(weight)) * size
    return {"nc0": norm(total) / longest if size else mp.nan, "nc0_norm": norm(total)}


def uniform_duality(rows, centred, zero_below):
    heads, means = directions(rows, mp.zero), directions(centred, zero_below)
    pairs = list(zip(heads, means, strict=True))
    values = [mp.nan if w is None or m is None else dot(w, m) for w, m in pairs]
    return {"unc3": population_std(values) ** 2, "unc3_mean": average(values)}
