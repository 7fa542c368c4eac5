"""Collapse and transfer of pretrained networks, as compared in VCI 6.3."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ncscope.lab.observations import Observation
from ncscope.lab.papers.trained import average, ends, history
from ncscope.lab.papers.vci import published
from ncscope.lab.papers.vci.variability import METRICS, trained
from ncscope.lab.training.settings import Training
from ncscope.transfer import Correlation, correlations, mean_log_odds, mean_log_odds_gain

TEMPERATURE, PENALTY = "temperature", "cosine penalty"
GROUPS = (TEMPERATURE, PENALTY)
"""Varied settings: temperature of the softmax, and weight of the cosine similarity in the loss."""

UNKNOWN = Correlation(math.nan, math.nan, math.nan)


class Checkpoint(NamedTuple):
    """A pretrained network.

    Attributes:
        value: Value of the setting that the checkpoint's group varies.
        seed: Seed of the run.
        metrics: VCI's four metrics on training images of the pretraining set, by key.
        accuracy: Accuracy on held-out images of the pretraining set.
        downstream: Accuracy of the linear probe, by downstream set.
    """

    value: float
    seed: int
    metrics: Mapping[str, float]
    accuracy: float
    downstream: Mapping[str, float]

    @property
    def mlo(self) -> float:
        """Mean log odds of the probes; NaN if a probe is missing."""
        accuracies = list(self.downstream.values())
        return mean_log_odds(accuracies) if accuracies and _all_known(accuracies) else math.nan

    @property
    def mlog(self) -> float:
        """Mean log odds of the probes minus the log odds of the pretraining accuracy."""
        accuracies = list(self.downstream.values())
        known = accuracies and _all_known([*accuracies, self.accuracy])
        return mean_log_odds_gain(accuracies, self.accuracy) if known else math.nan


def _all_known(values: Sequence[float]) -> bool:
    return not any(map(math.isnan, values))


Group = Sequence[Checkpoint]
Quantity = Callable[[Checkpoint], float]


def _group_of(training: Training) -> str:
    """Return the name of the setting that a run varies.

    Args:
        training: The run.
    """
    return PENALTY if training.within_class_cosine else TEMPERATURE


def value_of(training: Training) -> float:
    """Return the value of the setting that a run varies.

    Args:
        training: The run.
    """
    return training.within_class_cosine or training.temperature


def checkpoints(
    runs: Mapping[str, Training], sets: Sequence[str], rows: Sequence[Observation]
) -> dict[str, list[Checkpoint]]:
    """Collect the trained networks of all runs by group, in the order of the varied setting.

    Args:
        runs: Pretraining runs by name.
        sets: Names of the downstream sets.
        rows: Rows of the study.
    """
    groups: dict[str, list[Checkpoint]] = {}
    for name, training in runs.items():
        groups.setdefault(_group_of(training), []).append(_checkpoint(name, training, sets, rows))
    return {
        name: sorted(groups[name], key=lambda one: one.value) for name in GROUPS if name in groups
    }


def _checkpoint(
    name: str, training: Training, sets: Sequence[str], rows: Sequence[Observation]
) -> Checkpoint:
    path = trained(rows, name)
    metrics = {key: ends(path, key)[1] for key in METRICS}
    accuracy = ends(trained(rows, name, "test"), "accuracy")[1]
    probes = {one: ends(history(rows, name, one), "accuracy")[1] for one in sets}
    return Checkpoint(value_of(training), training.seed, metrics, accuracy, probes)


def printed() -> dict[str, list[Checkpoint]]:
    """Return the paper's checkpoints of tables 1 and 2, with 1 - cosine similarity as distance."""
    tables = zip(GROUPS, (published.TEMPERATURES, published.REGULARISED), strict=True)
    return {
        name: [_from_table(value, row) for value, row in table.items()] for name, table in tables
    }


def _from_table(value: float, row: published.PublishedCheckpoint) -> Checkpoint:
    metrics = {
        "fuzziness": row.fuzziness,
        "nc1_quotient": row.nc1_quotient,
        "cosine_within": 1 - row.cosine_similarity,
        "vci": row.vci,
    }
    probes = [percent / 100 for percent in row.accuracies]
    named = dict(zip(published.DOWNSTREAM, probes, strict=True))
    return Checkpoint(value, 0, metrics, row.accuracy / 100, named)


def over_seeds(group: Group, quantity: Quantity) -> dict[float, float]:
    """Average a quantity over seeds, for each value of the varied setting.

    Args:
        group: Checkpoints.
        quantity: Quantity of a checkpoint.
    """
    by_value: dict[float, list[float]] = {}
    for one in group:
        by_value.setdefault(one.value, []).append(quantity(one))
    return {value: average(numbers) for value, numbers in by_value.items()}


def metric(key: str) -> Quantity:
    """Return one of the four metrics as a quantity."""
    return lambda one: one.metrics.get(key, math.nan)


def probed(name: str) -> Quantity:
    """Return the probe's accuracy on a downstream set as a quantity."""
    return lambda one: one.downstream[name]


def odds_of(quantity: Quantity) -> Quantity:
    """Return the log odds of an accuracy as a quantity; NaN if the accuracy is NaN."""

    def odds(one: Checkpoint) -> float:
        share = quantity(one)
        return math.nan if math.isnan(share) else mean_log_odds([share])

    return odds


def pretrained(one: Checkpoint) -> float:
    """Return the pretraining accuracy; this function is a quantity."""
    return one.accuracy


def gain(one: Checkpoint) -> float:
    """Return MLOG; this function is a quantity."""
    return one.mlog


def log_odds(one: Checkpoint) -> float:
    """Return MLO; this function is a quantity."""
    return one.mlo


def pearson(group: Group, key: str, transfer: Quantity = gain) -> Correlation:
    """Compute Pearson's coefficient of a metric with transfer, over the means of the settings.

    Args:
        group: Checkpoints.
        key: Key of the metric.
        transfer: Quantity that measures transfer.

    Returns:
        The coefficient with its bootstrap interval; NaN if a setting has no finite value, or there
        are fewer than two settings.
    """
    scores = list(over_seeds(group, metric(key)).values())
    moved = list(over_seeds(group, transfer).values())
    if len(scores) < 2 or not all(map(math.isfinite, [*scores, *moved])):
        return UNKNOWN
    return correlations(scores, moved)["pearson"]


def by_seed(group: Group) -> dict[int, list[Checkpoint]]:
    """Split a group by seed."""
    seeds: dict[int, list[Checkpoint]] = {}
    for one in group:
        seeds.setdefault(one.seed, []).append(one)
    return seeds
