"""Plan of a sweep: the runs, their names and their folders."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel

from ncscope.errors import InputError
from ncscope.lab.experiment import Scale
from ncscope.lab.runs.settings import by_dotted_name
from ncscope.lab.studies import configured

_LONGEST_NAME = 150
"""Longest name in characters: file systems allow 255 bytes, and partial files have longer names."""


def grid(over: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of values; the last field varies fastest.

    Args:
        over: The values of each field, by its dotted name.

    Raises:
        InputError: If a field has no value.

    Example:
        >>> grid({"seed": [0, 1], "steps": [100]})  # what `sweep` takes
        [{'seed': 0, 'steps': 100}, {'seed': 1, 'steps': 100}]
    """
    for name, values in over.items():
        if not values:
            fix = f"for example {name}=0,1"
            raise InputError(expected=f"values of {name}", found="none", fix=fix)
    return [dict(zip(over, values, strict=True)) for values in product(*over.values())]


@dataclass(frozen=True)
class Run:
    """A run of a sweep.

    Attributes:
        name: Readable name of the run, which is also the name of its folder.
        varied: Settings that the sweep varies, by dotted name.
        overrides: Varied settings, and the fixed settings of all runs.
        config: All settings, as in the run's config.yaml.
    """

    name: str
    varied: Mapping[str, Any]
    overrides: Mapping[str, Any]
    config: Mapping[str, Any]


@dataclass(frozen=True)
class SweepPlan:
    """Runs of a sweep.

    Attributes:
        recipe: Name of the experiment.
        scale: Scale whose settings the runs start from.
        fixed: Settings of all runs.
        runs: Runs, in order.
        folder: Folder of the sweep, with one folder for each run.
    """

    recipe: str
    scale: Scale
    fixed: Mapping[str, Any]
    runs: Sequence[Run]
    folder: Path

    @property
    def record(self) -> dict[str, Any]:
        """Return the request, which is the content of sweep.yaml."""
        runs = {run.name: dict(run.varied) for run in self.runs}
        return {
            "recipe": self.recipe,
            "scale": self.scale,
            "set": dict(self.fixed),
            "runs": runs,
        }

    def run_folder(self, run: Run) -> Path:
        """Return the folder of a run."""
        return self.folder / run.name

    def config_file(self, run: Run) -> dict[str, Any]:
        """Return the content of the run's config.yaml."""
        return {"recipe": self.recipe, "scale": self.scale, "settings": run.config}


def planned(
    recipe: str,
    scale: Scale,
    fixed: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
    folder: Path,
) -> SweepPlan:
    """Plan the runs of a sweep, and check every setting of each.

    Args:
        recipe: Name of the experiment.
        scale: Scale whose settings to start from.
        fixed: Values by dotted field, for all runs.
        points: Settings of each run by dotted field. A field that only other runs set has its
            value in ``fixed``, or else the scale's value.
        folder: Folder of the sweep.

    Raises:
        InputError: If no field is varied, every run overrides a value of ``fixed``, two runs are
            equal, or `configured` refuses a run.
    """
    fields = list(dict.fromkeys(name for point in points for name in point))
    if not fields:
        fix = "for example seed=0,1,2"
        raise InputError(expected="a setting to go over", found="none", fix=fix)
    _check_used(fixed, points)
    configs = [configured(recipe, scale, {**fixed, **point})[1] for point in points]
    owns = [_values(config, fields) for config in configs]
    names = _names(owns)
    runs = []
    for name, varied, config in zip(names, owns, configs, strict=True):
        overrides = _values(config, [*fixed, *fields])
        runs.append(Run(name, varied, overrides, config.model_dump(mode="json")))
    constant = _values(configs[0], [name for name in fixed if name not in fields])
    return SweepPlan(recipe, scale, constant, runs, folder)


def _check_used(fixed: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> None:
    for name in fixed:
        if all(name in point for point in points):
            expected = f"{name} to be the same for all runs (--set) or each run's own (--over)"
            raise InputError(expected=expected, found="both", fix="leave one of them out")


def _values(config: BaseModel, fields: Sequence[str]) -> dict[str, Any]:
    """Return checked settings by dotted name, in types of JSON."""
    known = by_dotted_name(config)
    return {name: known[name] for name in fields}


def _names(owns: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name each run by the fields that the sweep varies and their values."""
    names = [_name(varied) for varied in owns]
    twice, often = Counter(names).most_common(1)[0]
    if often > 1:
        fix = "leave one of them out"
        raise InputError(expected="runs that differ", found=f"{twice} {often} times", fix=fix)
    return names


def _name(varied: Mapping[str, Any]) -> str:
    short = _shortened(list(varied))
    name = ",".join(f"{quote(short[field])}={_text(value)}" for field, value in varied.items())
    if len(name) <= _LONGEST_NAME:
        return name
    whole = json.dumps(varied, sort_keys=True)
    return f"{name[: _LONGEST_NAME - 9]}-{sha256(whole.encode()).hexdigest()[:8]}"


def _shortened(fields: Sequence[str]) -> dict[str, str]:
    """Shorten dotted names to the last parts that tell them apart."""
    short = {}
    for field in fields:
        parts = field.split(".")
        ends = [".".join(parts[-many:]) for many in range(1, len(parts) + 1)]
        short[field] = next(
            end
            for end in ends
            if sum(f".{other}".endswith(f".{end}") for other in fields) == 1 or end == field
        )
    return short


def _text(value: Any) -> str:
    """Write a value for a name: letters, digits and ``_.-~``; other characters as ``%`` codes."""
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return "+".join(map(_text, value))
    return quote(value if isinstance(value, str) else json.dumps(value), safe="")
