r"""Coordinates on the central path: centred, renormalised, aligned (MSE 3, D.1-D.2).

There is no weight decay, and $\Sigma_W$ has full rank, as in section 3 of the paper.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope_lab.theory.mse_instances import (
    Classes,
    best_classifier,
    draw_separated,
    loss,
    signal_to_noise,
    symmetric_power,
)
from ncscope_lab.theory.search import choice, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9


def classifier_and_bias(classes: Classes) -> tuple[Float[Tensor, "k p"], Float[Tensor, " k"]]:
    r"""(6): $W_{LS}=\frac1C\bar M^\top\Sigma_T^{-1}$ and $b_{LS}=\frac1C\mathbf 1-W_{LS}\mu_G$."""
    weight = torch.linalg.solve(classes.total, classes.centred_means).mT / classes.k
    return weight, 1 / classes.k - weight @ classes.features.mean(1)


def gram_predictions(classes: Classes, prefactor: float) -> Float[Tensor, "k m"]:
    r"""(7): $\bar M^\top(\bar H\bar H^\top)^{-1}\bar H$, times the prefactor."""
    gram = classes.centred @ classes.centred.mT
    return prefactor * torch.linalg.solve(gram, classes.centred_means).mT @ classes.centred


def gram_prefactor(classes: Classes) -> float:
    r"""N: the prefactor of (7) that (6) implies, with $\Sigma_T=\frac1{CN}\bar H\bar H^\top$."""
    return float(classes.per_class)


def classifier_of_scatters(
    means: Float[Tensor, "p k"], within: Float[Tensor, "p p"]
) -> Float[Tensor, "k p"]:
    r"""$\frac1C\bar M^\top(\frac1C\bar M\bar M^\top+\Sigma_W)^{-1}$ (section 3.2)."""
    k = means.shape[1]
    return torch.linalg.solve(means @ means.mT / k + within, means).mT / k


def renormaliser(within: Float[Tensor, "p p"]) -> Float[Tensor, "p p"]:
    r"""$\Sigma_W^{-1/2}$, which renormalises the features."""
    return symmetric_power(within, -0.5)


def fibre_map(within: Float[Tensor, "p p"]) -> Float[Tensor, "p p"]:
    r"""$A=\Sigma_W^{1/2}$, for which $\bar H=AX$ with $\Sigma_W(X)=I$."""
    return symmetric_power(within, 0.5)


def align(
    classes: Classes,
) -> tuple[Float[Tensor, "k m"], Float[Tensor, " k"], Float[Tensor, "m m"]]:
    r"""Definition 5: $X=U^\top\Sigma_W^{-1/2}\bar H(V\otimes I_N)$; $\omega_j$; $V\otimes I_N$."""
    root = renormaliser(classes.within)
    left, omega, right = torch.linalg.svd(root @ classes.centred_means, full_matrices=False)
    turn = torch.kron(right.mT.contiguous(), torch.eye(classes.per_class, dtype=torch.float64))
    return left.mT @ root @ classes.centred @ turn, omega, turn


def class_centring(k: int, per_class: int) -> Float[Tensor, "m m"]:
    r"""(21): $\frac1{CN}(I-\frac1NY^\top Y)$."""
    block = torch.ones(per_class, per_class, dtype=torch.float64) / per_class
    projector = torch.kron(torch.eye(k, dtype=torch.float64), block)
    return (torch.eye(k * per_class, dtype=torch.float64) - projector) / (k * per_class)


def snr_of_aligned(aligned_features: Float[Tensor, "k m"], k: int) -> Float[Tensor, "k k"]:
    r"""Observation 3: $\frac1NXY^\top$."""
    return aligned_features.unflatten(1, (k, -1)).mean(2)


def rotate_back(
    predictions: Float[Tensor, "k m"], turn: Float[Tensor, "m m"], per_class: int
) -> Float[Tensor, "k m"]:
    r"""$VP(V\otimes I_N)^\top$: predictions of aligned features in the classes' own coordinates."""
    right = turn[::per_class, ::per_class]
    return right @ predictions @ turn.mT


def _noisy(generator: torch.Generator, spare: int = 4) -> Iterator[Classes]:
    r"""Features whose $\Sigma_W$ has full rank, with $\bar M$ of rank C - 1, P > C - 1."""
    for ratios in signal_to_noise(generator):
        dim = len(ratios) + 1 + integer(0, spare, generator)
        yield draw_separated(ratios, dim, generator)


def least_squares_unextended(generator: torch.Generator) -> Iterator[float]:
    r"""MSE (6) against the least-squares fit, and the error of predictions on any $(h,y)$.

    Deviations are relative to the targets, and to the sum of the terms of the error.
    """
    for classes in _noisy(generator):
        weight, bias = classifier_and_bias(classes)
        formula = torch.cat([weight, bias[:, None]], 1)
        difference = (formula - best_classifier(classes)) @ classes.extended.features
        yield float(difference.norm() / classes.targets.norm())
        mean = classes.features.mean(1)
        h = mean + magnitude(-2, 2, generator) * normal(len(mean), generator=generator)
        y = normal(classes.k, generator=generator)
        terms = weight @ h, bias, y
        missed = weight @ (h - mean) - (y - 1 / classes.k)
        size = sum(float(term.norm()) for term in terms)
        yield float((terms[0] + terms[1] - terms[2] - missed).norm()) / size


def gram_form(generator: torch.Generator) -> Iterator[float]:
    r"""MSE (7) as printed: predictions are $\frac1C\bar M^\top(\bar H\bar H^\top)^{-1}\bar H$."""
    for classes in _noisy(generator):
        yield _off_predictions(classes, gram_predictions(classes, 1 / classes.k))


def gram_form_corrected(generator: torch.Generator) -> Iterator[float]:
    r"""Check (7) with N for $\frac1C$, also for $A\bar H$ with A symmetric of full rank."""
    for classes in _noisy(generator):
        yield _off_predictions(classes, gram_predictions(classes, gram_prefactor(classes)))
        matrix = _full_rank(classes.features.shape[0], generator)
        moved = Classes((matrix + matrix.mT) / 2 @ classes.centred, classes.k)
        yield _off_predictions(classes, gram_predictions(moved, gram_prefactor(moved)))


def _off_predictions(classes: Classes, predictions: Float[Tensor, "k m"]) -> float:
    """Return the relative distance from the least-squares fit minus the targets' mean."""
    fitted = best_classifier(classes) @ classes.extended.features - 1 / classes.k
    return float((predictions - fitted).norm() / fitted.norm())


def _full_rank(size: int, generator: torch.Generator) -> Float[Tensor, "p p"]:
    """Draw a matrix, not symmetric, with singular values within a factor of about 10."""
    skew = normal(size, size, generator=generator)
    signs = torch.tensor([choice((-1.0, 1.0), generator) for _ in range(size)]).double()
    return torch.diag(3 * signs) + (skew - skew.mT) / size + 0.2 * skew / size**0.5


def linear_maps(generator: torch.Generator) -> Iterator[float]:
    r"""MSE 3.1, D.1: $W_{LS}(A\bar H)A\bar H=W_{LS}(\bar H)\bar H$ for every invertible A.

    The loss is compared as well, by summation over the samples. Deviations are relative.
    """
    for classes in _noisy(generator):
        linear = _full_rank(classes.features.shape[0], generator)
        moved = Classes(linear @ classes.centred, classes.k)
        weight, _ = classifier_and_bias(moved)
        yield _off_predictions(classes, weight @ moved.centred)
        before, after = (loss(case, best_classifier(case)) for case in (classes, moved))
        yield float((after - before).abs() / before)


def renormalisation(generator: torch.Generator) -> Iterator[float]:
    r"""MSE 3.1-3.2: $W_{LS}$ by $\Sigma_W$; covariance and means of $X=\Sigma_W^{-1/2}\bar H$."""
    for classes in _noisy(generator):
        weight = classifier_of_scatters(classes.centred_means, classes.within)
        yield _off_predictions(classes, weight @ classes.centred)
        root = renormaliser(classes.within)
        sphered = Classes(root @ classes.centred, classes.k)
        identity = torch.eye(len(root), dtype=torch.float64)
        yield float((sphered.within - identity).norm() / identity.norm())
        snr = root @ classes.centred_means
        yield float((sphered.centred_means - snr).norm() / snr.norm())


def fibre_as_printed(generator: torch.Generator) -> Iterator[float]:
    r"""MSE D.1 as printed: with $A=\Sigma_W^{-1/2}$, $\bar H=AX$ has $\Sigma_W(X)=I$."""
    for classes in _noisy(generator):
        yield _off_sphere(classes, renormaliser(classes.within))


def fibre_as_corrected(generator: torch.Generator) -> Iterator[float]:
    r"""Check the statement of `fibre_as_printed` with $A=\Sigma_W^{1/2}$."""
    for classes in _noisy(generator):
        yield _off_sphere(classes, fibre_map(classes.within))


def _off_sphere(classes: Classes, matrix: Float[Tensor, "p p"]) -> float:
    within = Classes(torch.linalg.solve(matrix, classes.centred), classes.k).within
    identity = torch.eye(len(within), dtype=torch.float64)
    return float((within - identity).norm() / identity.norm())


def predictions_as_printed(generator: torch.Generator) -> Iterator[float]:
    """MSE D.2 after definition 5, as printed: aligned features have the same predictions."""
    for classes in _noisy(generator):
        features, _, _ = align(classes)
        yield _off_predictions(classes, _fit(features, classes.k))


def predictions_as_corrected(generator: torch.Generator) -> Iterator[float]:
    r"""Check predictions $V^\top P(V\otimes I_N)$, and the loss with targets rotated likewise."""
    for classes in _noisy(generator):
        features, _, turn = align(classes)
        predictions = rotate_back(_fit(features, classes.k), turn, classes.per_class)
        yield _off_predictions(classes, predictions)
        right = turn[:: classes.per_class, :: classes.per_class]
        targets = right.mT @ (classes.targets - 1 / classes.k) @ turn
        missed = _fit(features, classes.k) - targets
        whole = loss(classes, best_classifier(classes))
        yield float((missed.square().sum(0).mean() / 2 - whole).abs() / whole)


def _fit(features: Float[Tensor, "k m"], k: int) -> Float[Tensor, "k m"]:
    r"""$\frac1C\Omega^\top(\frac1{CN}XX^\top)^{-1}X$."""
    total = features @ features.mT / features.shape[1]
    return torch.linalg.solve(total, snr_of_aligned(features, k)).mT @ features / k


def sphericity(generator: torch.Generator) -> Iterator[float]:
    r"""MSE observation 2: $XCX^\top=I_C$."""
    for classes in _noisy(generator):
        features, _, _ = align(classes)
        centring = class_centring(classes.k, classes.per_class)
        identity = torch.eye(classes.k, dtype=torch.float64)
        yield float((features @ centring @ features.mT - identity).norm() / identity.norm())


def snr_when_aligned(generator: torch.Generator) -> Iterator[float]:
    r"""MSE observations 1 and 3: $\frac1NXY^\top=\operatorname{diag}(\omega_1..\omega_{C-1},0)$."""
    for classes in _noisy(generator):
        features, omega, _ = align(classes)
        expected = torch.diag(torch.cat([omega[:-1], omega.new_zeros(1)]))
        computed = snr_of_aligned(features, classes.k)
        yield float((computed - expected).norm() / expected.norm())


STATEMENTS = (
    Statement(
        id="mse/equation-6",
        statement=(
            "Without decay W_LS = M^T S_T^-1 / C of centred means and b_LS = 1/C - W_LS m_G, so "
            "W_LS h + b_LS - y = W_LS (h - m_G) - (y - 1/C) for every (h, y)."
        ),
        source="MSE (6) and assumption (A2)",
        tolerance=TOLERANCE,
        printed=least_squares_unextended,
    ),
    Statement(
        id="mse/equation-7",
        statement=(
            "W_LS H = M^T (H H^T)^-1 H / C on the central path, also with A H for H if A is "
            "symmetric of full rank; corrected: the factor is N instead of 1/C."
        ),
        source="MSE (7)",
        tolerance=TOLERANCE,
        printed=gram_form,
        corrected=gram_form_corrected,
        grade="slip",
    ),
    Statement(
        id="mse/invariance",
        statement=(
            "On the central path without decay A H has the same predictions and the same loss as "
            "H for every invertible A."
        ),
        source="MSE 3.1 and D.1",
        tolerance=TOLERANCE,
        printed=linear_maps,
    ),
    Statement(
        id="mse/equation-8",
        statement=(
            "W_LS = M^T (M M^T / C + S_W)^-1 / C, and X = S_W^-1/2 H has within-class covariance I "
            "and class means SNR = S_W^-1/2 M."
        ),
        source="MSE 3.1-3.2, (8)",
        tolerance=TOLERANCE,
        printed=renormalisation,
        kind="definition",
    ),
    Statement(
        id="mse/appendix-d.1",
        statement=("H = A X with A = S_W(H)^-1/2 and S_W(X) = I; corrected: with A = S_W(H)^1/2."),
        source="MSE D.1",
        tolerance=TOLERANCE,
        printed=fibre_as_printed,
        corrected=fibre_as_corrected,
        grade="slip",
    ),
    Statement(
        id="mse/definition-5",
        statement=(
            "Aligned features X = U^T S_W^-1/2 H (V x I_N) have the least-squares predictions P "
            "of H; corrected: their predictions are V^T P (V x I_N), and their loss equals the "
            "loss of H if the targets minus 1/C are transformed in the same way."
        ),
        source="MSE D.2, after definition 5",
        tolerance=TOLERANCE,
        printed=predictions_as_printed,
        corrected=predictions_as_corrected,
        grade="false",
    ),
    Statement(
        id="mse/observation-2",
        statement="Aligned features X have X C X^T = I with C = (I - Y^T Y / N) / (CN).",
        source="MSE observation 2",
        tolerance=TOLERANCE,
        printed=sphericity,
        kind="definition",
    ),
    Statement(
        id="mse/observation-3",
        statement="Aligned features X have X Y^T / N = diag(w_1, .., w_(C-1), 0).",
        source="MSE observations 1 and 3",
        tolerance=TOLERANCE,
        printed=snr_when_aligned,
        kind="definition",
    ),
)
