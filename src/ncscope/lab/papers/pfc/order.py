"""Order of PFC1-3 over the layers of one dimension, at one epoch and over training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ncscope.lab.observations import Observation
from ncscope.lab.papers.trained import history, layers, values
from ncscope.metrics.layerwise import effective_depth, order_breaks

KEYS = {"pfc1": True, "pfc2": True, "pfc3": False}
"""PFC1-3, with True for metrics that fall at collapse."""


def comparable(
    rows: Sequence[Observation], name: str, epoch: int | None = None
) -> list[Observation]:
    """Select the layers of one dimension up to the effective depth, by default at the last epoch.

    Args:
        rows: Rows of the study.
        name: Name of the run.
        epoch: Measured epoch.
    """
    candidates = [row for row in layers(rows, name, epoch) if "relative_position" in row]
    depth = effective_depth(values(candidates, "pfc3"))
    return candidates if depth is None else candidates[: depth + 1]


def last_comparable(rows: Sequence[Observation], run: str) -> list[Observation]:
    """Select the rows of the last layer of one dimension over training.

    Args:
        rows: Rows of the study.
        run: Name of the run.
    """
    names = [row.layer for row in layers(rows, run) if "relative_position" in row]
    return history(rows, run, layer=names[-1]) if names else []


@dataclass(frozen=True)
class OrderAt:
    """Order of the layers at one epoch, up to the effective depth of that epoch.

    Attributes:
        epoch: Completed epochs.
        steps: Number of steps between successive layers.
        breaks: Number of steps in the wrong direction, for each of PFC1-3.
    """

    epoch: int
    steps: int
    breaks: Mapping[str, int]


def order_over_training(rows: Sequence[Observation], name: str) -> list[OrderAt]:
    """Count the order breaks of PFC1-3 at every measured epoch of a run.

    Args:
        rows: Rows of the study.
        name: Name of the run.
    """
    found = []
    for epoch in dict.fromkeys(row.epoch for row in history(rows, name)):
        compared = comparable(rows, name, epoch)
        breaks = {
            key: len(order_breaks(values(compared, key), falls)) for key, falls in KEYS.items()
        }
        found.append(OrderAt(epoch, max(len(compared) - 1, 0), breaks))
    return found
