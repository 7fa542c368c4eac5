"""The sweep: check the plan, carry out unfinished runs, and write one table and one report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ncscope.errors import InputError
from ncscope.files import write_text
from ncscope.lab.experiment import Scale
from ncscope.lab.report.study_page import study_page
from ncscope.lab.report.sweep import SweepTable, SweptRun, sweep_csv, sweep_table
from ncscope.lab.runs.resources import Resources
from ncscope.lab.runs.run_folder import RunFolder, read_yaml
from ncscope.lab.runs.running import StudyRun
from ncscope.lab.studies import configured, has_ended, load_run
from ncscope.lab.sweeps.cluster import run_on_cluster
from ncscope.lab.sweeps.plan import Run, SweepPlan, planned
from ncscope.lab.sweeps.run_request import (
    OnChange,
    RunProgress,
    RunRequest,
    SweepProgress,
    run_here,
)


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
    runs: Mapping[str, StudyRun]
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
    scale: Scale = "small",
    resume: bool = False,
    overrides: Mapping[str, Any] = {},
    cluster: str | None = None,
    resources: Resources | None = None,
    on_change: OnChange = lambda positions: None,
) -> Sweep:
    """Run an experiment with each of several settings.

    Every run is made as by `reproduce`, in a separate folder. Its ``metrics.jsonl`` is the same
    whether the run is made alone, in a sequence, or on a cluster of machines of one kind.

    Args:
        name: Name of the experiment, for example ``"xufm/ufm"``.
        runs: Values by dotted field, for each run; `grid` makes all combinations.
        out: Folder of the sweep; on a cluster, all machines must see it.
        scale: Scale whose settings to start from.
        resume: Resume the sweep in this folder: keep the runs that have ended, resume the runs that
            were stopped, and repeat the runs that failed.
        overrides: Values by dotted field, for all runs.
        cluster: Cluster that carries out as many runs at a time as it has resources for:
            ``"local"`` starts Ray on this machine; ``"auto"``, ``"HOST:PORT"`` or
            ``"ray://HOST:PORT"`` join a cluster. A run takes one core, one more for each of
            ``resources.workers``, and a GPU if it trains on one. None carries out one run after
            another in this process.
        resources: Resources of a run: data folder and accelerator. Each run has one process.
        on_change: Function called with the progress of the runs.

    Raises:
        InputError: Before any run starts, if the experiment or a field does not exist, a value is
            out of bounds, the folder cannot be written, another process writes to it, it holds
            another sweep, or there is no such cluster. The failure of a run is recorded in
            ``failures``, and the other runs continue.
    """
    resources = on_one_device(resources or Resources())
    plan = planned(name, scale, overrides, runs, Path(out).absolute())
    with RunFolder(plan.folder).writing_alone():
        _prepare(plan, resume)
        ended = {run.name for run in plan.runs if has_ended(plan.run_folder(run))}
        progress = SweepProgress([run.name for run in plan.runs], on_change)
        progress.update({run: RunProgress("ended") for run in ended})
        requests = [
            RunRequest(run.name, name, scale, run.overrides, plan.run_folder(run), resources)
            for run in plan.runs
            if run.name not in ended
        ]
        if cluster is None or not requests:
            failures = run_here(requests, progress)
        else:
            failures = run_on_cluster(cluster, requests, plan.folder, progress)
        return _written(plan, failures)


def on_one_device(resources: Resources) -> Resources:
    """Return the resources with an absolute data folder, the same for every process.

    Args:
        resources: Resources of a run.

    Raises:
        InputError: If a run would have several devices.
    """
    if resources.devices * resources.nodes > 1:
        found = f"devices {resources.devices}, nodes {resources.nodes}"
        fix = "pass a cluster, which runs several runs at a time"
        raise InputError(expected="one device for each run of a sweep", found=found, fix=fix)
    return replace(resources, data=resources.data.absolute())


def _prepare(plan: SweepPlan, resume: bool) -> None:
    """Write sweep.yaml; refuse a folder that holds runs, unless this sweep resumes them."""
    if RunFolder.config_of(plan.folder) is not None:
        found = f"one of a single run, {plan.folder}"
        raise InputError(expected="the folder of a sweep", found=found, fix="pass another --out")
    file = plan.folder / "sweep.yaml"
    begun = any(plan.folder.glob("*/config.yaml"))
    earlier = read_yaml(file) if begun else None
    asked = yaml.safe_dump(plan.record, sort_keys=False)
    there = [run for run in plan.runs if RunFolder.config_of(plan.run_folder(run)) is not None]
    if (earlier is not None or there) and not resume:
        fix = "pass --resume to go on with it, or another --out"
        found = (
            f"one with {'a sweep' if earlier is not None else there[0].name} in it, {plan.folder}"
        )
        raise InputError(expected="an output folder without runs", found=found, fix=fix)
    if earlier is not None and earlier != yaml.safe_load(asked):
        wanted = yaml.safe_load(asked)
        key = next(key for key in wanted | earlier if earlier.get(key) != wanted.get(key))
        found = f"another {key}" if key != "runs" else "other runs"
        raise InputError(expected=f"the sweep of {file}", found=found, fix="pass another --out")
    for run in there:
        if RunFolder.config_of(plan.run_folder(run)) != plan.config_file(run):
            found, fix = (
                f"another in {plan.run_folder(run)}",
                "move that away, or pass another --out",
            )
            raise InputError(expected=f"the run {run.name}", found=found, fix=fix)
    write_text(file, asked)


def _written(plan: SweepPlan, failures: Mapping[str, str]) -> Sweep:
    """Write the table and the report into the sweep's folder."""
    recipe, _ = configured(plan.recipe, plan.scale, plan.fixed)
    runs = dict[str, StudyRun]()
    for run in plan.runs:
        folder = plan.run_folder(run)
        if not (folder / "config.yaml").exists():
            continue
        try:
            runs[run.name] = load_run(folder)
        except InputError:
            if run.name not in failures:  # else the failure already describes the damage
                raise
    swept = [_swept(run, runs.get(run.name), failures.get(run.name, "")) for run in plan.runs]
    table = sweep_table(swept, recipe.columns)
    write_text(plan.folder / "table.csv", sweep_csv(swept, recipe.columns))
    facts = [recipe.source, f"recipe {plan.recipe}", f"scale {plan.scale}", f"{len(swept)} runs"]
    views = [run.view(name) for name, run in runs.items()]
    page = study_page(recipe.title, recipe.question, facts, views, table)
    write_text(plan.folder / "report.html", page)
    return Sweep(plan.folder, runs, failures, table)


def _swept(run: Run, found: StudyRun | None, error: str) -> SweptRun:
    if found is None:
        return SweptRun(run.name, run.varied, error=error)
    return SweptRun(run.name, run.varied, found.claims, found.rows, error)
