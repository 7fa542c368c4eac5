"""HTML of reports for notebooks: the headline first, the rest folded, the style in a scope."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ncscope.errors import printable
from ncscope.measurement.provenance import UNKNOWN, Provenance
from ncscope.measurement.records import ClassTable, LayerRecord, Measurement, ModelRecord
from ncscope.measurement.similarity import SimilarityRecord
from ncscope.metrics.metric import Metric
from ncscope.report.classes import build_class_view
from ncscope.report.curves import group_by_run, group_by_split
from ncscope.report.labels import (
    choose_key_metrics,
    find_key,
    find_label,
    group_labels,
    is_fixed,
    list_nc_metrics,
    sort_labels,
)
from ncscope.report.overview import (
    Cell,
    MetricRow,
    build_cell,
    collect_sentences,
    collect_warnings,
    describe_history,
    describe_model,
    describe_origin,
    format_collapse_value,
)
from ncscope.report.page import render_template
from ncscope.report.wording import (
    format_interval_title,
    make_all_printable,
    make_printable,
    name_start,
    name_step,
    quote_number,
)

_ACCURACIES = {"Accuracy": ("accuracy",), "Nearest mean": ("ncc_accuracy",)}
"""Columns of the headline besides those of NC1 to NC4."""

_MOST_LINES = 12
"""Most rows of the headline of a history; further runs are folded."""


@dataclass(frozen=True)
class NotebookHeadline:
    """Table of a few metrics, a column each, so that they are read across.

    Attributes:
        columns: Heading and metric of each column.
        rows: Name of a row, its cells, and True for a row that stands out.
        collapsed: Value at collapse of each column; empty if no column has one.
    """

    columns: Sequence[tuple[str, Metric]]
    rows: Sequence[tuple[str, Sequence[Cell], bool]]
    collapsed: Sequence[str]


@dataclass(frozen=True)
class Fold:
    """A part that a click unfolds: a headline of more rows, all metrics, or sentences."""

    title: str
    headline: NotebookHeadline | None = None
    names: Sequence[str] = ()
    groups: Mapping[str, Sequence[MetricRow]] | None = None
    interval_title: str = ""
    sentences: Sequence[str] = ()


def render_model_fragment(model: ModelRecord, provenance: Provenance = UNKNOWN) -> str:
    """Build the HTML of a measurement, for a notebook.

    Args:
        model: The measurement.
        provenance: Origin of the measurement.
    """
    model = make_printable(model)
    layers = {quote_number(record.layer): record for record in model.layers}
    *_, last = layers.items()
    folds = []
    if len(layers) > 1:
        folds.append(Fold(f"All {len(layers)} layers", build_headline(layers, strong=last[:1])))
    return _render(
        facts=[*describe_origin(provenance), *describe_model(model)],
        headline=build_headline(dict([last])),
        warnings=collect_warnings({"": model}),
        folds=[*folds, _fold_metrics(layers), *_fold_notes(collect_sentences(model, "notes"))],
    )


def render_history_fragment(
    measurements: Sequence[Measurement], unit: str = "epoch", provenance: Provenance = UNKNOWN
) -> str:
    """Build the HTML of first and last values of a history, for a notebook.

    Args:
        measurements: Measurements of one run or several; at least one.
        unit: Unit of their steps.
        provenance: Origin of the measurements.
    """
    measurements = make_all_printable(measurements)
    ends: dict[str, LayerRecord] = {}
    lasts: dict[str, ModelRecord] = {}
    runs = group_by_run(measurements)
    for run, of_run in runs.items():
        for split, of_split in group_by_split(of_run).items():
            first, last = of_split[0], of_split[-1]
            for each in (first, last):
                at = name_step(each, unit) if each is last else name_start(each.step, unit)
                name = ", ".join(filter(None, (run, split, at)))
                ends[name] = replace(each.model_record.last, metrics=each.last_values)
            lasts[name] = each.model_record
    shown, folds = ends, []
    if len(ends) > _MOST_LINES:
        shown = {name: ends[name] for name in list(lasts)[:_MOST_LINES]}
        title = f"First and last {unit} of all {len(runs)} runs"
        folds.append(Fold(title, build_headline(ends, strong=lasts)))
    notes = [note for each in lasts.values() for note in collect_sentences(each, "notes")]
    return _render(
        facts=[*describe_origin(provenance), *describe_history(measurements, unit)],
        headline=build_headline(shown, strong=lasts),
        warnings=collect_warnings(lasts),
        folds=[*folds, _fold_metrics(ends), *_fold_notes(list(dict.fromkeys(notes)))],
    )


def render_comparison_fragment(
    models: Mapping[str, ModelRecord], remarks: Sequence[str] = (), warnings: Sequence[str] = ()
) -> str:
    """Build the HTML of measurements side by side, for a notebook.

    Args:
        models: Measurements by their names; at least one.
        remarks: Sentences on the comparison.
        warnings: Warnings on the comparison; those of the measurements follow.
    """
    models = {printable(name): make_printable(model) for name, model in models.items()}
    records = {name: model.last for name, model in models.items()}
    sizes = [f"{name}: {', '.join(describe_model(model))}" for name, model in models.items()]
    notes = [
        f"{name}: {note}"
        for name, model in models.items()
        for note in collect_sentences(model, "notes")
    ]
    return _render(
        facts=[f"{len(models)} measurements side by side", *filter(None, remarks)],
        headline=build_headline(records, strong=records),
        warnings=[*warnings, *collect_warnings(models)],
        folds=[
            _fold_metrics(records),
            Fold("What was measured", sentences=sizes),
            *_fold_notes(notes),
        ],
    )


def render_classes_fragment(table: ClassTable, class_names: Sequence[str] = ()) -> str:
    """Build the table of classes, for a notebook.

    Args:
        table: Values of each class.
        class_names: Names of all classes, in the order of the labels; empty if unknown.
    """
    return _render(classes=build_class_view(table, class_names))


def render_similarity_fragment(record: SimilarityRecord) -> str:
    """Build an HTML table of the CKA of all pairs of layers, for a notebook.

    Args:
        record: CKA between layers.
    """

    def build_pair(value: float) -> tuple[str, str]:
        if math.isnan(value):
            return "undefined", "0"
        # The unbiased CKA can be below 0, or above 1 by rounding.
        return f"{value:.3f}", f"{0.6 * min(max(value, 0.0), 1.0):.2f}"

    rows = zip(record.rows, record.values, strict=True)
    return _render(
        facts=["CKA between layers", f"{record.num_samples:,} samples"],
        similarity={
            "columns": list(map(quote_number, record.columns)),
            "rows": [(quote_number(name), list(map(build_pair, row))) for name, row in rows],
        },
    )


def build_headline(
    records: Mapping[str, LayerRecord], strong: Sequence[str] | Mapping[str, Any] = ()
) -> NotebookHeadline:
    """Choose and write the headline metrics of some measurements.

    NC1 to NC4 and the accuracies come first; where none of them was measured, the key metrics of
    what was, or else the first six metrics.

    Args:
        records: Layer records by their names.
        strong: Names of the rows that stand out; of a single record, its row does.
    """
    keys = {key for record in records.values() for key in record.metrics}
    chosen: dict[str, Metric] = {}
    last = list(records.values())[-1]
    for title, candidates in {**list_nc_metrics(last.k, last.dim), **_ACCURACIES}.items():
        counts = {
            key: sum(find_key(record.metrics, key) is not None for record in records.values())
            for key in candidates
        }
        most = max(counts, key=lambda key: counts[key])
        if counts[most]:
            chosen[title] = find_label(most)
    if not chosen:
        known = [
            key
            for key in choose_key_metrics(keys)
            if find_key(keys, key) and not is_fixed(key, last.k)
        ]
        labels = [find_label(key) for key in known] or sort_labels(keys)[:6]
        chosen = {label.title: label for label in labels}

    rows = [
        (
            name,
            [build_cell(record, metric, error=False) for metric in chosen.values()],
            name in strong or len(records) == 1,
        )
        for name, record in records.items()
    ]
    collapsed = [_find_collapse(metric, records) or "–" for metric in chosen.values()]
    return NotebookHeadline(
        list(chosen.items()), rows, collapsed if set(collapsed) != {"–"} else ()
    )


def _find_collapse(metric: Metric, records: Mapping[str, LayerRecord]) -> str:
    """Write the value at collapse; empty if unknown, or not the same for all that have one."""
    values = {format_collapse_value(metric, record) for record in records.values()} - {""}
    return values.pop() if len(values) == 1 else ""


def _fold_metrics(records: Mapping[str, LayerRecord]) -> Fold:
    """Collect every metric of some layer records, a column each."""
    labels = sort_labels(key for record in records.values() for key in record.metrics)
    groups = {
        title: [
            MetricRow(
                metric,
                _find_collapse(metric, records),
                [build_cell(record, metric) for record in records.values()],
            )
            for metric in group
        ]
        for title, group in group_labels(labels).items()
    }
    titled = [each for each in records.values() if each.standard_errors]
    title = format_interval_title(titled[-1]) if titled else ""
    return Fold(
        f"All {len(labels)} metrics", names=list(records), groups=groups, interval_title=title
    )


def _fold_notes(notes: Sequence[str]) -> list[Fold]:
    return [Fold(f"Notes on the numbers ({len(notes)})", sentences=notes)] if notes else []


def _render(**parts: Any) -> str:
    """Render the template; a part that is not given is left out."""
    absent: dict[str, Any] = {
        "facts": (),
        "headline": None,
        "warnings": (),
        "folds": (),
        "classes": None,
        "similarity": None,
    }
    return render_template("fragment.html.j2", **{**absent, **parts})
