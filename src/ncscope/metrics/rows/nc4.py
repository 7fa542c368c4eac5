"""NC4: decisions."""

from ncscope.metrics import agreement
from ncscope.metrics.metric import Metric
from ncscope.metrics.sources import Sources
from ncscope.stats.decisions import DecisionCounts

_NEAREST = frozenset({"decisions"})
_DECIDED = frozenset({"decisions", "head"})

ROWS = (
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
