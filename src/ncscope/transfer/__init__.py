"""Transfer of frozen features: linear probes, scores that predict their accuracy, correlations.

``rank_checkpoints`` does everything for several checkpoints on one downstream set. Its parts:

* ``choose_probe`` and ``fit_logistic``: logistic regression
* ``explained_entropy``, ``log_me``, ``h_score`` and others: scores that need no probe, each in the
  file of its name in ``scores/``
* ``static_ranking`` and ``ranking_quality``: baselines, and how well a score orders models
* ``mean_log_odds_gain``: transfer over several sets
* ``correlations``: correlation of a score with transfer
* ``head_features``: features that a model's head reads
"""

from ncscope.transfer.baselines import (
    AccuracyTable,
    StaticRanking,
    baselines_of,
    read_results,
    static_ranking,
)
from ncscope.transfer.correlations import (
    Correlation,
    correlations,
    mean_log_odds,
    mean_log_odds_gain,
)
from ncscope.transfer.features import head_features, head_moments
from ncscope.transfer.probes.linear_probe import LinearProbe, mean_per_class_accuracy, top1_accuracy
from ncscope.transfer.probes.logistic import LogisticFit, fit_logistic, logistic_path
from ncscope.transfer.probes.selection import (
    STRENGTHS,
    ProbeChoice,
    choose_probe,
    scale_strengths,
)
from ncscope.transfer.quality import RankingQuality, ranking_quality
from ncscope.transfer.ranking import rank_checkpoints
from ncscope.transfer.records import CheckpointResult, Ranking
from ncscope.transfer.samples import DownstreamSamples, check_downstream
from ncscope.transfer.scores.explained_entropy import ExplainedEntropy, explained_entropy
from ncscope.transfer.scores.gbc import gbc, gbc_diagonal
from ncscope.transfer.scores.h_score import h_score, regularised_h_score
from ncscope.transfer.scores.leep import leep
from ncscope.transfer.scores.log_me import log_me, log_me_targets
from ncscope.transfer.scores.nce import nce
from ncscope.transfer.scores.ncti import NctiParts, ncti, ncti_parts
from ncscope.transfer.scores.nleep import nleep
from ncscope.transfer.scores.parc import parc
from ncscope.transfer.scores.sfda import sfda
from ncscope.transfer.scores.transrate import transrate, transrate_listing, transrate_projected

__all__ = [
    "STRENGTHS",
    "AccuracyTable",
    "CheckpointResult",
    "Correlation",
    "DownstreamSamples",
    "ExplainedEntropy",
    "LinearProbe",
    "LogisticFit",
    "NctiParts",
    "ProbeChoice",
    "Ranking",
    "RankingQuality",
    "StaticRanking",
    "baselines_of",
    "check_downstream",
    "choose_probe",
    "correlations",
    "explained_entropy",
    "fit_logistic",
    "gbc",
    "gbc_diagonal",
    "h_score",
    "head_features",
    "head_moments",
    "leep",
    "log_me",
    "log_me_targets",
    "logistic_path",
    "mean_log_odds",
    "mean_log_odds_gain",
    "mean_per_class_accuracy",
    "nce",
    "ncti",
    "ncti_parts",
    "nleep",
    "parc",
    "rank_checkpoints",
    "ranking_quality",
    "read_results",
    "regularised_h_score",
    "scale_strengths",
    "sfda",
    "static_ranking",
    "top1_accuracy",
    "transrate",
    "transrate_listing",
    "transrate_projected",
]
