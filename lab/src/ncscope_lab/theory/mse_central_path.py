"""Motion of features on the central path (MSE section 3.3 and D.3 to D.6).

MSE (5) says only that the gradient is projected onto the tangent space; with the orthogonal
projection the printed law is exact. The printed forms are checked with the projection of MSE
proposition 4, the paper's one formula, to which its algorithm belongs too. The names of sizes are
those of `mse_manifold`.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope_lab.surrogates.dynamics.central_path import least_squares_gradient
from ncscope_lab.surrogates.dynamics.laws import Law, law_of_projection, law_of_renormalisation
from ncscope_lab.surrogates.dynamics.manifold import (
    centre_in_class,
    oblique_projection,
    orthogonal_projection,
)
from ncscope_lab.surrogates.dynamics.snr import renormalise, split
from ncscope_lab.theory import mse_manifold
from ncscope_lab.theory.mse_manifold import (
    TOLERANCE,
    ManifoldPoint,
    far,
    points,
    slope_at_zero,
)
from ncscope_lab.theory.search import magnitude, normal
from ncscope_lab.theory.statement import Statement


def motion_as_printed(point: ManifoldPoint) -> Float[Tensor, "d n"]:
    r"""MSE lemma 4: rows $\frac{\omega_j}{(K+\omega_j^2)^2}(\frac1ny_j-\omega_j\mathbf Cx_j)$."""
    values = point.snr.values
    centred = point.snr.left.mT @ centre_in_class(point.features, point.k)
    rows = point.modes / point.n - values[:, None] * centred
    return point.snr.left * (values / (point.k + values**2) ** 2) @ rows


def singular_value_form(
    point: ManifoldPoint, direction: Float[Tensor, "d n"]
) -> Float[Tensor, " m"]:
    r"""MSE lemma 3: $(\frac1ny_j-\omega_j\mathbf Cx_j)^\top dx_j$."""
    centred = point.snr.left.mT @ centre_in_class(point.features, point.k)
    rows = point.modes / point.n - point.snr.values[:, None] * centred
    return (rows * (point.snr.left.mT @ direction)).sum(1)


def flows(point: ManifoldPoint) -> tuple[tuple[Law, Tensor], tuple[Law, Tensor]]:
    """Return both laws, each with the motion of its flow."""
    slope = least_squares_gradient(point.features, point.k)
    x, k, n = point.features, point.k, point.n
    return (
        (law_of_projection(k, n), -orthogonal_projection(x, slope, k)),
        (law_of_renormalisation(k, n), -oblique_projection(x, slope, k)),
    )


def _flow_as_printed(point: ManifoldPoint) -> Tensor:
    """MSE (5) with the projection of its proposition 4."""
    slope = least_squares_gradient(point.features, point.k)
    return -oblique_projection(point.features, slope, point.k)


def singular_value_derivative(generator: torch.Generator) -> Iterator[float]:
    r"""MSE lemma 3, on random directions after the projection of proposition 4."""
    for point in points(generator):
        z = normal(*point.features.shape, generator=generator)
        motion = oblique_projection(point.features, z, point.k)
        classes = split(point.features, point.k).classes.requires_grad_()
        values = torch.linalg.svdvals(classes)[: point.k - 1]
        slopes = (torch.autograd.grad(value, classes, retain_graph=True)[0] for value in values)
        moved = split(motion, point.k).classes
        derivative = torch.stack([(slope * moved).sum() for slope in slopes])
        yield float((derivative - singular_value_form(point, z)).norm() / motion.norm())


def rows_as_printed(generator: torch.Generator) -> Iterator[float]:
    """MSE lemma 4."""
    for point in points(generator):
        flow = _flow_as_printed(point)
        yield float((flow - motion_as_printed(point)).norm() / flow.norm())


def rows_as_corrected(generator: torch.Generator) -> Iterator[float]:
    """Check that only class means move; lemma 4 prints minus the unprojected gradient."""
    for point in points(generator):
        for law, flow in flows(point):
            yield far(flow, point.moving(law.rate(point.snr.values)))
        yield far(motion_as_printed(point), -least_squares_gradient(point.features, point.k))


def rates_as_printed(generator: torch.Generator) -> Iterator[float]:
    """MSE lemma 5."""
    for point in points(generator):
        law = law_of_projection(point.k, point.n)
        yield far(point.rates(_flow_as_printed(point)), law.rate(point.snr.values))


def rates_as_corrected(generator: torch.Generator) -> Iterator[float]:
    """Check the rate of each of the two flows."""
    for point in points(generator):
        for law, flow in flows(point):
            yield float((point.rates(flow) / law.rate(point.snr.values) - 1).abs().max())


def form_as_printed(generator: torch.Generator) -> Iterator[float]:
    """MSE proposition 2: along the flow the left side of (9) has time derivative 1."""
    for point in points(generator):
        law = law_of_projection(point.k, point.n)
        yield float((_clock(law, point, _flow_as_printed(point)) - 1).abs().max())


def form_as_corrected(generator: torch.Generator) -> Iterator[float]:
    """Check the closed form of each flow, and that `singular_values` inverts it."""
    for point in points(generator):
        for law, flow in flows(point):
            yield float((_clock(law, point, flow) - 1).abs().max())
            times = torch.tensor([magnitude(-6, 12, generator)], dtype=torch.float64)
            grown = law.singular_values(point.snr.values, times)[0]
            left = law.potential(grown) - law.potential(point.snr.values)
            size = law.potential(grown).abs() + law.potential(point.snr.values).abs()
            yield float(((left - times) / (size + times + law.coefficients[0])).abs().max())


def _clock(law: Law, point: ManifoldPoint, flow: Tensor) -> Tensor:
    """Return the time derivative of the closed form's left side, which should be 1."""
    values = point.snr.values.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(law.potential(values).sum(), values)
    return slopes * point.rates(flow)


def growth_on_nine(generator: torch.Generator) -> Iterator[float]:
    """MSE corollary 1, for (9) at times so late that lower-order terms are below rounding."""
    for point in points(generator):
        law = law_of_projection(point.k, point.n)
        times = torch.tensor([magnitude(28, 40, generator)], dtype=torch.float64)
        grown = law.singular_values(point.snr.values, times)[0]
        yield float((grown / (4 * times / point.n) ** 0.25 - 1).abs().max())
        yield float(grown.max() / grown.min() - 1)


def algorithm_as_printed(generator: torch.Generator) -> Iterator[float]:
    """MSE D.3: renormalised gradient steps tend to the flow with the rates (27)."""
    for point in points(generator):
        law = law_of_projection(point.k, point.n)
        yield far(_algorithm(point), law.rate(point.snr.values))


def algorithm_as_corrected(generator: torch.Generator) -> Iterator[float]:
    """Check that they tend to the renormalised law, with growth like a square root."""
    for point in points(generator):
        law = law_of_renormalisation(point.k, point.n)
        yield far(_algorithm(point), law.rate(point.snr.values))
        times = torch.tensor([magnitude(28, 40, generator)], dtype=torch.float64)
        grown = law.singular_values(point.snr.values, times)[0]
        yield float((grown / (2 * times / (point.n * point.k)) ** 0.5 - 1).abs().max())


def _algorithm(point: ManifoldPoint) -> Tensor:
    """Return the rates of the singular values under the algorithm, as its step size goes to 0."""
    slope = least_squares_gradient(point.features, point.k)
    size = 0.05 / float(slope.abs().max())

    def values(step: float) -> Tensor:
        moved = renormalise(point.features - step * size * slope, point.k)
        return point.rates(moved)

    return slope_at_zero(values) / size


def singular_vectors_stay(generator: torch.Generator) -> Iterator[float]:
    """MSE lemma 6, under both projections, and under the motion printed in lemma 4."""
    for point in points(generator):
        for motion in (*(flow for _, flow in flows(point)), motion_as_printed(point)):
            moved = split(motion, point.k).classes
            kept = point.snr.left * point.rates(motion) @ point.snr.right.mT
            yield far(kept, moved)


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
            "dx_j/dt = omega_j/(CN (C + omega_j^2)) y_j with the projection of proposition 4, "
            "and omega_j/(N (C + omega_j^2)^2) y_j with the orthogonal projection."
        ),
        source="MSE lemma 4",
        tolerance=TOLERANCE,
        printed=rows_as_printed,
        corrected=rows_as_corrected,
        grade="false",
    ),
    Statement(
        id="mse/lemma-5",
        statement=(
            "Under (5), with the projection of proposition 4, d omega_j/dt = "
            "omega_j/(N (C + omega_j^2)^2); corrected: the rate is omega_j/(CN (C + omega_j^2)); "
            "the printed rate belongs to the orthogonal projection."
        ),
        source="MSE lemma 5, (27)",
        tolerance=TOLERANCE,
        printed=rates_as_printed,
        corrected=rates_as_corrected,
        grade="false",
    ),
    Statement(
        id="mse/proposition-2",
        statement=(
            "Under (5), with the projection of proposition 4, "
            "N (C^2 log omega_j + C omega_j^2 + omega_j^4/4) = a_j + t; corrected: the law is "
            "N (C^2 log omega_j + C/2 omega_j^2) = a_j + t; the printed law belongs to the "
            "orthogonal projection."
        ),
        source="MSE proposition 2, (9)",
        tolerance=TOLERANCE,
        printed=form_as_printed,
        corrected=form_as_corrected,
        grade="false",
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
        printed=algorithm_as_printed,
        corrected=algorithm_as_corrected,
        grade="false",
    ),
    Statement(
        id="mse/lemma-6",
        statement="The singular vectors of the SNR matrix do not change under (5).",
        source="MSE lemma 6",
        tolerance=TOLERANCE,
        printed=singular_vectors_stay,
    ),
)
