"""Table rows of NC1 to NC4."""

from ncscope.metrics import agreement, class_means, duality, variability
from ncscope.metrics.metric import Metric
from ncscope.metrics.sources import Sources
from ncscope.stats.decisions import DecisionCounts

_SCATTER = frozenset({"scatter"})
_DIRECTIONS = frozenset({"directions"})
_COINCIDE = "the class means coincide"
_ZERO_ROW = "a feature is the zero vector and has no direction"
_BEYOND = "the value is beyond the range of float64"
_ON_MEAN = "every feature sits on its class mean"

NC1_ROWS = (
    Metric(
        "nc1",
        "nc1",
        "NC1: fuzziness / K",
        r"\frac1K\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]",
        "MSE fig. 7; XUFM (26)",
        lambda s: variability.nc1(s.stats, s.discriminants),
        _SCATTER,
        zero="no variation along the between-class directions",
        log_scale=True,
        undefined=_COINCIDE,
    ),
    Metric(
        "fuzziness",
        "nc1",
        "fuzziness",
        r"\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]",
        "VCI section 3.2",
        lambda s: variability.fuzziness(s.stats, s.discriminants),
        _SCATTER,
        zero="no variation along the between-class directions",
        log_scale=True,
        undefined=_COINCIDE,
    ),
    Metric(
        "nc1_quotient",
        "nc1",
        "within / between variance",
        r"\operatorname{Tr}\Sigma_W/\operatorname{Tr}\Sigma_B",
        "PFC (7); VCI (4)",
        lambda s: variability.nc1_quotient(s.stats),
        zero=_ON_MEAN,
        log_scale=True,
        undefined=_COINCIDE,
        aliases=("pfc1",),
        also=("pfc",),
    ),
    Metric(
        "vci",
        "nc1",
        "variability collapse index",
        r"1-\operatorname{Tr}[\Sigma_T^\dagger\Sigma_B]/\min(d,K-1)",
        "VCI definition 5.3",
        lambda s: variability.vci(s.stats, s.discriminants),
        _SCATTER,
        high=1.0,
        zero="a linear probe loses nothing to variability",
        log_scale=True,
    ),
    Metric(
        "linear_probe_mse",
        "nc1",
        "linear-probe MSE",
        r"\min_{W,b}\frac12\sum_c\frac{\pi_c}{n_c}\sum_{y_i=c}\lVert Wh_i+b-e_c\rVert^2",
        "VCI theorem 5.1, extended to any prior",
        lambda s: variability.linear_probe_mse(s.stats, s.discriminants),
        _SCATTER,
        high=0.5,
        zero="one-hot labels are a linear function of the features",
        log_scale=True,
    ),
    Metric(
        "cosine_within",
        "nc1",
        "cosine distance within classes",
        r"\sum_c\pi_c\bigl(1-\lVert\tfrac1{n_c}\sum_{y_i=c}\hat h_i\rVert^2\bigr)",
        "VCI section 3.2",
        lambda s: variability.cosine_within(s.stats),
        _DIRECTIONS,
        high=1.0,
        zero="one direction a class",
        log_scale=True,
        undefined=_ZERO_ROW,
    ),
    Metric(
        "class_separation",
        "nc1",
        "class separation",
        r"1-\bar d_{within}/\bar d_{total}",
        "VCI section 3.2",
        lambda s: variability.class_separation(s.stats),
        _DIRECTIONS,
        high=1.0,
        zero="directions do not tell the classes apart",
        better="high",
        undefined=_ZERO_ROW + ", or all directions coincide",
    ),
    Metric(
        "within_in_signal",
        "nc1",
        "within variance in signal space",
        r"\operatorname{Tr}[P\Sigma_W]",
        "VCI fig. 1",
        lambda s: variability.within_in_signal(s.stats, s.discriminants),
        _SCATTER,
        zero="no variation along the between-class directions",
        log_scale=True,
        undefined=_BEYOND,
        degree=2,
    ),
    Metric(
        "within_off_signal",
        "nc1",
        "within variance off signal space",
        r"\operatorname{Tr}[(I-P)\Sigma_W]",
        "VCI fig. 1",
        lambda s: variability.within_off_signal(s.stats, s.discriminants),
        _SCATTER,
        zero="no variation outside the between-class directions",
        log_scale=True,
        undefined=_BEYOND,
        degree=2,
    ),
    Metric(
        "cdnv",
        "nc1",
        "class-distance normalised variance",
        r"\operatorname{avg}_{c\ne c'}\frac{\operatorname{Tr}\Sigma_c+"
        r"\operatorname{Tr}\Sigma_{c'}}{2\lVert\mu_c-\mu_{c'}\rVert^2}",
        "Galanti, Gyorgy, Hutter 2021",
        lambda s: variability.cdnv(s.stats),
        zero=_ON_MEAN,
        log_scale=True,
        undefined="two class means coincide",
    ),
)


_HEAD = frozenset({"head"})
_ZERO_MEAN = "a centred class mean is zero and has no angle"
_ZERO_WEIGHT = "a row of the classifier is zero and has no angle"
_FRAME = r"\frac1{\sqrt{K-1}}(I-\frac1K\mathbf 1\mathbf 1^\top)"

NC2_ROWS = (
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


_ZERO_HEAD = "the classifier or all class means are zero"

NC3_ROWS = (
    Metric(
        "nc3_self_duality",
        "nc3",
        "self-duality",
        r"\Bigl\lVert\frac{W^\top}{\lVert W\rVert_F}-\frac{\tilde M}{\lVert\tilde M\rVert_F}"
        r"\Bigr\rVert_F^2",
        "MSE fig. 6",
        lambda s: duality.self_duality(s.present_weight, s.stats.frame),
        _HEAD,
        high=4.0,
        zero="the classifier is the centred class means, up to scale",
        undefined=_ZERO_HEAD,
    ),
    Metric(
        "nc3_alignment",
        "nc3",
        "alignment with uncentred means",
        r"\Bigl\lVert\frac{W^\top}{\lVert W\rVert_F}-\frac{\bar M}{\lVert\bar M\rVert_F}"
        r"\Bigr\rVert_F",
        "XUFM (28)",
        lambda s: duality.alignment(s.present_weight, s.stats.means),
        _HEAD,
        high=2.0,
        zero="the classifier is the uncentred class means, up to scale",
        undefined=_ZERO_HEAD,
    ),
    Metric(
        "nc3_etf",
        "nc3",
        "logits of means to simplex ETF",
        r"\Bigl\lVert\frac{W\tilde M}{\lVert W\tilde M\rVert_F}-" + _FRAME + r"\Bigr\rVert_F",
        "Zhu et al. 2021",
        lambda s: duality.logit_etf_distance(s.present_weight, s.stats.frame),
        _HEAD,
        high=2.0,
        zero="logits of the centred class means form a simplex ETF",
        undefined=_ZERO_HEAD,
    ),
)


_NEAREST = frozenset({"decisions"})
_DECIDED = frozenset({"decisions", "head"})

NC4_ROWS = (
    Metric(
        "nc4_disagreement",
        "nc4",
        "classifier against nearest mean",
        r"\operatorname{share}\{\arg\max_c\langle w_c,h\rangle+b_c\ne"
        r"\arg\min_c\lVert h-\mu_c\rVert\}",
        "MSE fig. 8",
        lambda s: agreement.disagreement(_counts(s)),
        _DECIDED,
        high=1.0,
        zero="the classifier is the nearest-class-mean rule",
    ),
    Metric(
        "ncc_accuracy",
        "nc4",
        "nearest-class-mean accuracy",
        r"\operatorname{share}\{\arg\min_c\lVert h-\mu_c\rVert=y\}",
        "PFC (9)",
        lambda s: agreement.ncc_accuracy(_counts(s)),
        _NEAREST,
        high=1.0,
        zero="no sample is nearest to its own class mean",
        better="high",
        aliases=("pfc3",),
        also=("pfc",),
    ),
    Metric(
        "accuracy",
        "nc4",
        "accuracy",
        r"\operatorname{share}\{\arg\max_c\langle w_c,h\rangle+b_c=y\}",
        "",
        lambda s: agreement.accuracy(_counts(s)),
        _DECIDED,
        high=1.0,
        zero="every sample is misclassified",
        better="high",
    ),
)


def _counts(sources: Sources) -> DecisionCounts:
    assert sources.decisions is not None
    return sources.decisions
