"""Execution of a study, part by part, in a folder from which a stopped run can be resumed."""

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from shutil import rmtree
from typing import Any

import matplotlib as mpl
from pydantic import BaseModel

from ncscope.api.history import History
from ncscope.errors import InputError
from ncscope.lab.findings import Finding
from ncscope.lab.observations import Event, Heartbeat, Results, together
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.study_page import RunView, study_page
from ncscope.lab.runs.finished import PartMark, mark_of, observation_line
from ncscope.lab.runs.reproducible import reproducible
from ncscope.lab.runs.resources import Resources, first_process
from ncscope.lab.runs.run_folder import RunFolder
from ncscope.measurement.provenance import Provenance, record_provenance
from ncscope.report.tables import Summary

OnRow = Callable[[str, int, int], None]
"""Function called with the progress: description of part and epoch, amount done, total amount."""

_SECONDS_BETWEEN_SAVES = 2.0


@dataclass(frozen=True)
class StudyRun:
    """Result of a study.

    Attributes:
        study: Study that was run.
        labels: Names of the study: model, or recipe and scale.
        config: Settings of the run.
        rows: Observations and measurements, in order.
        claims: Claims, each with its verdict and its evidence.
        page: Path of the report; None if the run writes no files.
        ended: True if all parts have ended; claims and figures need all parts.
    """

    study: Any
    labels: Mapping[str, str]
    config: BaseModel
    rows: Results
    claims: Sequence[Finding]
    page: Path | None = None
    ended: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in types of JSON and YAML."""
        return self.config.model_dump(mode="json")

    def drawings(self) -> list[Drawing]:
        """Draw the figures; ``drawing.figure.savefig("x.svg")`` writes a figure to a file."""
        return self.study.draw(self.config, self.rows)

    def tables(self) -> list[Summary]:
        """Return the summary tables, or an empty list while parts have not ended."""
        return self.study.summarise(self.config, self.rows) if self.ended else []

    @property
    def history(self) -> History:
        """Measurements of all parts, each a run of the history."""
        history = History(unit=self.study.unit)
        history.provenance = _origin(self.labels, self.config)
        for measurement in self.rows.measurements:
            history.append(measurement)
        return history

    def view(self, name: str = "") -> RunView:
        """Return the content of the run's page.

        Args:
            name: Name of the run, for a page with several runs.
        """
        drawings = self.drawings() if self.ended else []
        images = [(drawing, rendered(drawing, "svg")) for drawing in drawings]
        return RunView(
            name=name,
            claims=self.claims,
            images=images,
            rows=self.rows,
            columns=self.study.columns,
            config=self.settings,
            unit=self.study.unit,
            ended=self.ended,
            tables=self.tables(),
        )

    def to_json(self) -> str:
        """Return model, settings, claims and rows as one JSON object, with NaN as null."""
        whole = {
            "model": self.study.id,
            "settings": self.settings,
            "claims": [claim.record() for claim in self.claims],
            "rows": [json.loads(observation_line(row)) for row in self.rows],
        }
        return json.dumps(whole, indent=2, allow_nan=False)


def run_study(
    study: Any,
    config: BaseModel,
    labels: Mapping[str, str],
    *,
    out: str | Path | None,
    resume: bool,
    resources: Resources,
    on_row: OnRow,
) -> StudyRun:
    """Run all parts of a study and write the results.

    Args:
        study: Study to run.
        config: Settings of the study.
        labels: Names of the study, which config.yaml states first.
        out: Folder of the run; None writes nothing.
        resume: Resume the run that the folder holds.
        resources: Resources of the parts.
        on_row: See `OnRow`.

    Raises:
        InputError: If the folder cannot be written, another process writes to it, or it holds a
            run and ``resume`` is False or the settings differ.
    """
    record = {**labels, "settings": config.model_dump(mode="json")}
    folder = None if out is None else RunFolder(out, writing=first_process())
    with nullcontext() if folder is None else folder.writing_alone():
        if folder is not None and folder.writing:
            _prepare(folder, record, resume)
        own = replace(
            resources, run=sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
        )
        keep = partial(_keep, study, _origin(labels, config))
        results = _results(study.parts(config), folder, own, on_row, resume, keep)
        run = StudyRun(study, labels, config, results, study.judge(config, results))
        return run if folder is None else _written(run, folder)


def rendered(drawing: Drawing, suffix: str) -> bytes:
    """Render a figure to a file's bytes, which are the same for the same figure.

    Args:
        drawing: Figure to render.
        suffix: ``"svg"`` or ``"pdf"``.
    """
    buffer = io.BytesIO()
    date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]
    with mpl.rc_context({"svg.hashsalt": drawing.name}):
        drawing.figure.savefig(buffer, format=suffix, metadata=date)
    return buffer.getvalue()


def _written(run: StudyRun, folder: RunFolder) -> StudyRun:
    """Write claims, figures and report into the folder, and return the run with its page."""
    folder.save_claims(run.claims)
    view = run.view()
    for drawing, svg in view.images:
        folder.save_figure(drawing.name, "svg", svg)
        folder.save_figure(drawing.name, "pdf", rendered(drawing, "pdf"))
    facts = [run.study.source, *(f"{key} {value}" for key, value in run.labels.items())]
    page = folder.save_page(study_page(run.study.title, run.study.question, facts, [view]))
    return replace(run, page=page)


def _prepare(folder: RunFolder, record: Mapping[str, Any], resume: bool) -> None:
    """Write the config; refuse a folder that holds a run, unless this run resumes it."""
    earlier = RunFolder.config_of(folder.path)
    if earlier is not None and not resume:
        found = f"one with a run in it, {folder.path}"
        fix = "pass --resume to go on with it, or another --out"
        raise InputError(expected="an output folder without a run", found=found, fix=fix)
    finished = RunFolder.finished_of(folder.path) if resume else None
    if earlier is not None and earlier != record:
        expected = f"the settings of the run in {folder.path}"
        found = f"another {_difference(earlier, record)}"
        raise InputError(expected=expected, found=found, fix="pass another --out")
    if earlier is None:  # remaining files belong to no known run
        folder.remove(*_RESULTS, "finished.json", "metrics.jsonl", "history.json")
        rmtree(folder.path / "checkpoints", ignore_errors=True)
    folder.save_config(record)
    folder.save_finished({} if finished is None else finished.parts)


_RESULTS = ("claims.json", "report.html")
"""Files that a run writes after all of its parts have ended."""


def _difference(earlier: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Name the first field in which two configs differ."""
    for key in sorted({*earlier, *record}, key=str):
        was, now = earlier.get(key), record.get(key)
        if was != now and isinstance(was, Mapping) and isinstance(now, Mapping):
            return _difference(was, now)
        if was != now:
            return f"{key}: {was} there, {now} here"
    return "settings"


def _results(
    parts: Sequence[Any],
    folder: RunFolder | None,
    resources: Resources,
    on_row: OnRow,
    resume: bool,
    keep: "Keep",
) -> Results:
    """Run all parts; when resuming, read the results of finished parts instead of running them.

    Results are in the order of the parts, and every save holds the results of all finished parts.
    """
    resources.wait_for_all()  # the files read next must be complete, with no writer left
    there = RunFolder.kept_of(folder.path) if folder is not None and resume else None
    kept = {} if there is None else there.parts
    results = {part.name: kept.get(part.name, Results()) for part in parts}
    marks = {name: mark_of(own) for name, own in results.items() if name in kept}
    if folder is not None and resume:
        if len(marks) < len(parts):
            folder.remove(*_RESULTS)
        keep(folder, results, marks)
    done, total = 0, sum(part.yields for part in parts)
    with reproducible(0):
        for part in parts:
            if part.name in kept:
                done += part.yields
                on_row(part.name, done, total)
                continue
            before = done
            for event in _saved(part, results, folder, resources):
                if isinstance(event, Heartbeat) or not part.trains:
                    done += 1
                on_row(_now(part, done - before), done, total)
            if folder is not None:
                marks[part.name] = mark_of(results[part.name])
                keep(folder, results, marks)
    return together(results.values())


Keep = Callable[[RunFolder, Mapping[str, Results], Mapping[str, PartMark]], None]
"""Function that saves the results of all parts and the marks of the finished parts."""


def _origin(labels: Mapping[str, str], config: BaseModel) -> Provenance:
    """Return the provenance of a run, without a date: a resumed run ends as a whole one does."""
    origin = record_provenance(
        model=str(getattr(config, "network", "")),
        data=str(getattr(config, "data", "")),
        caller=" ".join(labels.values()),
        seed=getattr(config, "seed", None),
    )
    return replace(origin, date="")


def _keep(
    study: Any,
    origin: Provenance,
    folder: RunFolder,
    results: Mapping[str, Results],
    marks: Mapping[str, PartMark],
) -> None:
    """Save the results of all parts, then the marks of the finished parts, in the parts' order."""
    whole = together(results.values())
    finished = [each for each in whole.measurements if each.run in marks]
    folder.save_history(finished, study.unit, origin)
    folder.save_observations(whole)
    folder.save_finished({name: marks[name] for name in results if name in marks})


def _now(part: Any, done: int) -> str:
    return f"{part.name}, epoch {done} of {part.yields}" if part.trains else part.name


def _saved(
    part: Any, results: Mapping[str, Results], folder: RunFolder | None, resources: Resources
) -> Iterator[Event]:
    """Yield a part's events, add them to its results, and save all observations at intervals."""
    saved = time.monotonic()
    own = resources
    if folder is not None:
        own = replace(resources, checkpoints=folder.checkpoint_folder(part.name))
    for event in part.run(own):
        if not isinstance(event, Heartbeat):
            results[part.name].add(event, part.name)
        yield event
        if folder is not None and time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
            folder.save_observations(chain.from_iterable(results.values()))
            saved = time.monotonic()
