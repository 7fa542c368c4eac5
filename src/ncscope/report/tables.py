"""Tables for the terminal."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ncscope.errors import printable
from ncscope.measurement.records import LayerRecord, Measurement, ProbeRecord
from ncscope.report.labels import key_in, label_of, value_of
from ncscope.report.names import printable_probe, quoted
from ncscope.report.numbers import interval_title, plain
from ncscope.report.overview import collapsed_text, details, warnings
from ncscope.report.timeline import by_split, moment

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


def probe_table(probe: ProbeRecord) -> Group:
    """Build a table of a measurement: all metrics of a single layer, or key metrics of several.

    Args:
        probe: Measurement of one or more layers.

    Returns:
        Warnings, then a table that an 80-column terminal can show.
    """
    probe = printable_probe(probe)
    said = [Text(f"warning: {each}", style="yellow") for each in warnings({"": probe})]
    nothing = len(probe.layers) == 1 and not probe.layers[0].metrics  # a table of classes alone
    return Group(*said) if nothing else Group(*said, _probe_table(probe))


def _probe_table(probe: ProbeRecord) -> Table:
    if len(probe.layers) == 1:
        return _metric_table(probe.layers[0])
    keys = _measured(probe.layers)
    table = _layer_table(keys)
    for record in probe.layers:
        table.add_row(Text(record.layer), *_cells(record.metrics, keys))
    _add_yardsticks(table, probe.layers[-1], keys)
    return table


def run_table(measurements: Sequence[Measurement], unit: str = "epoch") -> Table:
    """Build a table of a run's end: key metrics of every layer, and NCC accuracy on test samples.

    Args:
        measurements: Measurements of one run; the last of each split is shown.
        unit: Unit of the measurements' steps.

    Returns:
        A table that an 80-column terminal can show.

    Raises:
        ValueError: If there is no measurement.
    """
    if not measurements:
        msg = "a table of a run needs at least one measurement, found none"
        raise ValueError(msg)
    splits = by_split(measurements)
    main = next(iter(splits))
    last = splits[main][-1]
    beside = [name for name in splits if name == "test" and name != main]
    tested = {name: _by_layer(splits[name][-1].probe) for name in beside}
    keys = _measured(last.probe.layers)
    table = _layer_table(keys, [f"{name}\nNCC\nacc." for name in beside])
    table.title = f"{printable(main)} samples, {printable(moment(last, unit))}"
    for record in last.probe.layers:
        cells = _cells(record.metrics, keys)
        cells += [_cell(tested[name].get(record.layer, {}), "ncc_accuracy") for name in beside]
        table.add_row(Text(printable(record.layer)), *cells)
    _add_yardsticks(table, last.probe.layers[-1], keys)
    return table


def _metric_table(record: LayerRecord) -> Table:
    table = plain_table()
    table.add_column("metric", no_wrap=True)
    for header in ("value", "collapsed\nat"):
        table.add_column(header, justify="right", no_wrap=True)
    whole = details(ProbeRecord((record,)), "", plain)
    beside = {"chance": "chance", "interval": "95 % interval,\ncorrected"}
    known = [part for part in beside if whole.any(part)]
    for part in known:
        table.add_column(beside[part], justify="right", overflow="fold")
    for title, rows in whole.groups.items():
        table.add_section()
        table.add_row(Text(title.partition(":")[0], style="bold"))
        for row in rows:
            (cell,) = row.cells
            cells = [cell.value, row.collapsed, *(getattr(cell, part) for part in known)]
            table.add_row(Text(f"  {row.metric.key}"), *map(Text, cells))
    if "interval" in known:
        table.caption = f"{interval_title(record)}."
    return table


def _layer_table(keys: Sequence[str], beside: Sequence[str] = ()) -> Table:
    table = plain_table()
    named = [f"{COLUMNS[key]} is {key}" for key in keys if "acc" not in COLUMNS[key]]
    table.caption = f"{', '.join(named)}."
    table.add_column("layer", min_width=12, overflow="fold")
    for header in (*(COLUMNS[key] for key in keys), *beside):
        table.add_column(header, justify="right", no_wrap=True, vertical="top")
    return table


def _add_yardsticks(table: Table, record: LayerRecord, keys: Sequence[str]) -> None:
    """Add rows to judge the last layer by: values at collapse and by chance, standard errors."""
    table.add_section()
    collapsed = (collapsed_text(label_of(key), record, plain) for key in keys)
    table.add_row("collapsed at", *(text.replace(" ", "") for text in collapsed))
    for name, values in (("by chance", record.baseline), ("± s.e.", record.standard_errors)):
        if values:
            known = (key_in(values, key) for key in keys)
            row = f"{name}, {quoted(record.layer)}"
            table.add_row(
                Text(printable(row)),
                *("" if key is None else plain(values[key], 2) for key in known),
            )


def plain_table() -> Table:
    """Return an empty table in the style of all tables."""
    return Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )


def _measured(records: Sequence[LayerRecord]) -> list[str]:
    return [
        key
        for key in COLUMNS
        if any(value_of(record.metrics, key) is not None for record in records)
    ]


def _cells(metrics: Mapping[str, float], keys: Sequence[str]) -> list[str]:
    return [_cell(metrics, key) for key in keys]


def _cell(metrics: Mapping[str, float], key: str) -> str:
    value = value_of(metrics, key)
    return "" if value is None else plain(value)


def _by_layer(probe: ProbeRecord) -> dict[str, Mapping[str, float]]:
    return {record.layer: record.metrics for record in probe.layers}
