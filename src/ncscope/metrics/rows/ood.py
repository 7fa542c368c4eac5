"""Samples from outside the training distribution: their mean, and scores that detect them."""

import math

from ncscope.metrics.metric import Metric
from ncscope.metrics.ood import ood_auroc, ood_cosine, ood_cosine_centred, ood_fpr95

_MOMENTS = frozenset({"ood"})
_SCORES = frozenset({"ood", "scores"})
_FITTED = frozenset({"scatter"})
_HEAD = frozenset({"head"})
_NO_DIRECTION = "a sample equals the global mean up to rounding"
_NO_PROJECTION = (
    f"{_NO_DIRECTION}, the covariance has equal eigenvalues at the cut, or the reference lacks the "
    "scatter"
)
_NO_LENGTH = (
    "a sample is the zero vector, the covariance has equal eigenvalues at the cut, or the "
    "reference lacks the scatter"
)
_STANDARDISED = r"z=(h-\mu_G)/\sigma"


def _unknown(_: int) -> float:
    """Return NaN: the value at collapse depends on the OOD samples."""
    return math.nan


def _detector(
    *,
    name: str,
    title: str,
    score: str,
    formula: str,
    source: str,
    needs: frozenset[str],
    undefined: str = "",
) -> tuple[Metric, Metric]:
    """Return the rows of a score: area under the curve, and false positives.

    Args:
        name: Name of the score, in the keys.
        title: Short label of the score.
        score: Name of the score in a sentence.
        formula: Definition of the score s(h), in LaTeX.
        source: Paper that defines the score.
        needs: Requirements besides the OOD samples.
        undefined: Condition under which the score is NaN.
    """
    auroc = Metric(
        key=f"{name}_auroc",
        group="ood",
        title=f"{title}: AUROC",
        meaning=(
            f"Probability that {score} of a sample is larger than that of an OOD sample, equal "
            "ones counted half; chance is 0.5."
        ),
        formula=rf"P(s>s'),\;{formula}",
        source=source,
        compute=lambda s: ood_auroc(s.ood, name),
        needs=_SCORES | needs,
        high=1.0,
        zero="every OOD sample scores higher than every sample",
        better="high",
        at_collapse=_unknown,
        undefined=undefined,
    )
    fpr95 = Metric(
        key=f"{name}_fpr95",
        group="ood",
        title=f"{title}: FPR at 95 %",
        meaning=(
            f"Share of the OOD samples that pass for samples if a threshold on {score} lets at "
            "least 95 % of the samples pass; chance is 0.95."
        ),
        formula=rf"P(s'\ge\tau_{{95}}),\;{formula}",
        source=source,
        compute=lambda s: ood_fpr95(s.ood, name),
        needs=_SCORES | needs,
        high=1.0,
        zero="the threshold refuses every OOD sample",
        at_collapse=_unknown,
        undefined=undefined,
    )
    return auroc, fpr95


ROWS = (
    Metric(
        key="nc5",
        group="ood",
        title="NC5: class means vs OOD mean",
        meaning="How far the class means are from orthogonal to the mean of the OOD samples.",
        formula=(
            r"\tfrac1K\sum_c\lvert\langle\mu_c,\mu_{ood}\rangle\rvert/"
            r"(\lVert\mu_c\rVert\lVert\mu_{ood}\rVert)"
        ),
        source="NECO, NC5",
        compute=lambda s: ood_cosine(s.ood),
        needs=_MOMENTS,
        high=1.0,
        zero="the class means are orthogonal to the OOD mean",
        at_collapse=_unknown,
        undefined="a class mean or the OOD mean is zero up to rounding",
    ),
    Metric(
        key="nc5_centred",
        group="ood",
        title="NC5, centred",
        meaning=(
            "How far the class means are from orthogonal to the mean of the OOD samples, seen from "
            "the global mean."
        ),
        formula=(
            r"\tfrac1K\sum_c\lvert\langle\tilde\mu_c,\mu_{ood}-\mu_G\rangle\rvert/"
            r"(\lVert\tilde\mu_c\rVert\lVert\mu_{ood}-\mu_G\rVert)"
        ),
        source="NECO, NC5, with the global mean subtracted",
        compute=lambda s: ood_cosine_centred(s.ood),
        needs=_MOMENTS,
        high=1.0,
        zero="the OOD mean leaves the global mean orthogonally to all class means",
        at_collapse=_unknown,
        undefined="a class mean or the OOD mean equals the global mean up to rounding",
    ),
    *_detector(
        name="neco",
        title="NECO, centred",
        score="the share of the centred feature's length along the principal directions",
        formula=r"s=\lVert P(h-\mu_G)\rVert/\lVert h-\mu_G\rVert",
        source="NECO (6), centred",
        needs=_FITTED,
        undefined=_NO_PROJECTION,
    ),
    *_detector(
        name="neco_uncentred",
        title="NECO, equation 6",
        score="the share of the feature's length along the principal directions",
        formula=r"s=\lVert Ph\rVert/\lVert h\rVert",
        source="NECO (6)",
        needs=_FITTED,
        undefined=_NO_LENGTH,
    ),
    *_detector(
        name="neco_standardised",
        title="NECO, standardised",
        score="the share of the standardised feature's length along their principal directions",
        formula=rf"{_STANDARDISED},\;s=\lVert P_zz\rVert/\lVert z\rVert",
        source="NECO, published code for ResNets",
        needs=_FITTED,
        undefined=_NO_PROJECTION,
    ),
    *_detector(
        name="neco_logit",
        title="NECO, standardised, times logit",
        score="that share of the standardised feature, times the largest logit,",
        formula=rf"{_STANDARDISED},\;s=\max_c\ell_c\lVert P_zz\rVert/\lVert z\rVert",
        source="NECO, published code for other networks",
        needs=_FITTED | _HEAD,
        undefined=_NO_PROJECTION,
    ),
    *_detector(
        name="nci",
        title="NCI",
        score="NCI's score",
        formula=(
            r"s=\langle w_{\hat y},h-\mu_G\rangle/\lVert h-\mu_G\rVert+10^{-4}\lVert h\rVert_1"
        ),
        source="NCI",
        needs=_HEAD,
        undefined=_NO_DIRECTION,
    ),
    *_detector(
        name="msp",
        title="Max softmax",
        score="the largest softmax probability",
        formula=r"s=\max_ce^{\ell_c}/\sum_je^{\ell_j}",
        source="Hendrycks (2017)",
        needs=_HEAD,
    ),
    *_detector(
        name="max_logit",
        title="Max logit",
        score="the largest logit",
        formula=r"s=\max_c\ell_c",
        source="Hendrycks (2022)",
        needs=_HEAD,
    ),
    *_detector(
        name="energy",
        title="Energy",
        score="the negative energy",
        formula=r"s=\log\sum_je^{\ell_j}",
        source="Energy (4), at temperature 1",
        needs=_HEAD,
    ),
)
