"""Files of a run (config, metrics, history, claims), each written atomically."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from ncscope.errors import InputError
from ncscope.files import parse_yaml, read_file, write_bytes, write_text
from ncscope.lab.findings import Finding
from ncscope.lab.observations import Observation
from ncscope.lab.runs.finished import (
    FinishedParts,
    KeptResults,
    PartMark,
    checked_results,
    observation_line,
)
from ncscope.lab.runs.lock import only_writer, writing
from ncscope.measurement.history_file import format_history, parse_history, parse_object
from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import Measurement

_SCALARS = (str, int, float)
_MADE_AGAIN = ("metrics.jsonl", "history.json", "finished.json")
"""Files whose content a resumed run can write again."""
_IN_RUNS = (*_MADE_AGAIN, "config.yaml", "claims.json", "report.html")
_IN_SWEEPS = ("sweep.yaml", "table.csv")


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
    def writing_alone(self) -> Iterator[None]:
        """Lock the folder, and remove partial files of killed saves from it.

        Raises:
            InputError: If another process writes to the folder; the message names the process.
        """
        if not self.writing:
            yield
            return
        with only_writer(self.path):
            for pattern in (*_IN_RUNS, *_IN_SWEEPS, ".writable", "figures/"):
                for stale in self.path.glob(f"{pattern}*.part"):
                    stale.unlink()
            yield

    def save_config(self, config: Mapping[str, Any]) -> None:
        """Write config.yaml."""
        text = yaml.safe_dump(dict(config), sort_keys=False)
        self._save("config.yaml", text)
        self._config = sha256(text.encode()).hexdigest()

    @staticmethod
    def config_of(path: Path) -> dict[str, Any] | None:
        """Read config.yaml of a folder; None if there is none.

        Raises:
            InputError: If a run did not write the file in this form.
        """
        return read_yaml(path / "config.yaml")

    @staticmethod
    def finished_of(path: Path) -> FinishedParts | None:
        """Read the record of finished parts of a folder; None if there is none.

        Raises:
            InputError: If finished.json is damaged, or config.yaml does not hold the settings
                under which the finished parts were run.
        """
        file, config = path / "finished.json", path / "config.yaml"
        finished: FinishedParts | None = _parsed(file, FinishedParts.model_validate_json)
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
    def kept_of(path: Path) -> KeptResults | None:
        """Read the results of a folder and check its finished parts; None without their record.

        Raises:
            InputError: If metrics.jsonl, history.json or finished.json is damaged, or config.yaml
                was changed.
        """
        finished = RunFolder.finished_of(path)
        if finished is None:
            return None
        # Read the results after the record: a run writes them before it records them as finished,
        # so results that the record names are complete even while the run goes on.
        lines = _parsed(path / "metrics.jsonl", _lines) or []
        history = _parsed(path / "history.json", parse_history)
        measurements = [] if history is None else history[0]
        return checked_results(lines, measurements, finished.parts)

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
        with writing(file):
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
            with writing(file):
                write_text(file, text)
        return file


def read_yaml(file: Path) -> dict[str, Any] | None:
    """Read a YAML file of a run or a sweep; None if there is none.

    Args:
        file: Path of a file that holds a mapping.

    Raises:
        InputError: If the file holds no mapping.
    """
    return _parsed(file, lambda content: _mapping(parse_yaml(content.decode())))


def _parsed(file: Path, parse: Callable[[bytes], Any]) -> Any:
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


def _mapping(parsed: Any) -> dict[str, Any]:
    if not isinstance(parsed, dict):
        message = "no mapping"
        raise ValueError(message)
    return parsed


def _lines(content: bytes) -> list[tuple[str, Observation]]:
    """Parse metrics.jsonl, null as NaN; return each line with its observation."""
    return [(line, _observation(parse_object(line))) for line in content.decode().splitlines()]


def _observation(line: Mapping[str, Any]) -> Observation:
    row = {k: math.nan if v is None else v for k, v in line.items()}
    if isinstance(row.get("part"), str) and all(isinstance(v, _SCALARS) for v in row.values()):
        for value in row.values():
            if isinstance(value, int):
                float(value)  # raises an OverflowError for a number that no view can show
        return Observation.of_line(row)
    message = "no row of a part"
    raise ValueError(message)
