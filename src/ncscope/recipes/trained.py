"""What the recipes that train networks share: their parts, and rows chosen from the result."""

from collections.abc import Mapping, Sequence
from functools import partial

from ncscope.probing.records import Row
from ncscope.recipes.recipe import Part
from ncscope.training.settings import Training
from ncscope.training.supervised import training_rows


def training_parts(runs: Mapping[str, Training]) -> list[Part]:
    """A part for each training run.

    Args:
        runs: Settings by the name of the part.
    """
    return [
        Part(name, _yields(training), partial(training_rows, training))
        for name, training in runs.items()
    ]


def _yields(training: Training) -> int:
    """A sign of life an epoch, and about so many rows a measurement."""
    layers = 1 if training.layers == () else 8
    return training.optimisation.epochs + 2 * layers * len(training.due)


def history(
    rows: Sequence[Row], part: str, split: str = "train", layer: str | None = None
) -> list[Row]:
    """The rows of one layer over training.

    Args:
        rows: Of a study.
        part: Name of the run.
        split: ``"train"`` or ``"test"``.
        layer: Name of the layer; by default the last, which feeds the classifier.
    """
    own = [row for row in rows if row["part"] == part and row["split"] == split]
    wanted = own[-1]["layer"] if layer is None else layer
    return [row for row in own if row["layer"] == wanted]


def layers(rows: Sequence[Row], part: str, epoch: int | None = None) -> list[Row]:
    """The rows of all layers at one epoch of training, in forward order; by default the last."""
    own = [row for row in rows if row["part"] == part and row["split"] == "train"]
    wanted = own[-1]["epoch"] if epoch is None else epoch
    return [row for row in own if row["epoch"] == wanted]


def line(rows: Sequence[Row], part: str) -> list[Row]:
    """The geodesic's prediction from the first comparable layer to the last."""
    return [row for row in rows if row["part"] == part and row["split"] == "line"]


def interpolation(path: Sequence[Row]) -> Row | None:
    """The first row of a layer's history at zero training error; None if there is none."""
    return next((row for row in path if row["accuracy"] == 1), None)


def values(path: Sequence[Row], key: str) -> list[float]:
    """One metric along rows."""
    return [float(row[key]) for row in path]
