"""Runs with few labels by data set, number of labels, method and seed, and their errors."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.observations import Observation
from ncscope.lab.training.semi_supervised.settings import FewLabels

METHODS: Mapping[str, Mapping[str, str | float]] = {
    "supervised": {"method": "supervised"},
    "FixMatch": {"method": "fixmatch"},
    "FreeMatch": {"method": "freematch"},
    "FreeMatch + MI": {"method": "freematch", "mutual_information": 0.1},
    "FreeMatch + ED": {"method": "freematch", "entropy_difference": 0.1},
}
"""Compared methods, as fields of `FewLabels`: supervised, baselines, and information losses."""


class SemiSupervised(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, FewLabels] = Field(description="Training runs by name.")


class Setting(NamedTuple):
    """A data set and a number of labels."""

    data: str
    labels: int

    def __str__(self) -> str:
        return f"{self.data}, {self.labels} labels"


def method_of(run: FewLabels) -> str:
    """Return the name of a run's method in the table."""
    name = {"supervised": "supervised", "fixmatch": "FixMatch", "freematch": "FreeMatch"}
    more = [" + MI"] if run.mutual_information else []
    more += [" + ED"] if run.entropy_difference else []
    return "".join([name[run.method], *more])


def by_setting(config: SemiSupervised) -> dict[Setting, dict[str, list[str]]]:
    """Return the names of the runs by setting and method, seed by seed."""
    found: dict[Setting, dict[str, list[str]]] = {}
    for name, run in config.runs.items():
        own = found.setdefault(Setting(run.data, run.labels), {})
        own.setdefault(method_of(run), []).append(name)
    return found


def errors(rows: Sequence[Observation], names: Sequence[str]) -> list[float]:
    """Return each run's last error on held-out images in per cent; NaN for a run without one."""
    last = {row.part: row.get("error", math.nan) for row in rows if row.split == "test"}
    return [100 * float(last.get(name, math.nan)) for name in names]


def summary(found: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is NaN for a single value."""
    if not found or not all(map(math.isfinite, found)):
        return math.nan, math.nan
    return mean(found), stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan


def shown(found: tuple[float, float]) -> str:
    """Write mean and standard error as text."""
    middle, error = found
    if not math.isfinite(middle):
        return "unknown"
    return f"{middle:.2f}" + (f" ± {error:.2f}" if math.isfinite(error) else "")
