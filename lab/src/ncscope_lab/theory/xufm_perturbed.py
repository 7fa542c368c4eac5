"""Fixed perturbed features, and variability seen through a layer (XUFM section 5, D, F)."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.frames import orthogonal_frame
from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.perturbed import attenuation
from ncscope_lab.theory.search import integer, magnitude, normal
from ncscope_lab.theory.statement import Statement
from ncscope_lab.theory.xufm_extended import draw_model_at_load, linear_minimiser

TOLERANCE = 1e-9
_STARTS = 8


def attenuation_of_extended(num_classes: int, length: float, noise: float) -> float:
    r"""$(1+\sigma^2K/\lVert h\rVert^2)^{-1}$ for features of a given length."""
    return 1 / (1 + noise**2 * num_classes / length**2)


def attenuation_limit(generator: torch.Generator) -> Iterator[float]:
    r"""Theorem 5.1, with noise that has the limit's moments, and with many independent samples."""
    for _ in range(_STARTS):
        k, d = integer(2, 5, generator), integer(5, 8, generator)
        decay, feature_decay = magnitude(-4, -1, generator), magnitude(-4, -1.5, generator)
        noise = magnitude(-2, 1, generator)
        load = k * math.sqrt(decay * feature_decay)
        frame = orthogonal_frame(k, d, generator)
        means = math.sqrt((1 - load) * math.sqrt(decay / feature_decay)) * frame.mT
        expected = (
            attenuation(k, decay, feature_decay, noise)
            * math.sqrt(feature_decay / decay)
            * means.mT
        )
        solution = _ridge(means, noise * _ideal_noise(k, d, 2 * d, generator), decay)
        yield float((solution - expected).norm() / expected.norm())
        solution = _ridge(means, noise * _heavy_noise(d, k * 4000, generator), decay)
        size = (noise**2 + means.norm() * noise) * d / math.sqrt(4000)
        bound = 10 * size / (noise**2 + decay)
        yield max(float((solution - expected).norm() / expected.norm() - bound), 0.0)


def attenuation_limit_of_extended(generator: torch.Generator) -> Iterator[float]:
    r"""Appendix F.1: the gradient of (92) at the scaled minimiser, with the limit's moments.

    The problem is convex in $W_2W_1$ and the two factors are balanced, so a point with gradient
    zero is a minimum.
    """
    for _ in range(_STARTS):
        model = draw_model_at_load(generator, 1 - magnitude(-3, -0.01, generator), "linear")
        k, n = model.num_classes, 3 * model.dim
        last, first, features = linear_minimiser(model, generator)
        means = features[:, :: model.per_class]
        length = float(means[:, 0].norm())
        noise = magnitude(-1, 0.5, generator) * length
        share = math.sqrt(attenuation_of_extended(k, length, noise))
        moved = means.repeat_interleave(n, 1) + noise * _ideal_noise(k, model.dim, n, generator)
        fixed = ExtendedUFM(k, model.dim, n, model.decays[:2], model.decays[2])
        slopes = fixed.gradient((share * last, share * first, moved))[:2]
        for slope, part, decay in zip(slopes, (last, first), model.decays, strict=False):
            yield float(slope.norm() / (decay * part.norm()))


def nc1_through_a_layer(generator: torch.Generator) -> Iterator[float]:
    r"""Appendix D: $NC1(W_1H_1)=NC1(H_1)$ at a random start."""
    for _ in range(_STARTS):
        k, n, d = integer(2, 5, generator), integer(2, 6, generator), integer(5, 10, generator)
        features = normal(d, k * n, generator=generator)
        before, after = nc1(features, k), nc1(normal(d, d, generator=generator) @ features, k)
        yield float((after - before).abs() / before)


def shares_through_a_layer(generator: torch.Generator) -> Iterator[float]:
    """Check that the share is invariant under every layer that is injective on the features."""
    for _ in range(_STARTS):
        k, n, d = integer(2, 5, generator), integer(2, 6, generator), integer(5, 10, generator)
        weight = normal(d + integer(0, 2, generator), d, generator=generator)
        means = normal(d, k, generator=generator)
        features = normal(d, k * n, generator=generator)
        before, after = (between_share(part, k) for part in (features, weight @ features))
        yield float((after - before).abs() / before)
        centred = means - means.mean(1, keepdim=True)
        within = centred @ normal(k, k * n, generator=generator)
        spread = within - within.unflatten(1, (k, n)).mean(2).repeat_interleave(n, 1)
        spanned = means.repeat_interleave(n, 1) + spread
        before, after = (nc1(part, k) for part in (spanned, weight @ spanned))
        yield float((after - before).abs() / before)


def _ideal_noise(k: int, d: int, n: int, generator: torch.Generator) -> Float[Tensor, "d kn"]:
    """Draw noise with the limit's second moments: orthogonal rows, mean zero in every class."""
    each = [normal(n, d, generator=generator) for _ in range(k)]
    rows = [torch.linalg.qr(part - part.mean(0))[0].mT for part in each]
    return math.sqrt(n) * torch.cat(rows, dim=1)


def _heavy_noise(d: int, count: int, generator: torch.Generator) -> Float[Tensor, "d n"]:
    """Draw independent entries of variance 1, each the product of two normal numbers."""
    return normal(d, count, generator=generator) * normal(d, count, generator=generator)


def _ridge(
    means: Float[Tensor, "d k"], noise: Float[Tensor, "d n"], decay: float
) -> Float[Tensor, "k d"]:
    """Compute XUFM (82) at the means with noise, ordered by class."""
    d, k = means.shape
    count = noise.shape[1]
    features = means.repeat_interleave(count // k, 1) + noise
    targets = torch.eye(k, dtype=torch.float64).repeat_interleave(count // k, 1)
    gram = features @ features.mT / count + decay * torch.eye(d, dtype=torch.float64)
    return torch.linalg.solve(gram, targets @ features.mT / count, left=False)


def nc1(features: Float[Tensor, "d n"], num_classes: int) -> Float[Tensor, ""]:
    r"""$\frac1K\operatorname{tr}(\Sigma_W\Sigma_B^\dagger)$, XUFM (26)."""
    means, within = _scatter(features, num_classes)
    return (torch.linalg.pinv(means, rtol=1e-9) @ within).square().sum() / features.shape[1]


def between_share(features: Float[Tensor, "d n"], num_classes: int) -> Float[Tensor, ""]:
    r"""$\operatorname{tr}(\Sigma_T^\dagger\Sigma_B)$, the part of VCI that features determine."""
    means, _ = _scatter(features, num_classes)
    centred = features - features.mean(1, keepdim=True)
    share = (torch.linalg.pinv(centred, rtol=1e-9) @ means).square().sum()
    return share * features.shape[1] / num_classes


def _scatter(features: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    grouped = features.unflatten(1, (num_classes, -1))
    means = grouped.mean(2)
    return means - means.mean(1, keepdim=True), (grouped - means[:, :, None]).flatten(1)


STATEMENTS: tuple[Statement, ...] = (
    Statement(
        id="xufm/theorem-5.1",
        statement=(
            "With features fixed at H* + E, E independent of variance sigma^2, and lambda_H = "
            "lambda/n, the best W tends to W* / (1 + sigma^2 K sqrt(lambda / lambda_W))."
        ),
        source="XUFM theorem 5.1, (25), as restored from its proof",
        tolerance=TOLERANCE,
        printed=attenuation_limit,
    ),
    Statement(
        id="xufm/remark-f.1",
        statement=(
            "With features fixed at H1* + E in (23) the minimiser tends to a multiple of the "
            "minimiser without E: W2 W1 tends to W2* W1* / (1 + sigma^2 K / ||h*||^2), h* a "
            "column of H1*."
        ),
        source="XUFM appendix F.1",
        tolerance=TOLERANCE,
        printed=attenuation_limit_of_extended,
    ),
    Statement(
        id="xufm/appendix-d",
        statement=(
            "NC1(W1 H1) = NC1(H1) at a random start; corrected: where the range of Sigma_W is in "
            "the range of Sigma_B; for all features on which W1 is "
            "injective, tr(Sigma_T^+ Sigma_B) is the same before and after W1."
        ),
        source="XUFM appendix D",
        tolerance=TOLERANCE,
        printed=nc1_through_a_layer,
        corrected=shares_through_a_layer,
        grade="false",
    ),
)
