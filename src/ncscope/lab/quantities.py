"""Runs of an experiment with their results, and the quantities that claims are made of.

A quantity is a function of one run, for example ``last("nc1")``; a claim table names quantities
(`ncscope.lab.claims`). A quantity that was not measured is NaN.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import BaseModel

from ncscope.lab.observations import Observation, Results
from ncscope.measurement.records import GeodesicRecord, Measurement

Path = Sequence[Observation]
"""Rows of one layer and split over training, or along a descent."""


@dataclass(frozen=True, eq=False)
class Run:
    """One part of an experiment: a training run or a descent.

    Attributes:
        name: Name of the part.
        settings: Settings of a training run; None for other parts.
        rows: Observations of the part, in order.
        measurements: Measurements of the part, in order.
        experiment: All runs of the experiment, this one among them.
    """

    name: str
    settings: Any
    rows: Path
    measurements: Sequence[Measurement]
    experiment: "Runs" = field(repr=False)

    def path(self, split: str = "train", layer: str | None = None) -> Path:
        """Select the rows of one layer.

        Args:
            split: ``"train"``, ``"test"`` or another split of the rows.
            layer: Name of the layer; default the last layer, which feeds the classifier.
        """
        rows = [row for row in self.rows if row.split == split]
        wanted = rows[-1].layer if rows and layer is None else layer
        return [row for row in rows if row.layer == wanted]

    def layers(self, epoch: int | None = None, split: str = "train") -> Path:
        """Select the rows of all layers at one epoch, in forward order; default the last epoch."""
        rows = [row for row in self.rows if row.split == split]
        wanted = rows[-1].epoch if rows and epoch is None else epoch
        return [row for row in rows if row.epoch == wanted]

    def geodesic(self) -> GeodesicRecord | None:
        """Return the prediction from the first comparable layer to the last, at the last epoch."""
        train = [each for each in self.measurements if each.split == "train"]
        return train[-1].model_record.geodesic if train else None

    def partner(self, **fields: Any) -> "Run | None":
        """Return the run that differs from this one in the given fields only; None without one.

        Args:
            fields: Fields of the settings, or of their ``optimisation``.
        """
        wanted = replace_fields(self.settings, **fields)
        return next((run for run in self.experiment if run.settings == wanted), None)


class Runs(Sequence[Run]):
    """Runs of an experiment, in order.

    Args:
        runs: The runs.
    """

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs = list(runs)

    @classmethod
    def of(cls, settings: Mapping[str, Any], results: Results) -> "Runs":
        """Collect the results of each part.

        Args:
            settings: Settings of the parts that train, by name; other parts have None.
            results: Results of the experiment.
        """
        rows: dict[str, list[Observation]] = {name: [] for name in settings}
        measurements: dict[str, list[Measurement]] = {}
        for row in results:
            rows.setdefault(row.part, []).append(row)
        for each in results.measurements:
            measurements.setdefault(each.run, []).append(each)
        runs = cls()
        runs._runs = [
            Run(name, settings.get(name), of_part, measurements.get(name, []), runs)
            for name, of_part in rows.items()
        ]
        return runs

    def __getitem__(self, index: Any) -> Any:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def named(self, name: str) -> Run:
        """Return the run with this name, without rows if it was not run."""
        missing = Run(name, None, [], [], self)
        return next((run for run in self if run.name == name), missing)

    def split(self, key: str) -> "Runs":
        """Split the runs' rows by one of their values, such as ``"seed"``, into runs of their own.

        Args:
            key: Value of the rows; rows without it are left out.
        """
        parts: dict[str, list[Observation]] = {}
        for run in self:
            for row in run.rows:
                if key in row:
                    parts.setdefault(f"{key} {row[key]}", []).append(row)
        return Runs(Run(name, None, rows, [], self) for name, rows in parts.items())

    def where(self, **fields: Any) -> "Runs":
        """Select the runs whose settings have these values.

        Args:
            fields: Fields of the settings, or of their ``optimisation``.
        """
        return Runs(
            run
            for run in self
            if all(read_field(run.settings, name) == value for name, value in fields.items())
        )

    def group(self, key: "Key") -> dict[str, "Runs"]:
        """Group runs by a field of their settings, or by what a function says of a run.

        Args:
            key: Name of a field, or a function of a run.
        """
        groups: dict[str, list[Run]] = {}
        for run in self:
            name = str(read_field(run.settings, key)) if isinstance(key, str) else key(run)
            groups.setdefault(name, []).append(run)
        return {name: Runs(runs) for name, runs in groups.items()}


Key = str | Callable[[Run], str]
"""Field of the settings, or function of a run, by which runs are grouped."""

Quantity = Callable[[Run], float]
"""Number of one run; NaN where it was not measured."""


def read_field(settings: Any, name: str) -> Any:
    """Return a field of a run's settings, or of their ``optimisation``."""
    inner = getattr(settings, "optimisation", None)
    return getattr(settings, name) if hasattr(settings, name) else getattr(inner, name, None)


def replace_fields(settings: Any, **fields: Any) -> Any:
    """Return settings with some fields replaced, also fields of their ``optimisation``."""
    optimisation: BaseModel | None = getattr(settings, "optimisation", None)
    inner = {
        name: value
        for name, value in fields.items()
        if optimisation is not None and name in type(optimisation).model_fields
    }
    outer = {name: value for name, value in fields.items() if name not in inner}
    if inner and optimisation is not None:
        outer["optimisation"] = optimisation.model_copy(update=inner)
    return settings.model_copy(update=outer)


def values(path: Path, key: str) -> list[float]:
    """Return one metric of every row, NaN for rows without the metric."""
    return [float(row.get(key, math.nan)) for row in path]


def ends(path: Path, key: str) -> tuple[float, float]:
    """Return one metric of the first and of the last row; NaN without rows."""
    course = values(path, key) or [math.nan]
    return course[0], course[-1]


def ratio(above: float, below: float) -> float:
    """Divide as floating point does: the result is infinity or NaN if the divisor is zero.

    Example:
        >>> ratio(1.0, 2.0), ratio(1.0, 0.0), ratio(0.0, 0.0)
        (0.5, inf, nan)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.divide(above, below))


def decades(start: float, end: float) -> float:
    r"""Return the number of decades by which a value falls, $\log_{10}$ of start over end."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.log10(ratio(start, end)))


def average(numbers: Sequence[float]) -> float:
    """Compute the mean; NaN without values."""
    return float(np.mean(numbers)) if len(numbers) else math.nan


def geometric_mean(numbers: Sequence[float]) -> float:
    """Compute the geometric mean: 0 if a value is 0, NaN without values.

    Example:
        >>> round(geometric_mean([1.0, 4.0]), 12), geometric_mean([0.0, 4.0]), geometric_mean([])
        (2.0, 0.0, nan)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.exp(np.mean(np.log(numbers)))) if len(numbers) else math.nan


def first(key: str, split: str = "train") -> Quantity:
    """Return the quantity of a metric's first value."""
    return lambda run: ends(run.path(split), key)[0]


def last(key: str, split: str = "train") -> Quantity:
    """Return the quantity of a metric's last value."""
    return lambda run: ends(run.path(split), key)[1]


def last_over_first(key: str, split: str = "train") -> Quantity:
    """Return the quantity of a metric's last value over its first."""
    return lambda run: ratio(*reversed(ends(run.path(split), key)))


def beyond(quantity: Quantity, **fields: Any) -> Quantity:
    """Return a quantity minus that of the partner, which differs in the given fields only.

    Args:
        quantity: Quantity of both runs.
        fields: Fields of the partner's settings.
    """

    def difference(run: Run) -> float:
        partner = run.partner(**fields)
        return math.nan if partner is None else quantity(run) - quantity(partner)

    return difference


def zero_error_row(path: Path, accuracy: float = 1.0) -> Observation | None:
    """Return the first row at zero training error; None without one.

    Args:
        path: Rows of the last layer on the training set.
        accuracy: Least accuracy that counts as zero error.
    """
    return next((row for row in path if float(row.get("accuracy", 0)) >= accuracy), None)
