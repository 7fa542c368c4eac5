"""Tables for the terminal: of measurements, of runs, and of whole experiments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ncscope.errors import printable
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.report.curves import group_by_split
from ncscope.report.labels import find_key, find_label, find_value
from ncscope.report.overview import build_details, collect_warnings, format_collapse_value
from ncscope.report.wording import (
    format_interval_title,
    format_plain,
    make_printable,
    name_step,
    quote_number,
)

COLUMNS = {
    "nc1_quotient": "PFC1",
    "nc2_etf": "NC2",
    "nc3_self_duality": "NC3",
    "nc4_disagreement": "NC4",
    "ncc_accuracy": "NCC\nacc.",
    "accuracy": "head\nacc.",
    "mir_centered": "MIR",
}
"""Metrics that a table of layers shows if they were measured, with their column headings."""


_NONE = "–"
"""Text of what was not measured, or is unknown."""

_COLUMN = 6
"""Least width of a column of numbers, so that tables of several models have one shape."""

_NAME_WIDTH = 40
"""Columns of the terminal within which a line's name is not broken."""


@dataclass(frozen=True)
class Summary:
    """Table of words and numbers in a paper's arrangement.

    Attributes:
        caption: Description of the cells.
        columns: Heads of the columns after the first.
        lines: The cells of a line, by the name in its first column.
        title: Heading of the table on a page.
    """

    caption: str
    columns: Sequence[str]
    lines: Mapping[str, Sequence[str]]
    title: str = ""


def build_summary_table(summary: Summary) -> Table:
    """Build the table of a summary.

    Args:
        summary: Summary to show.
    """
    table = make_table()
    table.caption = summary.caption
    widest = min(_NAME_WIDTH, max(map(len, summary.lines), default=0))
    table.add_column("", min_width=widest, overflow="fold")
    for column in summary.columns:
        table.add_column(column, justify="right", vertical="bottom")
    for name, cells in summary.lines.items():
        table.add_row(Text(printable(name)), *map(Text, cells))
    return table


def build_model_table(model: ModelRecord) -> Group:
    """Build a table of a measurement: all metrics of a single layer, or key metrics of several.

    Args:
        model: Measurement of one or more layers.

    Returns:
        Warnings, then a table that an 80-column terminal can show.
    """
    model = make_printable(model)
    parts: list[Text | Table] = [
        Text(f"warning: {each}", style="yellow") for each in collect_warnings({"": model})
    ]
    last = model.last
    if len(model.layers) > 1:
        keys = _choose_columns(model)
        table = _make_layer_table(keys)
        for record in model.layers:
            cells = [_format_cell(record.metrics, key) for key in keys]
            table.add_row(Text(record.layer), *cells, style="bold" if record is last else "")
        _add_yardsticks(table, last, keys)
        parts.append(table)
    elif last.metrics:  # without any, a table of classes was asked for alone
        parts.append(_build_metric_table(last))
    return Group(*parts)


def build_run_table(measurements: Sequence[Measurement]) -> Table:
    """Build a table of a run's end: key metrics of every layer, and NCC accuracy on test samples.

    Args:
        measurements: Measurements of one run by epoch; the last of each split is shown.

    Returns:
        A table that an 80-column terminal can show.

    Raises:
        ValueError: If there is no measurement.
    """
    if not measurements:
        msg = "a table of a run needs at least one measurement, found none"
        raise ValueError(msg)
    splits = group_by_split(measurements)
    main = next(iter(splits))
    last = splits[main][-1]
    keys = _choose_columns(last.model_record)
    has_test = "test" in splits and main != "test"
    table = _make_layer_table(keys, ["test\nNCC\nacc."] if has_test else [])
    table.title = f"{printable(main)} samples, {printable(name_step(last, 'epoch'))}"
    test = splits["test"][-1].model_record.layers if has_test else ()
    test_metrics = {record.layer: record.metrics for record in test}
    for record in last.model_record.layers:
        cells = [_format_cell(record.metrics, key) for key in keys]
        if has_test:
            cells.append(_format_cell(test_metrics.get(record.layer, {}), "ncc_accuracy"))
        table.add_row(Text(printable(record.layer)), *cells)
    _add_yardsticks(table, last.model_record.last, keys)
    return table


def _build_metric_table(record: LayerRecord) -> Table:
    """Build a table of all metrics of one layer, group by group."""
    table = make_table()
    table.add_column("metric", no_wrap=True)
    for header in ("value", "collapsed\nat"):
        table.add_column(header, justify="right", no_wrap=True)
    details = build_details(ModelRecord((record,)), "", format_plain)
    headings = {"chance": "chance", "interval": "95 % interval,\ncorrected"}
    parts = [part for part in headings if details.any(part)]
    for part in parts:
        table.add_column(headings[part], justify="right", overflow="fold")
    for title, rows in details.groups.items():
        table.add_section()
        table.add_row(Text(title.partition(":")[0], style="bold"))
        for row in rows:
            (cell,) = row.cells
            cells = [cell.value, row.collapsed, *(getattr(cell, part) for part in parts)]
            texts = [Text(text or _NONE) for text in cells]
            table.add_row(Text(f"  {row.metric.key}"), *texts)
    if "interval" in parts:
        table.caption = f"{format_interval_title(record)}."
    return table


def _make_layer_table(keys: Sequence[str], further: Sequence[str] = ()) -> Table:
    """Return an empty table of layers with a column for each metric, and further columns."""
    table = make_table()
    definitions = [f"{COLUMNS[key]} is {key}" for key in keys if "acc" not in COLUMNS[key]]
    table.caption = f"{', '.join(definitions)}."
    table.add_column("layer", min_width=12, overflow="fold")
    for header in (*(COLUMNS[key] for key in keys), *further):
        table.add_column(header, justify="right", no_wrap=True, vertical="top", min_width=_COLUMN)
    return table


def _add_yardsticks(table: Table, record: LayerRecord, keys: Sequence[str]) -> None:
    """Add rows to judge the last layer by: values at collapse and by chance, standard errors."""
    table.add_section()
    targets = (format_collapse_value(find_label(key), record, format_plain) for key in keys)
    table.add_row("collapsed at", *(text.replace(" ", "") or _NONE for text in targets))
    for name, values in (("by chance", record.baseline), ("± s.e.", record.standard_errors)):
        if values:
            stored = (find_key(values, key) for key in keys)
            row = f"{name}, {quote_number(record.layer)}"
            table.add_row(
                Text(printable(row)),
                *(_NONE if key is None else format_plain(values[key], 2) for key in stored),
            )


def make_table() -> Table:
    """Return an empty table in the style of all tables."""
    return Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )


def _choose_columns(model: ModelRecord) -> list[str]:
    return [
        key
        for key in COLUMNS
        if any(find_value(record.metrics, key) is not None for record in model.layers)
    ]


def _format_cell(metrics: Mapping[str, float], key: str) -> str:
    value = find_value(metrics, key)
    if value is None:
        return _NONE
    # Seven columns of 80: a power of ten leaves room for three digits.
    return format_plain(value, 3 if 0 < abs(value) < 1e-4 else 4)
