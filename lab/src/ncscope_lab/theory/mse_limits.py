"""Limits of the central path (MSE section 3.3 and D.5, D.6): frames, limits, NC1 to NC4.

The names of sizes are those of `mse_manifold`.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.frames import simplex_etf
from ncscope.measurement.samples import measure_samples
from ncscope_lab.surrogates.dynamics.central_path import least_squares
from ncscope_lab.surrogates.dynamics.laws import Law, law_of_projection, law_of_renormalisation
from ncscope_lab.surrogates.dynamics.snr import split, spread_over_samples
from ncscope_lab.theory.mse_central_path import flows
from ncscope_lab.theory.mse_manifold import (
    TOLERANCE,
    ManifoldPoint,
    coordinates,
    far,
    points,
    raw_features,
)
from ncscope_lab.theory.search import Instance, climb, magnitude, normal
from ncscope_lab.theory.statement import Statement

_SEEN = 1e-6  # least distance that counts as one, where a matrix must not be a frame


def trace_bound(values: Float[Tensor, " m"], num_classes: int) -> Float[Tensor, ""]:
    r"""$K\sum_j\omega_j^{-2}$."""
    return num_classes * (1 / values.square()).sum()


def frames_by_spectrum(generator: torch.Generator) -> Iterator[float]:
    r"""MSE lemma 7: angles and lengths of the columns of E against its singular values.

    A matrix with C-1 equal singular values and null vector $\mathbf 1$ must have the columns of a
    frame. With unequal values, or with another null vector, it must not. A frame built from its
    vertices must have the singular values and the null vector.
    """
    for point in points(generator):
        k, left, right = point.k, point.snr.left, point.snr.right
        scale = magnitude(-4, 4, generator)
        equal = torch.full((k - 1,), scale, dtype=torch.float64)
        yield off_vertices(left * equal @ right.mT)
        turn, _ = torch.linalg.qr(normal(k, k - 1, generator=generator))
        yield float(off_vertices(left * equal @ turn.mT) < _SEEN)
        if k > 2:
            values = equal.clone()
            values[0] *= 1 + magnitude(-3, 0, generator)
            yield float(off_vertices(left * values @ right.mT) < _SEEN)
        yield off_spectrum(scale * simplex_etf(k, len(point.features), generator).mT)


def off_vertices(matrix: Float[Tensor, "d k"]) -> float:
    """Return the distance of the columns from equal lengths and the cosines of a simplex."""
    k, lengths = matrix.shape[1], matrix.norm(dim=0)
    cosines = (matrix / lengths).mT @ (matrix / lengths)
    simplex = (k * torch.eye(k, dtype=torch.float64) - 1) / (k - 1)
    return float(
        torch.maximum((cosines - simplex).abs().max(), (lengths / lengths[0] - 1).abs().max())
    )


def off_spectrum(matrix: Float[Tensor, "d k"]) -> float:
    """Return the distance from C-1 equal singular values and the null vector of ones."""
    values = torch.linalg.svdvals(matrix)
    ones = matrix.sum(1).norm() / values[0]
    return float(torch.maximum((values[: matrix.shape[1] - 1] / values[0] - 1).abs().max(), ones))


def trace_as_printed(generator: torch.Generator) -> Iterator[float]:
    r"""MSE D.6, raw features: $\operatorname{tr}\Sigma_B^\dagger\Sigma_W=\sum_j\omega_j^{-2}$."""
    for point in points(generator):
        trace = _trace(raw_features(point, generator), point.k)
        yield abs(float((1 / point.snr.values**2).sum() / trace) - 1)


def trace_as_corrected(generator: torch.Generator) -> Iterator[float]:
    r"""$\ge K\sum_j\omega_j^{-2}$, with equality at renormalised features."""
    for point in points(generator):
        bound = float(trace_bound(point.snr.values, point.k))
        yield abs(bound / float(_trace(point.features, point.k)) - 1)

        def violation(
            instance: Instance, point: ManifoldPoint = point, bound: float = bound
        ) -> float:
            return bound / float(_trace(instance[0] @ point.features, point.k)) - 1

        d = len(point.features)
        for start in (torch.eye(d, dtype=torch.float64), coordinates(d, generator, False)):
            yield from climb(violation, (start,), generator, 10)


def _trace(features: Tensor, k: int) -> Tensor:
    parts = split(features, k)
    solved = torch.linalg.pinv(parts.classes, rtol=1e-9) @ parts.within
    return k * solved.square().sum() / features.shape[1]


def limits(generator: torch.Generator) -> Iterator[float]:
    """MSE corollary 2, (10) and (11), under both laws, at times at which the gap is rounding."""
    for point in points(generator):
        limit = spread_over_samples(point.snr.left @ point.snr.right.mT, point.n)
        for law, values in _late(point, 1e13):
            yield float(law.rate(values).min() <= 0)
            here = point.at(values)
            matrix = split(here, point.k).classes / values.max()
            yield far(matrix, point.snr.left @ point.snr.right.mT)
            yield far(here / values.max(), limit)


def collapse_of_any(generator: torch.Generator) -> Iterator[float]:
    """MSE theorem 3 as printed, which admits class means on a line or two equal class means."""
    yield from collapse(generator)
    for point in points(generator, 4):
        if point.k > 2:
            values = point.snr.values.clone()
            values[-1] = 0
            yield from _collapse_from(replace(point, snr=replace(point.snr, values=values)))


def collapse(generator: torch.Generator) -> Iterator[float]:
    """Check NC1 to NC4 late on both flows, from affinely independent class means.

    Also check that a singular value of zero stays zero: the motion adds no direction.
    """
    for point in points(generator, 4):
        yield from _collapse_from(point)
    for point in points(generator):
        if point.k == 2:
            continue
        values = point.snr.values.clone()
        values[-1] = 0
        here = replace(point, features=point.at(values))
        for _, flow in flows(here):
            yield float(here.rates(flow)[-1].abs() / flow.norm())


def _collapse_from(point: ManifoldPoint) -> Iterator[float]:
    """Yield the deviations of NC1 to NC4 from collapse, by the package's metrics."""
    labels = torch.arange(point.k).repeat_interleave(point.n)
    for _, values in _late(point, 1e7):
        here = point.at(values)
        head = least_squares(here, point.k)
        groups = ("nc1", "nc2", "nc3", "nc4")
        record, _ = measure_samples("", here.mT, labels, point.k, *head, groups=groups)
        for key in ("nc1", "nc2_etf", "nc3_self_duality", "nc4_disagreement"):
            yield record.metrics[key]


def _late(point: ManifoldPoint, size: float) -> Iterator[tuple[Law, Tensor]]:
    """Yield each law with the singular values at the time at which they reach a given size."""
    for law in (law_of_projection(point.k, point.n), law_of_renormalisation(point.k, point.n)):
        power = max(law.coefficients)
        times = torch.tensor([law.coefficients[power] * size**power / power], dtype=torch.float64)
        yield law, law.singular_values(point.snr.values, times)[0]


STATEMENTS = (
    Statement(
        id="mse/lemma-7",
        statement=(
            "E is a simplex ETF iff C-1 of its singular values are equal and not zero, "
            "and its null space is spanned by the vector of ones."
        ),
        source="MSE lemma 7",
        tolerance=TOLERANCE,
        printed=frames_by_spectrum,
    ),
    Statement(
        id="mse/trace",
        statement=(
            "tr(Sigma_B^+ Sigma_W) = sum_j omega_j^-2; corrected: >= C sum_j omega_j^-2, "
            "with equality for renormalised features."
        ),
        source="MSE D.6, derivation of NC1",
        tolerance=TOLERANCE,
        printed=trace_as_printed,
        corrected=trace_as_corrected,
        grade="gap",
    ),
    Statement(
        id="mse/corollary-2",
        statement=(
            "As t -> oo SNR/omega_max -> U V^T, singular vectors of the start, "
            "and X/omega_max -> (U V^T) x 1^T."
        ),
        source="MSE corollary 2, (10), (11)",
        tolerance=TOLERANCE,
        printed=limits,
    ),
    Statement(
        id="mse/theorem-3",
        statement=(
            "From features of global mean zero (5) leads to NC1, NC2, NC3 and NC4 (by what "
            "dynamics: proposition 2); corrected: the class means must be affinely independent, as "
            "a singular value of zero stays zero."
        ),
        source="MSE theorem 3",
        tolerance=TOLERANCE,
        printed=collapse_of_any,
        corrected=collapse,
        grade="gap",
    ),
)
