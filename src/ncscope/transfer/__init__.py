"""Transfer of frozen features: linear probes, scores that predict their accuracy, correlations.

``rank_checkpoints`` does everything for several checkpoints on one downstream set. Its parts:

* ``choose_probe`` and ``fit_logistic``: logistic regression
* ``ridge_probe``: least squares from moments
* ``explained_entropy``, ``log_me``, ``h_score`` and others: scores that need no probe
* ``static_ranking`` and ``ranking_quality``: baselines, and how well a score orders models
* ``mean_log_odds_gain``: transfer over several sets
* ``correlations``: correlation of a score with transfer
* ``head_features``: features that a model's head reads
"""

from ncscope.transfer.correlations import (
    Correlation,
    correlations,
    mean_log_odds,
    mean_log_odds_gain,
)
from ncscope.transfer.empirical_predictions import leep, nce, nleep
from ncscope.transfer.explained_entropy import ExplainedEntropy, explained_entropy
from ncscope.transfer.features import head_features, head_moments
from ncscope.transfer.fisher import NctiParts, ncti, ncti_parts, regularised_h_score, sfda
from ncscope.transfer.inputs import LabelledSamples, checked_labelled
from ncscope.transfer.probes.logistic import LogisticFit, fit_logistic, logistic_path
from ncscope.transfer.probes.probe import LinearProbe, mean_per_class_accuracy, top1_accuracy
from ncscope.transfer.probes.ridge import ridge_path, ridge_probe
from ncscope.transfer.probes.selection import STRENGTHS, ChosenProbe, choose_probe
from ncscope.transfer.quality import RankingQuality, ranking_quality
from ncscope.transfer.ranking import rank_checkpoints
from ncscope.transfer.records import Ranked, Ranking
from ncscope.transfer.scores import h_score, log_me
from ncscope.transfer.separability import (
    gbc,
    gbc_diagonal,
    transrate,
    transrate_listing,
    transrate_projected,
)
from ncscope.transfer.similarity import parc
from ncscope.transfer.static import (
    AccuracyTable,
    StaticRanking,
    baselines_of,
    read_results,
    static_ranking,
)

__all__ = [
    "STRENGTHS",
    "AccuracyTable",
    "ChosenProbe",
    "Correlation",
    "ExplainedEntropy",
    "LabelledSamples",
    "LinearProbe",
    "LogisticFit",
    "NctiParts",
    "Ranked",
    "Ranking",
    "RankingQuality",
    "StaticRanking",
    "baselines_of",
    "checked_labelled",
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
    "ridge_path",
    "ridge_probe",
    "sfda",
    "static_ranking",
    "top1_accuracy",
    "transrate",
    "transrate_listing",
    "transrate_projected",
]
