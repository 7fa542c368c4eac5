"""Run an experiment, part by part, in a folder from which it can be resumed and read."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ncscope.api.history import History
from ncscope.errors import InputError
from ncscope.measurement.provenance import Provenance, record_provenance
from ncscope.report.tables import Summary
from ncscope_lab.catalogue import find_experiment
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Event, Heartbeat, Results, together
from ncscope_lab.report.drawing import Drawing, render
from ncscope_lab.report.run_page import RunView, build_run_page, run_sections
from ncscope_lab.runs.reproducible import reproducible
from ncscope_lab.runs.resources import Resources, first_process
from ncscope_lab.runs.run_folder import PartMark, RunFolder, mark_part, observation_line
from ncscope_lab.runs.settings import check_settings

if TYPE_CHECKING:
    # An experiment loads every library that training needs, in seconds: not before one is found.
    from ncscope_lab.experiment import Experiment, Part, Scale

OnRow = Callable[[str, int, int], None]
"""Function called with the progress: description of part and epoch, amount done, total amount."""

_SECONDS_BETWEEN_SAVES = 2.0
_RESULTS = ("claims.json", "report.html")
"""Files that a run writes after all of its parts have ended."""
_OF_A_RUN = ("config.yaml", "finished.json", "metrics.jsonl")
_RUN_AGAIN = "run the same command with --resume to make them anew"


@dataclass(frozen=True)
class ExperimentRun:
    """Result of a run of an experiment.

    Attributes:
        experiment: The experiment.
        scale: "Scale" whose settings the run started from.
        config: Settings of the run.
        rows: Observations and measurements, in order.
        claims: Claims, each with its verdict and its evidence.
        page: Path of the report; None if the run writes no files.
        ended: True if all parts have ended; claims and figures need all parts.
    """

    experiment: "Experiment[Any]"
    scale: "Scale"
    config: BaseModel
    rows: Results
    claims: list[Finding]
    page: Path | None = None
    ended: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in types of JSON and YAML."""
        return self.config.model_dump(mode="json")

    def drawings(self) -> list[Drawing]:
        """Draw the figures; ``drawing.figure.savefig("x.svg")`` writes a figure to a file."""
        return self.experiment.draw(self.config, self.rows)

    def tables(self) -> list[Summary]:
        """Return the summary tables, or an empty list while parts have not ended."""
        return self.experiment.summarise(self.config, self.rows) if self.ended else []

    @property
    def history(self) -> History:
        """Measurements of all parts, each a run of the history."""
        history = History(unit=self.experiment.unit)
        history.provenance = _origin(self.experiment, self.scale, self.config)
        for measurement in self.rows.measurements:
            history.append(measurement)
        return history

    def view(self, name: str = "") -> RunView:
        """Return the content of the run's page.

        Args:
            name: Name of the run, for a page with several runs.
        """
        drawings = self.drawings() if self.ended else []
        return RunView(
            name=name,
            claims=self.claims,
            images=[(drawing, render(drawing, "svg")) for drawing in drawings],
            rows=self.rows,
            columns=self.experiment.columns,
            config=self.settings,
            unit=self.experiment.unit,
            ended=self.ended,
            tables=self.tables(),
        )

    def to_json(self) -> str:
        """Return experiment, scale, settings, claims and rows as one JSON object, NaN as null."""
        whole = {
            "experiment": self.experiment.id,
            "scale": self.scale,
            "settings": self.settings,
            "claims": [claim.record() for claim in self.claims],
            "rows": [json.loads(observation_line(row)) for row in self.rows],
        }
        return json.dumps(whole, indent=2, allow_nan=False)


def run(
    name: str,
    *,
    out: str | Path | None = None,
    scale: "Scale" = "small",
    settings: Mapping[str, Any] = {},
    resume: bool = False,
    resources: Resources | None = None,
    on_row: OnRow = lambda part, done, total: None,
) -> ExperimentRun:
    """Run an experiment, and judge its claims.

    Args:
        name: Name of the experiment, for example ``"xufm/ufm"`` or ``"ufm"``; or path of a file of
            yours that binds ``EXPERIMENT``.
        out: Folder for config.yaml, metrics.jsonl, claims.json, figures and report.html; None
            writes nothing.
        scale: ``"paper"`` for the paper's settings, ``"small"`` for settings for two CPU cores.
        settings: Values by dotted field, for example ``{"runs.digits.seed": 1}``, in place of the
            scale's.
        resume: Resume the run in the folder from the point at which it was stopped.
        resources: Resources of experiments that train: data folder and accelerator.
        on_row: Function called after every measurement, and also between distant measurements.

    Raises:
        InputError: If the experiment, its scale or a field does not exist, a value is out of
            bounds, the folder cannot be written, or another process writes to it. Also if the
            folder holds a run and ``resume`` is False, or holds a run with other settings, or one
            with damage that running parts again cannot repair.

    Example:
        >>> found = run("ufm", settings={"num_classes": 3, "dim": 4, "per_class": 2, "steps": 10})
        >>> found.rows[0].step, found.rows[-1].step
        (0, 10)
    """
    experiment = find_experiment(name)
    config = experiment.configure(scale, settings)
    record = {
        "experiment": experiment.id,
        "scale": scale,
        "settings": config.model_dump(mode="json"),
    }
    digest = sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    resources = replace(resources or Resources(), run=digest)
    folder = None if out is None else RunFolder(out, writing=first_process())
    with nullcontext() if folder is None else folder.lock():
        if folder is not None and folder.writing:
            _prepare_folder(folder, record, resume)
        origin = _origin(experiment, scale, config)
        results = _run_parts(experiment, config, origin, folder, resources, resume, on_row)
        whole = ExperimentRun(experiment, scale, config, results, experiment.judge(config, results))
        return whole if folder is None else _write_report(whole, folder)


def _prepare_folder(folder: RunFolder, record: Mapping[str, Any], resume: bool) -> None:
    """Write the config; refuse a folder that holds a run, unless this run resumes it."""
    if not resume:
        folder.refuse_run()
    earlier = RunFolder.read_config(folder.path)
    finished = RunFolder.read_finished(folder.path) if resume else None
    if earlier is not None and earlier != record:
        expected = f"the settings of the run in {folder.path}"
        found = f"another {_difference(earlier, record)}"
        raise InputError(expected=expected, found=found, fix="pass another --out")
    if earlier is None:  # remaining files belong to no known run
        folder.remove(*_RESULTS, "finished.json", "metrics.jsonl", "history.json")
        rmtree(folder.path / "checkpoints", ignore_errors=True)
    folder.save_config(record)
    folder.save_finished({} if finished is None else finished.parts)


def _difference(earlier: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Name the first field in which two configs differ."""
    for key in sorted({*earlier, *record}, key=str):
        was, now = earlier.get(key), record.get(key)
        if was != now and isinstance(was, Mapping) and isinstance(now, Mapping):
            return _difference(was, now)
        if was != now:
            return f"{key}: {was} there, {now} here"
    return "settings"


def _origin(experiment: "Experiment[Any]", scale: "Scale", config: BaseModel) -> Provenance:
    """Return the provenance of a run, without a date: a resumed run ends as a whole one does."""
    origin = record_provenance(
        model=str(getattr(config, "network", "")),
        data=str(getattr(config, "data", "")),
        caller=f"{experiment.id} {scale}",
        seed=getattr(config, "seed", None),
    )
    return replace(origin, date="")


def _run_parts(
    experiment: "Experiment[Any]",
    config: BaseModel,
    origin: Provenance,
    folder: RunFolder | None,
    resources: Resources,
    resume: bool,
    on_row: OnRow,
) -> Results:
    """Run all parts; when resuming, read the results of finished parts instead of running them.

    Results are in the order of the parts, and every save holds the results of all finished parts.
    """
    resources.wait_for_all()  # the files read next must be complete, with no writer left
    parts = experiment.parts(config)
    there = RunFolder.read_results(folder.path) if folder is not None and resume else None
    kept = {} if there is None else there.parts
    results = {part.name: kept.get(part.name, Results()) for part in parts}
    marks: dict[str, PartMark] = {
        name: mark_part(own) for name, own in results.items() if name in kept
    }

    def save(folder: RunFolder) -> None:
        """Save the results of all parts, then the marks of the finished ones, in their order."""
        whole = together(results.values())
        finished = [each for each in whole.measurements if each.run in marks]
        folder.save_history(finished, experiment.unit, origin)
        folder.save_observations(whole)
        folder.save_finished({name: marks[name] for name in results if name in marks})

    if folder is not None and resume:
        if len(marks) < len(parts):
            folder.remove(*_RESULTS)
        save(folder)
    done, total = 0, sum(part.yields for part in parts)
    with reproducible(0):
        for part in parts:
            if part.name in kept:
                done += part.yields
                on_row(part.name, done, total)
                continue
            before = done
            for event in _run_part(part, results, folder, resources):
                if isinstance(event, Heartbeat) or not part.trains:
                    done += 1
                epoch = f", epoch {done - before} of {part.yields}" if part.trains else ""
                on_row(f"{part.name}{epoch}", done, total)
            if folder is not None:
                marks[part.name] = mark_part(results[part.name])
                save(folder)
    return together(results.values())


def _run_part(
    part: "Part", results: Mapping[str, Results], folder: RunFolder | None, resources: Resources
) -> Iterator[Event]:
    """Yield a part's events, add them to its results, and save all observations at intervals."""
    last_save = time.monotonic()
    if folder is not None:
        resources = replace(resources, checkpoints=folder.checkpoint_folder(part.name))
    for event in part.run(resources):
        if not isinstance(event, Heartbeat):
            results[part.name].add(event, part.name)
        yield event
        if folder is not None and time.monotonic() - last_save > _SECONDS_BETWEEN_SAVES:
            folder.save_observations(chain.from_iterable(results.values()))
            last_save = time.monotonic()


def _write_report(whole: ExperimentRun, folder: RunFolder) -> ExperimentRun:
    """Write claims, figures and report into the folder, and return the run with its page."""
    folder.save_claims(whole.claims)
    view = whole.view()
    for drawing, svg in view.images:
        folder.save_figure(drawing.name, "svg", svg)
        folder.save_figure(drawing.name, "pdf", render(drawing, "pdf"))
    known = whole.experiment
    facts = [known.source, f"experiment {known.id}", f"scale {whole.scale}"]
    page = folder.save_page(build_run_page(known.title, known.question, facts, [view]))
    return replace(whole, page=page)


def load_run(folder: str | Path) -> ExperimentRun:
    """Read the run of an experiment from its folder.

    Args:
        folder: Folder of the run. For unfinished parts the rows so far are returned.

    Raises:
        InputError: If the folder holds no such run, or the run is damaged; the message names the
            file or the part.
    """
    path = Path(folder)
    record = RunFolder.read_config(path)
    if record is None or not {"experiment", "scale", "settings"} <= set(record):
        fix = "pass what --out was when it was run"
        found = f"{path} without one"
        raise InputError(expected="the folder of a run", found=found, fix=fix)
    # Look for claims before reading the record of finished parts: a run writes its claims only
    # after that record is complete.
    claimed = (path / "claims.json").exists()
    kept = RunFolder.read_results(path)
    if kept is None:
        raise InputError(
            expected=f"{path / 'finished.json'}, which counts and hashes the rows of the run",
            found="none",
            fix=_RUN_AGAIN,
        )
    for name, difference in kept.damaged.items():
        raise InputError(
            expected=f"the rows of part {name!r} in {path} as the run wrote them",
            found=difference,
            fix=_RUN_AGAIN,
        )
    experiment, scale = find_experiment(str(record["experiment"])), record["scale"]
    config = check_settings(experiment.config, record["settings"])
    parts = [part.name for part in experiment.parts(config)]
    missing = [name for name in parts if name not in kept.parts]
    if claimed and missing:
        raise InputError(
            expected=f"part {missing[0]!r} among the finished parts in {path / 'finished.json'}, "
            "as the run has ended",
            found=f"{len(kept.parts)} of {len(parts)} parts there",
            fix=_RUN_AGAIN,
        )
    if missing:
        return ExperimentRun(experiment, scale, config, kept.whole, [], ended=False)
    results = together(kept.parts[name] for name in parts)
    return ExperimentRun(experiment, scale, config, results, experiment.judge(config, results))


def has_ended(folder: Path) -> bool:
    """Return whether a run has written its report, which it writes last, and is undamaged.

    Args:
        folder: Folder of the run, which need not exist.
    """
    try:
        return (folder / "report.html").exists() and load_run(folder).ended
    except InputError:
        return False  # run it again, which repairs the damage or reports it


def page_sections(folders: Mapping[str, Path]) -> dict[str, Any]:
    """Return the sections of a page about runs: figures, claims, tables and settings.

    Args:
        folders: Folders by their name on the page; one that holds a history.json alone is no run
            of this package, and has no part in the sections.

    Raises:
        InputError: If a run is damaged.
    """
    runs = {
        name: load_run(folder)
        for name, folder in folders.items()
        if any((folder / file).exists() for file in _OF_A_RUN)
        or not (folder / "history.json").exists()
    }
    if not runs:
        return {}
    experiments = [run.experiment for run in runs.values()]
    titles = list(dict.fromkeys(each.title for each in experiments))
    views = [run.view(name if len(folders) > 1 else "") for name, run in runs.items()]
    return {
        "title": titles[0] if len(titles) == 1 else "Runs side by side",
        "lead": experiments[0].question if len(titles) == 1 else "; ".join(titles) + ".",
        "facts": list(dict.fromkeys(each.source for each in experiments)),
        **run_sections(views),
    }
