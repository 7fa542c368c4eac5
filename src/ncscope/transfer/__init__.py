"""Transfer of frozen features: linear probes, scores that predict their accuracy, correlations.

``rank_checkpoints`` does everything for several checkpoints on one downstream set. Its parts:

* ``choose_probe`` and ``fit_logistic``: logistic regression
* ``ridge_probe``: least squares from moments
* ``log_me`` and ``h_score``: scores that need no probe
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
from ncscope.transfer.features import head_features, head_moments
from ncscope.transfer.probes.logistic import LogisticFit, fit_logistic, logistic_path
from ncscope.transfer.probes.probe import LinearProbe, mean_per_class_accuracy, top1_accuracy
from ncscope.transfer.probes.ridge import ridge_path, ridge_probe
from ncscope.transfer.probes.selection import STRENGTHS, ChosenProbe, choose_probe
from ncscope.transfer.ranking import rank_checkpoints
from ncscope.transfer.records import Ranked, Ranking
from ncscope.transfer.scores import h_score, log_me

__all__ = [
    "STRENGTHS",
    "ChosenProbe",
    "Correlation",
    "LinearProbe",
    "LogisticFit",
    "Ranked",
    "Ranking",
    "choose_probe",
    "correlations",
    "fit_logistic",
    "h_score",
    "head_features",
    "head_moments",
    "log_me",
    "logistic_path",
    "mean_log_odds",
    "mean_log_odds_gain",
    "mean_per_class_accuracy",
    "rank_checkpoints",
    "ridge_path",
    "ridge_probe",
    "top1_accuracy",
]
