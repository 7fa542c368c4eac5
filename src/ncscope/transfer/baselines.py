"""Baselines that know nothing of the downstream set: size, source accuracy, other sets' results."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ncscope.arguments import Seed, check_arguments
from ncscope.errors import InputError
from ncscope.files import read_file
from ncscope.transfer.correlations import Values
from ncscope.transfer.quality import RankingQuality, ranking_quality

_COLUMNS = ("model", "set", "accuracy")
_OPTIONAL = ("parameters", "source_accuracy")


@dataclass(frozen=True)
class AccuracyTable:
    """Known accuracies of models on sets.

    Attributes:
        models: Names of the models.
        sets: Names of the sets.
        accuracies: Accuracy of each model on each set, models x sets; NaN if unknown.
        parameters: Number of parameters of each model; NaN if unknown.
        source_accuracies: Accuracy of each model on its own pretraining set; NaN if unknown.
    """

    models: tuple[str, ...]
    sets: tuple[str, ...]
    accuracies: Values
    parameters: Values
    source_accuracies: Values

    @check_arguments
    def standings(self, left_out: str | None = None) -> Values:
        r"""Return each model's mean z-score over the sets, without one of them.

        The z-score on a set is the accuracy less the mean over the models known there, divided by
        their standard deviation. A set with fewer than two models, or where all are equal, has
        no z-score. NaN for a model without a z-score on any other set.

        Args:
            left_out: Name of the set that is not counted.
        """
        scores = np.full(self.accuracies.shape, np.nan)
        for index, column in enumerate(self.accuracies.T):
            known = ~np.isnan(column)
            values = column[known]
            # Equal values are compared as they are: the deviation of equal numbers from their
            # rounded mean may not be 0, and would divide rounding by rounding.
            if len(values) > 1 and (values != values[0]).any():
                scores[known, index] = (values - values.mean()) / values.std()
        scores = scores[:, [name != left_out for name in self.sets]]
        known = ~np.isnan(scores)
        counts = known.sum(1)
        total = np.where(known, scores, 0.0).sum(1)
        return np.divide(total, counts, where=counts > 0, out=np.full(len(total), np.nan))


@dataclass(frozen=True)
class StaticRanking:
    """Orders of models by baselines that do not see the set on which they are judged.

    Attributes:
        models: Names of the models.
        sets: Names of the sets.
        standings: Mean z-score of each model over all sets but the one of the column, models x
            sets; NaN if no other set knows the model.
        qualities: Agreement with the accuracies by baseline: ``"other_sets"`` for the standings,
            ``"parameters"`` and ``"source_accuracy"`` if the table has them.
    """

    models: tuple[str, ...]
    sets: tuple[str, ...]
    standings: Values
    qualities: Mapping[str, RankingQuality]


@check_arguments
def static_ranking(
    results: AccuracyTable | Mapping[str, Mapping[str, float]], *, seed: Seed = 0
) -> StaticRanking:
    """Rank models on each set by their mean z-score on all other sets.

    Such a ranking needs no features of the set, and reaches a weighted tau of 0.67 to 0.83 on four
    public tables of accuracies after fine-tuning. It knows the history of the models where a score
    does not: a bar for usefulness, not a rival with equal information. A model that no other set
    knows ranks last.

    Args:
        results: Table, or accuracies by model and set; a missing cell is unknown.
        seed: Seed of the bootstrap over models and sets.

    Raises:
        InputError: If there are fewer than two models or two sets, or the results are neither.

    Example:
        >>> table = {"small": {"a": 0.5, "b": 0.6}, "large": {"a": 0.7, "b": 0.9}}
        >>> ranking = static_ranking(table)
        >>> ranking.standings.tolist(), ranking.qualities["other_sets"].regret.value
        ([[-1.0, -1.0], [1.0, 1.0]], 0.0)
    """
    table = results if isinstance(results, AccuracyTable) else make_accuracy_table(results)
    if len(table.models) < 2 or len(table.sets) < 2:
        raise InputError(
            expected="results of two models or more on two sets or more",
            found=f"{len(table.models)} models and {len(table.sets)} sets",
            fix="add accuracies on other sets",
        )
    standings = np.stack([table.standings(left_out=name) for name in table.sets], axis=1)
    baselines = {"other_sets": standings}
    for name, column in (
        ("parameters", table.parameters),
        ("source_accuracy", table.source_accuracies),
    ):
        if not np.isnan(column).all():
            baselines[name] = np.repeat(column[:, None], len(table.sets), axis=1)
    qualities = {
        name: ranking_quality(scores, table.accuracies, seed=seed)
        for name, scores in baselines.items()
    }
    return StaticRanking(table.models, table.sets, standings, qualities)


@check_arguments
def baselines_of(
    table: AccuracyTable, names: Sequence[str], left_out: str | None = None
) -> dict[str, dict[str, float]]:
    """Return what a table of results knows of each checkpoint, by key of `BASELINES`.

    Args:
        table: Results on other sets.
        names: Names of the checkpoints; those that the table lacks have no baselines.
        left_out: Name of the downstream set, whose results are not counted.

    Raises:
        InputError: If the table has none of the checkpoints.
    """
    rows = {name: table.models.index(name) for name in names if name in table.models}
    if not rows:
        raise InputError(
            expected=f"results of one of the checkpoints, for example {names[0]}",
            found=f"results of {', '.join(table.models[:5]) or 'no model'}",
            fix="name the models in the results as the checkpoints are named",
        )
    columns = {
        "parameters": table.parameters,
        "source_accuracy": table.source_accuracies,
        "other_sets": table.standings(left_out),
    }
    return {
        name: {
            key: float(column[row])
            for key, column in columns.items()
            if not math.isnan(column[row])
        }
        for name, row in rows.items()
    }


def make_accuracy_table(results: Mapping[str, Mapping[str, float]]) -> AccuracyTable:
    """Arrange accuracies by model and set as a table.

    Args:
        results: Accuracies by model, then by set; a missing cell is unknown.
    """
    cells = ((model, name, value) for model, row in results.items() for name, value in row.items())
    return _arrange({(model, name): float(value) for model, name, value in cells}, {})


@check_arguments
def read_results(path: str | Path) -> AccuracyTable:
    """Read a CSV file with the columns model, set and accuracy.

    The columns parameters and source_accuracy may be added; they are facts of the model and need
    to stand in one of its rows only. An empty cell is unknown.

    Args:
        path: File with a header line.

    Raises:
        InputError: If the file cannot be read, a column is missing, a cell is no number, or a model
            has two different values.
    """
    path = Path(path)
    content = read_file(path, expected="a CSV file of results", fix="check the path")
    try:
        lines = io.StringIO(content.decode("utf-8-sig"), newline="")
        reader = csv.DictReader(lines, skipinitialspace=True)
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        header = reader.fieldnames
        if not all(name in header for name in _COLUMNS):
            fix = "name the columns so, one row for each model and set"
            if any(mark in name for name in header for mark in ";\t"):
                fix = "separate the columns by commas"
            expected, found = f"a header with {', '.join(_COLUMNS)} in {path}", ", ".join(header)
            raise InputError(expected=expected, found=found or "an empty file", fix=fix)
        cells: _Cells = {}
        facts: _Cells = {}
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            model, name = ((row[key] or "").strip() for key in ("model", "set"))
            if not model or not name:
                expected, found = f"a model and a set in {where}", "an empty one"
                raise InputError(expected=expected, found=found, fix="name it")
            _enter(cells, (model, name), row["accuracy"], "accuracy", where)
            for column in _OPTIONAL:
                _enter(facts, (model, column), row.get(column), column, where)
        return _arrange(cells, facts)
    except (UnicodeDecodeError, csv.Error) as error:
        fix = "pass a CSV file in UTF-8"
        raise InputError(expected=f"results in {path}", found=str(error), fix=fix) from error


_Cells = dict[tuple[str, str], float]


def _enter(cells: _Cells, key: tuple[str, str], text: str | None, column: str, where: str) -> None:
    """Store the number in a cell of the file, and refuse a second number that differs.

    An empty cell is NaN, which yields to a number.
    """
    value = math.nan
    if text is not None and text.strip():
        try:
            value = float(text)
        except ValueError:
            value = math.inf
    if math.isinf(value):
        expected = f"a number as {column} in {where}"
        raise InputError(expected=expected, found=repr(text), fix="leave unknown cells empty")
    earlier = cells.get(key, math.nan)
    if not math.isnan(earlier) and not math.isnan(value) and earlier != value:
        raise InputError(
            expected=f"one number for {key[0]} and {key[1]}",
            found=f"{earlier:g} and, in {where}, {value:g}",
            fix="average them before",
        )
    cells[key] = value if math.isnan(earlier) else earlier


def _arrange(cells: _Cells, facts: _Cells) -> AccuracyTable:
    models = tuple(dict.fromkeys(model for model, _ in cells))
    sets = tuple(dict.fromkeys(name for _, name in cells))
    values = [[cells.get((model, name), math.nan) for name in sets] for model in models]
    columns = [
        np.array([facts.get((model, key), math.nan) for model in models]) for key in _OPTIONAL
    ]
    accuracies = np.array(values, dtype=np.float64).reshape(len(models), len(sets))
    return AccuracyTable(models, sets, accuracies, *columns)
