"""NC2: the class means and the classifier's rows."""

from ncscope.metrics import class_means
from ncscope.metrics.metric import Metric

_HEAD = frozenset({"head"})
_COINCIDE = "the class means coincide"
_ZERO_MEAN = "a centred class mean is zero and has no angle"
_ZERO_WEIGHT = "a row of the classifier is zero and has no angle"
_FRAME = r"\frac1{\sqrt{K-1}}(I-\frac1K\mathbf 1\mathbf 1^\top)"

ROWS = (
    Metric(
        "nc2_equinorm_means",
        "nc2",
        "equinorm, means",
        r"\operatorname{std}_c\lVert\tilde\mu_c\rVert/\operatorname{avg}_c\lVert\tilde\mu_c\rVert",
        "MSE fig. 3",
        lambda s: class_means.equinorm(s.stats.frame),
        zero="centred class means of one length",
        undefined=_COINCIDE,
    ),
    Metric(
        "nc2_equinorm_weights",
        "nc2",
        "equinorm, weights",
        r"\operatorname{std}_c\lVert w_c\rVert/\operatorname{avg}_c\lVert w_c\rVert",
        "MSE fig. 3",
        lambda s: class_means.equinorm(s.present_weight),
        _HEAD,
        zero="classifier rows of one length",
        undefined="the classifier is zero",
    ),
    Metric(
        "nc2_equiangular_means",
        "nc2",
        "equiangular, means",
        r"\operatorname{std}_{c\ne c'}\cos(\tilde\mu_c,\tilde\mu_{c'})",
        "MSE fig. 4",
        lambda s: s.mean_angles.equiangular,
        high=1.0,
        zero="centred class means at one angle",
        undefined=_ZERO_MEAN,
    ),
    Metric(
        "nc2_equiangular_weights",
        "nc2",
        "equiangular, weights",
        r"\operatorname{std}_{c\ne c'}\cos(w_c,w_{c'})",
        "MSE fig. 4",
        lambda s: s.weight_angles.equiangular,
        _HEAD,
        high=1.0,
        zero="classifier rows at one angle",
        undefined=_ZERO_WEIGHT,
    ),
    Metric(
        "nc2_maxangle_means",
        "nc2",
        "max-angle, means",
        r"\operatorname{avg}_{c\ne c'}\lvert\cos(\tilde\mu_c,\tilde\mu_{c'})+\tfrac1{K-1}\rvert",
        "MSE fig. 5",
        lambda s: s.mean_angles.maxangle,
        high=2.0,
        zero="centred class means as far apart as a simplex's",
        undefined=_ZERO_MEAN,
    ),
    Metric(
        "nc2_maxangle_weights",
        "nc2",
        "max-angle, weights",
        r"\operatorname{avg}_{c\ne c'}\lvert\cos(w_c,w_{c'})+\tfrac1{K-1}\rvert",
        "MSE fig. 5",
        lambda s: s.weight_angles.maxangle,
        _HEAD,
        high=2.0,
        zero="classifier rows as far apart as a simplex's",
        undefined=_ZERO_WEIGHT,
    ),
    Metric(
        "nc2_etf",
        "nc2",
        "distance to simplex ETF",
        r"\Bigl\lVert\frac{\tilde M^\top\tilde M}{\lVert\tilde M^\top\tilde M\rVert_F}-"
        + _FRAME
        + r"\Bigr\rVert_F",
        "PFC (8); XUFM (27)",
        lambda s: class_means.etf_distance(s.stats.frame),
        high=2**0.5,
        zero="centred class means form a simplex ETF",
        undefined=_COINCIDE,
        aliases=("pfc2",),
        also=("pfc",),
    ),
    Metric(
        "nc2_of",
        "nc2",
        "distance to orthogonal frame",
        r"\Bigl\lVert\frac{\bar M^\top\bar M}{\lVert\bar M^\top\bar M\rVert_F}-"
        r"\frac1{\sqrt K}I\Bigr\rVert_F",
        "XUFM (27)",
        lambda s: class_means.orthogonal_frame_distance(s.stats.means),
        high=2**0.5,
        zero="uncentred class means are orthogonal and of one length",
        undefined="all class means are zero",
    ),
)
