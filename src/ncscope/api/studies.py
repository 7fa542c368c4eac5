"""Simulate a surrogate model, or re-run a paper's experiment: rows, claims, figures, a page."""

import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from pydantic import BaseModel

from ncscope.errors import InputError
from ncscope.probing.records import Row
from ncscope.recipes.catalogue import experiment, simulation
from ncscope.recipes.recipe import Claim, Part, Scale, Study
from ncscope.recipes.settings import settings
from ncscope.report.drawing import Drawing
from ncscope.report.study_page import study_page
from ncscope.training.reproducible import reproducible
from ncscope.training.run_folder import RunFolder

OnRow = Callable[[str, int, int], None]
"""Called as the work goes on: the part's name, how much is done, and how much there is."""


@dataclass(frozen=True)
class StudyRun:
    """What a study came to.

    Attributes:
        study: What was run.
        config: Its settings.
        rows: Every measurement, in order.
        claims: What was claimed, whether it held, and the numbers.
        page: Where the report was written; None if nothing was to be written.
    """

    study: Study[Any]
    config: BaseModel
    rows: Sequence[Row]
    claims: Sequence[Claim]
    page: Path | None = None

    def drawings(self) -> list[Drawing]:
        """The figures, drawn anew; ``drawing.figure.savefig("x.svg")`` writes one."""
        return self.study.drawings(self.config, self.rows)

    def to_json(self) -> str:
        """Model, settings, claims and rows as one JSON object; NaN is null."""
        whole = {
            "model": self.study.id,
            "settings": self.config.model_dump(mode="json"),
            "claims": list(self.claims),
            "rows": [{k: _null(v) for k, v in row.items()} for row in self.rows],
        }
        return json.dumps(whole, indent=2, allow_nan=False)


def simulate(
    model: str,
    *,
    out: str | Path | None = None,
    on_row: OnRow = lambda part, done, total: None,
    **given: Any,
) -> StudyRun:
    """Run a surrogate model.

    Args:
        model: One of ``ufm``, ``ufm-cross-entropy``, ``extended``, ``perturbed``, ``mufm``,
            ``geodesic``, ``central-path``.
        out: Folder for settings, rows, claims, figures and report; None writes nothing.
        on_row: Called after every measurement, and in between where they are far apart.
        **given: The model's settings; the defaults for what is left out.

    Raises:
        InputError: If there is no such model or setting, a value is out of bounds, or the folder
            cannot be written or holds a run.

    Example:
        >>> run = simulate("ufm", num_classes=3, dim=4, per_class=2, steps=10)
        >>> run.rows[0]["step"], run.rows[-1]["step"]
        (0, 10)
    """
    study = simulation(model)
    return _run(study, settings(study.config, given), {"model": model}, out, False, on_row)


def reproduce(
    name: str,
    *,
    out: str | Path,
    scale: Scale = "small",
    resume: bool = False,
    on_row: OnRow = lambda part, done, total: None,
) -> StudyRun:
    """Re-run a paper's experiment, and put its claims to the test.

    Args:
        name: For example ``"xufm/ufm"``.
        out: Folder for config.yaml, metrics.jsonl, claims.json, figures and report.html.
        scale: ``"paper"`` for the paper's settings, ``"small"`` for fewer steps.
        resume: Keep the parts that a run in this folder had finished when it was stopped.
        on_row: Called after every measurement, and in between where they are far apart.

    Raises:
        InputError: If there is no such experiment, the folder cannot be written, it holds a run
            and ``resume`` is not set, or that run had other settings.
    """
    recipe = experiment(name)
    if scale not in recipe.scales:
        fix = "pass small unless you have the time"
        raise InputError(expected="scale paper or small", found=repr(scale), fix=fix)
    labels = {"recipe": name, "scale": scale}
    return _run(recipe, recipe.scales[scale], labels, out, resume, on_row)


def _run(
    study: Study[Any],
    config: BaseModel,
    labels: Mapping[str, str],
    out: str | Path | None,
    resume: bool,
    on_row: OnRow,
) -> StudyRun:
    record: dict[str, Any] = {**labels, "settings": config.model_dump(mode="json")}
    folder = None if out is None else _prepared(RunFolder(out), record, resume)
    rows = _rows(study.parts(config), folder, on_row)
    claims = study.claims(config, rows)
    if folder is None:
        return StudyRun(study, config, rows, claims)
    folder.save_claims(claims)
    drawings = study.drawings(config, rows)
    images = {drawing.name: _rendered(drawing, "svg") for drawing in drawings}
    for drawing in drawings:
        folder.save_figure(drawing.name, "svg", images[drawing.name])
        folder.save_figure(drawing.name, "pdf", _rendered(drawing, "pdf"))
    page = folder.save_page(
        study_page(
            title=study.title,
            lead=study.lead,
            facts=[study.source, *(f"{key} {value}" for key, value in labels.items())],
            claims=claims,
            images=[(drawing, images[drawing.name]) for drawing in drawings],
            rows=rows,
            columns=study.columns,
            config=record["settings"],
        )
    )
    return StudyRun(study, config, rows, claims, page)


def _prepared(folder: RunFolder, record: Mapping[str, Any], resume: bool) -> RunFolder:
    """The folder with its config written; what an earlier run left is there only to resume."""
    earlier = folder.config
    if earlier is not None and not resume:
        found = f"one with a run in it, {folder.path}"
        fix = "pass --resume to go on with it, or another --out"
        raise InputError(expected="an output folder without a run", found=found, fix=fix)
    if earlier is not None and earlier != record:
        expected = f"the settings of the run in {folder.path}"
        found = f"another {_difference(earlier, record)}"
        raise InputError(expected=expected, found=found, fix="pass another --out")
    folder.save_config(record)
    return folder


def _difference(earlier: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Where two configs part, by name."""
    for key in sorted({*earlier, *record}):
        was, now = earlier.get(key), record.get(key)
        if was != now and isinstance(was, Mapping) and isinstance(now, Mapping):
            return _difference(was, now)
        if was != now:
            return f"{key}: {was} there, {now} here"
    return "settings"


def _rows(parts: Sequence[Part], folder: RunFolder | None, on_row: OnRow) -> list[Row]:
    """The rows of all parts; those of a finished part are read back instead of made again."""
    finished = [] if folder is None else folder.finished
    kept = {} if folder is None else _by_part(folder.load_rows())
    done, total, rows = 0, sum(part.yields for part in parts), list[Row]()
    with reproducible(0):
        for part in parts:
            if part.name in finished:
                rows += kept.get(part.name, [])
                done += part.yields
                on_row(part.name, done, total)
                continue
            for row in _saved(part, rows, folder):
                done += 1
                if row:
                    rows.append(row)
                on_row(part.name, done, total)
            if folder is not None:
                finished.append(part.name)
                folder.save_rows(rows)
                folder.save_finished(finished)
    return rows


def _saved(part: Part, before: Sequence[Row], folder: RunFolder | None) -> Iterator[Row]:
    """A part's rows, the file of rows following along; they are in it once the part has ended."""
    saved = time.monotonic()
    name: Row = {"part": part.name}
    for row in part.run(None if folder is None else folder.place(part.name)):
        yield _as_read(name | row) if row else {}
        if folder is not None and time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
            folder.save_rows(before)
            saved = time.monotonic()


_SECONDS_BETWEEN_SAVES = 2.0


def _by_part(rows: Sequence[Row]) -> dict[str, list[Row]]:
    kept: dict[str, list[Row]] = {}
    for row in rows:
        kept.setdefault(str(row["part"]), []).append(row)
    return kept


def _as_read(row: Row) -> Row:
    """The row as it comes back from the file, where what is not finite is NaN."""
    return {key: math.nan if _null(value) is None else value for key, value in row.items()}


def _null(value: float | int | str) -> float | int | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rendered(drawing: Drawing, suffix: str) -> bytes:
    """The figure's file; the same for the same figure."""
    buffer = io.BytesIO()
    date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]
    with mpl.rc_context({"svg.hashsalt": drawing.name}):
        drawing.figure.savefig(buffer, format=suffix, metadata=date)
    return buffer.getvalue()
