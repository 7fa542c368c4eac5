"""Ranking of checkpoints for transfer, by name or from their features in files."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ncscope.api.files import checksum_notes
from ncscope.api.samples import load_samples
from ncscope.api.tables import Table, csv_text, parse_content
from ncscope.api.writable import REPORTS, check_file, save_text, write_figure
from ncscope.arguments import check_arguments
from ncscope.errors import InputError
from ncscope.files import read_file
from ncscope.labels import IgnoreIndex, count_labels, find_names, read_labels
from ncscope.measurement.history_file import parse_object
from ncscope.memory import check_memory
from ncscope.transfer.baselines import (
    AccuracyTable,
    StaticRanking,
    baselines_of,
    read_results,
    static_ranking,
)
from ncscope.transfer.correlations import Correlation
from ncscope.transfer.intervals import Answers
from ncscope.transfer.probes.linear_probe import check_measure
from ncscope.transfer.quality import RankingQuality
from ncscope.transfer.ranking import (
    check_with_outputs,
    hold_out,
    name_checkpoint_in_errors,
    score_checkpoint,
    split_samples,
)
from ncscope.transfer.records import ALL_SCORES, CheckpointResult, Ranking, rank_results
from ncscope.transfer.scores.ncti import NctiParts

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

SCHEMA_VERSION = 1
"""Version of the file format; a file of any other version is refused."""

OnStep = Callable[[str, int, int], None]
"""Function of a description of the present step, the number of steps done, and their total."""


@check_arguments
@dataclass(frozen=True)
class TransferReport(Table):
    """Ranking of checkpoints on one downstream set, which can be printed, drawn and saved.

    Attributes:
        ranking: Plain record: checkpoints, the best probe first, and correlations.
        facts: Data set and settings of the ranking, by name.
        notes: Sentences on what was done to weights from files, for the reader.
        static: Orders of the models of a table of results by baselines, each set left out in turn;
            None without such a table, or with one set or model only.

    Example:
        >>> from ncscope.transfer import rank_checkpoints
        >>> report = TransferReport(rank_checkpoints({"it": [[0.0], [3.0]] * 9}, [0, 1] * 9))
        >>> json.loads(report.to_json())["checkpoints"][0]["accuracy"]
        1.0
    """

    ranking: Ranking
    facts: Mapping[str, str | int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    static: StaticRanking | None = None

    def __repr__(self) -> str:
        from rich.console import Console

        out = StringIO()
        Console(file=out, width=80, color_system=None).print(self.table())
        return out.getvalue().rstrip()

    def table(self) -> "RenderableType":
        """Return the ranking for the terminal, with the scores to trust most."""
        from ncscope.report.transfer import build_ranking_table

        return build_ranking_table(self.ranking)

    def rows(self) -> list[dict[str, object]]:
        """Return a flat row for each checkpoint, the best first.

        ``accuracy_low`` and ``accuracy_high`` are the ends of the interval of the accuracy;
        ``behind`` is what the accuracy lacks to the first checkpoint, with its interval, which
        leaves 0 out if ``separable`` is True. The first has none of these. Then come the strength
        of the probe's penalty, each score by its key, and the standard errors of those that have
        one.
        """
        ranking, rows = self.ranking, []
        for rank, each, (low, high), gap in zip(
            ranking.ranks, ranking.checkpoints, ranking.intervals, ranking.gaps, strict=True
        ):
            row: dict[str, object] = {"rank": rank, "name": each.name, "accuracy": each.accuracy}
            row |= {"accuracy_low": low, "accuracy_high": high}
            ends = (None, None, None) if gap is None else gap
            row |= dict(zip(("behind", "behind_low", "behind_high"), ends, strict=True))
            row |= {"separable": gap and gap.is_separable, "strength": each.strength}
            row |= each.scores
            row |= {f"{key}_standard_error": error for key, error in each.errors.items()}
            rows.append(row)
        return rows

    def to_json(self) -> str:
        """Write one JSON object: facts, measure, checkpoints, correlations, qualities, notes.

        `from_json` reads it. Each checkpoint has the ``interval`` of its accuracy, and by its
        ``gap`` what it lacks to the first, with its interval, and whether it is ``separable``; both
        are null for the first. NaN and infinities are written as null.
        """
        ranking = self.ranking
        content = {
            "schema_version": SCHEMA_VERSION,
            "facts": dict(self.facts),
            **self.facts,
            "measure": ranking.measure,
            "verdict": ranking.verdict,
            "held_out": len(ranking.checkpoints[0].answers.correct),
            "held_out_by_class": ranking.checkpoints[0].answers.counts.tolist(),
            "checkpoints": [
                {
                    "rank": rank,
                    "name": each.name,
                    "accuracy": each.accuracy,
                    "interval": {"low": low, "high": high},
                    "gap": gap and gap._asdict(),
                    "separable": gap and gap.is_separable,
                    "strength": each.strength,
                    "scores": _finite_values(each.scores),
                    "standard_errors": _finite_values(each.errors),
                    "ncti_parts": each.parts and _finite_values(each.parts._asdict()),
                    "omissions": dict(each.omissions),
                    "size": each.size,
                    # A digit for each held-out sample: 1 if the probe decided it right.
                    "correct": "".join(map(str, each.answers.correct.int().tolist())),
                }
                for rank, each, (low, high), gap in zip(
                    ranking.ranks, ranking.checkpoints, ranking.intervals, ranking.gaps, strict=True
                )
            ],
            "correlations": {
                score: {name: _finite_values(each._asdict()) for name, each in by_name.items()}
                for score, by_name in self.ranking.correlations.items()
            },
            "qualities": _quality_records(self.ranking.qualities),
            "static": None
            if self.static is None
            else {
                "models": self.static.models,
                "sets": self.static.sets,
                "standings": [
                    [value if math.isfinite(value) else None for value in row]
                    for row in self.static.standings.tolist()
                ],
                "qualities": _quality_records(self.static.qualities),
            },
            "notes": self.ranking.notes,
            "notes_on_files": self.notes,
        }
        return json.dumps(content, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, source: str | Path) -> "TransferReport":
        """Read a ranking that `save` wrote as .json, or `to_json` as text.

        Args:
            source: Path of the file, or the text, which begins with ``{``.

        Raises:
            InputError: If there is no such file, or it holds something else.

        Example:
            >>> from ncscope.transfer import rank_checkpoints
            >>> report = TransferReport(rank_checkpoints({"it": [[0.0], [3.0]] * 9}, [0, 1] * 9))
            >>> TransferReport.from_json(report.to_json()).ranking.order
            ['it']
        """
        fix = "pass what TransferReport.save wrote as .json"
        name, content = "the text", str(source).encode()
        if isinstance(source, Path) or source.lstrip()[:1] != "{":
            name, content = str(source), read_file(Path(source), expected="a ranking", fix=fix)
        expected = "a ranking of checkpoints that ncscope wrote"
        return parse_content(_parse_ranking, content, expected=expected, name=name, fix=fix)

    def plot(self, kind: Literal["accuracies", "scores"] = "accuracies") -> "Figure":
        """Draw the ranking as a matplotlib figure.

        Args:
            kind: ``"accuracies"``, a dot with its interval for each checkpoint; or ``"scores"``,
                each score against the probe's accuracy.
        """
        from ncscope.report.transfer import plot_accuracies, plot_scores

        return (plot_scores if kind == "scores" else plot_accuracies)(self.ranking)

    def save(self, path: str | Path) -> Path:
        """Write the report as .html or .json, its `rows` as .csv, the ranking as .tex or a figure.

        Args:
            path: File to write; one that is there is replaced whole or not at all. The figure of
                .png, .svg and .pdf is that of the accuracies.

        Raises:
            InputError: If the suffix is none of these, or the file cannot be written.
        """
        from ncscope.report.transfer import format_ranking_latex, render_ranking_page

        path = check_file(path, REPORTS)
        if path.suffix == ".json":
            return save_text(path, self.to_json() + "\n")
        if path.suffix == ".csv":
            return save_text(path, csv_text(self.rows()))
        if path.suffix == ".tex":
            return save_text(path, format_ranking_latex(self.ranking))
        if path.suffix == ".html":
            return save_text(path, render_ranking_page(self.ranking, self.facts, self.static))
        return write_figure(path, self.plot(), dpi=160)


def _parse_ranking(content: bytes) -> TransferReport:
    """Read what `TransferReport.to_json` wrote; a ValueError, TypeError or KeyError if not."""
    whole = parse_object(content.decode())
    if whole["schema_version"] != SCHEMA_VERSION:
        msg = f"schema version {whole['schema_version']!r}, not {SCHEMA_VERSION}"
        raise ValueError(msg)
    counts = torch.tensor(whole["held_out_by_class"], dtype=torch.int64, device="cpu")
    results = []
    for each in whole["checkpoints"]:
        correct = torch.tensor(
            [{"0": False, "1": True}[digit] for digit in each["correct"]], device="cpu"
        )
        if not 0 < len(correct) == int(counts.sum()) or int(counts.min()) < 1:
            msg = f"{len(correct)} answers of {int(counts.sum())} held-out samples"
            raise ValueError(msg)
        parts, size = each["ncti_parts"], each["size"]
        results.append(
            CheckpointResult(
                str(each["name"]),
                {key: _read_number(value) for key, value in each["scores"].items()},
                _read_number(each["accuracy"]),
                _read_number(each["strength"]),
                Answers(correct, counts),
                parts and NctiParts(*(_read_number(parts[name]) for name in NctiParts._fields)),
                {str(name): str(reason) for name, reason in each["omissions"].items()},
                {key: _read_number(value) for key, value in each["standard_errors"].items()},
                size and (int(size[0]), int(size[1]), int(size[2])),
            )
        )
    accuracies, keys = [each.accuracy for each in results], [set(each.scores) for each in results]
    in_order = accuracies == sorted(accuracies, reverse=True)
    if (
        not results
        or not in_order
        or any(each != keys[0] or each - set(ALL_SCORES) for each in keys)
    ):
        msg = "checkpoints that are not ranked, or have unknown scores"
        raise ValueError(msg)
    correlations = {
        key: {name: _read_correlation(each) for name, each in by_name.items()}
        for key, by_name in whole["correlations"].items()
    }
    measure = check_measure(whole["measure"])
    ranking = Ranking(results, correlations, measure, _read_qualities(whole["qualities"]))
    static = whole["static"] and StaticRanking(
        tuple(whole["static"]["models"]),
        tuple(whole["static"]["sets"]),
        np.array([[_read_number(value) for value in row] for row in whole["static"]["standings"]]),
        _read_qualities(whole["static"]["qualities"]),
    )
    facts = {str(name): value for name, value in whole["facts"].items()}
    return TransferReport(ranking, facts, tuple(map(str, whole["notes_on_files"])), static)


def _read_qualities(records: Mapping[str, Any]) -> dict[str, RankingQuality]:
    return {
        key: RankingQuality(**{name: _read_correlation(each) for name, each in record.items()})
        for key, record in records.items()
    }


def _read_correlation(record: Mapping[str, Any]) -> Correlation:
    return Correlation(**{name: _read_number(value) for name, value in record.items()})


def _read_number(value: Any) -> float:
    """Return a number of a file; null stands for what is not finite."""
    return math.nan if value is None else float(value)


def _quality_records(qualities: Mapping[str, RankingQuality]) -> dict[str, Any]:
    return {
        key: {
            name: _finite_values(Correlation(*each)._asdict())
            for name, each in asdict(quality).items()
        }
        for key, quality in qualities.items()
    }


def _finite_values(values: Mapping[str, float]) -> dict[str, float | None]:
    """Replace NaN and infinities by None, which JSON can write."""
    return {key: value if math.isfinite(value) else None for key, value in values.items()}


def rank_files(
    paths: Sequence[str],
    *,
    measure: str = "top-1",
    ignore_index: IgnoreIndex = None,
    expensive: bool | None = None,
    results: str | Path | None = None,
    left_out: str | None = None,
    seed: int = 0,
    on_step: OnStep = lambda part, done, total: None,
) -> TransferReport:
    """Rank checkpoints from their features of one downstream set, with one file per checkpoint.

    A fifth of the samples is held out, class by class, for the probe's accuracy. An entry
    ``source_probabilities`` of a file (probabilities of the checkpoint's own classes, or predicted
    classes) is read for LEEP and NCE.

    Args:
        paths: Files as `load_samples` reads them, of the same samples in the same order.
        measure: Kind of accuracy, ``"top-1"`` or ``"mean per class"``.
        ignore_index: Label of samples to leave out, or several; a note has their number.
        expensive: Request for NLEEP and PARC, as for `rank_checkpoints`.
        results: CSV file of the checkpoints' accuracies on other sets, as for `read_results`, with
            the paths as names of the models.
        left_out: Set of the results that is not counted, because it is the downstream set.
        seed: Seed of the split into training, validation and held-out samples.
        on_step: Function called before each checkpoint is ranked.

    Raises:
        InputError: If a file cannot be read, or its labels differ from those of the first file.
    """
    check_distinct(paths)
    accuracy = check_measure(measure)
    table = None if results is None else read_results(results)
    baselines = {} if table is None else baselines_of(table, paths, left_out)
    sets = () if table is None else table.sets
    if left_out is not None and left_out not in sets:
        fix = "correct the name of the set to leave out"
        found = f"{', '.join(sets) or 'none'}"
        raise InputError(expected=f"results on {left_out}", found=found, fix=fix)
    # The labels of all files are compared before the first probe, which may take minutes.
    raw = [load_samples(path, ())["labels"] for path in paths]
    class_names = find_names(*raw)
    labels = [read_labels(y, count_labels(y), class_names=class_names).labels for y in raw]
    for path, labels_of_path in zip(paths, labels, strict=True):
        expected = f"the same samples in {path} as in {paths[0]}"
        fix = "save the features of all checkpoints in one order"
        if labels_of_path.shape != labels[0].shape:
            found = f"labels of shape {tuple(labels_of_path.shape)} and {tuple(labels[0].shape)}"
            raise InputError(expected=expected, found=found, fix=fix)
        differences = torch.nonzero(labels_of_path != labels[0]).flatten()
        if len(differences):
            row = int(differences[0])
            pair = f"labels {labels_of_path[row].item()} and {labels[0][row].item()}"
            raise InputError(expected=expected, found=f"{pair} at row {row}", fix=fix)
    ranks = []
    for done, path in enumerate(paths):
        on_step(path, done, len(paths))
        with name_checkpoint_in_errors(path):
            entries = load_samples(path, ("source_probabilities",))
            features = entries["features"]
            size = 2 * 8 * math.prod(features.shape)  # all features and both parts
            check_memory(size, "two copies in float64", "pass fewer samples")
            samples, source = check_with_outputs(
                features,
                labels[0],
                entries.get("source_probabilities"),
                ignore_index=ignore_index,
                class_names=class_names,
            )
            train, test = split_samples(samples, seed)
            source = source and source.select(~hold_out(samples.labels, seed))
            ranks.append(
                score_checkpoint(
                    path,
                    train,
                    test,
                    source=source,
                    baselines=baselines.get(path),
                    expensive=expensive,
                    measure=accuracy,
                    seed=seed,
                )
            )
    read = read_labels(labels[0], len(labels[0]), ignore_index=ignore_index)
    facts = {"samples": len(read.labels), "seed": seed}
    notes = (*read.notes, *checksum_notes(paths))
    models = paths if table is None else table.models
    absent = [path for path in paths if path not in models]
    if absent:
        note = f"The results have no rows for {', '.join(absent)}: they have no baselines."
        notes = (note, *notes)
    ranking = rank_results(ranks, accuracy, seed)
    return TransferReport(ranking, facts, notes, static=judge_baselines(table, seed))


def judge_baselines(table: AccuracyTable | None, seed: int) -> StaticRanking | None:
    """Judge the baselines on the sets of a table of results; None without enough results.

    Args:
        table: Accuracies of the checkpoints on other sets, if known.
        seed: Seed of the bootstrap.
    """
    if table is None or min(len(table.models), len(table.sets)) < 2:
        return None
    return static_ranking(table, seed=seed)


def check_distinct(names: Sequence[str]) -> None:
    """Check that there is at least one checkpoint, and that none is named twice.

    Raises:
        InputError: If there is no name, or one occurs twice.
    """
    if not names:
        raise InputError(expected="at least one checkpoint", found="none", fix="name checkpoints")
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        expected, found = "every checkpoint once", f"{twice[0]} twice"
        raise InputError(expected=expected, found=found, fix="name it once")
