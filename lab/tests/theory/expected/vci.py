"""Formulas that break the statements of the VCI paper."""

from collections.abc import Callable
from typing import Any

import torch
from lab.tests.theory.expected.broken import Break
from torch import Tensor

from ncscope.metrics.discriminants import Discriminants
from ncscope.stats.statistics import ClassStatistics
from ncscope_lab.theory import vci as covariances
from ncscope_lab.theory import vci_blocks as blocks
from ncscope_lab.theory import vci_index as index
from ncscope_lab.theory import vci_invariance as invariance
from ncscope_lab.theory import vci_probing as probing
from ncscope_lab.theory.vci_features import ClassFeatures, class_means

shifted, head = covariances.within_when_shifted, probing.optimal_head
off_span = covariances.off_span
least_squares, least_entropy = invariance.ridge_minimum, invariance.softmax_minimum


def scaled(formula: Callable[..., Any], factor: float = 1.001) -> Callable[..., Any]:
    """The formula, 0.1 % off."""
    return lambda *arguments: factor * formula(*arguments)


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
    Break(
        "vci/equation-7",
        covariances,
        "between_covariance",
        scaled(covariances.between_covariance),
    ),
    Break(
        "vci/equation-7",
        covariances,
        "within_covariance",
        scaled(covariances.within_covariance),
    ),
    Break(
        "vci/equation-7-imbalanced",
        covariances,
        "total_with_weights",
        scaled(covariances.total_with_weights),
    ),
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
    Break(
        "vci/figure-1",
        covariances,
        "within_in_signal",
        scaled(covariances.within_in_signal),
    ),
    Break(
        "vci/figure-1",
        covariances,
        "within_off_signal",
        lambda stats, found: stats.within_trace,
    ),
    Break("vci/remark-6.2", covariances, "off_span", lambda labelled: 0.0),
    Break("vci/remark-6.2", covariances, "off_span", lambda labelled: off_span(labelled) + 1e-6),
    Break("vci/remark-4.3", covariances, "between_covariance", uncentred_between),
    Break("vci/observation-4.2", invariance, "fuzziness", scaled(invariance.fuzziness)),
    Break("vci/observation-4.2", invariance, "fuzziness", euclidean_fuzziness),
    Break("vci/observation-4.3", invariance, "nc1_quotient", scaled(invariance.nc1_quotient)),
    Break("vci/observation-4.3", invariance, "nc1_quotient", squared_distance_of_lengths),
    Break("vci/observation-4.4", invariance, "cosine_within", scaled(invariance.cosine_within)),
    Break("vci/observation-4.4", invariance, "cosine_within", spread_from_zero),
    Break(
        "vci/observation-4.5",
        invariance,
        "ridge_minimum",
        lambda x, weight, bias: least_squares(x, weight + 0.001, bias),
    ),
    Break(
        "vci/observation-4.5",
        invariance,
        "softmax_minimum",
        lambda x, weight, bias: least_entropy(x, weight + 0.001, bias),
    ),
    Break("vci/theorem-5.1", probing, "optimal_loss", scaled(probing.optimal_loss)),
    Break("vci/theorem-5.1", probing, "linear_probe_mse", scaled(probing.linear_probe_mse)),
    Break("vci/theorem-5.1", probing, "capture_trace", scaled(probing.capture_trace)),
    Break(
        "vci/theorem-5.1-imbalanced",
        probing,
        "optimal_loss_of_prior",
        scaled(probing.optimal_loss_of_prior),
    ),
    Break(
        "vci/theorem-5.1-imbalanced",
        probing,
        "optimal_loss",
        lambda k, trace: (1 - 1 / k - trace / (k + 1)) / 2,
    ),
    Break(
        "vci/theorem-5.1-minimiser",
        probing,
        "optimal_head",
        lambda labelled: tuple(1.001 * part for part in head(labelled)),
    ),
    Break(
        "vci/theorem-5.1-proof",
        probing,
        "rank_of_total",
        lambda labelled: len(labelled.between) - 1,
    ),
    Break("vci/remark-5.1", probing, "capture_trace", scaled(probing.capture_trace, 0.999)),
    Break("vci/theorem-5.2", index, "capture_trace", scaled(index.capture_trace)),
    Break("vci/theorem-5.2-equality", index, "shortfall", scaled(index.shortfall)),
    Break("vci/theorem-5.2-equality", index, "vci", index_of_traces),
    Break("vci/remark-5.2", index, "contraction", scaled(index.contraction)),
    Break("vci/definition-5.3", index, "loss_of_vci", scaled(index.loss_of_vci)),
    Break("vci/definition-5.3", index, "vci", scaled(index.vci)),
    Break("vci/definition-5.3-rank", index, "dilute", scaled(index.dilute)),
    Break(
        "vci/definition-5.3-rank",
        index,
        "index_with_rank",
        lambda trace, rank: 1 - trace / (rank + 1),
    ),
    Break("vci/corollary-5.4", index, "vci", scaled(index.vci)),
    Break("vci/corollary-5.4", index, "vci", index_of_traces),
    Break(
        "vci/theorem-5.2-proof",
        blocks,
        "schur_complement",
        lambda a, b, c, d: a - 1.001 * b @ torch.linalg.solve(d, c),
    ),
    Break(
        "vci/lemma-A.1",
        blocks,
        "block_inverse",
        scaled(blocks.block_inverse),
    ),
    Break(
        "vci/lemma-A.1",
        blocks,
        "schur_complement",
        lambda a, b, c, d: a - 1.001 * b @ torch.linalg.solve(d, c),
    ),
    Break(
        "vci/lemma-A.2",
        blocks,
        "schur_complement",
        lambda a, b, c, d: a - 1.001 * b @ torch.linalg.solve(d, c),
    ),
]
