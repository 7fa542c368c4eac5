"""Runs of an experiment with their results, and the quantities that claims are made of.

A quantity is a function of one run, for example ``last("nc1")``; a claim table names quantities
(`ncscope_lab.claims`). A quantity that was not measured is NaN.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import BaseModel

from ncscope.measurement.records import GeodesicRecord, Measurement
from ncscope.models.taps import HEAD_INPUT
from ncscope_lab.observations import Observation, Results

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
            layer: Name of the layer; default the input of the classifier, or the last layer of a
                model that has no classifier of that name.
        """
        rows = [row for row in self.rows if row.split == split]
        # What an experiment measures besides stands after the layers: the last row can be a block.
        layers = [row.layer for row in rows]
        if layer is None and layers:
            layer = HEAD_INPUT if HEAD_INPUT in layers else layers[-1]
        return [row for row in rows if row.layer == layer]

    def layers(self, epoch: int | None = None, split: str = "train") -> Path:
        """Select the rows of all layers at one epoch, in forward order; default the last epoch."""
        rows = [row for row in self.rows if row.split == split]
        wanted = rows[-1].epoch if rows and epoch is None else epoch
        return [row for row in rows if row.epoch == wanted]

    def geodesic(self) -> GeodesicRecord | None:
        """Return the prediction from the first comparable layer to the last, at the last epoch."""
        train = [each for each in self.measurements if each.split == "train"]
        return train[-1].model_record.geodesic if train else None

    def alike(self, *fields: str) -> "Runs":
        """Select the runs with this run's values of these fields, this run among them.

        Args:
            fields: Fields of the settings, or of their ``optimisation``.
        """
        own = {field: read_field(self.settings, field) for field in fields}
        return self.experiment.where(**own)

    def partner(self, **fields: Any) -> "Run | None":
        """Return the run that differs from this one in the given fields only; None without one.

        Args:
            fields: Fields of the settings, or of their ``optimisation``.
        """
        return self.experiment.by_settings.get(replace_fields(self.settings, **fields))


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

    @cached_property
    def by_settings(self) -> Mapping[Any, Run]:
        """The first run with each settings, which are found by their hash among hundreds."""
        return {run.settings: run for run in reversed(self._runs)}

    def find(self, name: str) -> Run:
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

AnyQuantity = Callable[[Run], float]
"""A quantity with or without a name."""


class Quantity:
    """A number of one run, NaN where it was not measured, and the numbers that it is made of.

    Quantities can be subtracted and divided, and asked of a run's partner; the judge then tells the
    parts too. A plain function of a run serves as a quantity without a name.

    Args:
        name: Name of the number, for the evidence.
        compute: Function of a run.
        parts: Quantities that the number is made of.

    Example:
        >>> fall = last("nc1") / first("nc1")
        >>> fall.name, [part.name for part in fall.parts]
        ('nc1 at the end over nc1 at the start', ['nc1 at the end', 'nc1 at the start'])
        >>> (last("accuracy") - last("accuracy").of_partner(method="plain")).name
        'accuracy at the end minus accuracy at the end with method plain'
    """

    def __init__(
        self, name: str, compute: Callable[[Run], float], parts: Sequence["Quantity"] = ()
    ) -> None:
        self.name, self.parts = name, tuple(parts)
        self._compute = compute

    def __call__(self, run: Run) -> float:
        """Return the number of a run."""
        return self._compute(run)

    def __sub__(self, other: "Quantity") -> "Quantity":
        """Return the difference, with both quantities as its parts."""
        name = f"{self.name} minus {other.name}"
        return Quantity(name, lambda run: self(run) - other(run), (self, other))

    def __truediv__(self, other: "Quantity") -> "Quantity":
        """Return the ratio, with both quantities as its parts."""
        return Quantity(
            f"{self.name} over {other.name}",
            lambda run: ratio(self(run), other(run)),
            (self, other),
        )

    def of_partner(self, **fields: Any) -> "Quantity":
        """Return the quantity of the run that differs in the given fields only; NaN without one.

        Args:
            fields: Fields of the partner's settings, or of their ``optimisation``.
        """
        words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in fields.items())
        return self.of(lambda run: run.partner(**fields), f"{self.name} with {words}")

    def of(self, find: Callable[[Run], Run | None], name: str) -> "Quantity":
        """Return the quantity of another run, NaN without one.

        Args:
            find: Function that finds the other run.
            name: Name of the new quantity.
        """

        def compute(run: Run) -> float:
            other = find(run)
            return math.nan if other is None else self(other)

        return Quantity(name, compute)


def quantity(
    name: str, parts: Sequence[Quantity] = ()
) -> Callable[[Callable[[Run], float]], Quantity]:
    """Turn a function of a run into a quantity with a name.

    Args:
        name: Name of the number, for the evidence.
        parts: Quantities that the number is made of.

    Example:
        >>> @quantity("measurements")
        ... def count_rows(run: Run) -> float:
        ...     return len(run.rows)
        >>> count_rows.name
        'measurements'
    """
    return lambda compute: Quantity(name, compute, parts)


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


def average_by_scale(numbers: Sequence[float], scale: str) -> float:
    """Compute the geometric mean of ratios, else the mean; numbers that are not measured apart."""
    known = [number for number in numbers if not math.isnan(number)]
    if scale == "ratio" and all(number > 0 for number in known):
        return geometric_mean(known)
    return average(known)


def first(key: str, split: str = "train", layer: str | None = None) -> Quantity:
    """Return the quantity of a metric's first value, in the last layer or a named one."""
    return Quantity(
        _name(key, "start", split, layer), lambda run: ends(run.path(split, layer), key)[0]
    )


def last(key: str, split: str = "train", layer: str | None = None) -> Quantity:
    """Return the quantity of a metric's last value, in the last layer or a named one."""
    return Quantity(
        _name(key, "end", split, layer), lambda run: ends(run.path(split, layer), key)[1]
    )


def _name(key: str, when: str, split: str, layer: str | None) -> str:
    where = f" in {layer}" if layer else ""
    return f"{key} at the {when}{where}{'' if split == 'train' else f' ({split})'}"


def last_over_first(key: str, split: str = "train", layer: str | None = None) -> Quantity:
    """Return the quantity of a metric's last value over its first, in the last layer or another."""
    return last(key, split, layer) / first(key, split, layer)


def zero_error_row(path: Path, accuracy: float = 1.0) -> Observation | None:
    """Return the first row at zero training error; None without one.

    Args:
        path: Rows of the last layer on the training set.
        accuracy: Least accuracy that counts as zero error.
    """
    return next((row for row in path if float(row.get("accuracy", 0)) >= accuracy), None)
