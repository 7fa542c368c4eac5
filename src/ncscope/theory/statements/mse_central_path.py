"""Features in motion on the central path (MSE section 3.3 and D.3 to D.6).

Where the paper speaks of the projection onto the tangent space, the printed form is checked with
the one of its proposition 4. Names of sizes as in `mse_manifold`.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.frames import simplex_etf
from ncscope.probing.samples import measure_samples
from ncscope.theory.dynamics.central_path import least_squares, least_squares_gradient
from ncscope.theory.dynamics.laws import Law, projected_law, renormalised_law
from ncscope.theory.dynamics.manifold import (
    centred_in_class,
    oblique_projection,
    orthogonal_projection,
)
from ncscope.theory.dynamics.snr import renormalised, split, spread_over_samples
from ncscope.theory.statements import mse_manifold
from ncscope.theory.statements.mse_manifold import (
    TOLERANCE,
    Point,
    coordinates,
    far,
    points,
    raw_features,
    slope_at_zero,
)
from ncscope.theory.statements.search import Instance, climb, magnitude, normal
from ncscope.theory.statements.statement import Statement


def printed_motion(point: Point) -> Float[Tensor, "d n"]:
    r"""MSE lemma 4: rows $\frac{\omega_j}{(K+\omega_j^2)^2}(\frac1ny_j-\omega_j\mathbf Cx_j)$."""
    values = point.snr.values
    centred = point.snr.left.mT @ centred_in_class(point.features, point.k)
    rows = point.modes / point.n - values[:, None] * centred
    return point.snr.left * (values / (point.k + values**2) ** 2) @ rows


def singular_value_form(point: Point, direction: Float[Tensor, "d n"]) -> Float[Tensor, " m"]:
    r"""MSE lemma 3: $(\frac1ny_j-\omega_j\mathbf Cx_j)^\top dx_j$."""
    centred = point.snr.left.mT @ centred_in_class(point.features, point.k)
    rows = point.modes / point.n - point.snr.values[:, None] * centred
    return (rows * (point.snr.left.mT @ direction)).sum(1)


def frame_distance(values: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    r"""$\sum_j(s_j^2-\overline{s^2})^2$, zero iff all singular values are equal."""
    square = values.square()
    return (square - square.mean()).square().sum()


def trace_bound(values: Float[Tensor, " m"], num_classes: int) -> Float[Tensor, ""]:
    r"""$K\sum_j\omega_j^{-2}$."""
    return num_classes * (1 / values.square()).sum()


def _flows(point: Point) -> tuple[tuple[Law, Tensor], tuple[Law, Tensor]]:
    """Both laws, each with the motion that is its flow."""
    slope = least_squares_gradient(point.features, point.k)
    return (
        (projected_law(point.k, point.n), -orthogonal_projection(point.features, slope, point.k)),
        (renormalised_law(point.k, point.n), -oblique_projection(point.features, slope, point.k)),
    )


def _printed_flow(point: Point) -> Tensor:
    """MSE (5) with the projection of its proposition 4."""
    slope = least_squares_gradient(point.features, point.k)
    return -oblique_projection(point.features, slope, point.k)


def singular_value_derivative(generator: torch.Generator) -> Iterator[float]:
    r"""MSE lemma 3, on what the projection of proposition 4 leaves of random directions."""
    for point in points(generator):
        z = normal(*point.features.shape, generator=generator)
        motion = oblique_projection(point.features, z, point.k)
        classes = split(point.features, point.k).classes.requires_grad_()
        values = torch.linalg.svdvals(classes)[: point.k - 1]
        slopes = (torch.autograd.grad(value, classes, retain_graph=True)[0] for value in values)
        moved = split(motion, point.k).classes
        found = torch.stack([(slope * moved).sum() for slope in slopes])
        yield float((found - singular_value_form(point, z)).norm() / motion.norm())


def printed_rows(generator: torch.Generator) -> Iterator[float]:
    """MSE lemma 4."""
    for point in points(generator):
        flow = _printed_flow(point)
        yield float((flow - printed_motion(point)).norm() / flow.norm())


def corrected_rows(generator: torch.Generator) -> Iterator[float]:
    """Class means move, samples in their class do not; lemma 4 has minus the gradient itself."""
    for point in points(generator):
        for law, flow in _flows(point):
            yield far(flow, point.moving(law.rate(point.snr.values)))
        yield far(printed_motion(point), -least_squares_gradient(point.features, point.k))


def printed_rates(generator: torch.Generator) -> Iterator[float]:
    """MSE lemma 5."""
    for point in points(generator):
        law = projected_law(point.k, point.n)
        yield far(point.rates(_printed_flow(point)), law.rate(point.snr.values))


def corrected_rates(generator: torch.Generator) -> Iterator[float]:
    """Each flow has its own rate."""
    for point in points(generator):
        for law, flow in _flows(point):
            yield float((point.rates(flow) / law.rate(point.snr.values) - 1).abs().max())


def printed_form(generator: torch.Generator) -> Iterator[float]:
    """MSE proposition 2: along the flow the left side of (9) grows by one in a unit of time."""
    for point in points(generator):
        law = projected_law(point.k, point.n)
        yield float((_clock(law, point, _printed_flow(point)) - 1).abs().max())


def corrected_form(generator: torch.Generator) -> Iterator[float]:
    """Each flow has its own closed form, and `singular_values` inverts it."""
    for point in points(generator):
        for law, flow in _flows(point):
            yield float((_clock(law, point, flow) - 1).abs().max())
            times = torch.tensor([magnitude(-6, 12, generator)], dtype=torch.float64)
            grown = law.singular_values(point.snr.values, times)[0]
            left = law.potential(grown) - law.potential(point.snr.values)
            size = law.potential(grown).abs() + law.potential(point.snr.values).abs()
            yield float(((left - times) / (size + times + law.coefficients[0])).abs().max())


def _clock(law: Law, point: Point, flow: Tensor) -> Tensor:
    """How fast the closed form says that time passes."""
    values = point.snr.values.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(law.potential(values).sum(), values)
    return slopes * point.rates(flow)


def growth_on_nine(generator: torch.Generator) -> Iterator[float]:
    """MSE corollary 1, of (9) at times at which what the limit leaves out is below rounding."""
    for point in points(generator):
        law = projected_law(point.k, point.n)
        times = torch.tensor([magnitude(28, 40, generator)], dtype=torch.float64)
        grown = law.singular_values(point.snr.values, times)[0]
        yield float((grown / (4 * times / point.n) ** 0.25 - 1).abs().max())
        yield float(grown.max() / grown.min() - 1)


def printed_algorithm(generator: torch.Generator) -> Iterator[float]:
    """MSE D.3: gradient steps, each renormalised, come to the flow whose rates are (27)."""
    for point in points(generator):
        law = projected_law(point.k, point.n)
        yield far(_algorithm(point), law.rate(point.snr.values))


def corrected_algorithm(generator: torch.Generator) -> Iterator[float]:
    """They come to the second law, and singular values grow like a square root."""
    for point in points(generator):
        law = renormalised_law(point.k, point.n)
        yield far(_algorithm(point), law.rate(point.snr.values))
        times = torch.tensor([magnitude(28, 40, generator)], dtype=torch.float64)
        grown = law.singular_values(point.snr.values, times)[0]
        yield float((grown / (2 * times / (point.n * point.k)) ** 0.5 - 1).abs().max())


def _algorithm(point: Point) -> Tensor:
    """Rates of the singular values under the algorithm, as its step goes to 0."""
    slope = least_squares_gradient(point.features, point.k)
    size = 0.05 / float(slope.abs().max())

    def values(step: float) -> Tensor:
        moved = renormalised(point.features - step * size * slope, point.k)
        return point.rates(moved)

    return slope_at_zero(values) / size


def singular_vectors_stay(generator: torch.Generator) -> Iterator[float]:
    """MSE lemma 6, under either projection, and under the motion that lemma 4 prints."""
    for point in points(generator):
        for motion in (*(flow for _, flow in _flows(point)), printed_motion(point)):
            moved = split(motion, point.k).classes
            kept = point.snr.left * point.rates(motion) @ point.snr.right.mT
            yield far(kept, moved)


def frames_by_spectrum(generator: torch.Generator) -> Iterator[float]:
    r"""MSE lemma 7: the distance of a Gram matrix from that of a frame, by singular values.

    $\lVert E^\top E-\overline{s^2}(I-\frac1K\mathbf{11}^\top)\rVert_F^2$ of matrices whose columns
    sum to zero, far from a frame and near it; and the spectrum of frames.
    """
    for point in points(generator):
        k = point.k
        centring = torch.eye(k, dtype=torch.float64) - 1 / k
        for share in (1.0, 1e-3, 0.0):
            values = magnitude(-4, 4, generator) * (1 + share * (point.snr.values - 1))
            matrix = point.snr.left * values @ point.snr.right.mT
            gap = (matrix.mT @ matrix - values.square().mean() * centring).norm().square()
            yield abs(float((gap - frame_distance(values)) / values.pow(4).sum()))
        frame = simplex_etf(k, len(point.features), generator).mT
        found = torch.linalg.svdvals(frame)
        yield float(found[-1]) if k <= len(frame) else 0.0
        yield float(frame_distance(found[: k - 1]))
        yield float(frame.sum(1).norm())
        yield abs(float(found[0].square() * (k - 1) / k) - 1)


def printed_trace(generator: torch.Generator) -> Iterator[float]:
    r"""MSE D.6, raw features: $\operatorname{tr}\Sigma_B^\dagger\Sigma_W=\sum_j\omega_j^{-2}$."""
    for point in points(generator):
        trace = _trace(raw_features(point, generator), point.k)
        yield abs(float((1 / point.snr.values**2).sum() / trace) - 1)


def corrected_trace(generator: torch.Generator) -> Iterator[float]:
    r"""$\ge K\sum_j\omega_j^{-2}$, with equality at renormalised features."""
    for point in points(generator):
        bound = float(trace_bound(point.snr.values, point.k))
        yield abs(bound / float(_trace(point.features, point.k)) - 1)

        def violation(instance: Instance, point: Point = point, bound: float = bound) -> float:
            return bound / float(_trace(instance[0] @ point.features, point.k)) - 1

        d = len(point.features)
        for start in (torch.eye(d, dtype=torch.float64), coordinates(d, generator, False)):
            yield from climb(violation, (start,), generator, 10)


def _trace(features: Tensor, k: int) -> Tensor:
    parts = split(features, k)
    solved = torch.linalg.pinv(parts.classes, rtol=1e-9) @ parts.within
    return k * solved.square().sum() / features.shape[1]


def limits(generator: torch.Generator) -> Iterator[float]:
    """MSE corollary 2, (10) and (11), under both laws, at times too late for float64 to tell."""
    for point in points(generator):
        limit = spread_over_samples(point.snr.left @ point.snr.right.mT, point.n)
        for law, values in _late(point, 1e13):
            yield float(law.rate(values).min() <= 0)
            here = point.at(values)
            matrix = split(here, point.k).classes / values.max()
            yield far(matrix, point.snr.left @ point.snr.right.mT)
            yield far(here / values.max(), limit)


def collapse_of_any(generator: torch.Generator) -> Iterator[float]:
    """MSE theorem 3 as printed, which lets class means lie on a line, or two be the same."""
    yield from collapse(generator)
    for point in points(generator, 4):
        if point.k > 2:
            values = point.snr.values.clone()
            values[-1] = 0
            yield from _collapse_from(replace(point, snr=replace(point.snr, values=values)))


def collapse(generator: torch.Generator) -> Iterator[float]:
    """NC1 to NC4 late on both flows, from affinely independent class means.

    And a singular value that is zero stays so: the motion adds no direction.
    """
    for point in points(generator, 4):
        yield from _collapse_from(point)
    for point in points(generator):
        if point.k == 2:
            continue
        values = point.snr.values.clone()
        values[-1] = 0
        here = replace(point, features=point.at(values))
        for _, flow in _flows(here):
            yield float(here.rates(flow)[-1].abs() / flow.norm())


def _collapse_from(point: Point) -> Iterator[float]:
    """How far NC1 to NC4 are from having emerged, by this package's metrics."""
    labels = torch.arange(point.k).repeat_interleave(point.n)
    for _, values in _late(point, 1e7):
        here = point.at(values)
        head = least_squares(here, point.k)
        groups = ("nc1", "nc2", "nc3", "nc4")
        record, _ = measure_samples("", here.mT, labels, point.k, *head, groups=groups)
        for key in ("nc1", "nc2_etf", "nc3_self_duality", "nc4_disagreement"):
            yield record.metrics[key]


def _late(point: Point, size: float) -> Iterator[tuple[Law, Tensor]]:
    """Singular values at the time at which they have come to a size."""
    for law in (projected_law(point.k, point.n), renormalised_law(point.k, point.n)):
        power = max(law.coefficients)
        times = torch.tensor([law.coefficients[power] * size**power / power], dtype=torch.float64)
        yield law, law.singular_values(point.snr.values, times)[0]


STATEMENTS = (
    *mse_manifold.STATEMENTS,
    Statement(
        id="mse/lemma-3",
        statement="d omega_j(Pi(dX)) = (1/N y_j - omega_j C x_j)^T dx_j, Pi as in proposition 4.",
        source="MSE lemma 3",
        tolerance=TOLERANCE,
        printed=singular_value_derivative,
    ),
    Statement(
        id="mse/lemma-4",
        statement=(
            "Under (5) dx_j/dt = omega_j/(C + omega_j^2)^2 (1/N y_j - omega_j C x_j); corrected: "
            "dx_j/dt = omega_j/(CN (C + omega_j^2)) y_j with the projection of proposition 4, and "
            "omega_j/(N (C + omega_j^2)^2) y_j with the orthogonal one."
        ),
        source="MSE lemma 4",
        tolerance=TOLERANCE,
        printed=printed_rows,
        corrected=corrected_rows,
    ),
    Statement(
        id="mse/lemma-5",
        statement=(
            "Under (5) d omega_j/dt = omega_j/(N (C + omega_j^2)^2); corrected: with the "
            "orthogonal projection; with that of proposition 4 omega_j/(CN (C + omega_j^2))."
        ),
        source="MSE lemma 5, (27)",
        tolerance=TOLERANCE,
        printed=printed_rates,
        corrected=corrected_rates,
    ),
    Statement(
        id="mse/proposition-2",
        statement=(
            "Under (5) N (C^2 log omega_j + C omega_j^2 + omega_j^4/4) = a_j + t; corrected: with "
            "the orthogonal projection; with that of proposition 4 "
            "N (C^2 log omega_j + C/2 omega_j^2) = a_j + t."
        ),
        source="MSE proposition 2, (9)",
        tolerance=TOLERANCE,
        printed=printed_form,
        corrected=corrected_form,
    ),
    Statement(
        id="mse/corollary-1",
        statement=(
            "Under (9) omega_j / (4t/N)^(1/4) -> 1 and max omega_j / min omega_j -> 1 as t -> oo."
        ),
        source="MSE corollary 1",
        tolerance=TOLERANCE,
        printed=growth_on_nine,
    ),
    Statement(
        id="mse/algorithm",
        statement=(
            "Gradient steps, each followed by X <- Sigma_W^-1/2 X, have (27) as their limit; "
            "corrected: d omega_j/dt = omega_j/(CN (C + omega_j^2)), "
            "and omega_j / (2t/(CN))^(1/2) -> 1."
        ),
        source="MSE D.3",
        tolerance=TOLERANCE,
        printed=printed_algorithm,
        corrected=corrected_algorithm,
    ),
    Statement(
        id="mse/lemma-6",
        statement="The singular vectors of the SNR matrix do not change under (5).",
        source="MSE lemma 6",
        tolerance=TOLERANCE,
        printed=singular_vectors_stay,
    ),
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
        printed=printed_trace,
        corrected=corrected_trace,
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
            "From features of global mean zero (5) leads to NC1, NC2, NC3 and NC4; corrected: "
            "if class means are affinely independent; a singular value of zero stays zero."
        ),
        source="MSE theorem 3",
        tolerance=TOLERANCE,
        printed=collapse_of_any,
        corrected=collapse,
    ),
)
