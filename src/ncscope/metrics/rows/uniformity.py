"""Table rows beside the five papers' NC2 and NC3: even directions, lengths, NC0 and UNC3."""

from jaxtyping import Float
from torch import Tensor

from ncscope.metrics import class_means, duality
from ncscope.metrics.metric import MOST_FOR_ENERGIES, Metric
from ncscope.metrics.sources import Sources
from ncscope.metrics.uniformity import simplex_log

_HEAD = frozenset({"head"})
_ZERO_MEAN = "a centred class mean is zero and has no direction"
_SAME = "two centred class means have the same direction"
_SPREAD_UNDEFINED = f"{_ZERO_MEAN}, or {_SAME}"
_ENERGY = "Liu et al. 2023; Wu and Papyan 2024"
_ZERO_ROW = "a centred class mean or a row of the classifier is zero and has no direction"
_PAIR = r"\lVert\hat\mu_c-\hat\mu_{c'}\rVert"


def _widest(k: int) -> float:
    """Return the distance of two unit vectors of a simplex."""
    return (2 * k / (k - 1)) ** 0.5


NC2_ROWS = (
    Metric(
        key="nc2_lognorm_std_means",
        group="nc2",
        title="log-norm spread, means",
        meaning="Spread of the logarithms of the lengths of the centred class means.",
        formula=r"\operatorname{std}_c\log\lVert\tilde\mu_c\rVert",
        source="Wu and Papyan 2024",
        compute=lambda s: class_means.lognorm_spread(s.stats.frame),
        zero="centred class means of one length",
        undefined="a centred class mean is zero",
    ),
    Metric(
        key="nc2_lognorm_std_weights",
        group="nc2",
        title="log-norm spread, weights",
        meaning="Spread of the logarithms of the lengths of the classifier's rows.",
        formula=r"\operatorname{std}_c\log\lVert w_c\rVert",
        source="Wu and Papyan 2024",
        compute=lambda s: class_means.lognorm_spread(s.present_weight),
        needs=_HEAD,
        zero="classifier rows of one length",
        undefined="a row of the classifier is zero",
    ),
    Metric(
        key="gnc2_log",
        group="nc2",
        title="logarithmic energy of mean directions",
        meaning=(
            "Average logarithm of the inverse distance between the directions of two centred "
            "class means: low if the directions are spread evenly."
        ),
        formula=rf"\operatorname{{avg}}_{{c\ne c'}}\log{_PAIR}^{{-1}}",
        source=_ENERGY,
        compute=lambda s: s.uniformity.log,
        low=simplex_log(2),
        zero="directions of class means at a typical distance of 1, an angle of 60 degrees",
        at_collapse=simplex_log,
        undefined=_ZERO_MEAN,
        infinite=_SAME,
        most_classes=MOST_FOR_ENERGIES,
    ),
    Metric(
        key="gnc2_log_std",
        group="nc2",
        title="spread of the logarithmic energy",
        meaning=(
            "Spread, over pairs of classes, of the logarithm of the distance between the "
            "directions of centred class means."
        ),
        formula=rf"\operatorname{{std}}_{{c\ne c'}}\log{_PAIR}^{{-1}}",
        source=_ENERGY,
        compute=lambda s: s.uniformity.log_std,
        zero="directions of class means at one distance, as in a simplex",
        undefined=_SPREAD_UNDEFINED,
        most_classes=MOST_FOR_ENERGIES,
    ),
    Metric(
        key="gnc2_riesz",
        group="nc2",
        title="Riesz energy of mean directions",
        meaning=(
            "Average inverse distance between the directions of two centred class means: low if "
            "the directions are spread evenly."
        ),
        formula=rf"\operatorname{{avg}}_{{c\ne c'}}{_PAIR}^{{-1}}",
        source=f"{_ENERGY}, with the exponent 1",
        compute=lambda s: s.uniformity.riesz,
        low=0.5,
        at_collapse=lambda k: 1 / _widest(k),
        undefined=_ZERO_MEAN,
        infinite=_SAME,
        most_classes=MOST_FOR_ENERGIES,
    ),
    Metric(
        key="gnc2_riesz_cv",
        group="nc2",
        title="relative spread of the Riesz energy",
        meaning=(
            "Relative spread, over pairs of classes, of the inverse distance between the "
            "directions of centred class means."
        ),
        formula=(
            rf"\operatorname{{std}}_{{c\ne c'}}{_PAIR}^{{-1}}/"
            rf"\operatorname{{avg}}_{{c\ne c'}}{_PAIR}^{{-1}}"
        ),
        source=f"{_ENERGY}, with the exponent 1",
        compute=lambda s: s.uniformity.riesz_cv,
        zero="directions of class means at one distance, as in a simplex",
        undefined=_SPREAD_UNDEFINED,
        most_classes=MOST_FOR_ENERGIES,
    ),
    Metric(
        key="gnc2_distance",
        group="nc2",
        title="distance of mean directions",
        meaning="Average distance between the directions of two centred class means.",
        formula=rf"\operatorname{{avg}}_{{c\ne c'}}{_PAIR}",
        source=_ENERGY,
        compute=lambda s: s.uniformity.distance,
        high=2.0,
        zero="all centred class means have one direction, which cannot be",
        better="high",
        at_collapse=_widest,
        undefined=_ZERO_MEAN,
        most_classes=MOST_FOR_ENERGIES,
    ),
    Metric(
        key="gnc2_distance_cv",
        group="nc2",
        title="relative spread of the distance",
        meaning=(
            "Relative spread, over pairs of classes, of the distance between the directions of "
            "centred class means."
        ),
        formula=(
            rf"\operatorname{{std}}_{{c\ne c'}}{_PAIR}/\operatorname{{avg}}_{{c\ne c'}}{_PAIR}"
        ),
        source=_ENERGY,
        compute=lambda s: s.uniformity.distance_cv,
        zero="directions of class means at one distance, as in a simplex",
        undefined=_ZERO_MEAN,
        most_classes=MOST_FOR_ENERGIES,
    ),
)

NC3_ROWS = (
    Metric(
        key="nc0",
        group="nc3",
        title="NC0: sum of the classifier's rows",
        meaning=(
            "Length of the sum of the classifier's rows, as a share of the longest that rows of "
            "these lengths can have. All rows count, also of classes without samples."
        ),
        formula=r"\lVert W^\top\mathbf 1\rVert/(\sqrt K\lVert W\rVert_F)",
        source="Zhao et al. 2026, scaled to the classifier's norm",
        compute=lambda s: duality.row_sum(_all_rows(s)),
        needs=_HEAD,
        high=1.0,
        zero="the classifier's rows sum to zero, as a simplex's do",
        undefined="the classifier is zero",
    ),
    Metric(
        key="nc0_norm",
        group="nc3",
        title="NC0, not scaled",
        meaning="Length of the sum of the classifier's rows, in the unit of the classifier.",
        formula=r"\lVert W^\top\mathbf 1\rVert",
        source="Zhao et al. 2026",
        compute=lambda s: duality.row_sum_norm(_all_rows(s), s.weight_exponent),
        needs=_HEAD,
        zero="the classifier's rows sum to zero, as a simplex's do",
        undefined="the value is beyond the range of float64",
    ),
    Metric(
        key="unc3",
        group="nc3",
        title="uniform duality",
        meaning=(
            "Variance over the classes of the cosine between a classifier row and its centred "
            "class mean."
        ),
        formula=r"\operatorname{var}_c\cos(w_c,\tilde\mu_c)",
        source="Wu and Papyan 2024",
        compute=lambda s: s.row_cosines.variance,
        needs=_HEAD,
        high=1.0,
        zero="every classifier row is at the same angle to its class mean",
        log_scale=True,
        undefined=_ZERO_ROW,
    ),
    Metric(
        key="unc3_mean",
        group="nc3",
        title="cosine of classifier rows with means",
        meaning="Average cosine between a classifier row and its centred class mean.",
        formula=r"\operatorname{avg}_c\cos(w_c,\tilde\mu_c)",
        source="Wu and Papyan 2024",
        compute=lambda s: s.row_cosines.mean,
        needs=_HEAD,
        low=-1.0,
        high=1.0,
        zero="classifier rows are on average orthogonal to their class means",
        better="high",
        undefined=_ZERO_ROW,
    ),
)


def _all_rows(sources: Sources) -> Float[Tensor, "heads d"]:
    assert sources.weight is not None
    return sources.weight
