"""The record of finished parts: their rows are counted and hashed, so that damage is seen."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict

from ncscope.probing.records import Row


class PartMark(BaseModel):
    """Count and hash of the rows of a finished part.

    Attributes:
        rows: Number of rows.
        sha256: Hash of the part's lines in metrics.jsonl.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rows: int
    sha256: str


class FinishedParts(BaseModel):
    """Content of finished.json.

    Attributes:
        config: Hash of config.yaml, whose settings the rows are measured under.
        parts: Mark of every finished part, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    config: str
    parts: dict[str, PartMark]


@dataclass(frozen=True)
class KeptRows:
    """Rows that a run folder holds, checked against the record of finished parts.

    Attributes:
        rows: Every row of metrics.jsonl, also of unfinished parts.
        parts: Rows of each finished part, where they are as the run wrote them.
        damaged: By finished part whose rows are not as the run wrote them, how they differ.
    """

    rows: Sequence[Row]
    parts: Mapping[str, list[Row]]
    damaged: Mapping[str, str]


def checked_rows(rows: Sequence[Row], finished: Mapping[str, PartMark]) -> KeptRows:
    """Group rows by part, and tell the finished parts that are whole from the damaged ones.

    Args:
        rows: Every row of metrics.jsonl, as read.
        finished: Marks of the finished parts.
    """
    grouped: dict[str, list[Row]] = {name: [] for name in finished}
    for row in rows:
        grouped.setdefault(str(row["part"]), []).append(row)
    parts, damaged = dict[str, list[Row]](), dict[str, str]()
    for name, mark in finished.items():
        found = mark_of(grouped[name])
        if found == mark:
            parts[name] = grouped[name]
        elif found.rows == mark.rows:
            damaged[name] = f"{mark.rows} rows that were changed"
        else:
            damaged[name] = f"{found.rows} rows in place of {mark.rows}"
    return KeptRows(rows, parts, damaged)


def mark_of(rows: Sequence[Row]) -> PartMark:
    """Count and hash the rows of a part.

    Args:
        rows: Rows of the part, in order; NaN stands for whatever is not finite.
    """
    return PartMark(rows=len(rows), sha256=sha256(json_lines(rows).encode()).hexdigest())


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write each row as a line of JSON, NaN and infinities as null."""
    return "".join(json.dumps(_finite(row), allow_nan=False) + "\n" for row in rows)


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by None, at any depth."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
