"""Formulas that break the statements of the VCI paper."""

from collections.abc import Callable
from typing import Any

import torch
from lab.tests.theory.expected.broken import Break, scaled
from torch import Tensor

from ncscope.metrics.discriminants import Discriminants
from ncscope.stats.statistics import ClassStatistics
from ncscope_lab.theory import vci as covariances
from ncscope_lab.theory import vci_blocks as blocks
from ncscope_lab.theory import vci_index as index
from ncscope_lab.theory import vci_invariance as invariance
from ncscope_lab.theory import vci_probing as probing
from ncscope_lab.theory.vci_features import ClassFeatures, class_means

shifted, off_span = covariances.within_when_shifted, covariances.off_span


def of_more_decay(minimum: Callable[..., Any]) -> Callable[..., Any]:
    """As if the weights decayed by 0.001 more."""
    return lambda x, weight, bias: minimum(x, weight + 0.001, bias)


def uncentred_between(labelled: ClassFeatures) -> Tensor:
    """As if the global mean were not taken off."""
    means = class_means(labelled)
    return means.mT @ means / labelled.k


def euclidean_fuzziness(stats: ClassStatistics, found: Discriminants) -> Tensor:
    """As if the directions of the between-class spread did not matter."""
    return stats.within_trace / found.between.values.mean()


def squared_distance_of_lengths(stats: ClassStatistics) -> Tensor:
    """As if traces were sums of absolute entries: right in the example's basis only."""
    spread = stats.centred.abs().sum(1).square()
    return stats.within_trace / (stats.prior @ spread)


def spread_from_zero(stats: ClassStatistics) -> Tensor:
    """As if directions were features: right where all have one length."""
    return stats.within_trace / (stats.within_trace + stats.prior @ stats.means.square().sum(1))


def index_of_traces(stats: ClassStatistics, found: Discriminants) -> Tensor:
    """As if the trace of a quotient were the quotient of traces."""
    return stats.within_trace / (stats.within_trace + stats.between_trace)


BREAKS: list[Break] = [
    scaled("vci/equation-7", covariances, "between_covariance"),
    scaled("vci/equation-7", covariances, "within_covariance"),
    scaled("vci/equation-7-imbalanced", covariances, "total_with_weights"),
    Break(
        "vci/equation-7-imbalanced",
        covariances,
        "total_with_weights",
        lambda labelled, prior: covariances.total_covariance(labelled),
    ),
    Break(
        "vci/proposition-4.1",
        covariances,
        "within_when_shifted",
        lambda x, v, step: shifted(x, v, 1.001 * step),
    ),
    Break("vci/proposition-4.1", covariances, "between_covariance", uncentred_between),
    scaled("vci/figure-1", covariances, "within_in_signal"),
    Break(
        "vci/figure-1", covariances, "within_off_signal", lambda stats, found: stats.within_trace
    ),
    Break("vci/remark-6.2", covariances, "off_span", lambda labelled: 0.0),
    Break("vci/remark-6.2", covariances, "off_span", lambda labelled: off_span(labelled) + 1e-6),
    Break("vci/remark-4.3", covariances, "between_covariance", uncentred_between),
    scaled("vci/observation-4.2", invariance, "fuzziness"),
    Break("vci/observation-4.2", invariance, "fuzziness", euclidean_fuzziness),
    scaled("vci/observation-4.3", invariance, "nc1_quotient"),
    Break("vci/observation-4.3", invariance, "nc1_quotient", squared_distance_of_lengths),
    scaled("vci/observation-4.4", invariance, "cosine_within"),
    Break("vci/observation-4.4", invariance, "cosine_within", spread_from_zero),
    *(
        Break("vci/observation-4.5", invariance, name, of_more_decay(formula))
        for name, formula in (
            ("ridge_minimum", invariance.ridge_minimum),
            ("softmax_minimum", invariance.softmax_minimum),
        )
    ),
    scaled("vci/theorem-5.1", probing, "optimal_loss"),
    scaled("vci/theorem-5.1", probing, "linear_probe_mse"),
    scaled("vci/theorem-5.1", probing, "capture_trace"),
    scaled("vci/theorem-5.1-imbalanced", probing, "optimal_loss_of_prior"),
    Break(
        "vci/theorem-5.1-imbalanced",
        probing,
        "optimal_loss",
        lambda k, trace: (1 - 1 / k - trace / (k + 1)) / 2,
    ),
    *(scaled("vci/theorem-5.1-minimiser", probing, "optimal_head", entry=e) for e in (0, 1)),
    Break(
        "vci/theorem-5.1-proof",
        probing,
        "rank_of_total",
        lambda labelled: len(labelled.between) - 1,
    ),
    scaled("vci/remark-5.1", probing, "capture_trace", 0.999),
    scaled("vci/theorem-5.2", index, "capture_trace"),
    scaled("vci/theorem-5.2-equality", index, "shortfall"),
    Break("vci/theorem-5.2-equality", index, "vci", index_of_traces),
    scaled("vci/remark-5.2", index, "contraction"),
    scaled("vci/definition-5.3", index, "loss_of_vci"),
    scaled("vci/definition-5.3", index, "vci"),
    scaled("vci/definition-5.3-rank", index, "dilute"),
    Break(
        "vci/definition-5.3-rank",
        index,
        "index_with_rank",
        lambda trace, rank: 1 - trace / (rank + 1),
    ),
    scaled("vci/corollary-5.4", index, "vci"),
    Break("vci/corollary-5.4", index, "vci", index_of_traces),
    *(
        Break(
            f"vci/{statement}",
            blocks,
            "schur_complement",
            lambda a, b, c, d: a - 1.001 * b @ torch.linalg.solve(d, c),
        )
        for statement in ("theorem-5.2-proof", "lemma-A.1", "lemma-A.2")
    ),
    scaled("vci/lemma-A.1", blocks, "block_inverse"),
]
