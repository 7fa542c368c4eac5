"""Matrix information between features and classifier."""

import math

from ncscope.metrics.information import DatasetInformation, collapse_mir
from ncscope.metrics.metric import MOST_FOR_PAIRS, Metric
from ncscope.metrics.sources import Sources

_HEAD = frozenset({"head"})
_INFORMATION_AND_HEAD = frozenset({"information", "head"})
_ZERO_ROW = "a feature is the zero vector and has no direction"
_NO_ENTROPY = "an entropy is 0, as for two collapsed classes, or a vector is zero"


def _log_directions(k: int) -> float:
    """Return the entropy of the K - 1 equal directions of a simplex."""
    return math.log(k - 1)


def _collapsed_information(k: int) -> float:
    """Return the mutual information of a simplex and the classifier aligned with it."""
    return collapse_mir(k) * math.log(k - 1) if k > 2 else 0.0


ROWS = (
    Metric(
        key="mir",
        group="information",
        title="matrix mutual information ratio",
        meaning=(
            "Information that features and classifier rows share, relative to the smaller of "
            "their entropies."
        ),
        formula=(
            r"\frac{H(K_1)+H(K_2)-H(K_1\odot K_2)}{\min\{H(K_1),H(K_2)\}},\;"
            r"K_1=G([h(x_i)]),\,K_2=G([w_{y_i}])"
        ),
        source="INFO section 3, corollary 4.3",
        compute=lambda s: _information(s).raw.mir,
        needs=_INFORMATION_AND_HEAD,
        high=1.0,
        zero="features tell nothing about the heads of their classes",
        better="high",
        at_collapse=collapse_mir,
        undefined=_NO_ENTROPY,
    ),
    Metric(
        key="hdr",
        group="information",
        title="matrix entropy difference ratio",
        meaning=(
            "Difference between the entropies of features and classifier rows, relative to the "
            "larger."
        ),
        formula=r"\frac{|H(K_1)-H(K_2)|}{\max\{H(K_1),H(K_2)\}}",
        source="INFO section 3, corollary 4.3",
        compute=lambda s: _information(s).raw.hdr,
        needs=_INFORMATION_AND_HEAD,
        high=1.0,
        zero="features spread over as many directions as their heads",
        undefined=_NO_ENTROPY,
    ),
    Metric(
        key="mir_centered",
        group="information",
        title="MIR, centred features",
        meaning="MIR of the features minus their mean, as the theory at collapse assumes.",
        formula=r"\operatorname{MIR}\text{ with }K_1=G([h(x_i)-\mu_G])",
        source="INFO corollary 4.3, whose premise is centred features",
        compute=lambda s: _information(s).centred.mir,
        needs=_INFORMATION_AND_HEAD,
        high=1.0,
        zero="centred features tell nothing about the heads of their classes",
        better="high",
        at_collapse=collapse_mir,
        undefined=_NO_ENTROPY,
    ),
    Metric(
        key="hdr_centered",
        group="information",
        title="HDR, centred features",
        meaning="HDR of the features minus their mean.",
        formula=r"\operatorname{HDR}\text{ with }K_1=G([h(x_i)-\mu_G])",
        source="INFO corollary 4.3, whose premise is centred features",
        compute=lambda s: _information(s).centred.hdr,
        needs=_INFORMATION_AND_HEAD,
        high=1.0,
        zero="centred features spread over as many directions as their heads",
        undefined=_NO_ENTROPY,
    ),
    Metric(
        key="mir_means",
        group="information",
        title="MIR, class means",
        meaning="MIR of the centred class means instead of the samples.",
        formula=r"\operatorname{MIR}\text{ of }G(\tilde M)\text{ and }G(W^\top)",
        source="INFO theorem 4.2",
        compute=lambda s: s.means_entropies.mir,
        most_classes=MOST_FOR_PAIRS,
        needs=_HEAD,
        high=1.0,
        zero="the class means tell nothing about the classifier",
        better="high",
        at_collapse=collapse_mir,
        undefined=_NO_ENTROPY,
    ),
    Metric(
        key="hdr_means",
        group="information",
        title="HDR, class means",
        meaning="HDR of the centred class means instead of the samples.",
        formula=r"\operatorname{HDR}\text{ of }G(\tilde M)\text{ and }G(W^\top)",
        source="INFO theorem 4.2",
        compute=lambda s: s.means_entropies.hdr,
        most_classes=MOST_FOR_PAIRS,
        needs=_HEAD,
        high=1.0,
        zero="class means spread over as many directions as the classifier",
        undefined=_NO_ENTROPY,
    ),
    Metric(
        key="entropy_features",
        group="information",
        title="entropy of features",
        meaning=(
            "Matrix entropy of the features' directions: the log of how many directions they fill."
        ),
        formula=r"H(G([h(x_i)]))",
        source="INFO section 3",
        compute=lambda s: _information(s).raw.first,
        needs=_INFORMATION_AND_HEAD,
        zero="all features share one direction",
        undefined=_ZERO_ROW,
        at_collapse=_log_directions,
        two_sided=True,
    ),
    Metric(
        key="entropy_weights",
        group="information",
        title="entropy of heads",
        meaning="Matrix entropy of the classifier's rows, each as often as its class occurs.",
        formula=r"H(G([w_{y_i}]))",
        source="INFO section 3",
        compute=lambda s: _information(s).raw.second,
        needs=_INFORMATION_AND_HEAD,
        zero="all heads share one direction",
        undefined="a head is the zero vector and has no direction",
        at_collapse=_log_directions,
        two_sided=True,
    ),
    Metric(
        key="mutual_information",
        group="information",
        title="matrix mutual information",
        meaning="Matrix mutual information of features and classifier rows, in nats.",
        formula=r"H(K_1)+H(K_2)-H(K_1\odot K_2)",
        source="INFO section 3",
        compute=lambda s: _information(s).raw.mutual_information,
        needs=_INFORMATION_AND_HEAD,
        zero="features tell nothing about the heads of their classes",
        better="high",
        undefined=_ZERO_ROW,
        at_collapse=_collapsed_information,
        two_sided=True,
    ),
    Metric(
        key="effective_rank",
        group="information",
        title="effective rank of directions",
        meaning=(
            "Number of directions that the features fill: the exponential of their matrix entropy."
        ),
        formula=r"e^{H(G([h(x_i)]))}",
        source="Roy, Vetterli 2007; INFO section 3",
        compute=lambda s: math.exp(_information(s).raw.first),
        needs=_INFORMATION_AND_HEAD,
        low=1.0,
        undefined=_ZERO_ROW,
        at_collapse=lambda k: k - 1,
        two_sided=True,
    ),
)


def _information(sources: Sources) -> DatasetInformation:
    assert sources.information is not None
    return sources.information
