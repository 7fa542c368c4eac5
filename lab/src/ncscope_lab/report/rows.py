"""Observations and claims of an experiment: chosen, and as tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pydantic import BaseModel
from rich.table import Table
from rich.text import Text

from ncscope.errors import printable
from ncscope.report.tables import make_table
from ncscope.report.wording import format_plain
from ncscope_lab.findings import Finding, Verdict
from ncscope_lab.observations import Observation


def last_rows(rows: Sequence[Observation]) -> dict[str, list[Observation]]:
    """Return the last row of every layer and split, by part, in order of first appearance."""
    last: dict[str, dict[str, Observation]] = {}
    for row in rows:
        last.setdefault(row.part, {})[place_of(row)] = row
    return {part: list(places.values()) for part, places in last.items()}


def place_of(row: Observation) -> str:
    """Name the layer of a row, and the split if it is not the training set.

    Example:
        >>> place_of(Observation(0, 0, "train", "stem")), place_of(Observation(0, 0, "test", "a"))
        ('stem', 'a, test')
    """
    return row.layer if row.split in ("train", row.layer) else f"{row.layer}, {row.split}"


def rows_table(rows: Sequence[Observation], columns: Sequence[str]) -> Table:
    """Build a table of the last measurement of every part.

    Args:
        rows: Rows of a run.
        columns: Keys to show; empty where a row lacks one.

    Returns:
        A table that an 80-column terminal can show.
    """
    table = make_table()
    table.title = "Last measurement"
    table.add_column("", min_width=10, overflow="fold")
    for key in columns:
        table.add_column(key.replace("_", "\n"), justify="right", no_wrap=True, vertical="bottom")
    for part, layers in last_rows(rows).items():
        table.add_section()
        table.add_row(Text(printable(part), style="bold"))
        for row in layers:
            table.add_row(
                Text(f"  {printable(place_of(row))}"),
                *(Text(format_value(row, key)) for key in columns),
            )
    return table


def costs_table(experiments: Sequence[tuple[str, str, Mapping[Any, str]]], title: str) -> Table:
    """Build a table of experiments.

    Args:
        experiments: Name, description and cost by scale of each.
        title: Title of the table.
    """
    table = make_table()
    table.title, table.padding = title, (0, 1, 1, 0)
    table.add_column("experiment", no_wrap=True)
    table.add_column("shows, and what it takes")
    for name, shows, cost in experiments:
        takes = "; ".join(f"{scale}: {what}" for scale, what in cost.items())
        table.add_row(Text(name, style="bold"), Text(f"{shows}\n").append(takes, style="dim"))
    return table


def settings_table(scales: Mapping[Any, BaseModel]) -> Table:
    """Build a table of an experiment's settings: description, and value at each scale."""
    table = make_table()
    table.padding = (0, 1, 1, 0)
    table.add_column("setting", no_wrap=True)
    table.add_column("meaning, and value at each scale")
    for name, meaning, values in _list_fields({key: [one] for key, one in scales.items()}):
        told = [f"{scale}: {'; '.join(dict.fromkeys(each))}" for scale, each in values.items()]
        text = Text(f"{meaning}\n").append("\n".join(told), style="dim")
        table.add_row(Text(name, style="bold"), text)
    return table


def _list_fields(
    models: Mapping[Any, Sequence[BaseModel]], prefix: str = ""
) -> Iterator[tuple[str, str, Mapping[Any, list[str]]]]:
    """Yield name, meaning and values of every field of some models of one class, at each scale.

    The fields of settings by name follow these, with a ``*`` for the name, as ``--set`` takes it.
    """
    (kind,) = {type(model) for each in models.values() for model in each}
    for name, field in kind.model_fields.items():
        values = {scale: [getattr(one, name) for one in each] for scale, each in models.items()}
        every = list(chain.from_iterable(values.values()))
        if prefix and isinstance(every[0], BaseModel):
            yield from _list_fields(values, f"{prefix}{name}.")
            continue
        written = {scale: list(map(_write_setting, each)) for scale, each in values.items()}
        yield prefix + name, str(field.description or ""), written
        inner = {
            scale: [one for value in each if isinstance(value, Mapping) for one in value.values()]
            for scale, each in values.items()
        }
        if all(inner.values()) and isinstance(next(iter(inner.values()))[0], BaseModel):
            yield from _list_fields(inner, f"{prefix}{name}.*.")


def _write_setting(value: Any) -> str:
    """Write a value as ``--set`` takes it; of settings by name, only the names."""
    if isinstance(value, Mapping):
        return f"{len(value)}: {'; '.join(value)}"
    if isinstance(value, BaseModel):
        return ", ".join(f"{name}={inner}" for name, inner in value.model_dump(mode="json").items())
    return json.dumps(list(value) if isinstance(value, tuple) else value, default=str)


def format_value(row: Observation, key: str) -> str:
    """Return a value of a row as text; an empty string if the row lacks the value."""
    value = row.get(key)
    if isinstance(value, float):
        return format_plain(value)
    return "" if value is None else str(value)


_VERDICT_STYLES: Mapping[Verdict, str] = {
    "held": "green",
    "not held": "red",
    "undecided": "yellow",
}


def claims_table(claims: Sequence[Finding]) -> Table:
    """Build a table of claims: verdict, claim with its owner, and the evidence under it.

    Args:
        claims: Claims, in order.
    """
    table = make_table()
    table.title, table.padding = "Claims", (0, 1)
    table.add_column("")
    table.add_column("claim and evidence")
    for claim in claims:
        verdict = Text(claim.verdict, style=_VERDICT_STYLES[claim.verdict])
        text = Text(f"{claim.text} ({claim.source})\n").append(claim.evidence, style="dim")
        table.add_row(verdict, text)
    return table
