r"""Generalised NC2: how evenly the directions of the class means fill the sphere.

For $K>d+1$ classes there is no simplex, and even directions are what can be expected. The energies
are means over the $K(K-1)/2$ pairs of directions $\hat\mu_c=\tilde\mu_c/\lVert\tilde\mu_c\rVert$.
For every K and d the simplex's value bounds the logarithmic and the Riesz energy from below and the
mean distance from above, by the inequality of Jensen and
$\sum_{c\ne c'}\langle\hat\mu_c,\hat\mu_{c'}\rangle\ge-K$.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.pairs import recompute_close_, sum_over_pairs
from ncscope.math.powers import rescale_rows
from ncscope.metrics.metric import MOST_FOR_ENERGIES, metric

_ENERGY = "Liu et al. 2023; Wu and Papyan 2024"
_PAIR = r"\lVert\hat\mu_c-\hat\mu_{c'}\rVert"
_ZERO_MEAN = "a centred class mean is zero and has no direction"
_SAME = "two centred class means have the same direction"
_SPREAD_UNDEFINED = f"{_ZERO_MEAN}, or {_SAME}"

_CLOSE = 2e-4  # squared distance below which 2 - 2 cos has lost digits
_SAME_DIRECTION = (32 * 2.0**-52) ** 2  # squared distance that rounding explains


@dataclass(frozen=True)
class Uniformity:
    r"""Means over pairs of the class means' directions, at distance r.

    Attributes:
        log: Mean of $\log r^{-1}$; infinite if two directions coincide.
        log_std: Population standard deviation of $\log r^{-1}$.
        riesz: Mean of $r^{-1}$; infinite if two directions coincide.
        riesz_cv: Population standard deviation of $r^{-1}$ over its mean.
        distance: Mean of $r$.
        distance_cv: Population standard deviation of $r$ over its mean.
    """

    log: Float[Tensor, ""]
    log_std: Float[Tensor, ""]
    riesz: Float[Tensor, ""]
    riesz_cv: Float[Tensor, ""]
    distance: Float[Tensor, ""]
    distance_cv: Float[Tensor, ""]


def simplex_log(k: int) -> float:
    """Return the logarithmic energy of a simplex of k directions, the smallest there is."""
    return -math.log(2 * k / (k - 1)) / 2


def simplex_distance(k: int) -> float:
    r"""Return the distance of any two of the k directions of a simplex, $\sqrt{2K/(K-1)}$."""
    return (2 * k / (k - 1)) ** 0.5


@metric(
    key="gnc2_log",
    group="nc2",
    meaning=(
        "Average logarithm of the inverse distance between the directions of two centred "
        "class means: low if the directions are spread evenly."
    ),
    formula=rf"\operatorname{{avg}}_{{c\ne c'}}\log{_PAIR}^{{-1}}",
    source=_ENERGY,
    result="uniformity.log",
    low=simplex_log(2),
    zero="directions of class means at a typical distance of 1, an angle of 60 degrees",
    at_collapse=simplex_log,
    for_two_classes=simplex_log(2),
    undefined=_ZERO_MEAN,
    infinite=_SAME,
    most_classes=MOST_FOR_ENERGIES,
)
@metric(
    key="gnc2_log_std",
    group="nc2",
    meaning=(
        "Spread, over pairs of classes, of the logarithm of the distance between the "
        "directions of centred class means."
    ),
    formula=rf"\operatorname{{std}}_{{c\ne c'}}\log{_PAIR}^{{-1}}",
    source=_ENERGY,
    result="uniformity.log_std",
    zero="directions of class means at one distance, as in a simplex",
    for_two_classes=0.0,
    undefined=_SPREAD_UNDEFINED,
    most_classes=MOST_FOR_ENERGIES,
)
@metric(
    key="gnc2_riesz",
    group="nc2",
    meaning=(
        "Average inverse distance between the directions of two centred class means: low if "
        "the directions are spread evenly."
    ),
    formula=rf"\operatorname{{avg}}_{{c\ne c'}}{_PAIR}^{{-1}}",
    source=f"{_ENERGY}, with the exponent 1",
    result="uniformity.riesz",
    low=0.5,
    at_collapse=lambda k: 1 / simplex_distance(k),
    for_two_classes=0.5,
    undefined=_ZERO_MEAN,
    infinite=_SAME,
    most_classes=MOST_FOR_ENERGIES,
)
@metric(
    key="gnc2_riesz_cv",
    group="nc2",
    meaning=(
        "Relative spread, over pairs of classes, of the inverse distance between the "
        "directions of centred class means."
    ),
    formula=(
        rf"\operatorname{{std}}_{{c\ne c'}}{_PAIR}^{{-1}}/"
        rf"\operatorname{{avg}}_{{c\ne c'}}{_PAIR}^{{-1}}"
    ),
    source=f"{_ENERGY}, with the exponent 1",
    result="uniformity.riesz_cv",
    zero="directions of class means at one distance, as in a simplex",
    for_two_classes=0.0,
    undefined=_SPREAD_UNDEFINED,
    most_classes=MOST_FOR_ENERGIES,
)
@metric(
    key="gnc2_distance",
    group="nc2",
    meaning="Average distance between the directions of two centred class means.",
    formula=rf"\operatorname{{avg}}_{{c\ne c'}}{_PAIR}",
    source=_ENERGY,
    result="uniformity.distance",
    high=2.0,
    zero="all centred class means have one direction, which cannot be",
    better="high",
    at_collapse=simplex_distance,
    for_two_classes=2.0,
    undefined=_ZERO_MEAN,
    most_classes=MOST_FOR_ENERGIES,
)
@metric(
    key="gnc2_distance_cv",
    group="nc2",
    meaning=(
        "Relative spread, over pairs of classes, of the distance between the directions of "
        "centred class means."
    ),
    formula=(rf"\operatorname{{std}}_{{c\ne c'}}{_PAIR}/\operatorname{{avg}}_{{c\ne c'}}{_PAIR}"),
    source=_ENERGY,
    result="uniformity.distance_cv",
    zero="directions of class means at one distance, as in a simplex",
    for_two_classes=0.0,
    undefined=_ZERO_MEAN,
    most_classes=MOST_FOR_ENERGIES,
)
def uniformity(frame: Float[Tensor, "k d"]) -> Uniformity:
    r"""Compute logarithmic energy, Riesz energy and mean distance of $\hat\mu_c$, in one pass.

    Every pair's deviation from the simplex's distance $\sqrt{2K/(K-1)}$ is summed, with its square:
    the deviations are small where the spreads are, so that nothing cancels near collapse.

    Args:
        frame: Class means centred by their unweighted mean.

    Invariant under rotation, scaling and shift of the class means. Cost: $K^2d$ operations, in
    tiles.
    """
    k = len(frame)
    moderate, length = rescale_rows(frame)
    # The lengths are divided out of the products, not of the rows: these products of the frame are
    # shared with other metrics.
    inverse = 1 / length
    widest = 2 * k / (k - 1)

    def term(gram: Tensor, rows: slice, cols: slice) -> Tensor:
        squared = gram.mul_(inverse[rows, None]).mul_(inverse[cols]).mul_(-2).add_(2)
        first, second = (moderate[part] * inverse[part, None] for part in (rows, cols))
        recompute_close_(squared, _CLOSE, first, second)
        squared.masked_fill_(squared <= _SAME_DIRECTION, 0.0)
        ratio = squared.div_(widest).sqrt_()  # r over the simplex's
        terms = ratio.new_empty(6, *ratio.shape)  # filled in place: a tile stays in the cache
        torch.log(ratio, out=terms[0]).neg_()
        torch.reciprocal(ratio, out=terms[2]).sub_(1)
        torch.sub(ratio, 1, out=terms[4])
        for i in (0, 2, 4):
            torch.square(terms[i], out=terms[i + 1])
        return terms

    sums = sum_over_pairs(moderate, term) * 2 / (k * (k - 1))
    mean, square = sums[0::2], sums[1::2]
    log_std, inverse_std, distance_std = (square - mean.square()).clamp(min=0).sqrt()
    log, inverse, distance = mean[0].clamp(min=0), mean[1].clamp(min=0), mean[2].clamp(max=0)
    return Uniformity(
        log=log + simplex_log(k),
        log_std=log_std,
        riesz=(1 + inverse) * widest**-0.5,
        riesz_cv=inverse_std / (1 + inverse),
        distance=(1 + distance) * widest**0.5,
        distance_cv=distance_std / (1 + distance),
    )
