"""Instances on which a formula divides by zero, or comes as close as it can."""

from dataclasses import replace

import numpy as np

from ..reference.instances import INSTANCES, Instance

PAIRS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
HEAD = np.array([[1.0, 0.3], [-0.2, 1.0], [0.5, -1.0]])
OFFSETS = np.array([0.1, 0.2, 0.3])


def with_head(features: np.ndarray, labels: list[int]) -> Instance:
    k, d = max(labels) + 1, features.shape[1]
    return Instance(features, np.array(labels), np.resize(HEAD, (k, d)), np.resize(OFFSETS, k), k)


def rounded_coincidence() -> Instance:
    """The means of two classes differ by the order of summation alone."""
    rows = INSTANCES["balanced"]().features[:20]
    return with_head(np.vstack([rows, rows[::-1]]), [0] * 20 + [1] * 20)


DEGENERATE = {
    "constant": lambda: with_head(np.full((6, 2), 0.1), [0, 1, 2] * 2),
    "constant_one_dimension": lambda: with_head(np.full((6, 1), 1 / 3), [0, 1, 2] * 2),
    "all_zero": lambda: with_head(np.zeros((6, 2)), [0, 1, 2] * 2),
    "coinciding_means": lambda: with_head(PAIRS, [0, 0, 1, 1]),
    "means_coincide_up_to_rounding": rounded_coincidence,
    "a_mean_in_the_centre": lambda: with_head(np.array([[1.0, 0], [-1, 0], [0, 0]]), [0, 1, 2]),
    "a_zero_feature": lambda: with_head(np.vstack([PAIRS, [[0.0, 0.0]]]), [0, 1, 2, 0, 1]),
    "one_sample_a_class": lambda: with_head(np.eye(3, 5) + 0.1, [0, 1, 2]),
    "two_samples": lambda: with_head(np.array([[0.0], [1.0]]), [0, 1]),
    "one_direction": lambda: with_head(np.array([[1.0], [2.0], [3.0], [5.0]]), [0, 0, 1, 1]),
    "rank_one": lambda: with_head(np.outer(np.arange(1.0, 7.0), [1.0, 2.0, 3.0]), [0, 1, 2] * 2),
    "zero_weight": lambda: replace(INSTANCES["balanced"](), weight=np.zeros((5, 8))),
    "zero_weight_row": lambda: replace(
        INSTANCES["balanced"](), weight=np.diag([1.0, 1, 0, 1, 1]) @ np.ones((5, 8))
    ),
}
