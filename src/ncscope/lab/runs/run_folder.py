"""Files of a run, each written whole: config, metrics, snapshots, claims."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from ncscope.errors import InputError
from ncscope.files import write_bytes, write_text
from ncscope.lab.runs.disk import writing
from ncscope.probing.records import Row, Snapshot


class RunFolder:
    """The folder of one run.

    Args:
        path: The folder; it is made, with its parents, if it is not there.
        writing: This process writes if True; of several that share a run one does, and what the
            others save goes nowhere.

    Raises:
        InputError: If it cannot be made or written to; also later, when something is saved.
    """

    def __init__(self, path: str | Path, writing: bool = True) -> None:
        self.path, self.writing = Path(path), writing
        if not writing:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / ".writable", "")
            (self.path / ".writable").unlink()
        except OSError as error:
            fix = "pass --out with a folder that can be written"
            found = f"{self.path}: {error.strerror}"
            raise InputError(expected="a writable output folder", found=found, fix=fix) from error

    def save_config(self, config: Mapping[str, Any]) -> None:
        """Write config.yaml."""
        self._save("config.yaml", yaml.safe_dump(dict(config), sort_keys=False))

    def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        """Write metrics.jsonl, a flat line a layer, and snapshots.jsonl, everything measured."""
        flat = (line for snapshot in snapshots for line in _lines(snapshot))
        self._save_lines("metrics.jsonl", flat)
        whole = (
            {"step": s.step, "epoch": s.epoch, "split": s.split, "probe": s.probe.as_dict()}
            for s in snapshots
        )
        self._save_lines("snapshots.jsonl", whole)

    @staticmethod
    def config_of(path: Path) -> dict[str, Any] | None:
        """Read config.yaml in a folder; None without one.

        Raises:
            InputError: If it is not what a run writes.
        """
        return _parsed(path / "config.yaml", yaml.safe_load)

    @staticmethod
    def rows_of(path: Path) -> list[Row]:
        """Read metrics.jsonl in a folder, null as NaN; no rows without one.

        Raises:
            InputError: If it is not what a run writes.
        """
        lines = _parsed(path / "metrics.jsonl", _json_lines) or []
        return [{k: math.nan if v is None else v for k, v in line.items()} for line in lines]

    @staticmethod
    def finished_of(path: Path) -> list[str]:
        """Names of the parts whose rows are all in metrics.jsonl.

        Raises:
            InputError: If finished.json is not what a run writes.
        """
        return _parsed(path / "finished.json", json.loads) or []

    def save_rows(self, rows: Iterable[Row]) -> None:
        """Write metrics.jsonl: a row a line, NaN and infinities as null."""
        self._save_lines("metrics.jsonl", rows)

    def save_finished(self, parts: Sequence[str]) -> None:
        """Say which parts are done; their rows must be saved first."""
        self._save("finished.json", json.dumps(list(parts)) + "\n")

    def place(self, part: str) -> Path:
        """Return the folder, yet to be made, of a part's checkpoint."""
        return self.path / "checkpoints" / quote(part, safe=" =,")

    def save_figure(self, name: str, suffix: str, content: bytes) -> Path:
        """Write a figure into the folder ``figures``."""
        file = self.path / "figures" / f"{name}.{suffix}"
        if not self.writing:
            return file
        with writing(file):
            file.parent.mkdir(exist_ok=True)
            return write_bytes(file, content)

    def save_claims(self, claims: Sequence[Mapping[str, Any]]) -> None:
        """Write claims.json."""
        self._save("claims.json", json.dumps(list(claims), indent=2) + "\n")

    def save_page(self, page: str) -> Path:
        """Write report.html."""
        return self._save("report.html", page)

    def _save_lines(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        text = "".join(json.dumps(_finite(row), allow_nan=False) + "\n" for row in rows)
        self._save(name, text)

    def _save(self, name: str, text: str) -> Path:
        file = self.path / name
        if self.writing:
            with writing(file):
                write_text(file, text)
        return file


def _parsed(file: Path, parse: Callable[[str], Any]) -> Any:
    """Parse a file of a run; None without a file."""
    if not file.exists():
        return None
    try:
        found = parse(file.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise _not_ours(file) from error
    if not isinstance(found, dict | list):
        raise _not_ours(file)
    return found


def _not_ours(file: Path) -> InputError:
    fix = "restore it, or pass another folder"
    return InputError(expected="a file that ncscope wrote", found=f"{file}, damaged", fix=fix)


def _json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def _lines(snapshot: Snapshot) -> Iterable[dict[str, Any]]:
    for record in snapshot.probe.layers:
        when = {"step": snapshot.step, "epoch": snapshot.epoch, "split": snapshot.split}
        yield when | {"layer": record.layer} | dict(record.metrics)


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by null, at any depth."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
