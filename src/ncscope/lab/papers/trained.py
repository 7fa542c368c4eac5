"""Parts of recipes that train networks, and selections from their rows."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from ncscope.lab.runs.recipe import Part
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Extra, training_rows
from ncscope.probing.records import Row


def training_parts(runs: Mapping[str, Training], extra: Extra | None = None) -> list[Part]:
    """Return a part for each training run.

    Args:
        runs: Settings by the name of the part.
        extra: Function that measures more at the epochs that are due.
    """
    run = training_rows if extra is None else partial(training_rows, extra=extra)
    return [
        Part(name, training.optimisation.epochs, partial(run, training), trains=True)
        for name, training in runs.items()
    ]


def history(
    rows: Sequence[Row], part: str, split: str = "train", layer: str | None = None
) -> list[Row]:
    """Select the rows of one layer over training.

    Args:
        rows: Rows of a study.
        part: Name of the run.
        split: ``"train"`` or ``"test"``.
        layer: Name of the layer; by default the last, which feeds the classifier.
    """
    own = [row for row in rows if row["part"] == part and row["split"] == split]
    wanted = own[-1]["layer"] if own and layer is None else layer
    return [row for row in own if row["layer"] == wanted]


def layers(rows: Sequence[Row], part: str, epoch: int | None = None) -> list[Row]:
    """Select the rows of all layers at one epoch, in forward order; by default the last epoch."""
    own = [row for row in rows if row["part"] == part and row["split"] == "train"]
    wanted = own[-1]["epoch"] if own and epoch is None else epoch
    return [row for row in own if row["epoch"] == wanted]


def line(rows: Sequence[Row], part: str) -> list[Row]:
    """Select the geodesic's prediction from the first comparable layer to the last."""
    return [row for row in rows if row["part"] == part and row["split"] == "line"]


def interpolation(path: Sequence[Row], accuracy: float = 1.0) -> Row | None:
    """Return the first row of a layer's history at zero training error; None without one.

    Args:
        path: Rows of one layer over training, on the training set.
        accuracy: From which on the error counts as zero.
    """
    return next((row for row in path if float(row.get("accuracy", 0)) >= accuracy), None)


def interpolation_epoch(path: Sequence[Row], accuracy: float = 1.0) -> float | None:
    """Return the epoch of `interpolation`."""
    reached = interpolation(path, accuracy)
    return None if reached is None else float(reached["epoch"])


def values(path: Sequence[Row], key: str) -> list[float]:
    """One metric along rows, NaN where it was not measured."""
    return [float(row.get(key, math.nan)) for row in path]


def ends(path: Sequence[Row], key: str) -> tuple[float, float]:
    """One metric in the first row and in the last; NaN if there are none."""
    found = values(path, key) or [math.nan]
    return found[0], found[-1]
