"""Cells of a zoo: what was measured of every network on every target."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ncscope.lab.observations import Observation
from ncscope.lab.zoo.cells import A_FEW, ALL, IMAGES, SOURCE
from ncscope.lab.zoo.design import TransferZoo, networks
from ncscope.lab.zoo.values import NCTI
from ncscope.transfer import NctiParts, ncti
from ncscope.transfer.baselines import make_accuracy_table
from ncscope.transfer.records import ALL_SCORES, BASELINES, PRETRAINING, PRETRAINING_SCORES, Score

ACCURACY = "accuracy"
"""Key of the truth by probe."""

_SOURCE_FACTS = ("mir", "parameters")


@dataclass(frozen=True)
class Cell:
    """A network on a target.

    Attributes:
        network: Name of the network.
        architecture: Name of its architecture.
        source: Name of the set that it was trained on.
        target: Name of the target.
        images: Number of training images of the target: `ALL` or `A_FEW`.
        values: Truth, scores and facts by key; a value that is unknown is missing or NaN.
        folder: Checkpoint folder of the network, with its features; None if they are not there.
    """

    network: str
    architecture: str
    source: str
    target: str
    images: str
    values: Mapping[str, float]
    folder: Path | None = None

    def value(self, key: str) -> float:
        """Return a value; NaN if it is unknown."""
        return self.values.get(key, math.nan)

    def with_values(self, values: Mapping[str, float]) -> "Cell":
        """Return the cell with further values."""
        return replace(self, values={**self.values, **values})


def cells_of(
    config: TransferZoo, rows: Iterable[Observation], folder: Path | None = None
) -> list[Cell]:
    """Return the cells of a run.

    Args:
        config: Settings of the run.
        rows: Its observations.
        folder: Folder of the checkpoints of its parts; None if there are none.
    """
    trained = networks(config)
    facts: dict[str, dict[str, float]] = {}
    cells = []
    for row in rows:
        training = trained.get(row.part)
        if training is None:
            continue
        own = facts.setdefault(row.part, {})
        if IMAGES in row:
            values = {key: float(v) for key, v in row.values.items() if key != IMAGES}
            cells.append(
                Cell(
                    row.part,
                    training.network,
                    training.data,
                    row.split,
                    str(row[IMAGES]),
                    values,
                    None if folder is None else folder / row.part,
                )
            )
        elif row.split == SOURCE:
            own |= {key: float(row[key]) for key in _SOURCE_FACTS if key in row}
        elif row.epoch == training.optimisation.epochs:
            own |= _facts_of(row)
    return with_relative([cell.with_values(facts[cell.network]) for cell in cells])


def _facts_of(row: Observation) -> dict[str, float]:
    """Return the facts of a network that a measurement of its source at the end holds."""
    if row.split == "test":
        return {"source_accuracy": float(row.get(ACCURACY, math.nan))}
    keys = [key.removeprefix(PRETRAINING) for key in PRETRAINING_SCORES]
    found = {PRETRAINING + key: float(row[key]) for key in keys if key in row}
    return found | {key: float(row[key]) for key in ("within_off_signal",) if key in row}


def with_relative(cells: Sequence[Cell]) -> list[Cell]:
    """Add what depends on the other cells: NCTI, and the mean result on the other targets.

    Both are relative to the networks that were measured on the same target with as many images.

    Args:
        cells: Cells of all networks and targets.
    """
    found: dict[int, dict[str, float]] = {}
    for images in (ALL, A_FEW):
        own = [cell for cell in cells if cell.images == images]
        others = mean_of_others(own)
        for target in dict.fromkeys(cell.target for cell in own):
            of_target = [cell for cell in own if cell.target == target]
            parts = {
                id(cell): NctiParts(*(cell.value(NCTI + key) for key in NctiParts._fields))
                for cell in of_target
            }
            # A network without parts would take the index from all others.
            known = {key: each for key, each in parts.items() if all(map(math.isfinite, each))}
            indices = dict(zip(known, ncti(list(known.values())), strict=True))
            for cell in of_target:
                other = others[cell.network, cell.target]
                found[id(cell)] = {"ncti": indices.get(id(cell), math.nan), "other_sets": other}
    return [cell.with_values(found[id(cell)]) for cell in cells]


def mean_of_others(cells: Sequence[Cell]) -> dict[tuple[str, str], float]:
    """Return each network's mean standardised accuracy on the other targets.

    Accuracies are standardised by target over all networks, as `AccuracyTable.standing` does. This
    is what a table of past results tells.

    Args:
        cells: Cells of the same number of images.

    Returns:
        The mean by network and target; NaN if no other target is known.
    """
    results: dict[str, dict[str, float]] = {}
    for cell in cells:
        results.setdefault(cell.network, {})[cell.target] = cell.value(ACCURACY)
    table = make_accuracy_table(results)
    standings = {
        target: dict(zip(table.models, table.standings(left_out=target).tolist(), strict=True))
        for target in table.sets
    }
    return {(cell.network, cell.target): standings[cell.target][cell.network] for cell in cells}


MIR = Score("MIR, pretraining", 1)
JUDGED: Mapping[str, Score] = {
    **{key: score for key, score in ALL_SCORES.items() if key not in BASELINES},
    "mir": MIR,
    **BASELINES,
}
"""All scores that are judged on a zoo, besides the user's own and parts of the index."""
