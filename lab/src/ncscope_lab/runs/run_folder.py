"""Files of a run (config, metrics, history, claims): written atomically, read, and checked.

A record of finished parts counts and hashes their results, which reveals damage.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from pydantic import BaseModel, ConfigDict

from ncscope.errors import InputError
from ncscope.files import parse_yaml, read_file, write_bytes, write_text
from ncscope.measurement.history_file import (
    format_history,
    measurement_line,
    parse_history,
    parse_object,
)
from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import Measurement
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Observation, Results
from ncscope_lab.runs.lock import lock_folder, name_write_errors

_SCALARS = (str, int, float)
_MADE_AGAIN = ("metrics.jsonl", "history.json", "finished.json")
"""Files whose content a resumed run can write again."""
_IN_RUNS = (*_MADE_AGAIN, "config.yaml", "claims.json", "report.html")
_IN_SWEEPS = ("sweep.yaml", "table.csv")


class PartMark(BaseModel):
    """Count and hashes of the results of a finished part.

    Attributes:
        rows: Number of observations.
        sha256: Hash of the part's lines in metrics.jsonl.
        history: Hash of the part's lines in history.json; empty if the part has no such line.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rows: int
    sha256: str
    history: str


class FinishedParts(BaseModel):
    """Content of finished.json.

    Attributes:
        config: Hash of config.yaml, which holds the settings of the parts.
        parts: Mark of every finished part, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    config: str
    parts: dict[str, PartMark]


@dataclass(frozen=True)
class StoredResults:
    """Results that a run folder holds, checked against the record of finished parts.

    Attributes:
        whole: All results in the folder, including those of unfinished parts.
        parts: Results of each finished part whose files are as the run wrote them.
        damaged: Description of the damage, for each finished part whose files were changed.
    """

    whole: Results
    parts: Mapping[str, Results]
    damaged: Mapping[str, str]


def check_results(
    lines: Sequence[tuple[str, Observation]],
    measurements: Sequence[Measurement],
    finished: Mapping[str, PartMark],
) -> StoredResults:
    """Group results by part, and separate undamaged from damaged finished parts.

    Args:
        lines: Every line of metrics.jsonl with the observation that was read from it.
        measurements: Every measurement of history.json, as read.
        finished: Marks of the finished parts.
    """
    parts, damaged = dict[str, Results](), dict[str, str]()
    for name, mark in finished.items():
        of_part = [(line, each) for line, each in lines if each.part == name]
        measured = [each for each in measurements if each.run == name]
        # Hash the text of the file, not the parsed observations written again: another version of
        # the program could write them differently, and the hash would no longer match.
        present = _mark_lines([line for line, _ in of_part], measured)
        if present == mark:
            parts[name] = Results([each for _, each in of_part], measured)
        elif present.rows != mark.rows:
            damaged[name] = f"{present.rows} rows in place of {mark.rows} in metrics.jsonl"
        elif present.sha256 != mark.sha256:
            damaged[name] = "that metrics.jsonl was changed"
        else:
            damaged[name] = "that history.json was changed or lost"
    everything = Results([each for _, each in lines], measurements)
    return StoredResults(everything, parts, damaged)


def mark_part(results: Results) -> PartMark:
    """Count and hash the results of a part.

    Args:
        results: Results of the part, in order. In observations NaN replaces every number that is
            not finite.
    """
    return _mark_lines(list(map(observation_line, results)), results.measurements)


def _mark_lines(lines: Sequence[str], measurements: Iterable[Measurement]) -> PartMark:
    history = "\n".join(map(measurement_line, measurements))
    return PartMark(
        rows=len(lines),
        sha256=sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest(),
        history=sha256(history.encode()).hexdigest() if history else "",
    )


def observation_line(observation: Observation) -> str:
    """Write an observation as a line of JSON, NaN and infinities as null."""
    row = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in observation.as_line().items()
    }
    return json.dumps(row, allow_nan=False)


class RunFolder:
    """The folder of one run.

    Args:
        path: Path of the folder, which is created with its parents if it does not exist.
        writing: This process writes if True. Of the processes that share a run only one writes;
            in the others every save does nothing.

    Raises:
        InputError: If the folder cannot be created or written to. Later saves raise it too.
    """

    def __init__(self, path: str | Path, writing: bool = True) -> None:
        self.path, self.writing = Path(path), writing
        self._config = ""
        if not writing:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / ".writable", "")
            (self.path / ".writable").unlink(missing_ok=True)  # another process may have removed it
        except OSError as error:
            fix = "pass --out with a folder that can be written"
            found = (
                f"the file {self.path}" if self.path.is_file() else f"{self.path}: {error.strerror}"
            )
            raise InputError(expected="a writable output folder", found=found, fix=fix) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, and remove partial files of killed saves from it.

        Raises:
            InputError: If another process writes to the folder; the message names the process.
        """
        if not self.writing:
            yield
            return
        with lock_folder(self.path):
            for pattern in (*_IN_RUNS, *_IN_SWEEPS, ".writable", "figures/"):
                for stale in self.path.glob(f"{pattern}*.part"):
                    stale.unlink()
            yield

    def refuse_run(self) -> None:
        """Raise an InputError if the folder holds a run."""
        if RunFolder.read_config(self.path) is not None:
            found = f"one with a run in it, {self.path}"
            fix = "pass --resume to go on with it, or another --out"
            raise InputError(expected="an output folder without a run", found=found, fix=fix)

    def save_config(self, config: Mapping[str, Any]) -> None:
        """Write config.yaml."""
        text = yaml.safe_dump(dict(config), sort_keys=False)
        self._save("config.yaml", text)
        self._config = sha256(text.encode()).hexdigest()

    @staticmethod
    def read_config(path: Path) -> dict[str, Any] | None:
        """Read config.yaml of a folder; None if there is none.

        Raises:
            InputError: If a run did not write the file in this form.
        """
        return read_yaml(path / "config.yaml")

    @staticmethod
    def read_finished(path: Path) -> FinishedParts | None:
        """Read the record of finished parts of a folder; None if there is none.

        Raises:
            InputError: If finished.json is damaged, or config.yaml does not hold the settings
                under which the finished parts were run.
        """
        file, config = path / "finished.json", path / "config.yaml"
        finished: FinishedParts | None = _parse_file(file, FinishedParts.model_validate_json)
        if finished is None:
            return None
        fix = "restore it, or pass another folder"
        if not config.exists():
            raise InputError(expected=f"config.yaml beside {file}", found="none", fix=fix)
        content = read_file(config, expected="the settings of a run", fix=fix)
        if sha256(content).hexdigest() != finished.config:
            raise InputError(
                expected=f"{config} as the run wrote it",
                found="that it was changed",
                fix=f"restore it; or, if it is {file.name} that was changed, remove that, and run "
                "the same command with --resume",
            )
        return finished

    @staticmethod
    def read_results(path: Path) -> StoredResults | None:
        """Read the results of a folder and check its finished parts; None without their record.

        Raises:
            InputError: If metrics.jsonl, history.json or finished.json is damaged, or config.yaml
                was changed.
        """
        finished = RunFolder.read_finished(path)
        if finished is None:
            return None
        # Read the results after the record: a run writes them before it records them as finished,
        # so results that the record names are complete even while the run goes on.
        lines = _parse_file(path / "metrics.jsonl", _parse_lines) or []
        history = _parse_file(path / "history.json", parse_history)
        measurements = [] if history is None else history[0]
        return check_results(lines, measurements, finished.parts)

    def save_observations(self, observations: Iterable[Observation]) -> None:
        """Write metrics.jsonl: one observation per line, NaN and infinities as null."""
        self._save("metrics.jsonl", "".join(f"{observation_line(each)}\n" for each in observations))

    def save_history(
        self, measurements: Sequence[Measurement], unit: str, origin: Provenance
    ) -> None:
        """Write history.json, which `History.load` reads, if there are measurements.

        The file holds no date, so that a resumed run ends with the files of an unbroken run.
        """
        if measurements:
            self._save("history.json", format_history(measurements, unit, origin))
        else:  # of a run that goes on anew
            self.remove("history.json")

    def save_finished(self, marks: Mapping[str, PartMark]) -> None:
        """Write finished.json; save the config and the rows of the finished parts first."""
        parts = {name: mark.model_dump() for name, mark in marks.items()}
        self._save("finished.json", json.dumps({"config": self._config, "parts": parts}) + "\n")

    def remove(self, *names: str) -> None:
        """Remove files of an earlier run, if they exist."""
        if self.writing:
            for name in names:
                (self.path / name).unlink(missing_ok=True)

    def checkpoint_folder(self, part: str) -> Path:
        """Return the path of the folder of a part's checkpoint; the folder may not exist yet."""
        return self.path / "checkpoints" / quote(part, safe=" =,")

    def save_figure(self, name: str, suffix: str, content: bytes) -> Path:
        """Write a figure into the folder ``figures``."""
        file = self.path / "figures" / f"{name}.{suffix}"
        if not self.writing:
            return file
        with name_write_errors(file):
            file.parent.mkdir(exist_ok=True)
            return write_bytes(file, content)

    def save_claims(self, claims: Sequence[Finding]) -> None:
        """Write claims.json."""
        records = [claim.record() for claim in claims]
        self._save("claims.json", json.dumps(records, indent=2, allow_nan=False) + "\n")

    def save_page(self, page: str) -> Path:
        """Write report.html."""
        return self._save("report.html", page)

    def _save(self, name: str, text: str) -> Path:
        file = self.path / name
        if self.writing:
            with name_write_errors(file):
                write_text(file, text)
        return file


def read_yaml(file: Path) -> dict[str, Any] | None:
    """Read a YAML file of a run or a sweep; None if there is none.

    Args:
        file: Path of a file that holds a mapping.

    Raises:
        InputError: If the file holds no mapping.
    """
    return _parse_file(file, lambda content: _parse_mapping(parse_yaml(content.decode())))


def _parse_file(file: Path, parse: Callable[[bytes], Any]) -> Any:
    """Read and parse a file of a run; None if there is none."""
    if not file.exists():
        return None
    expected, fix = "a file that ncscope wrote", "restore it, or pass another folder"
    if file.name in _MADE_AGAIN:
        fix = "restore it, or remove it and run the same command with --resume"
    content = read_file(file, expected=expected, fix=fix)
    try:
        return parse(content)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise InputError(expected=expected, found=f"{file}, damaged", fix=fix) from error


def _parse_mapping(parsed: Any) -> dict[str, Any]:
    if not isinstance(parsed, dict):
        message = "no mapping"
        raise ValueError(message)
    return parsed


def _parse_lines(content: bytes) -> list[tuple[str, Observation]]:
    """Parse metrics.jsonl, null as NaN; return each line with its observation."""
    return [
        (line, _parse_observation(parse_object(line))) for line in content.decode().splitlines()
    ]


def _parse_observation(line: Mapping[str, Any]) -> Observation:
    row = {k: math.nan if v is None else v for k, v in line.items()}
    if isinstance(row.get("part"), str) and all(isinstance(v, _SCALARS) for v in row.values()):
        for value in row.values():
            if isinstance(value, int):
                float(value)  # raises an OverflowError for a number that no view can show
        return Observation.of_line(row)
    message = "no row of a part"
    raise ValueError(message)
