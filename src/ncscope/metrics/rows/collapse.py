"""Table rows of NC1 to NC4."""

from ncscope.metrics import agreement, class_means, duality, variability
from ncscope.metrics.metric import MOST_FOR_PAIRS, Metric
from ncscope.metrics.sources import Sources
from ncscope.stats.decisions import DecisionCounts, Hits

_SCATTER = frozenset({"scatter"})
_DIRECTIONS = frozenset({"directions"})
_COINCIDE = "the class means coincide"
_ZERO_ROW = "a feature is the zero vector and has no direction"
_BEYOND = "the value is beyond the range of float64"
_ON_MEAN = "every feature sits on its class mean"

NC1_ROWS = (
    Metric(
        key="nc1",
        group="nc1",
        title="NC1: fuzziness / K",
        meaning=(
            "Variation within classes, measured along the directions in which the class means "
            "differ, and averaged over classes."
        ),
        formula=r"\frac1K\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]",
        source="MSE fig. 7; XUFM (26)",
        compute=lambda s: variability.nc1(s.stats, s.discriminants),
        needs=_SCATTER,
        zero="no variation along the between-class directions",
        log_scale=True,
        undefined=_COINCIDE,
    ),
    Metric(
        key="fuzziness",
        group="nc1",
        title="fuzziness",
        meaning=(
            "Variation within classes along the directions in which the class means differ, "
            "each direction in units of the means' spread."
        ),
        formula=r"\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]",
        source="VCI section 3.2",
        compute=lambda s: variability.fuzziness(s.stats, s.discriminants),
        needs=_SCATTER,
        zero="no variation along the between-class directions",
        log_scale=True,
        undefined=_COINCIDE,
    ),
    Metric(
        key="nc1_quotient",
        group="nc1",
        title="within / between variance",
        meaning=(
            "Variance of the features around their class means, divided by the variance of the "
            "class means."
        ),
        formula=r"\operatorname{Tr}\Sigma_W/\operatorname{Tr}\Sigma_B",
        source="PFC (7); VCI (4)",
        compute=lambda s: variability.nc1_quotient(s.stats),
        zero=_ON_MEAN,
        log_scale=True,
        undefined=_COINCIDE,
        aliases=("pfc1",),
        also=("pfc",),
    ),
    Metric(
        key="vci",
        group="nc1",
        title="variability collapse index",
        meaning=(
            "Share of the class means' spread that a linear probe loses to variation within "
            "classes."
        ),
        formula=r"1-\operatorname{Tr}[\Sigma_T^\dagger\Sigma_B]/\min(d,K-1)",
        source="VCI definition 5.3",
        compute=lambda s: variability.vci(s.stats, s.discriminants),
        undefined="the features do not vary",
        needs=_SCATTER,
        high=1.0,
        zero="a linear probe loses nothing to variability",
        log_scale=True,
    ),
    Metric(
        key="linear_probe_mse",
        group="nc1",
        title="linear-probe MSE",
        meaning=(
            "Smallest squared error with which a linear map of the features predicts one-hot "
            "labels."
        ),
        formula=r"\min_{W,b}\frac12\sum_c\frac{\pi_c}{n_c}\sum_{y_i=c}\lVert Wh_i+b-e_c\rVert^2",
        source="VCI theorem 5.1, extended to any prior",
        compute=lambda s: variability.linear_probe_mse(s.stats, s.discriminants),
        needs=_SCATTER,
        high=0.5,
        zero="one-hot labels are a linear function of the features",
        log_scale=True,
    ),
    Metric(
        key="cosine_within",
        group="nc1",
        title="cosine distance within classes",
        meaning="Average cosine distance of two samples of one class.",
        formula=r"\sum_c\pi_c\bigl(1-\lVert\tfrac1{n_c}\sum_{y_i=c}\hat h_i\rVert^2\bigr)",
        source="VCI section 3.2",
        compute=lambda s: variability.cosine_within(s.stats),
        needs=_DIRECTIONS,
        high=1.0,
        zero="one direction a class",
        log_scale=True,
        undefined=_ZERO_ROW,
    ),
    Metric(
        key="class_separation",
        group="nc1",
        title="class separation",
        meaning="One minus the ratio of cosine distances: within classes to over all pairs.",
        formula=r"1-\bar d_{within}/\bar d_{total}",
        source="VCI section 3.2",
        compute=lambda s: variability.class_separation(s.stats),
        needs=_DIRECTIONS,
        high=1.0,
        zero="directions do not tell the classes apart",
        better="high",
        undefined=_ZERO_ROW + ", or all directions coincide",
    ),
    Metric(
        key="within_in_signal",
        group="nc1",
        title="within variance in signal space",
        meaning="Variance within classes inside the space that the class means span.",
        formula=r"\operatorname{Tr}[P\Sigma_W]",
        source="VCI fig. 1",
        compute=lambda s: variability.within_in_signal(s.stats, s.discriminants),
        needs=_SCATTER,
        zero="no variation along the between-class directions",
        log_scale=True,
        undefined=_BEYOND,
        degree=2,
    ),
    Metric(
        key="within_off_signal",
        group="nc1",
        title="within variance off signal space",
        meaning="Variance within classes outside the space that the class means span.",
        formula=r"\operatorname{Tr}[(I-P)\Sigma_W]",
        source="VCI fig. 1",
        compute=lambda s: variability.within_off_signal(s.stats, s.discriminants),
        needs=_SCATTER,
        zero="no variation outside the between-class directions",
        log_scale=True,
        undefined=_BEYOND,
        degree=2,
    ),
    Metric(
        key="cdnv",
        group="nc1",
        title="class-distance normalised variance",
        meaning=(
            "Variance of two classes divided by the squared distance of their means, averaged "
            "over all pairs."
        ),
        formula=(
            r"\operatorname{avg}_{c\ne c'}\frac{\operatorname{Tr}\Sigma_c+"
            r"\operatorname{Tr}\Sigma_{c'}}{2\lVert\mu_c-\mu_{c'}\rVert^2}"
        ),
        source="Galanti, Gyorgy, Hutter 2021",
        compute=lambda s: variability.cdnv(s.stats),
        most_classes=MOST_FOR_PAIRS,
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
        key="nc2_equinorm_means",
        group="nc2",
        title="equinorm, means",
        meaning="Relative spread of the lengths of the centred class means.",
        formula=(
            r"\operatorname{std}_c\lVert\tilde\mu_c\rVert/\operatorname{avg}_c\lVert\tilde\mu_c\rVert"
        ),
        source="MSE fig. 3",
        compute=lambda s: class_means.equinorm(s.stats.frame),
        zero="centred class means of one length",
        undefined=_COINCIDE,
    ),
    Metric(
        key="nc2_equinorm_weights",
        group="nc2",
        title="equinorm, weights",
        meaning="Relative spread of the lengths of the classifier's rows.",
        formula=r"\operatorname{std}_c\lVert w_c\rVert/\operatorname{avg}_c\lVert w_c\rVert",
        source="MSE fig. 3",
        compute=lambda s: class_means.equinorm(s.present_weight),
        needs=_HEAD,
        zero="classifier rows of one length",
        undefined="the classifier is zero",
    ),
    Metric(
        key="nc2_equiangular_means",
        group="nc2",
        title="equiangular, means",
        meaning="Spread of the cosines between centred class means.",
        formula=r"\operatorname{std}_{c\ne c'}\cos(\tilde\mu_c,\tilde\mu_{c'})",
        source="MSE fig. 4",
        compute=lambda s: class_means.equiangular(s.stats.frame),
        high=1.0,
        zero="centred class means at one angle",
        undefined=_ZERO_MEAN,
    ),
    Metric(
        key="nc2_equiangular_weights",
        group="nc2",
        title="equiangular, weights",
        meaning="Spread of the cosines between the classifier's rows.",
        formula=r"\operatorname{std}_{c\ne c'}\cos(w_c,w_{c'})",
        source="MSE fig. 4",
        compute=lambda s: class_means.equiangular(s.present_weight),
        needs=_HEAD,
        high=1.0,
        zero="classifier rows at one angle",
        undefined=_ZERO_WEIGHT,
    ),
    Metric(
        key="nc2_maxangle_means",
        group="nc2",
        title="max-angle, means",
        meaning=(
            "Average distance of the cosines between centred class means from -1/(K-1), the "
            "widest possible."
        ),
        formula=(
            r"\operatorname{avg}_{c\ne c'}\lvert\cos(\tilde\mu_c,\tilde\mu_{c'})+\tfrac1{K-1}\rvert"
        ),
        source="MSE fig. 5",
        compute=lambda s: class_means.maxangle(s.stats.frame),
        most_classes=MOST_FOR_PAIRS,
        high=2.0,
        zero="centred class means as far apart as a simplex's",
        undefined=_ZERO_MEAN,
    ),
    Metric(
        key="nc2_maxangle_weights",
        group="nc2",
        title="max-angle, weights",
        meaning=(
            "Average distance of the cosines between the classifier's rows from -1/(K-1), the "
            "widest possible."
        ),
        formula=r"\operatorname{avg}_{c\ne c'}\lvert\cos(w_c,w_{c'})+\tfrac1{K-1}\rvert",
        source="MSE fig. 5",
        compute=lambda s: class_means.maxangle(s.present_weight),
        most_classes=MOST_FOR_PAIRS,
        needs=_HEAD,
        high=2.0,
        zero="classifier rows as far apart as a simplex's",
        undefined=_ZERO_WEIGHT,
    ),
    Metric(
        key="nc2_etf",
        group="nc2",
        title="distance to simplex ETF",
        meaning="Distance of the class means' normalised Gram matrix from that of a simplex.",
        formula=(
            r"\Bigl\lVert\frac{\tilde M^\top\tilde M}{\lVert\tilde M^\top\tilde M\rVert_F}-"
            + _FRAME
            + r"\Bigr\rVert_F"
        ),
        source="PFC (8); XUFM (27)",
        compute=lambda s: class_means.etf_distance(s.stats.frame),
        high=2**0.5,
        zero="centred class means form a simplex ETF",
        undefined=_COINCIDE,
        aliases=("pfc2",),
        also=("pfc",),
    ),
    Metric(
        key="nc2_of",
        group="nc2",
        title="distance to orthogonal frame",
        meaning=(
            "Distance of the class means' normalised Gram matrix from that of an orthogonal frame."
        ),
        formula=(
            r"\Bigl\lVert\frac{\bar M^\top\bar M}{\lVert\bar M^\top\bar M\rVert_F}-"
            r"\frac1{\sqrt K}I\Bigr\rVert_F"
        ),
        source="XUFM (27)",
        compute=lambda s: class_means.orthogonal_frame_distance(s.stats.means),
        high=2**0.5,
        zero="uncentred class means are orthogonal and of one length",
        undefined="all class means are zero",
        at_collapse=lambda k: (2 - 2 * (1 - 1 / k) ** 0.5) ** 0.5,
        two_sided=True,
    ),
)


_ZERO_HEAD = "the classifier or all class means are zero"

NC3_ROWS = (
    Metric(
        key="nc3_self_duality",
        group="nc3",
        title="self-duality",
        meaning=(
            "Squared distance between the normalised classifier and the normalised centred "
            "class means."
        ),
        formula=(
            r"\Bigl\lVert\frac{W^\top}{\lVert W\rVert_F}-\frac{\tilde M}{\lVert\tilde M\rVert_F}"
            r"\Bigr\rVert_F^2"
        ),
        source="MSE fig. 6",
        compute=lambda s: duality.self_duality(s.present_weight, s.stats.frame),
        needs=_HEAD,
        high=4.0,
        zero="the classifier is the centred class means, up to scale",
        undefined=_ZERO_HEAD,
    ),
    Metric(
        key="nc3_alignment",
        group="nc3",
        title="alignment with uncentred means",
        meaning=(
            "Distance between the normalised classifier and the normalised class means, which are "
            "not centred."
        ),
        formula=(
            r"\Bigl\lVert\frac{W^\top}{\lVert W\rVert_F}-\frac{\bar M}{\lVert\bar M\rVert_F}"
            r"\Bigr\rVert_F"
        ),
        source="XUFM (28)",
        compute=lambda s: duality.alignment(s.present_weight, s.stats.means),
        needs=_HEAD,
        high=2.0,
        zero="the classifier is the uncentred class means, up to scale",
        undefined=_ZERO_HEAD,
    ),
    Metric(
        key="nc3_etf",
        group="nc3",
        title="logits of means to simplex ETF",
        meaning=(
            "Distance of the normalised products of classifier rows and centred class means from a "
            "simplex's."
        ),
        formula=(
            r"\Bigl\lVert\frac{W\tilde M}{\lVert W\tilde M\rVert_F}-" + _FRAME + r"\Bigr\rVert_F"
        ),
        source="Zhu et al. 2021; for classes of any sizes Thrampoulidis et al. 2022",
        compute=lambda s: duality.logit_etf_distance(s.present_weight, s.stats.frame),
        needs=_HEAD,
        high=2.0,
        zero="logits of the centred class means form a simplex ETF",
        undefined=_ZERO_HEAD,
        aliases=("seli_logits",),
    ),
)


_NEAREST = frozenset({"decisions"})
_DECIDED = frozenset({"decisions", "head"})
_HITS = frozenset({"hits", "head"})

NC4_ROWS = (
    Metric(
        key="nc4_disagreement",
        group="nc4",
        title="classifier against nearest mean",
        meaning=(
            "Share of the samples for which the classifier and the nearest class mean choose "
            "different classes."
        ),
        formula=(
            r"\operatorname{share}\{\arg\max_c\langle w_c,h\rangle+b_c\ne"
            r"\arg\min_c\lVert h-\mu_c\rVert\}"
        ),
        source="MSE fig. 8",
        compute=lambda s: agreement.disagreement(_counts(s)),
        needs=_DECIDED,
        high=1.0,
        zero="the classifier is the nearest-class-mean rule",
    ),
    Metric(
        key="ncc_accuracy",
        group="nc4",
        title="nearest-class-mean accuracy",
        meaning="Share of the samples whose nearest class mean is that of their class.",
        formula=r"\operatorname{share}\{\arg\min_c\lVert h-\mu_c\rVert=y\}",
        source="PFC (9)",
        compute=lambda s: agreement.ncc_accuracy(_counts(s)),
        needs=_NEAREST,
        high=1.0,
        zero="no sample is nearest to its own class mean",
        better="high",
        aliases=("pfc3",),
        also=("pfc",),
    ),
    Metric(
        key="accuracy",
        group="nc4",
        title="accuracy",
        meaning="Share of the samples that the classifier assigns to their class.",
        formula=r"\operatorname{share}\{\arg\max_c\langle w_c,h\rangle+b_c=y\}",
        source="",
        compute=lambda s: agreement.accuracy(_hits(s)),
        needs=_HITS,
        high=1.0,
        zero="every sample is misclassified",
        better="high",
    ),
)


def _counts(sources: Sources) -> DecisionCounts:
    assert sources.decisions is not None
    return sources.decisions


def _hits(sources: Sources) -> Hits:
    assert sources.hits is not None
    return sources.hits
