"""A sweep: plan its runs, carry out those that have not ended, write one table and one report."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml

from ncscope.errors import InputError
from ncscope.files import write_text
from ncscope_lab.catalogue import find_experiment
from ncscope_lab.execution import ExperimentRun, has_ended, load_run
from ncscope_lab.report.run_page import build_run_page
from ncscope_lab.report.sweep import SweepRow, SweepTable, sweep_csv, sweep_table
from ncscope_lab.runs.resources import Resources
from ncscope_lab.runs.run_folder import RunFolder, read_yaml
from ncscope_lab.runs.settings import list_settings
from ncscope_lab.sweeps.requests import OnChange, RunRequest, carry_out, use_one_device

if TYPE_CHECKING:
    from ncscope_lab.experiment import Experiment, Scale

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
class Sweep:
    """Result of a sweep.

    Attributes:
        folder: Folder with ``sweep.yaml``, ``table.csv``, ``report.html`` and one folder per run.
        runs: Runs that have results, by name; a failed run has the results up to its failure.
        failures: Reason of each failed run in one line, by name of the run.
        table: Table with a line for each run, or for each part of a run with several parts.
    """

    folder: Path
    runs: Mapping[str, ExperimentRun]
    failures: Mapping[str, str]
    table: SweepTable

    @property
    def page(self) -> Path:
        """The report."""
        return self.folder / "report.html"


def sweep(
    name: str,
    runs: Sequence[Mapping[str, Any]],
    *,
    out: str | Path,
    scale: "Scale" = "small",
    settings: Mapping[str, Any] = {},
    resume: bool = False,
    cluster: str | None = None,
    resources: Resources | None = None,
    on_change: OnChange = lambda positions: None,
) -> Sweep:
    """Run an experiment with each of several settings.

    Every run is made as by `ncscope_lab.execution.run`, in a separate folder. Its
    ``metrics.jsonl`` is the same whether the run is made alone, in a sequence, or on a cluster of
    machines of one kind.

    Args:
        name: Name of the experiment, for example ``"xufm/ufm"``, or path of a file.
        runs: Values by dotted field, for each run; `grid` makes all combinations.
        out: Folder of the sweep; on a cluster, all machines must see it.
        scale: "Scale" whose settings to start from.
        settings: Values by dotted field, for all runs.
        resume: Resume the sweep in this folder: keep the runs that have ended, resume the runs that
            were stopped, and repeat the runs that failed.
        cluster: Cluster that carries out as many runs at a time as it has resources for:
            ``"local"`` starts Ray on this machine; ``"auto"``, ``"HOST:PORT"`` or
            ``"ray://HOST:PORT"`` join a cluster. A run takes one core, one more for each of
            ``resources.workers``, and a GPU if it trains on one. None carries out one run after
            another in this process.
        resources: Resources of a run: data folder and accelerator. Each run has one process.
        on_change: Function called with the progress of the runs.

    Raises:
        InputError: Before any run starts, if the experiment or a field does not exist, a value is
            out of bounds, no field is varied, two runs are equal, the folder cannot be written,
            another process writes to it, it holds another sweep, or there is no such cluster. The
            failure of a run is recorded in ``failures``, and the other runs continue.
    """
    resources = use_one_device(resources or Resources())
    experiment, folder = find_experiment(name), Path(out).absolute()
    plans, fixed = _plan_runs(experiment, scale, settings, runs)
    record = {
        "experiment": experiment.id,
        "scale": scale,
        "set": fixed,
        "runs": {plan.name: dict(plan.varied) for plan in plans},
    }
    with RunFolder(folder).lock():
        _prepare_folder(folder, record, plans, resume)
        ended = [plan.name for plan in plans if has_ended(folder / plan.name)]
        requests = [
            RunRequest(
                plan.name, experiment.id, scale, plan.settings, folder / plan.name, resources
            )
            for plan in plans
            if plan.name not in ended
        ]
        failures = carry_out(requests, folder, cluster, on_change, ended)
        return _write_report(experiment, scale, plans, folder, failures)


@dataclass(frozen=True)
class RunPlan:
    """A run of a sweep.

    Attributes:
        name: Readable name of the run, which is also the name of its folder.
        varied: Settings that the sweep varies, by dotted name.
        settings: Varied settings, and the fixed settings of all runs.
        record: Content of the run's config.yaml.
    """

    name: str
    varied: Mapping[str, Any]
    settings: Mapping[str, Any]
    record: Mapping[str, Any]


def _plan_runs(
    experiment: "Experiment[Any]",
    scale: "Scale",
    fixed: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
) -> tuple[list[RunPlan], dict[str, Any]]:
    """Check every setting of each run; return the runs, and the settings that all runs share.

    A field that only other runs set has its value in ``fixed``, or else the scale's value.
    """
    fields = list(dict.fromkeys(name for point in points for name in point))
    if not fields:
        fix = "for example seed=0,1,2"
        raise InputError(expected="a setting to go over", found="none", fix=fix)
    for name in fixed:
        if all(name in point for point in points):
            expected = f"{name} to be the same for all runs (--set) or each run's own (--over)"
            raise InputError(expected=expected, found="both", fix="leave one of them out")
    plans = []
    for point in points:
        config = experiment.configure(scale, {**fixed, **point})
        known = list_settings(config)
        # A name with a * stands for several settings, which all have the value that is given.
        known = {**fixed, **point} | known
        varied = {field: known[field] for field in fields}
        record = {
            "experiment": experiment.id,
            "scale": scale,
            "settings": config.model_dump(mode="json"),
        }
        own = {field: known[field] for field in [*fixed, *fields]}
        plans.append(RunPlan(_name_run(varied), varied, own, record))
    twice, often = Counter(plan.name for plan in plans).most_common(1)[0]
    if often > 1:
        fix = "leave one of them out"
        raise InputError(expected="runs that differ", found=f"{twice} {often} times", fix=fix)
    shared = {name: plans[0].settings[name] for name in fixed if name not in fields}
    return plans, shared


def _name_run(varied: Mapping[str, Any]) -> str:
    """Name a run by the fields that the sweep varies and their values."""
    short = _shorten_fields(list(varied))
    name = ",".join(
        f"{quote(short[field])}={_write_value(value)}" for field, value in varied.items()
    )
    if len(name) <= _LONGEST_NAME:
        return name
    whole = json.dumps(varied, sort_keys=True)
    return f"{name[: _LONGEST_NAME - 9]}-{sha256(whole.encode()).hexdigest()[:8]}"


def _shorten_fields(fields: Sequence[str]) -> dict[str, str]:
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


def _write_value(value: Any) -> str:
    """Write a value for a name: letters, digits and ``_.-~``; other characters as ``%`` codes."""
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return "+".join(map(_write_value, value))
    return quote(value if isinstance(value, str) else json.dumps(value), safe="")


def _prepare_folder(
    folder: Path, record: Mapping[str, Any], plans: Sequence[RunPlan], resume: bool
) -> None:
    """Write sweep.yaml; refuse a folder that holds runs, unless this sweep resumes them."""
    if RunFolder.read_config(folder) is not None:
        found = f"one of a single run, {folder}"
        raise InputError(expected="the folder of a sweep", found=found, fix="pass another --out")
    file = folder / "sweep.yaml"
    earlier = read_yaml(file) if any(folder.glob("*/config.yaml")) else None
    there = {plan.name: RunFolder.read_config(folder / plan.name) for plan in plans}
    begun = [name for name, config in there.items() if config is not None]
    if (earlier is not None or begun) and not resume:
        fix = "pass --resume to go on with it, or another --out"
        found = f"one with {'a sweep' if earlier is not None else begun[0]} in it, {folder}"
        raise InputError(expected="an output folder without runs", found=found, fix=fix)
    text = yaml.safe_dump(dict(record), sort_keys=False)
    wanted = yaml.safe_load(text)
    if earlier is not None and earlier != wanted:
        key = next(key for key in wanted | earlier if earlier.get(key) != wanted.get(key))
        found = f"another {key}" if key != "runs" else "other runs"
        raise InputError(expected=f"the sweep of {file}", found=found, fix="pass another --out")
    for plan in plans:
        if there[plan.name] not in (None, plan.record):
            found = f"another in {folder / plan.name}"
            fix = "move that away, or pass another --out"
            raise InputError(expected=f"the run {plan.name}", found=found, fix=fix)
    write_text(file, text)


def _write_report(
    experiment: "Experiment[Any]",
    scale: "Scale",
    plans: Sequence[RunPlan],
    folder: Path,
    failures: Mapping[str, str],
) -> Sweep:
    """Write the table and the report into the sweep's folder."""
    runs, rows = dict[str, ExperimentRun](), []
    for plan in plans:
        error = failures.get(plan.name, "")
        if (folder / plan.name / "config.yaml").exists():
            try:
                runs[plan.name] = load_run(folder / plan.name)
            except InputError:
                if not error:  # else the failure already describes the damage
                    raise
        run = runs.get(plan.name)
        if run is None:
            rows.append(SweepRow(plan.name, plan.varied, error=error))
        else:
            rows.append(SweepRow(plan.name, plan.varied, run.claims, run.rows, error))
    table = sweep_table(rows, experiment.columns)
    write_text(folder / "table.csv", sweep_csv(rows, experiment.columns))
    facts = [experiment.source, f"experiment {experiment.id}", f"scale {scale}"]
    facts.append(f"{len(rows)} runs")
    views = [run.view(name) for name, run in runs.items()]
    page = build_run_page(experiment.title, experiment.question, facts, views, table)
    write_text(folder / "report.html", page)
    return Sweep(folder, runs, failures, table)
