"""The MSE loss, its least-squares classifier and its parts (MSE section 2, appendices B and C)."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.mse import MseParts, mse_parts
from ncscope_lab.theory.mse_instances import (
    Classes,
    any_classes,
    best_classifier,
    draw_separated,
    loss,
    signal_to_noise,
)
from ncscope_lab.theory.search import Instance, choice, climb, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9


def normal_matrix(extended: Classes, decay: float) -> Float[Tensor, "e e"]:
    r"""$\tilde\Sigma_T+\tilde\mu_G\tilde\mu_G^\top+\lambda I$."""
    mean = extended.features.mean(1, keepdim=True)
    eye = torch.eye(len(mean), dtype=torch.float64)
    return extended.total + mean @ mean.mT + decay * eye


def least_squares_classifier(extended: Classes, decay: float) -> Float[Tensor, "k e"]:
    r"""Proposition 1: $\frac1C\tilde M^\top$ times the inverse of the normal matrix."""
    return torch.linalg.solve(normal_matrix(extended, decay), extended.means).mT / extended.k


def off_path(
    extended: Classes, difference: Float[Tensor, "k e"], decay: float
) -> Float[Tensor, ""]:
    r"""Theorem 1's $\mathcal L_{LS}^\perp$ of $\tilde W-\tilde W_{LS}$."""
    return ((difference @ normal_matrix(extended, decay)) * difference).sum() / 2


def convexity_bound(difference: Float[Tensor, "k e"], decay: float) -> Float[Tensor, ""]:
    r"""$\frac\lambda2\lVert\tilde W-\tilde W_{LS}\rVert_F^2$, least loss off the central path."""
    return decay / 2 * difference.square().sum()


def variability_part(
    extended: Classes, best: Float[Tensor, "k e"], decay: float
) -> Float[Tensor, ""]:
    r"""Theorem 2's $\mathcal L_{NC1}$."""
    return (((best @ extended.within) * best).sum() + decay * best.square().sum()) / 2


def means_part(extended: Classes, best: Float[Tensor, "k e"]) -> Float[Tensor, ""]:
    r"""Theorem 2's $\mathcal L_{NC2/3}$."""
    missed = best @ extended.means - torch.eye(extended.k, dtype=torch.float64)
    return missed.square().sum() / (2 * extended.k)


def project_parts(classes: Classes, classifier: Float[Tensor, "k e"], decay: float) -> MseParts:
    """Decompose the loss as the package does."""
    stats = classes.statistics()
    weight, bias = classifier[:, :-1], classifier[:, -1]
    return mse_parts(stats, discriminants(stats), weight, bias, decay)


def least_squares(generator: torch.Generator) -> Iterator[float]:
    r"""MSE proposition 1 against a minimiser found without normal equations.

    The distance is measured in the norm $(2\mathcal L_{LS}^\perp)^{1/2}$ of predictions and decayed
    weights, in which the targets have length 1.
    """
    for classes, decay in any_classes(generator):
        formula = least_squares_classifier(classes.extended, decay)
        difference = formula - best_classifier(classes, decay)
        predictions = (difference @ classes.extended.features).square().sum(0).mean()
        yield float((predictions + decay * difference.square().sum()).sqrt())


def loss_split(generator: torch.Generator) -> Iterator[float]:
    """MSE theorem 1, by the paper's and by the package's formula, relative to the loss."""
    for classes, decay in any_classes(generator):
        best = best_classifier(classes, decay)
        classifier = _near(best, generator)
        whole, rest = loss(classes, classifier, decay), loss(classes, best, decay)
        off = off_path(classes.extended, classifier - best, decay)
        yield float((rest + off - whole).abs() / whole)
    for classes, decay in _draw_with_decay(generator):
        best = best_classifier(classes, decay)
        classifier = _near(best, generator)
        whole, rest = loss(classes, classifier, decay), loss(classes, best, decay)
        divided = project_parts(classes, classifier, decay)
        yield float((divided.loss - whole).abs() / whole)
        yield float((divided.off_path + rest - whole).abs() / whole)


def _draw_with_decay(generator: torch.Generator) -> Iterator[tuple[Classes, float]]:
    r"""Yield classes of moderate condition number, with and without weight decay."""
    for ratios in signal_to_noise(generator):
        classes = draw_separated(ratios, len(ratios) + integer(0, 4, generator), generator)
        size = float(classes.extended.features.square().mean())
        yield classes, choice((0.0, magnitude(-2, 1, generator) * size), generator)


def _near(best: Float[Tensor, "k e"], generator: torch.Generator) -> Float[Tensor, "k e"]:
    noise = normal(*best.shape, generator=generator)
    return best + magnitude(-3, 1, generator) * best.square().mean().sqrt() * noise


def off_path_is_definite(generator: torch.Generator) -> Iterator[float]:
    r"""MSE footnote 7 with $\lambda>0$.

    $\mathcal L_{LS}^\perp\ge\frac\lambda2\lVert\tilde W-\tilde W_{LS}\rVert_F^2$, relative to the
    right side, with a search over $\tilde W$. The left side is a difference of losses, sample by
    sample. Equality holds if the difference of classifiers is orthogonal to all features, which is
    possible if the features do not span the space.
    """
    for classes, _ in any_classes(generator):
        inputs = classes.extended.features
        decay = magnitude(-1, 1, generator) * float(inputs.square().mean())
        best = best_classifier(classes, decay)
        reached = loss(classes, best, decay)

        def violation(
            instance: Instance,
            classes: Classes = classes,
            best: Tensor = best,
            decay: float = decay,
            reached: Tensor = reached,
        ) -> float:
            least = convexity_bound(instance[0], decay)
            return float(1 - (loss(classes, best + instance[0], decay) - reached) / least)

        difference = normal(classes.k, len(inputs), generator=generator) / decay**0.5
        yield from climb(violation, (difference,), generator, steps=10)
        # Small steps both ways: they show a slope, which a classifier other than the best has.
        for size in (-1e-2, 1e-2):
            yield max(violation((size * difference,)), 0.0)
        unseen = difference - difference @ inputs @ torch.linalg.pinv(inputs)
        if unseen.norm() > 1e-3 * difference.norm():
            yield max(violation((unseen,)), 0.0)


def least_squares_split(generator: torch.Generator) -> Iterator[float]:
    """MSE theorem 2, by the paper's and the package's formulas, relative to the loss of W_LS."""
    for classes, decay in any_classes(generator):
        extended, best = classes.extended, best_classifier(classes, decay)
        parts = variability_part(extended, best, decay) + means_part(extended, best)
        whole = loss(classes, best, decay)
        yield float((parts - whole).abs() / whole)
    for classes, decay in _draw_with_decay(generator):
        extended, best = classes.extended, best_classifier(classes, decay)
        divided = project_parts(classes, best, decay)
        whole = loss(classes, best, decay)
        yield float((divided.nc1 - variability_part(extended, best, decay)).abs() / whole)
        yield float((divided.nc23 - means_part(extended, best)).abs() / whole)


def split_unextended(generator: torch.Generator) -> Iterator[float]:
    r"""MSE (16)-(18), relative to each part."""
    for ratios in signal_to_noise(generator):
        classes = draw_separated(ratios, len(ratios) + integer(0, 4, generator), generator)
        best = best_classifier(classes)
        variability, means = parts_unextended(classes)
        yield _apart(variability, variability_part(classes.extended, best, 0.0))
        yield _apart(means, means_part(classes.extended, best))


def _apart(formula: Float[Tensor, ""], value: Float[Tensor, ""]) -> float:
    return float((formula - value).abs() / value)


def parts_unextended(classes: Classes) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    r"""(17) and (18): the parts without bias and decay, with the simplex $\Phi$ instead of $I$."""
    weight = torch.linalg.solve(classes.total, classes.centred_means).mT / classes.k
    simplex = torch.eye(classes.k, dtype=torch.float64) - 1 / classes.k
    missed = weight @ classes.centred_means - simplex
    variability = ((weight @ classes.within) * weight).sum() / 2
    return variability, missed.square().sum() / (2 * classes.k)


STATEMENTS = (
    Statement(
        id="mse/proposition-1",
        statement=(
            "W_LS = M^T (S_T + m_G m_G^T + lambda I)^-1 / C, of extended features, minimises the "
            "MSE loss with weight decay lambda."
        ),
        source="MSE proposition 1",
        tolerance=TOLERANCE,
        printed=least_squares,
    ),
    Statement(
        id="mse/theorem-1",
        statement=(
            "L = L_LS + tr[(W - W_LS) (S_T + m_G m_G^T + lambda I) (W - W_LS)^T] / 2, with L_LS "
            "the loss of W_LS."
        ),
        source="MSE theorem 1",
        tolerance=TOLERANCE,
        printed=loss_split,
    ),
    Statement(
        id="mse/footnote-7",
        statement="The part of the loss off the central path is >= 0, and 0 only at W = W_LS.",
        source="MSE section 2, footnote 7",
        tolerance=TOLERANCE,
        printed=off_path_is_definite,
    ),
    Statement(
        id="mse/theorem-2",
        statement=(
            "L_LS = L_NC1 + L_NC2/3, with L_NC1 = tr[W_LS (S_W + lambda I) W_LS^T] / 2 and "
            "L_NC2/3 = ||W_LS M - I||^2 / (2C)."
        ),
        source="MSE theorem 2",
        tolerance=TOLERANCE,
        printed=least_squares_split,
    ),
    Statement(
        id="mse/equation-18",
        statement=(
            "Without decay L_NC1 = tr(W_LS S_W W_LS^T) / 2 and L_NC2/3 = ||W_LS M - Phi||^2 / (2C) "
            "of centred means, W_LS = M^T S_T^-1 / C, Phi = I - 11^T / C."
        ),
        source="MSE C.1, (16)-(18)",
        tolerance=TOLERANCE,
        printed=split_unextended,
    ),
)
