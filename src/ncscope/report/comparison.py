"""Reports and histories side by side, as a page and as a table for the terminal."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

from rich.console import Group
from rich.text import Text

from ncscope.errors import printable
from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.metrics.metric import Metric
from ncscope.metrics.registry import METRICS
from ncscope.report.curves import group_by_run, group_by_split
from ncscope.report.labels import (
    choose_key_metrics,
    find_key,
    find_label,
    find_value,
    group_labels,
    sort_labels,
    value_at_collapse,
)
from ncscope.report.overview import (
    Headline,
    MetricRow,
    Write,
    build_cell,
    build_details,
    choose_headlines,
    collect_warnings,
    format_collapse_value,
    name_layers,
)
from ncscope.report.page import HistoryView, render_page
from ncscope.report.payload import (
    build_history_payload,
    build_model_payload,
    choose_class_limit,
)
from ncscope.report.tables import make_table
from ncscope.report.wording import (
    describe_sizes,
    find_interval,
    format_interval_title,
    format_plain,
    join_words,
    list_sizes,
    make_all_printable,
    make_printable,
    name_start,
    name_step,
    round_for_json,
    typeset,
)

_UNLIKE = 2
"""Factor by which numbers of samples differ too much to compare their metrics."""

_MOST_COLUMNS = 6
"""Most columns of numbers that an 80-column terminal shows."""


@dataclass(frozen=True)
class ComparisonSource:
    """One report or one history of a comparison.

    Attributes:
        name: Name on the page.
        measurements: Measurements; of a report, one.
        unit: Unit of the steps; empty for a report, which has no step.
        provenance: Origin of the measurements.
    """

    name: str
    measurements: Sequence[Measurement]
    unit: str
    provenance: Provenance


@dataclass(frozen=True)
class ComparisonColumn:
    """The measurement of a report, or of a run and split of a history at the step compared.

    Attributes:
        name: Name of the source, of the run and of the split.
        model: Measurement.
        facts: Origin and sizes, by their names.
        step: Step of the measurement as text, such as ``"epoch 40"``; empty for a report.
        run: Name of the source and of the run, of which the columns are splits.
        split: Split of a history; empty for a report.
        place: Source, run, split and step as values; the step is None for a report.
    """

    name: str
    model: ModelRecord
    facts: Mapping[str, str]
    step: str
    run: str
    split: str
    place: tuple[str, str, str, float | None]

    @property
    def last(self) -> LayerRecord:
        """Features that the head reads."""
        return self.model.last

    @property
    def title(self) -> str:
        """Name and step."""
        return ", ".join(filter(None, (self.name, self.step)))


def render_comparison_page(
    title: str, sources: Sequence[ComparisonSource], sections: Mapping[str, Any] = {}
) -> str:
    """Build one self-contained HTML page of several reports and histories.

    Args:
        title: Heading of the page.
        sources: Reports and histories; at least one.
        sections: Further variables of ``page.html.j2``, such as claims and figures of runs.
    """
    safe = [
        replace(
            source,
            name=printable(source.name),
            measurements=make_all_printable(source.measurements),
        )
        for source in sources
    ]
    columns, apart, steps = build_columns(safe)
    models = {column.title: column.model for column in columns}
    metrics = sort_labels(key for column in columns for key in column.last.metrics)
    headlines = choose_headlines({metric.key for metric in metrics}, columns[0].last)
    leading = {headline.metric.key for headline in headlines}
    names = dict.fromkeys(name for column in columns for name, text in column.facts.items() if text)
    content: dict[str, Any] = {
        "title": title,
        "facts": [
            f"{len(columns)} measurements side by side",
            *describe_sizes([column.last for column in columns]),
            *filter(None, [steps]),
        ],
        **sections,
        "size_warnings": [*apart, *warn_of_unlike_sizes(columns)],
        "warnings": collect_warnings(models),
        "comparison": {
            "columns": [column.title for column in columns],
            "of_layers": any(len(column.model.layers) > 1 for column in columns),
            "sizes": _tell_sizes_apart(columns),
            "marks": _explain_marks(columns),
            "headlines": headlines,
            "rows": [_build_row(each.metric, columns, typeset, 4) for each in headlines],
            "groups": {
                group: [_build_row(metric, columns, typeset, 4) for metric in labels]
                for group, labels in group_labels(
                    metric for metric in metrics if metric.key not in leading
                ).items()
            },
            "facts": {name: [column.facts.get(name, "") for column in columns] for name in names},
        },
        "history": _build_charts(safe, _build_dots(columns, headlines)),
        # The numbers of the only layer stand side by side already.
        "details": [
            build_details(model, name, leading={metric.key for metric in metrics})
            for name, model in models.items()
        ],
    }
    return render_page(**content)


def build_comparison_table(sources: Sequence[ComparisonSource]) -> Group:
    """Build a table of the key metrics at the last measurements, for the terminal.

    Args:
        sources: Reports and histories; at least one.

    Returns:
        Warnings, then a table that an 80-column terminal can show, with the names and sizes of its
        columns below.
    """
    columns, apart, steps = build_columns(sources)
    models = {printable(column.title): make_printable(column.model) for column in columns}
    warnings = [*apart, *warn_of_unlike_sizes(columns), *collect_warnings(models)]
    visible = columns[:_MOST_COLUMNS]
    table = make_table()
    table.add_column("metric", no_wrap=True)
    table.add_column("collapsed\nat", justify="right", no_wrap=True)
    for number in range(1, len(visible) + 1):
        table.add_column(f"{number}", justify="right")
    if len(visible) == 2:
        table.add_column("2 − 1", justify="right", no_wrap=True)
    keys = {key for column in visible for key in column.last.metrics}
    has_intervals = False
    for metric in map(find_label, choose_key_metrics(keys)):
        if any(find_value(column.last.metrics, metric.key) is not None for column in visible):
            row = _build_row(metric, visible, format_plain, 3)
            cells = [
                Text.assemble(
                    (cell.value, "bold" if cell.is_best else ""),
                    (f"\n{cell.interval}" if cell.interval else "", "dim"),
                )
                for cell in row.cells
            ]
            has_intervals |= any(cell.interval for cell in row.cells)
            difference = [row.difference] if len(visible) == 2 else []
            style = "" if row.differs else "dim"
            table.add_row(metric.key, row.collapsed, *cells, *difference, style=style)
    captions = [
        f"{number}: {column.title} ({', '.join(describe_sizes([column.last]))})"
        for number, column in enumerate(visible, start=1)
    ]
    if has_intervals:
        captions.append(f"Below a value: {format_interval_title(visible[0].last)}.")
    if len(columns) > len(visible):
        captions.append(f"{len(columns) - len(visible)} more are on the page")
    captions += filter(None, [steps])
    table.caption = Text("\n".join(map(printable, captions)))
    return Group(*(Text(f"warning: {each}", style="yellow") for each in warnings), table)


def _tell_sizes_apart(columns: Sequence[ComparisonColumn]) -> list[str]:
    """Return the sizes of each column in which the columns differ."""
    sizes = [describe_sizes([column.last]) for column in columns]
    differ = [len(set(texts)) > 1 for texts in zip(*sizes, strict=True)]
    return [
        ", ".join(text for text, told in zip(texts, differ, strict=True) if told) for texts in sizes
    ]


def build_columns(
    sources: Sequence[ComparisonSource],
) -> tuple[list[ComparisonColumn], list[str], str]:
    """Return a column for every report, and for every run and split of the histories.

    Histories of one unit are compared at one step: the last that all their runs and splits have
    measured, or if there is none, the last up to which all of them go.

    Args:
        sources: Reports and histories; at least one.

    Returns:
        The columns; warnings that runs have no step in common; and a sentence that says where runs
        of different length are compared, empty if all end at the same step.
    """
    lines = [
        (source, run, split, of_split)
        for source in sources
        for run, of_run in group_by_run(source.measurements).items()
        for split, of_split in group_by_split(of_run).items()
    ]
    common: dict[str, float] = {}
    apart, sentences = [], []
    for unit in dict.fromkeys(source.unit for source in sources if source.unit):
        steps = [{each.step for each in of_split} for of, *_, of_split in lines if of.unit == unit]
        shared = set.intersection(*steps)
        ends = [max(each) for each in steps]
        common[unit] = max(shared) if shared else min(ends)
        if any(min(each) > common[unit] for each in steps):
            common[unit] = math.inf
            apart.append(
                f"Runs have no {unit} in common: each is shown at its last, and what differs may "
                "be the training time."
            )
        elif any(end != common[unit] for end in ends):
            first, last = (f"{end:g}" for end in (min(ends), max(ends)))
            until = (
                f"end at {unit} {first}" if first == last else f"end at {unit}s {first} to {last}"
            )
            at = name_start(common[unit], unit)
            sentences.append(f"Runs {until}: compared at {at}, the last of all.")
    columns = []
    for source, run, split, of_split in lines:
        end = common.get(source.unit, math.inf)
        measurement = [each for each in of_split if each.step <= end][-1]
        model, features = measurement.model_record, measurement.model_record.last
        splits = {each.split for each in source.measurements if each.run == run}
        whole = ", ".join(filter(None, (source.name, run)))
        name = f"{whole}, {split}" if source.unit and len(splits) > 1 else whole
        facts = source.provenance.facts() | {
            "samples": f"{features.num_samples:,}",
            "number of classes": f"{features.num_classes:,}"
            if features.num_classes
            else "no labels",
            "dimension": f"{features.dim:,}",
            "layers": ", ".join(name_layers(model)).removeprefix("layer: "),
        }
        step = name_step(measurement, source.unit) if source.unit else ""
        if source.unit:
            facts |= {"measured at": step, "split": split}
        own = split if source.unit else ""
        place = (source.name, run, own, measurement.step if source.unit else None)
        columns.append(ComparisonColumn(name, model, facts, step, whole, own, place))
    return columns, apart, " ".join(sentences)


def _build_row(
    metric: Metric, columns: Sequence[ComparisonColumn], write: Write, digits: int
) -> MetricRow:
    """Write a metric of all columns; mark the value nearest to collapse where that is a finding."""
    values = [find_value(column.last.metrics, metric.key) for column in columns]
    distances = []
    for column, value in zip(columns, values, strict=True):
        target = value_at_collapse(metric.key, column.last.k, column.last.dim)
        if value is None or target is None or not math.isfinite(value):
            distances.append(math.inf)
        else:
            distances.append(abs(value - target))
    finite = [distance for distance in distances if distance < math.inf]
    # Of four digits wherever the row is shown, so that terminal and page agree.
    differ = len({"" if value is None else typeset(value) for value in values}) > 1
    ranked = differ and len(finite) > 1 and _is_comparable(metric, columns)
    cells = []
    for column, distance in zip(columns, distances, strict=True):
        cell = build_cell(column.last, metric, write, digits=digits, error=False)
        cells.append(replace(cell, is_best=ranked and distance == min(finite)))
    difference = ""
    if len(values) == 2 and differ and None not in values:
        gap = float(values[1] or 0.0) - float(values[0] or 0.0)
        difference = f"{'+' if gap > 0 else ''}{write(gap, 3)}"
    # Columns of other numbers of classes collapse elsewhere: no value is everybody's.
    targets = {format_collapse_value(metric, column.last, write) for column in columns}
    collapsed = targets.pop() if len(targets) == 1 else ""
    return MetricRow(metric, collapsed, cells, difference, differ)


def _is_comparable(metric: Metric, columns: Sequence[ComparisonColumn]) -> bool:
    """Return whether the nearest to collapse of a row's values means anything.

    It does not if the numbers of samples differ by a factor of two, since few samples look more
    collapsed, or those of classes at all; for a value in the features' unit; if a column lacks a
    95 % interval, or two overlap.
    """
    row = METRICS.get(metric.key)
    if _are_unlike(columns) or row is None or row.degree or row.group == "mse":
        return False
    if len({column.last.k for column in columns}) > 1:
        return False
    ends = sorted(
        interval
        for column in columns
        if (key := find_key(column.last.metrics, metric.key)) is not None
        and (interval := find_interval(column.last, key)) is not None
    )
    apart = all(one[1] < other[0] for one, other in pairwise(ends))
    return apart and len(ends) == len(columns)


def _explain_marks(columns: Sequence[ComparisonColumn]) -> str:
    """Say what bold numbers are, or how to get some; nothing where sizes forbid it."""
    if _are_unlike(columns) or len({column.last.k for column in columns}) > 1:
        return ""
    if not all(column.last.standard_errors for column in columns):
        return (
            "No value is marked as nearest to collapse without 95 % intervals: measure all with "
            "uncertainty=True, or ncscope measure --uncertainty."
        )
    return "The value nearest to collapse is bold where the 95 % intervals do not overlap."


def _are_unlike(columns: Iterable[ComparisonColumn]) -> bool:
    """Return whether numbers of samples differ by a factor of two or more."""
    sizes = [column.last.num_samples for column in columns]
    return max(sizes) >= _UNLIKE * min(sizes)


def warn_of_unlike_sizes(columns: Sequence[ComparisonColumn]) -> list[str]:
    """Return sentences on numbers of classes, dimensions or samples that differ, if any do.

    Args:
        columns: Measurements side by side.
    """
    sentences = []
    sizes = [list_sizes(column.last) for column in columns]
    _, classes, dims = map(set, zip(*sizes, strict=True))
    keys = {key for column in columns for key in column.last.metrics}
    if len(classes) > 1:
        two = 2 in classes and "nc2_etf" in keys
        why = "; two class means always are a simplex, so nc2_etf is 0 at K = 2" if two else ""
        numbers = join_words([f"{number:,}" for number in sorted(classes)])
        sentences.append(
            f"Numbers of classes differ ({numbers}): the metrics depend on them, and no value is "
            f"marked as nearest to collapse{why}."
        )
    if len(dims) > 1 and "vci" in keys:
        numbers = join_words([f"{number:,}" for number in sorted(dims)])
        sentences.append(
            f"Dimensions differ ({numbers}): at equal numbers of samples vci falls with the "
            "dimension, by about d/n at chance."
        )
    return [*sentences, *_warn_of_unlike_samples(columns)]


def _warn_of_unlike_samples(columns: Sequence[ComparisonColumn]) -> list[str]:
    """Return a sentence on numbers of samples that differ by a factor of two or more, if any do.

    Train and test samples of one run differ in number, and so do those of one run and another: a
    split is held against its like if the other run has it.
    """
    splits: dict[str, set[str]] = {}
    for column in columns:
        splits.setdefault(column.run, set()).add(column.split)
    unlike = [
        column
        for one, other in combinations(columns, 2)
        if one.split == other.split
        or (one.split not in splits[other.run] and other.split not in splits[one.run])
        if _are_unlike((one, other))
        for column in (one, other)
    ]
    if not unlike:
        return []
    sizes = sorted({column.last.num_samples for column in unlike})
    ends = f"{sizes[0]:,} {'and' if len(sizes) == 2 else 'to'} {sizes[-1]:,}"
    return [f"Samples differ ({ends}): few samples look more collapsed; compare at equal numbers."]


def _build_dots(
    columns: Sequence[ComparisonColumn], headlines: Sequence[Headline]
) -> dict[str, Any]:
    """Return what the grid draws of reports: values and intervals of all columns, by metric."""
    dots = {}
    for metric in (headline.metric for headline in headlines):
        keys = [find_key(column.last.metrics, metric.key) for column in columns]
        values = [
            math.nan if key is None else column.last.metrics[key]
            for column, key in zip(columns, keys, strict=True)
        ]
        ends = [
            (None if key is None else find_interval(column.last, key)) or (value, value)
            for column, key, value in zip(columns, keys, values, strict=True)
        ]
        dots[metric.key] = {
            "log": metric.log_scale,
            "around": _find_least_range(metric, values),
            "values": [round_for_json(value) for value in values],
            "ends": [[round_for_json(end) for end in pair] for pair in ends],
        }
    return {"names": [column.name for column in columns], "metrics": dots}


_LEAST_RANGE = 0.05
"""Least range of an axis: as a number of a share such as accuracy, as a part of other values."""


def _find_least_range(metric: Metric, values: Sequence[float]) -> list[float | None]:
    """Return the ends that an axis has at least, so that a small difference looks small."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return []
    row = METRICS.get(metric.key)
    low, high = (-math.inf, math.inf) if row is None else (row.low, row.high)
    middle = (min(finite) + max(finite)) / 2
    is_share = high - low == 1 and not metric.log_scale
    half = _LEAST_RANGE / 2 * (1 if is_share else abs(middle))
    return [round_for_json(max(low, middle - half)), round_for_json(min(high, middle + half))]


def _build_charts(sources: Sequence[ComparisonSource], dots: Mapping[str, Any]) -> HistoryView:
    """Prepare the charts: a run for each report and each run of a history, and all runs in one.

    The grid shows all runs over time if there is nothing but histories of one unit, else dots.
    """
    payload: dict[str, Any] = {"runs": {}, "shown": "", "dots": dots, "grid": "", "together": ""}
    everything = list[Measurement]()
    # Histories of one unit share an axis; epochs and steps cannot.
    for unit in dict.fromkeys(source.unit for source in sources if source.unit):
        of_unit = [source for source in sources if source.unit == unit]
        measurements = [
            replace(measurement, run=", ".join(filter(None, (source.name, measurement.run))))
            for source in of_unit
            for measurement in source.measurements
        ]
        names = {source.provenance.class_names for source in of_unit}
        part = build_history_payload(measurements, unit, names.pop() if len(names) == 1 else ())
        payload["runs"] |= part["runs"]
        payload["shown"] = payload["shown"] or part["together"] or part["shown"]
        payload["grid"], payload["together"] = part["grid"], part["together"]
        everything += measurements
    reports = [source for source in sources if not source.unit]
    most = choose_class_limit([source.measurements[0].model_record for source in reports])
    for source in reports:
        model, class_names = source.measurements[0].model_record, source.provenance.class_names
        (run,) = build_model_payload(model, class_names, most)["runs"].values()
        payload["runs"][source.name] = run
    payload["shown"] = payload["shown"] or next(iter(payload["runs"]))
    if len({source.unit for source in sources}) > 1:
        payload["grid"] = ""
    units = [source.unit for source in sources if source.unit]
    return HistoryView(everything, units[0] if units else "step", payload)
