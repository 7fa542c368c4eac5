"""Matrix information between features and classifier."""

import math

from ncscope.metrics.information import DatasetInformation, collapse_mir
from ncscope.metrics.metric import Metric
from ncscope.metrics.sources import Sources

_HEAD = frozenset({"head"})
_INFORMATION_AND_HEAD = frozenset({"information", "head"})
_ZERO_ROW = "a feature is the zero vector and has no direction"
_NO_ENTROPY = "an entropy is 0, as for two collapsed classes, or a vector is zero"

ROWS = (
    Metric(
        "mir",
        "information",
        "matrix mutual information ratio",
        r"\frac{H(K_1)+H(K_2)-H(K_1\odot K_2)}{\min\{H(K_1),H(K_2)\}},\;"
        r"K_1=G([h(x_i)]),\,K_2=G([w_{y_i}])",
        "INFO section 3, corollary 4.3",
        lambda s: _information(s).raw.mir,
        _INFORMATION_AND_HEAD,
        high=1.0,
        zero="features tell nothing about the heads of their classes",
        better="high",
        at_collapse=collapse_mir,
        undefined=_NO_ENTROPY,
    ),
    Metric(
        "hdr",
        "information",
        "matrix entropy difference ratio",
        r"\frac{|H(K_1)-H(K_2)|}{\max\{H(K_1),H(K_2)\}}",
        "INFO section 3, corollary 4.3",
        lambda s: _information(s).raw.hdr,
        _INFORMATION_AND_HEAD,
        high=1.0,
        zero="features spread over as many directions as their heads",
        undefined=_NO_ENTROPY,
    ),
    Metric(
        "mir_centered",
        "information",
        "MIR, centred features",
        r"\operatorname{MIR}\text{ with }K_1=G([h(x_i)-\mu_G])",
        "INFO corollary 4.3, whose premise is centred features",
        lambda s: _information(s).centred.mir,
        _INFORMATION_AND_HEAD,
        high=1.0,
        zero="centred features tell nothing about the heads of their classes",
        better="high",
        at_collapse=collapse_mir,
        undefined=_NO_ENTROPY,
    ),
    Metric(
        "hdr_centered",
        "information",
        "HDR, centred features",
        r"\operatorname{HDR}\text{ with }K_1=G([h(x_i)-\mu_G])",
        "INFO corollary 4.3, whose premise is centred features",
        lambda s: _information(s).centred.hdr,
        _INFORMATION_AND_HEAD,
        high=1.0,
        zero="centred features spread over as many directions as their heads",
        undefined=_NO_ENTROPY,
    ),
    Metric(
        "mir_means",
        "information",
        "MIR, class means",
        r"\operatorname{MIR}\text{ of }G(\tilde M)\text{ and }G(W^\top)",
        "INFO theorem 4.2",
        lambda s: s.means_entropies.mir,
        _HEAD,
        high=1.0,
        zero="the class means tell nothing about the classifier",
        better="high",
        at_collapse=collapse_mir,
        undefined=_NO_ENTROPY,
    ),
    Metric(
        "hdr_means",
        "information",
        "HDR, class means",
        r"\operatorname{HDR}\text{ of }G(\tilde M)\text{ and }G(W^\top)",
        "INFO theorem 4.2",
        lambda s: s.means_entropies.hdr,
        _HEAD,
        high=1.0,
        zero="class means spread over as many directions as the classifier",
        undefined=_NO_ENTROPY,
    ),
    Metric(
        "entropy_features",
        "information",
        "entropy of features",
        r"H(G([h(x_i)]))",
        "INFO section 3",
        lambda s: _information(s).raw.first,
        _INFORMATION_AND_HEAD,
        zero="all features share one direction",
        undefined=_ZERO_ROW,
    ),
    Metric(
        "entropy_weights",
        "information",
        "entropy of heads",
        r"H(G([w_{y_i}]))",
        "INFO section 3",
        lambda s: _information(s).raw.second,
        _INFORMATION_AND_HEAD,
        zero="all heads share one direction",
        undefined="a head is the zero vector and has no direction",
    ),
    Metric(
        "mutual_information",
        "information",
        "matrix mutual information",
        r"H(K_1)+H(K_2)-H(K_1\odot K_2)",
        "INFO section 3",
        lambda s: _information(s).raw.mutual_information,
        _INFORMATION_AND_HEAD,
        zero="features tell nothing about the heads of their classes",
        better="high",
        undefined=_ZERO_ROW,
    ),
    Metric(
        "effective_rank",
        "information",
        "effective rank of features",
        r"e^{H(G([h(x_i)]))}",
        "Roy, Vetterli 2007; INFO section 3",
        lambda s: math.exp(_information(s).raw.first),
        _INFORMATION_AND_HEAD,
        low=1.0,
        undefined=_ZERO_ROW,
    ),
)


def _information(sources: Sources) -> DatasetInformation:
    assert sources.information is not None
    return sources.information
