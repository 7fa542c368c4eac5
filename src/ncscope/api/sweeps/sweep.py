"""The sweep itself: check, run what is not finished, and write one table and one report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ncscope.api.studies import configured, load_run
from ncscope.api.sweeps.cluster import run_on_cluster
from ncscope.api.sweeps.here import run_here
from ncscope.api.sweeps.order import Order
from ncscope.api.sweeps.plan import Plan, Run, planned
from ncscope.api.sweeps.position import Board, OnChange, Position
from ncscope.errors import InputError
from ncscope.files import write_text
from ncscope.recipes.recipe import Scale
from ncscope.recipes.running import StudyRun
from ncscope.report.study_page import study_page
from ncscope.report.sweep import SweepTable, SweptRun, sweep_csv, sweep_table
from ncscope.training.run_folder import RunFolder, read_yaml
from ncscope.training.work import Work


@dataclass(frozen=True)
class Sweep:
    """What a sweep came to.

    Attributes:
        folder: With a folder for each run, ``sweep.yaml``, ``table.csv`` and ``report.html``.
        runs: By name, those that have left something; a run that failed is in it as far as it
            came.
        failures: By name, why a run failed, in one line.
        table: A line for each run, and for each of its parts if it has several.
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
    work: Work | None = None,
    on_change: OnChange = lambda positions: None,
) -> Sweep:
    """Run an experiment with each of several settings.

    Every run is as `reproduce` makes it, in a folder of its own, and writes the same
    ``metrics.jsonl`` by itself, one after another, or on a cluster of machines of one kind.

    Args:
        name: For example ``"xufm/ufm"``.
        runs: Values by dotted field, of each run; `grid` makes all combinations.
        out: Folder of the sweep; on a cluster, one that all machines see.
        scale: Whose settings to start from.
        resume: Go on with the sweep in this folder: what has ended is kept, what has not goes on
            where it was stopped, and what failed is tried again.
        overrides: Values by dotted field, for all runs.
        cluster: Where to run as many at a time as there is room for: ``"local"`` starts Ray on
            this machine, ``"auto"``, ``"HOST:PORT"`` or ``"ray://HOST:PORT"`` join a cluster. A run
            takes one core, one more for each of ``work.workers``, and a GPU if it trains on one.
            None runs one after another, here.
        work: Where data are and what to train on; one process for each run.
        on_change: Called as the work goes on.

    Raises:
        InputError: Before anything runs, if there is no such experiment or field, a value is out
            of bounds, the folder cannot be written, is written to by another process or holds
            another sweep, or there is no such cluster. What goes wrong in a run is in
            ``failures``, and the others go on.
    """
    means = _absolute(work or Work())
    plan = planned(name, scale, overrides, runs, Path(out).absolute())
    with RunFolder(plan.folder).writing_alone():
        _prepare(plan, resume)
        ended = {run.name for run in plan.runs if _ended(plan, run)}
        board = Board([run.name for run in plan.runs], on_change)
        board.put({run: Position("ended") for run in ended})
        orders = [
            Order(run.name, name, scale, run.overrides, plan.place(run), means)
            for run in plan.runs
            if run.name not in ended
        ]
        if cluster is None or not orders:
            failures = run_here(orders, board)
        else:
            failures = run_on_cluster(cluster, orders, plan.folder, board)
        return _written(plan, failures)


def _absolute(work: Work) -> Work:
    """The means, with a folder of data sets that means the same to every process."""
    if work.devices * work.nodes > 1:
        found = f"devices {work.devices}, nodes {work.nodes}"
        fix = "pass a cluster, which runs several runs at a time"
        raise InputError(expected="one device for each run of a sweep", found=found, fix=fix)
    return replace(work, data=work.data.absolute())


def _prepare(plan: Plan, resume: bool) -> None:
    """Write sweep.yaml; what an earlier sweep left is there only to resume."""
    if RunFolder.config_of(plan.folder) is not None:
        found = f"one of a single run, {plan.folder}"
        raise InputError(expected="the folder of a sweep", found=found, fix="pass another --out")
    file = plan.folder / "sweep.yaml"
    begun = any(plan.folder.glob("*/config.yaml"))
    earlier = read_yaml(file) if begun else None
    asked = yaml.safe_dump(plan.record, sort_keys=False)
    there = [run for run in plan.runs if RunFolder.config_of(plan.place(run)) is not None]
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
        if RunFolder.config_of(plan.place(run)) != plan.config_file(run):
            found, fix = f"another in {plan.place(run)}", "move that away, or pass another --out"
            raise InputError(expected=f"the run {run.name}", found=found, fix=fix)
    write_text(file, asked)


def _ended(plan: Plan, run: Run) -> bool:
    """Return whether a run has written its report, which it writes last, and is undamaged."""
    place = plan.place(run)
    try:
        return (place / "report.html").exists() and load_run(place).ended
    except InputError:
        return False  # run again, which mends the damage or says what it is


def _written(plan: Plan, failures: Mapping[str, str]) -> Sweep:
    """The table and the report, in the sweep's folder."""
    recipe, _ = configured(plan.recipe, plan.scale, plan.fixed)
    runs = dict[str, StudyRun]()
    for run in plan.runs:
        place = plan.place(run)
        if not (place / "config.yaml").exists():
            continue
        try:
            runs[run.name] = load_run(place)
        except InputError:
            if run.name not in failures:  # else the failure says what is wrong with the folder
                raise
    swept = [_swept(run, runs.get(run.name), failures.get(run.name, "")) for run in plan.runs]
    table = sweep_table(swept, recipe.columns)
    write_text(plan.folder / "table.csv", sweep_csv(swept, recipe.columns))
    facts = [recipe.source, f"recipe {plan.recipe}", f"scale {plan.scale}", f"{len(swept)} runs"]
    views = [run.view(name) for name, run in runs.items()]
    page = study_page(recipe.title, recipe.lead, facts, views, table)
    write_text(plan.folder / "report.html", page)
    return Sweep(plan.folder, runs, failures, table)


def _swept(run: Run, found: StudyRun | None, error: str) -> SweptRun:
    if found is None:
        return SweptRun(run.name, run.own, error=error)
    return SweptRun(run.name, run.own, found.claims, found.rows, error)
