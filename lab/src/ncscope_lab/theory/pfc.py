"""Collapse from layer to layer, and the multilayer model (PFC section III)."""

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.frames import simplex_basis, simplex_etf
from ncscope.metrics.layerwise import Geodesic
from ncscope_lab.surrogates.descent import quasi_newton
from ncscope_lab.surrogates.geodesic import line_between, pfc2_falls_from
from ncscope_lab.surrogates.mufm import MUFM, ClassifierMUFM, LayeredMUFM, Loss
from ncscope_lab.theory.search import Instance, choice, climb, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9
_NEAR_ZERO = (0.0, *torch.logspace(-5, 0, 24, dtype=torch.float64).tolist())


def alignment(first: Float[Tensor, "k d"], last: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Theorem 1's premise: the inner product of centred class means, at least 0."""
    return (first * last).sum()


def first_order_gap(line: Geodesic) -> float:
    r"""$\sigma(a-e)-6ae$: if it is not negative, PFC2 falls on the whole line.

    The last centred class means are $M$ and the first $M+P$. Then $a=\lVert M\rVert_F^2$,
    $e=\lVert P\rVert_F^2$, and $\sigma$ is the norm of the part of $M^\top P+P^\top M$ that is
    orthogonal to the simplex: the first-order rate at which the Gram matrix leaves that of the
    simplex.
    """
    last = line.last.frame
    cross = last @ (line.first.frame - last).mT
    size, cost = float(last.square().sum()), float(line.transport_cost())
    leaving = float(_off_simplex(cross + cross.mT).norm())
    return leaving * (size - cost) - 6 * size * cost


def equivalent_transport(transport: float, depth: int) -> float:
    r"""$\lambda/L$: the coefficient of the reduced model that is equivalent to L layers."""
    return transport / depth


def classifier_of(model: MUFM, features: Float[Tensor, "d n"]) -> Float[Tensor, "k d"]:
    r"""$W^*(H)$ of theorem 4."""
    return model.best_classifier(features)


def least_spread(model: MUFM, weight: Float[Tensor, "k d"]) -> float:
    r"""Return the least $\lVert h_i-h_j\rVert/\lVert x_i-x_j\rVert$ in a class, if stationary.

    $(1+\frac s\lambda\lVert W\rVert_2^2)^{-1}$, where s is the Lipschitz constant of the loss's
    gradient in the outputs: 1 for the squared loss, 1/2 for cross-entropy.
    """
    slope = 1.0 if model.loss == "mse" else 0.5
    stretch = float(torch.linalg.matrix_norm(weight, 2)) ** 2
    return 1 / (1 + slope * stretch / (model.num_samples * model.tau))


def find_minimum(model: MUFM) -> tuple[Float[Tensor, "k d"], Float[Tensor, "d n"]]:
    """Minimise from the best classifier on the data or, for cross-entropy, from zero."""
    if model.loss != "mse":
        start = 0 * model.targets @ model.data.mT
        weight, features = quasi_newton(model, (start, model.data)).point
        return weight, features
    reduced = ClassifierMUFM(model)
    result = quasi_newton(reduced, (model.best_classifier(model.data),))
    return result.point[0], model.best_features(result.point[0])


def falls_if_aligned(generator: torch.Generator) -> Iterator[float]:
    """PFC theorem 1: the largest rise of PFC1 from one point to a later one, relative to it."""

    def violation(instance: Instance) -> float:
        means, noise, last = instance[0], instance[1], _centre(instance[2])
        shortage = min(float(alignment(_centre(means), last)), 0.0)
        means = means - shortage / last.square().sum() * last
        line = _line(means, noise, last)
        values = [float(line.pfc1(t)) for t in _NEAR_ZERO]
        rises = [later / earlier - 1 for earlier, later in pairwise(values)]
        return max(*rises, values[-1] / values[0])

    for _ in range(10):
        last = _simplex(generator)
        means = magnitude(-2, 2, generator) * normal(*last.shape, generator=generator)
        means -= magnitude(-3, 1, generator) * last
        noise = magnitude(-2, 2, generator) * normal(3, *last.shape, generator=generator)
        yield from climb(violation, (means, noise, last), generator, steps=3)


def falls_for_a_small_cost(generator: torch.Generator) -> Iterator[float]:
    r"""PFC theorem 2: the rise of PFC2 on $[0,1]$, relative to its largest value.

    The first class means are the simplex in another orientation; a smaller rotation has a smaller
    cost.
    """
    for angle in (1e-1, 1e-2, 1e-3):
        last = _simplex(generator, least=3)
        line = _line(_turn(last, angle, generator), 0 * last[None], last)
        yield _rise_of_pfc2(line, 0.0)


def falls_near_the_end(generator: torch.Generator) -> Iterator[float]:
    r"""PFC2 falls on $[t_0,1]$, $t_0<1$, and $t_0=0$ where `first_order_gap` is not negative."""
    for index in range(20):
        last = _simplex(generator, least=3)
        noise = magnitude(-2, 1, generator) * normal(*last.shape, generator=generator)
        first = _turn(last, magnitude(-1, 0.5, generator), generator) if index % 2 else last
        line = _line(first + (index % 3) * noise, 0 * last[None], last)
        if float(line.transport_cost()) > 0:
            start = pfc2_falls_from(line)
            # With t0 = 1 nothing would be left to check: a neighbourhood has to have a length.
            yield float(start >= 1) or _rise_of_pfc2(line, start)
    for _ in range(6):
        last = _simplex(generator, least=3)
        small = _first_order_step(last, generator)
        line = _line(last + small, 0 * last[None], last)
        yield _rise_of_pfc2(line, 0.0)


def reduction_as_printed(generator: torch.Generator) -> Iterator[float]:
    r"""PFC theorem 3 with the same $\lambda$ in (12) and (13)."""
    yield from _reduction_errors(generator, lambda transport, _: transport)


def reduction_with_depth(generator: torch.Generator) -> Iterator[float]:
    r"""PFC theorem 3 with $\lambda/L$ in (13)."""
    yield from _reduction_errors(generator, equivalent_transport)


def between_collapse_and_data(generator: torch.Generator) -> Iterator[float]:
    r"""PFC theorem 4: $0<PFC_1(H)$, and $PFC_1(H)<PFC_1(X)$ for $\lambda>\frac1{2\lambda_W}$."""
    for index in range(16):
        loss: Loss = "cross-entropy" if index % 8 == 7 else "mse"
        data, k = _data(generator, dims=1 if index % 4 == 0 else 6)
        decay = magnitude(-3, 1, generator)
        strength = magnitude(0, 3, generator) / (2 * decay)
        model = MUFM(data, k, decay, strength, loss)
        weight, features = find_minimum(model)
        before, after = _distances(data, k), _distances(features, k)
        missing = 1 - after / (least_spread(model, weight) * before)
        yield max(float((missing * before / before.max()).max()), 0.0)
        if loss == "mse":
            yield max(_pfc1(features, k) / _pfc1(data, k) - 1, 0.0)


def classifier_is_stationary(generator: torch.Generator) -> Iterator[float]:
    r"""PFC theorem 4: the gradient in W at $W^*(H)$, relative to the sizes of its terms."""
    for index in range(20):
        data, k = _data(generator)
        model = MUFM(data, k, magnitude(-4, 2, generator), 1.0, normalised=index % 2 == 0)
        features = magnitude(-3, 3, generator) * normal(*data.shape, generator=generator)
        weight = classifier_of(model, features).requires_grad_()
        (slope,) = torch.autograd.grad(model.objective((weight, features)), weight)
        size = features.norm().square() / data.shape[1] + model.omega
        yield float(slope.norm() / (size * weight.detach().norm()))


def flow_direction(model: MUFM, features: Float[Tensor, "d n"]) -> Float[Tensor, "d n"]:
    r"""Flow (21): $-Kn\nabla\mathcal L(H)$ with the optimal classifier, by autograd."""
    weight, here = model.best_classifier(features), features.detach().requires_grad_()
    loss = (weight @ here - model.targets).square().sum() / 2
    return -torch.autograd.grad(loss, here)[0]


def flow_collapses(generator: torch.Generator) -> Iterator[float]:
    """PFC lemma 1: the rates of change of the traces, relative to the Cauchy-Schwarz bound."""

    def violation(instance: Instance) -> float:
        (features,) = instance
        model = MUFM(features, k, decay, 1.0)
        move = flow_direction(model, features)
        shrinking = _cosine(_within(features, k), _within(move, k))
        growing = _cosine(_centre(_means(features, k)), _centre(_means(move, k)))
        return max(shrinking, -growing)

    for _ in range(12):
        features, k = _data(generator)
        decay = magnitude(-4, 2, generator)
        yield from climb(violation, (features,), generator, steps=10)


def symmetric_energy(weight: Float[Tensor, "m d"]) -> Float[Tensor, ""]:
    r"""$\frac12\lVert W\rVert_F^2$: the energy of a ReLU block on isotropic symmetric inputs."""
    return weight.square().sum() / 2


def energy_is_weight_decay(generator: torch.Generator) -> Iterator[float]:
    r"""PFC III-C: $E\lVert\sigma(Wx)\rVert^2$ for inputs x and -x with second moments I."""
    for _ in range(20):
        d = integer(1, 8, generator)
        basis, _ = torch.linalg.qr(normal(d + integer(0, 9, generator), d, generator=generator))
        half = len(basis) ** 0.5 * basis
        scale = magnitude(-3, 3, generator)
        weight = scale * normal(integer(1, 8, generator), d, generator=generator)
        outputs = (torch.cat([half, -half]) @ weight.mT).clamp(min=0)
        energy = outputs.square().sum() / len(outputs)
        yield abs(float(energy / symmetric_energy(weight)) - 1)


def _simplex(generator: torch.Generator, least: int = 2) -> Float[Tensor, "k d"]:
    k = integer(least, 6, generator)
    return magnitude(-2, 2, generator) * simplex_etf(k, k + 1, generator)


def _turn(
    means: Float[Tensor, "k d"], angle: float, generator: torch.Generator
) -> Float[Tensor, "k d"]:
    turn = normal(means.shape[1], means.shape[1], generator=generator)
    turn = turn - turn.mT
    return means @ torch.matrix_exp(angle / turn.norm() * turn)


def _first_order_step(
    means: Float[Tensor, "k d"], generator: torch.Generator
) -> Float[Tensor, "k d"]:
    """Draw a random step, halved until `first_order_gap` is not negative."""
    step = means.norm() * normal(*means.shape, generator=generator)
    while first_order_gap(_line(means + step, 0 * means[None], means)) < 0:
        step = step / 2
    return step


def _line(
    means: Float[Tensor, "k d"], noise: Float[Tensor, "n k d"], last: Float[Tensor, "k d"]
) -> Geodesic:
    """Return the line from class means with noise to collapsed features."""
    labels = torch.arange(len(means)).repeat(len(noise))
    first = means + noise - noise.mean(0)
    return line_between(first.flatten(0, 1), last.repeat(len(noise), 1), labels)


def _rise_of_pfc2(line: Geodesic, start: float) -> float:
    shares = [(1 - start) * share for share in _NEAR_ZERO]
    values = [float(line.pfc2(min(start + share, 1.0))) for share in shares]
    rises = [value - least for value, least in zip(values, accumulate(values, min), strict=True)]
    return max(*rises, values[-1]) / max(values)


def _reduction_errors(
    generator: torch.Generator, strength: Callable[[float, int], float]
) -> Iterator[float]:
    for index in range(16):
        data, k = _data(generator)
        depth, decay, transport = 1 + index % 6, magnitude(-3, 1, generator), 10.0 ** (index % 3)
        loss: Loss = choice(("mse", "cross-entropy"), generator)
        layered = LayeredMUFM(data, k, depth, decay, transport, loss)
        weight = normal(k, len(data), generator=generator)
        features = data + normal(*data.shape, generator=generator)
        path = _cheapest_path(data, features, depth)
        reduced = MUFM(data, k, decay, strength(transport, depth), loss)
        least = layered.objective((weight, *path, features))
        yield abs(float(reduced.objective((weight, features)) / least) - 1)


def _cheapest_path(
    first: Float[Tensor, "d n"], last: Float[Tensor, "d n"], depth: int
) -> list[Float[Tensor, "d n"]]:
    """Return the intermediate layers at which the sum of squared steps is stationary."""
    if depth == 1:
        return []
    inner = depth - 1
    ones = torch.ones(inner - 1, dtype=torch.float64)
    stiffness = 2 * torch.eye(inner, dtype=torch.float64) - ones.diag(1) - ones.diag(-1)
    ends = torch.zeros(inner, *first.shape, dtype=torch.float64)
    ends[0] += first
    ends[-1] += last
    return list(torch.linalg.solve(stiffness, ends.flatten(1)).view_as(ends))


def _data(generator: torch.Generator, dims: int = 6) -> tuple[Float[Tensor, "d n"], int]:
    """Draw classes of Gaussian samples in up to ``dims`` dimensions, and their number."""
    k, n, d = integer(2, 5, generator), integer(2, 5, generator), integer(1, dims, generator)
    means = magnitude(-1, 1, generator) * normal(d, k, generator=generator)
    noise = magnitude(-2, 1, generator) * normal(d, k * n, generator=generator)
    return means.repeat_interleave(n, 1) + noise, k


def _means(features: Float[Tensor, "d n"], k: int) -> Float[Tensor, "k d"]:
    return features.unflatten(1, (k, -1)).mean(2).mT


def _within(features: Float[Tensor, "d n"], k: int) -> Float[Tensor, "d n"]:
    classes = features.unflatten(1, (k, -1))
    return (classes - classes.mean(2, keepdim=True)).flatten(1)


def _distances(features: Float[Tensor, "d n"], k: int) -> Float[Tensor, " p"]:
    """Compute the distances between all pairs of samples of one class."""
    classes = features.unflatten(1, (k, -1))
    first, second = torch.triu_indices(classes.shape[2], classes.shape[2], 1)
    return torch.linalg.vector_norm(classes[..., first] - classes[..., second], dim=0).flatten()


def _pfc1(features: Float[Tensor, "d n"], k: int) -> float:
    between = _centre(_means(features, k)).square().sum() / k
    return float(_within(features, k).square().sum() / features.shape[1] / between)


def _centre(means: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
    return means - means.mean(0)


def _cosine(first: Tensor, second: Tensor) -> float:
    size = first.norm() * second.norm()
    return float((first * second).sum() / size) if size > 0 else 0.0


def _off_simplex(gram: Float[Tensor, "k k"]) -> Float[Tensor, "k k"]:
    basis = simplex_basis(len(gram))
    return gram - gram.trace() / (len(gram) - 1) * (basis @ basis.mT)


STATEMENTS = (
    Statement(
        id="pfc/theorem-1",
        statement=(
            "If sum_k <h~_k(0), h~_k(1)> >= 0 for the centred class means and the last features "
            "are collapsed, PFC1 decreases to 0 along h(t) = (1-t) h(0) + t h(1)."
        ),
        source="PFC theorem 1",
        tolerance=TOLERANCE,
        printed=falls_if_aligned,
    ),
    Statement(
        id="pfc/theorem-2",
        statement=(
            "If ||H~(1) - H~(0)||_F^2 is sufficiently small, PFC2 decreases to 0 along the line "
            "to a simplex; corrected: PFC2 decreases on some [t0, 1], t0 < 1, and on [0, 1] if "
            "sigma (a - e) >= 6 a e, with a = ||H~(1)||_F^2, P = H~(0) - H~(1), e = ||P||_F^2 and "
            "sigma the norm of the part of H~(1)^T P + P^T H~(1) orthogonal to the simplex."
        ),
        source="PFC theorem 2",
        tolerance=TOLERANCE,
        printed=falls_for_a_small_cost,
        corrected=falls_near_the_end,
        grade="gap",
    ),
    Statement(
        id="pfc/theorem-3",
        statement=(
            "The layered problem (12) is equivalent to (13), features held at the data with the "
            "same lambda; corrected: with lambda / L for L layers."
        ),
        source="PFC theorem 3",
        tolerance=TOLERANCE,
        printed=reduction_as_printed,
        corrected=reduction_with_depth,
        grade="slip",
    ),
    Statement(
        id="pfc/theorem-4",
        statement=(
            "If the data are not collapsed, the minimisers H of (13) are not collapsed; under "
            "the MSE PFC1(H) < PFC1(X) for lambda > C, where C = 1/(2 lambda_W) suffices."
        ),
        source="PFC theorem 4",
        tolerance=TOLERANCE,
        printed=between_collapse_and_data,
    ),
    Statement(
        id="pfc/theorem-4-classifier",
        statement="Under the MSE, W*(H) = Y H^T (H H^T + n lambda_W I)^-1 minimises (13) in W.",
        source="PFC theorem 4",
        tolerance=TOLERANCE,
        printed=classifier_is_stationary,
    ),
    Statement(
        id="pfc/lemma-1",
        statement=(
            "Along dH/dt = -Kn grad L(H), L the MSE part of (13) with W = W*(H), Tr Sigma_W "
            "does not increase and Tr Sigma_B increases."
        ),
        source="PFC lemma 1",
        tolerance=TOLERANCE,
        printed=flow_collapses,
    ),
    Statement(
        id="pfc/weight-decay",
        statement=(
            "For a ReLU s and symmetric inputs x of second moment I, "
            "E ||s(W x)||^2 = 1/2 ||W||_F^2."
        ),
        source="PFC III-C",
        tolerance=TOLERANCE,
        printed=energy_is_weight_decay,
    ),
)
