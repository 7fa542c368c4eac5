"""NC3: alignment of classifier and class means."""

from ncscope.metrics import duality
from ncscope.metrics.metric import Metric

_HEAD = frozenset({"head"})
_ZERO_HEAD = "the classifier or all class means are zero"
_FRAME = r"\frac1{\sqrt{K-1}}(I-\frac1K\mathbf 1\mathbf 1^\top)"

ROWS = (
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
