"""A zoo on disk: read its runs, add scores of one's own, judge all, and write the page."""

import gzip
import io
import json
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict

from ncscope.errors import InputError
from ncscope.files import read_file, write_bytes, write_text
from ncscope.transfer.records import Score
from ncscope_lab.execution import load_run
from ncscope_lab.experiments.transfer.cells import (
    A_FEW,
    ALL,
    SOURCE,
    Cell,
    add_relative,
    collect_cells,
    feature_file,
    make_sample,
    read_features,
)
from ncscope_lab.experiments.transfer.design import TransferZoo, list_networks
from ncscope_lab.experiments.transfer.judgement import Half, Verdicts, select_half
from ncscope_lab.experiments.transfer.scores import Sample, time_scores
from ncscope_lab.experiments.transfer.tables import draw_figures, make_tables
from ncscope_lab.observations import Results
from ncscope_lab.report.drawing import render
from ncscope_lab.report.run_page import RunView, build_run_page

ScoreFunction = Callable[[Sample], Any]
"""A score of one's own: a function of a `Sample` that returns a number, the greater the better."""

_DIGITS = 12
_TITLE = "Transfer scores on a zoo of networks"
_LEADS = {
    "report": "The report half: all networks on targets that no score was chosen on.",
    "design": "The design half, on which our own index was chosen: no evidence for it.",
}


@dataclass(frozen=True)
class Zoo:
    """Networks on targets, with truth, scores and, if they are there, features.

    Attributes:
        config: Settings of the zoo.
        cells: Every network on every target, with all images and with a few.
        user_scores: Scores of the user, by key.

    Example:
        >>> zoo = Zoo.read("runs/transfer-zoo-small")  # doctest: +SKIP
        >>> zoo = zoo.with_scores({"spread": lambda cell: cell.features.std()})  # doctest: +SKIP
        >>> zoo.save("zoo.html")  # doctest: +SKIP
    """

    config: TransferZoo
    cells: Sequence[Cell]
    user_scores: Mapping[str, Score] = field(default_factory=dict)

    @classmethod
    def read(cls, *places: str | Path) -> "Zoo":
        """Read the runs of a zoo, or a file that `save_cells` wrote.

        Args:
            places: Folders of runs of ``transfer/zoo``, such as its shards; or one file.

        Raises:
            InputError: If a place holds no such run, or the runs differ in more than the shard.
        """
        if len(places) == 1 and Path(places[0]).is_file():
            return _read_file(Path(places[0]))
        if not places:
            fix = "pass what --out was when it was run"
            raise InputError(expected="the folder of a zoo", found="none", fix=fix)
        whole = {"shard": 0, "shards": 1}
        config: TransferZoo | None = None
        cells: dict[tuple[str, str, str], Cell] = {}
        for place in chain.from_iterable(_find_runs(Path(place)) for place in places):
            run = load_run(place)
            if not isinstance(run.config, TransferZoo):
                fix = "pass the folder of ncscope run transfer/zoo"
                expected = "a run of transfer/zoo"
                raise InputError(
                    expected=expected, found=f"{run.experiment.id} in {place}", fix=fix
                )
            own = run.config.model_copy(update=whole)
            if config is not None and own != config:
                fix = "pass the shards of one zoo"
                found = f"others in {place}"
                raise InputError(expected="the same settings", found=found, fix=fix)
            config = own
            for cell in collect_cells(own, run.rows, place / "checkpoints"):
                cells.setdefault((cell.network, cell.target, cell.images), cell)
        assert config is not None
        if not cells:
            fix = "train it again with ncscope run transfer/zoo"
            expected = f"networks measured on targets in {places[0]}"
            raise InputError(expected=expected, found="none", fix=fix)
        # The bootstrap draws networks by their order, which must not depend on the shards.
        order = {name: number for number, name in enumerate(list_networks(config))}
        ordered = sorted(cells.values(), key=lambda cell: order[cell.network])
        return cls(config, add_relative(ordered))

    def with_scores(
        self,
        scores: Mapping[str, ScoreFunction],
        *,
        on_cell: Callable[[int, int], None] = lambda done, total: None,
    ) -> "Zoo":
        """Return the zoo with further scores, computed from the kept features.

        Args:
            scores: Functions by name; each takes a `Sample` and returns a number, NaN if it is
                undefined. The greater, the better.
            on_cell: Function called with the number of cells done and of all.

        Raises:
            InputError: If the features are not there, or a function returns no number.
        """
        cells = []
        source: tuple[Path | None, Mapping[str, Any]] = (None, {})
        for number, cell in enumerate(self.cells):
            folder = _find_features(cell)
            if source[0] != folder:
                source = folder, read_features(folder, SOURCE)
            sample = make_sample(read_features(folder, cell.target), source[1])
            own = sample.few() if cell.images == A_FEW else sample
            values = {
                _user_key(name): _call_score(name, score, own, cell)
                for name, score in scores.items()
            }
            cells.append(cell.with_values(values))
            on_cell(number + 1, len(self.cells))
        named = {_user_key(name): Score(name, 1) for name in scores}
        return replace(self, cells=cells, user_scores={**self.user_scores, **named})

    def verdicts(self, half: Half = "report", seed: int = 0) -> Verdicts:
        """Return the judgement of all scores.

        Args:
            half: Half of the zoo to judge on.
            seed: Seed of the bootstrap.
        """
        cells = select_half(self.config, self.cells, half)
        return Verdicts(self.config, cells, self.user_scores, seed, half)

    def costs(self, cells: int = 12) -> dict[str, float]:
        """Return the median time of each score in seconds, from the kept features.

        Args:
            cells: Number of cells to time, spread evenly over the zoo.

        Raises:
            InputError: If the features are not there.
        """
        whole = [cell for cell in self.cells if cell.images == ALL]
        chosen = whole[:: max(1, len(whole) // cells)][:cells]
        found: dict[str, list[float]] = {}
        for cell in chosen:
            folder = _find_features(cell)
            source = read_features(folder, SOURCE)
            sample = make_sample(read_features(folder, cell.target), source)
            for key, seconds in time_scores(sample, time.perf_counter).items():
                found.setdefault(key, []).append(seconds)
        return {key: median(values) for key, values in found.items()}

    def save(
        self,
        path: str | Path,
        *,
        verdicts: Verdicts | None = None,
        costs: Mapping[str, float] | None = None,
    ) -> Path:
        """Write the page: claims, figures and all tables.

        Args:
            path: File ``.html``.
            verdicts: Judgement, from `verdicts`; default that of the report half.
            costs: Times of the scores, from `costs`.
        """
        verdicts = self.verdicts() if verdicts is None else verdicts
        images = [(each, render(each, "svg")) for each in draw_figures(verdicts)]
        view = RunView(
            name="",
            claims=verdicts.claims,
            images=images,
            rows=Results(),
            columns=(),
            config=self.config.model_dump(mode="json"),
            tables=make_tables(verdicts, costs),
        )
        count = len({cell.network for cell in verdicts.cells})
        whole = len(list_networks(self.config))
        half = verdicts.half
        facts = [f"{count} of {whole} networks", f"{half} half", f"bootstrap seed {verdicts.seed}"]
        return write_text(Path(path), build_run_page(_TITLE, _LEADS[half], facts, [view]))

    def save_cells(self, path: str | Path) -> Path:
        """Write the cells without features, so that they can be judged elsewhere.

        Args:
            path: File ``.json.gz``.
        """
        keys = list(dict.fromkeys(key for cell in self.cells for key in cell.values))
        rows = [
            [cell.network, cell.architecture, cell.source, cell.target, cell.images]
            + [_shorten(cell.value(key)) for key in keys]
            for cell in self.cells
        ]
        record = {"config": self.config.model_dump(mode="json"), "keys": keys, "cells": rows}
        text = json.dumps(record, separators=(",", ":"), allow_nan=False)
        return write_bytes(Path(path), gzip.compress(text.encode(), mtime=0))


def _find_runs(place: Path) -> list[Path]:
    """Return the folder of a run, or the folders of runs inside, such as those of a sweep."""
    inside = sorted(path.parent for path in place.glob("*/config.yaml"))
    return inside if inside and not (place / "config.yaml").exists() else [place]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    config: TransferZoo
    keys: list[str]
    cells: list[list[str | float | None]]


_LARGEST = 2**28
"""Most bytes of unpacked cells: a small file could unpack to any number."""


def _read_file(path: Path) -> Zoo:
    fix = "pass a file that Zoo.save_cells wrote, or the folders of runs"
    try:
        packed = read_file(path, expected=f"cells of a zoo in {path}", fix=fix)
        with gzip.open(io.BytesIO(packed)) as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            msg = f"more than {_LARGEST:,} bytes in {len(packed):,}"
            raise ValueError(msg)
        record = _File.model_validate_json(text)
        return Zoo(record.config, [_read_cell(row, record.keys) for row in record.cells])
    except InputError:
        raise
    except (OSError, EOFError, zlib.error, ValueError) as error:
        found = str(error).splitlines()[0]
        raise InputError(expected=f"cells of a zoo in {path}", found=found, fix=fix) from error


def _read_cell(row: Sequence[str | float | None], keys: Sequence[str]) -> Cell:
    network, architecture, source, target, images = map(str, row[:5])
    pairs = zip(keys, row[5:], strict=True)
    values = {key: float(value) for key, value in pairs if value is not None}
    return Cell(network, architecture, source, target, images, values)


def _shorten(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _user_key(name: str) -> str:
    return f"own:{name}"


def _find_features(cell: Cell) -> Path:
    folder = cell.folder
    if folder is None or not feature_file(folder, cell.target).exists():
        found = "a file of cells" if folder is None else f"none in {folder / 'features'}"
        fix = "read the folder of the run, with its checkpoints"
        expected = f"features of {cell.network} on {cell.target}"
        raise InputError(expected=expected, found=found, fix=fix)
    return folder


def _call_score(name: str, score: ScoreFunction, sample: Sample, cell: Cell) -> float:
    found = score(sample)
    if not isinstance(found, str | bytes):  # float("0.5") is a number, but text is a mistake
        with suppress(TypeError, ValueError):
            return float(found)
    expected = f"a number from the score {name!r} of {cell.network} on {cell.target}"
    raise InputError(expected=expected, found=type(found).__name__, fix="return a number")
