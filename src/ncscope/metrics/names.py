"""Names of groups and metrics, for completion and refusals without torch, which takes seconds.

The registry takes the titles from here; a test compares the keys.
"""

import difflib
from collections.abc import Iterable

from ncscope.errors import InputError

KEY = "key:"
"""Prefix by which a key among groups is a single metric, also if a group has its name."""

PER_CLASS = "per_class"
"""Name that asks for the table of classes beside the groups of metrics."""

GROUPS = {
    "nc1": "NC1: variability collapse",
    "nc2": "NC2: class means form a simplex ETF",
    "nc3": "NC3: classifier aligns with class means",
    "nc4": "NC4: decisions and accuracy",
    "pfc": "Progressive feedforward collapse",
    "mse": "MSE loss decomposition",
    "information": "Matrix information",
    "spectra": "Spectra",
    "ood": "Samples from outside the distribution",
    PER_CLASS: "Table of the classes",
}
"""Description of each group of metrics."""

TITLES = {
    "nc1": "NC1: fuzziness / K",
    "fuzziness": "fuzziness",
    "nc1_quotient": "within / between variance",
    "vci": "variability collapse index",
    "linear_probe_mse": "linear-probe MSE",
    "cosine_within": "cosine distance within classes",
    "class_separation": "class separation",
    "within_in_signal": "within variance in signal space",
    "within_off_signal": "within variance off signal space",
    "cdnv": "class-distance normalised variance",
    "nc2_equinorm_means": "equinorm, means",
    "nc2_equinorm_weights": "equinorm, weights",
    "nc2_equiangular_means": "equiangular, means",
    "nc2_equiangular_weights": "equiangular, weights",
    "nc2_maxangle_means": "max-angle, means",
    "nc2_maxangle_weights": "max-angle, weights",
    "nc2_etf": "distance to simplex ETF",
    "nc2_of": "distance to orthogonal frame",
    "nc2_lognorm_std_means": "log-norm spread, means",
    "nc2_lognorm_std_weights": "log-norm spread, weights",
    "gnc2_log": "logarithmic energy of mean directions",
    "gnc2_log_std": "spread of the logarithmic energy",
    "gnc2_riesz": "Riesz energy of mean directions",
    "gnc2_riesz_cv": "relative spread of the Riesz energy",
    "gnc2_distance": "distance of mean directions",
    "gnc2_distance_cv": "relative spread of the distance",
    "minority_cosine_means": "cosine of minority means",
    "minority_cosine_weights": "cosine of minority weights",
    "seli_means": "class means to SELI",
    "seli_weights": "weights to SELI",
    "nc0": "NC0: sum of the classifier's rows",
    "nc0_norm": "NC0, not scaled",
    "unc3": "uniform duality",
    "unc3_mean": "cosine of classifier rows with means",
    "nc3_self_duality": "self-duality",
    "nc3_alignment": "alignment with uncentred means",
    "nc3_etf": "logits of means to simplex ETF",
    "nc4_disagreement": "classifier against nearest mean",
    "ncc_accuracy": "nearest-class-mean accuracy",
    "accuracy": "accuracy",
    "mse_loss": "MSE loss",
    "mse_nc1": "MSE loss: NC1 part",
    "mse_nc23": "MSE loss: NC2/3 part",
    "mse_off_path": "MSE loss: off the central path",
    "mir": "matrix mutual information ratio",
    "hdr": "matrix entropy difference ratio",
    "mir_centered": "MIR, centred features",
    "hdr_centered": "HDR, centred features",
    "mir_means": "MIR, class means",
    "hdr_means": "HDR, class means",
    "entropy_features": "entropy of features",
    "entropy_weights": "entropy of heads",
    "mutual_information": "matrix mutual information",
    "effective_rank": "effective rank of directions",
    "rankme": "RankMe",
    "effective_rank_features": "effective rank of the covariance",
    "participation_ratio": "participation ratio",
    "alpha_req": "decay of the spectrum",
    "alpha_req_r2": "fit of the spectrum's decay",
    "lidar": "LiDAR",
    "nc5": "NC5: class means vs OOD mean",
    "nc5_centred": "NC5, centred",
    "neco_auroc": "NECO, centred: AUROC",
    "neco_fpr95": "NECO, centred: FPR at 95 %",
    "neco_uncentred_auroc": "NECO, equation 6: AUROC",
    "neco_uncentred_fpr95": "NECO, equation 6: FPR at 95 %",
    "neco_standardised_auroc": "NECO, standardised: AUROC",
    "neco_standardised_fpr95": "NECO, standardised: FPR at 95 %",
    "neco_logit_auroc": "NECO, standardised, times logit: AUROC",
    "neco_logit_fpr95": "NECO, standardised, times logit: FPR at 95 %",
    "nci_auroc": "NCI: AUROC",
    "nci_fpr95": "NCI: FPR at 95 %",
    "msp_auroc": "Max softmax: AUROC",
    "msp_fpr95": "Max softmax: FPR at 95 %",
    "max_logit_auroc": "Max logit: AUROC",
    "max_logit_fpr95": "Max logit: FPR at 95 %",
    "energy_auroc": "Energy: AUROC",
    "energy_fpr95": "Energy: FPR at 95 %",
}
"""Title of each metric."""

ALIASES = ("pfc1", "pfc2", "pfc3", "seli_logits")
"""Further names of metrics."""


def refuse_unknown(groups: Iterable[str]) -> None:
    """Refuse names that are neither of a group nor of a metric.

    Args:
        groups: Names of groups, or keys of single metrics, also as ``"key:..."``.

    Raises:
        InputError: If a name is unknown; the message has the nearest ones.

    Example:
        >>> refuse_unknown(["nc1", "key:nc1", "pfc2"])
    """
    plain = [*TITLES, *ALIASES]
    known = {*GROUPS, *plain, *(KEY + name for name in plain)}
    unknown = sorted({str(name) for name in groups if name not in known})
    if not unknown:
        return
    names = list(dict.fromkeys([*GROUPS, *plain]))
    near = difflib.get_close_matches(unknown[0].removeprefix(KEY), names, n=3)
    if unknown[0].startswith(KEY):
        near = [KEY + name if name in plain else name for name in near]
    fix = f"for {unknown[0]!r} pass {' or '.join(near)}" if near else "drop or correct them"
    expected = f"groups among {tuple(GROUPS)}, or keys of metrics"
    raise InputError(expected=expected, found=str(unknown), fix=fix)
