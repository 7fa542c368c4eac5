"""Invariance of the metrics under maps of the features (VCI 4.2)."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from ncscope.metrics.variability import cosine_within, fuzziness, nc1_quotient
from ncscope_lab.theory.search import choice, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement
from ncscope_lab.theory.vci_features import (
    ClassFeatures,
    class_means,
    draw_balanced,
    draw_imbalanced,
    draw_mixture,
    draw_unstructured,
    indicator,
    label_by_counts,
    measure,
    measure_directions,
)

TOLERANCE = 1e-9
_SHEAR = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)


def example_of_shear() -> ClassFeatures:
    r"""Features with $\Sigma_B=\operatorname{diag}(1,0)$ and $\Sigma_W=I$ (observation 4.2)."""
    axes = 2**0.5 * torch.eye(2, dtype=torch.float64)
    means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    rows = [mean + sign * axes for mean in means for sign in (1, -1)]
    return label_by_counts(torch.cat(rows), torch.tensor([4, 4]))


def cosine_distance(labelled: ClassFeatures) -> Float[Tensor, ""]:
    r"""$\bar d_{within}$ of VCI 3.2 from all pairs."""
    unit = normalize(labelled.features, dim=1, eps=0.0)
    same = indicator(labelled) @ (indicator(labelled) / labelled.counts.square()).mT
    return (same * (1 - unit @ unit.mT)).sum() / labelled.k


def ridge_minimum(labelled: ClassFeatures, weight_decay: float, bias_decay: float) -> float:
    r"""Minimum of VCI (5) over W and b for $\ell=\frac12\lVert\cdot\rVert^2$."""
    n, d = labelled.features.shape
    rows = torch.cat([labelled.features, torch.ones(n, 1, dtype=torch.float64)], 1) / n**0.5
    decay = torch.tensor([weight_decay] * d + [bias_decay], dtype=torch.float64).sqrt()
    system = torch.cat([rows, torch.diag(decay)])
    target = torch.zeros(n + d + 1, labelled.k, dtype=torch.float64)
    target[:n] = indicator(labelled) / n**0.5
    solution = torch.linalg.lstsq(system, target, driver="gelsd").solution
    return float((system @ solution - target).square().sum() / 2)


def softmax_minimum(labelled: ClassFeatures, weight_decay: float, bias_decay: float) -> float:
    r"""Minimum of VCI (5) over W and b for the cross-entropy of a softmax, by L-BFGS."""
    k, d = labelled.k, labelled.features.shape[1]
    decay = torch.tensor([weight_decay] * d + [bias_decay], dtype=torch.float64)

    def value_and_slope(entries: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        head = torch.tensor(entries).view(k, d + 1).requires_grad_()
        scores = labelled.features @ head[:, :d].mT + head[:, d]
        loss = cross_entropy(scores, labelled.labels) + (decay * head.square()).sum() / 2
        (slope,) = torch.autograd.grad(loss, head)
        return loss.item(), slope.flatten().numpy()

    options = {"maxiter": 1000, "maxcor": 20, "ftol": 0.0, "gtol": 1e-9}
    start = np.zeros(k * (d + 1))
    return float(minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options).fun)


def fuzziness_invariance(generator: torch.Generator) -> Iterator[float]:
    r"""VCI observation 4.2: maps that act separately on $V_B$ and $V_B^\perp$, and the example."""
    for labelled in [*draw_balanced(generator, 16), *draw_imbalanced(generator, 8)]:
        before = fuzziness(*measure(labelled))
        after = fuzziness(*measure(_under(labelled, _separate(labelled, generator))))
        yield float((after - before).abs() / (1 + before))
    example = example_of_shear()
    yield abs(float(fuzziness(*measure(example))) - 1)
    yield abs(float(fuzziness(*measure(_under(example, _SHEAR)))) - 2)


def distance_invariance(generator: torch.Generator) -> Iterator[float]:
    r"""VCI (4) and observation 4.3; the map of observation 4.2 takes 2 to 3."""
    for labelled in draw_balanced(generator, 20):
        means = class_means(labelled)
        inner = (labelled.features - means[labelled.labels]).square().sum()
        outer = (means - means.mean(0)).square().sum() * len(labelled.labels) / labelled.k
        scaled = -magnitude(-3, 3, generator) * _rotation(labelled, generator)
        before = nc1_quotient(measure(labelled)[0])
        after = nc1_quotient(measure(_under(labelled, scaled))[0])
        yield float((before * outer - inner).abs() / (outer + inner))
        yield float((after - before).abs() / (1 + before))
    example = example_of_shear()
    yield abs(float(nc1_quotient(measure(example)[0])) - 2)
    yield abs(float(nc1_quotient(measure(_under(example, _SHEAR))[0])) - 3)


def cosine_invariance_any_sign(generator: torch.Generator) -> Iterator[float]:
    r"""VCI observation 4.4 with factors of both signs."""
    return _cosine_invariance(generator, positive=False)


def cosine_invariance(generator: torch.Generator) -> Iterator[float]:
    r"""VCI observation 4.4 with positive factors."""
    return _cosine_invariance(generator, positive=True)


def minimum_invariance(generator: torch.Generator) -> Iterator[float]:
    r"""VCI observation 4.5 for any $\lambda_W>0,\lambda_b\ge0$, relative to $\frac12$."""
    for labelled in draw_unstructured(generator, 30):
        decays = magnitude(-2, 1, generator), choice((0.0, 0.1), generator)
        shaped = _map(labelled, generator)
        yield 2 * abs(ridge_minimum(shaped, *decays) - ridge_minimum(labelled, *decays))


def minimum_invariance_without_decay(generator: torch.Generator) -> Iterator[float]:
    r"""Check the statement for $\lambda_W=0$; for $\lambda_W>0$ under orthogonal maps."""
    for labelled in draw_unstructured(generator, 30):
        free = 0.0, choice((0.0, magnitude(-3, 1, generator)), generator)
        decays = magnitude(-3, 1, generator), free[1]
        turned = _under(labelled, _rotation(labelled, generator))
        shaped = _map(labelled, generator)
        yield 2 * abs(ridge_minimum(shaped, *free) - ridge_minimum(labelled, *free))
        yield 2 * abs(ridge_minimum(turned, *decays) - ridge_minimum(labelled, *decays))
    for _ in range(5):
        labelled = _inseparable(generator)
        decay = choice((0.0, 0.1), generator)
        shaped = _map(labelled, generator)
        yield abs(softmax_minimum(shaped, 0.0, decay) - softmax_minimum(labelled, 0.0, decay))


def _cosine_invariance(generator: torch.Generator, positive: bool) -> Iterator[float]:
    for labelled in draw_unstructured(generator, 16):
        n = len(labelled.labels)
        factors = 10 ** normal(n, 1, generator=generator)
        if not positive:
            factors *= torch.where(torch.rand(n, 1, generator=generator) < 0.5, -1, 1)
        turned = factors * labelled.features @ _rotation(labelled, generator).mT
        before = cosine_within(measure_directions(labelled))
        yield float((before - cosine_distance(labelled)).abs())
        yield float(
            (cosine_within(measure_directions(labelled.with_features(turned))) - before).abs()
        )
    axes = torch.eye(2, dtype=torch.float64)
    example = label_by_counts(torch.cat([axes, -axes]), torch.tensor([2, 2]))
    yield abs(float(cosine_within(measure_directions(example))) - 1 / 2)
    sheared = _under(example, _SHEAR)
    yield abs(float(cosine_within(measure_directions(sheared))) - (1 - 0.5**0.5) / 2)


def _under(labelled: ClassFeatures, matrix: Float[Tensor, "d d"]) -> ClassFeatures:
    """Multiply every feature by the matrix."""
    return labelled.with_features(labelled.features @ matrix.mT)


def _separate(labelled: ClassFeatures, generator: torch.Generator) -> Float[Tensor, "d d"]:
    r"""Draw a random invertible matrix that maps $V_B$ to itself and its complement to itself."""
    spread = class_means(labelled) - labelled.features.mean(0)
    basis, rank = torch.linalg.svd(spread)[2], labelled.rank
    sizes = rank, len(basis) - rank
    apart = torch.block_diag(*[draw_mixture(size, size, generator) for size in sizes])
    return basis.mT @ apart @ basis


def _map(labelled: ClassFeatures, generator: torch.Generator) -> ClassFeatures:
    """Multiply every feature by a random invertible matrix of norm 1 to 100."""
    d = labelled.features.shape[1]
    return _under(labelled, magnitude(0, 1, generator) * draw_mixture(d, d, generator))


def _rotation(labelled: ClassFeatures, generator: torch.Generator) -> Float[Tensor, "d d"]:
    d = labelled.features.shape[1]
    return torch.linalg.qr(normal(d, d, generator=generator))[0]


def _inseparable(generator: torch.Generator) -> ClassFeatures:
    """Draw classes that share features, so that cross-entropy has a finite minimiser."""
    k, d = integer(2, 3, generator), integer(1, 3, generator)
    shared = normal(8, d, generator=generator)
    separate = normal(6 * k, d, generator=generator).chunk(k)
    rows = torch.cat([part for one in separate for part in (shared, one)])
    return label_by_counts(rows, torch.full((k,), 14))


STATEMENTS = (
    Statement(
        id="vci/observation-4.2",
        statement=(
            "Fuzziness is invariant under invertible maps that act separately on V_B and its "
            "complement, and not under other maps: [[1, 1], [0, 1]] changes fuzziness from 1 to "
            "2 for Sigma_B = diag(1, 0), Sigma_W = I."
        ),
        source="VCI observation 4.2",
        tolerance=TOLERANCE,
        printed=fuzziness_invariance,
    ),
    Statement(
        id="vci/observation-4.3",
        statement=(
            "The squared distance (4) is invariant under isotropic scaling and orthogonal maps, "
            "and not under other maps: the map of observation 4.2 changes the distance from 2 to "
            "3."
        ),
        source="VCI observation 4.3",
        tolerance=TOLERANCE,
        printed=distance_invariance,
    ),
    Statement(
        id="vci/observation-4.4",
        statement=(
            "The cosine distance is invariant under orthogonal maps and independent scaling of "
            "each feature, not under other maps; corrected: the factors must be positive."
        ),
        source="VCI observation 4.4",
        tolerance=TOLERANCE,
        printed=cosine_invariance_any_sign,
        corrected=cosine_invariance,
        grade="gap",
    ),
    Statement(
        id="vci/observation-4.5",
        statement=(
            "min over W, b of the loss (5) is the same for H and V H, V invertible"
            "; corrected: if lambda_W = 0, or V is orthogonal."
        ),
        source="VCI observation 4.5 with (5)",
        tolerance=TOLERANCE,
        printed=minimum_invariance,
        corrected=minimum_invariance_without_decay,
        grade="gap",
    ),
)
