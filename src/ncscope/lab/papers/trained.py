"""Parts of recipes that train networks, and selections from their rows."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from ncscope.lab.observations import Observation, Results
from ncscope.lab.runs.recipe import Part
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Extra, training_events
from ncscope.probing.records import GeodesicRecord


def training_parts(runs: Mapping[str, Training], extra: Extra | None = None) -> list[Part]:
    """Return a part for each training run.

    Args:
        runs: Settings by the name of the part.
        extra: Function that measures more at the epochs that are due.
    """
    run = training_events if extra is None else partial(training_events, extra=extra)
    return [
        Part(name, training.optimisation.epochs, partial(run, training), trains=True)
        for name, training in runs.items()
    ]


def history(
    rows: Sequence[Observation], part: str, split: str = "train", layer: str | None = None
) -> list[Observation]:
    """Select the rows of one layer over training.

    Args:
        rows: Rows of a study.
        part: Name of the run.
        split: ``"train"`` or ``"test"``.
        layer: Name of the layer; default the last layer, which feeds the classifier.
    """
    own = [row for row in rows if row.part == part and row.split == split]
    wanted = own[-1].layer if own and layer is None else layer
    return [row for row in own if row.layer == wanted]


def layers(rows: Sequence[Observation], part: str, epoch: int | None = None) -> list[Observation]:
    """Select the rows of all layers at one epoch, in forward order; by default the last epoch."""
    own = [row for row in rows if row.part == part and row.split == "train"]
    wanted = own[-1].epoch if own and epoch is None else epoch
    return [row for row in own if row.epoch == wanted]


def geodesic(results: Results, part: str) -> GeodesicRecord | None:
    """Return the prediction from the first comparable layer to the last, at the last epoch."""
    own = [each for each in results.measurements if each.run == part and each.split == "train"]
    return own[-1].probe.geodesic if own else None


def interpolation(path: Sequence[Observation], accuracy: float = 1.0) -> Observation | None:
    """Return the first row of a layer's history at zero training error; None without one.

    Args:
        path: Rows of one layer over training, on the training set.
        accuracy: Least accuracy that counts as zero error.
    """
    return next((row for row in path if float(row.get("accuracy", 0)) >= accuracy), None)


def interpolation_epoch(path: Sequence[Observation], accuracy: float = 1.0) -> float | None:
    """Return the epoch of `interpolation`."""
    reached = interpolation(path, accuracy)
    return None if reached is None else reached.epoch


def values(path: Sequence[Observation], key: str) -> list[float]:
    """Return one metric of every row, NaN for rows without the metric."""
    return [float(row.get(key, math.nan)) for row in path]


def ends(path: Sequence[Observation], key: str) -> tuple[float, float]:
    """Return one metric of the first and of the last row; NaN without rows."""
    found = values(path, key) or [math.nan]
    return found[0], found[-1]
