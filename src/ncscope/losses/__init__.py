"""Losses of the papers, as functions of one batch."""

from ncscope.losses.classification import (
    pick_all_label,
    rescaled_squared_error,
    smoothed_cross_entropy,
    squared_error,
    temperature_cross_entropy,
)
from ncscope.losses.entropy import batch_entropy, matrix_entropy
from ncscope.losses.information import (
    entropy_difference,
    head_entropy_difference,
    head_mutual_information,
    mutual_information,
)
from ncscope.losses.regularisers import feature_and_classifier_decay, within_class_cosine

__all__ = [
    "batch_entropy",
    "entropy_difference",
    "feature_and_classifier_decay",
    "head_entropy_difference",
    "head_mutual_information",
    "matrix_entropy",
    "mutual_information",
    "pick_all_label",
    "rescaled_squared_error",
    "smoothed_cross_entropy",
    "squared_error",
    "temperature_cross_entropy",
    "within_class_cosine",
]
