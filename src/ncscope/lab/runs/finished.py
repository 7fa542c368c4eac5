"""Record of finished parts, with counts and hashes of their results, which reveal damage."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from pydantic import BaseModel, ConfigDict

from ncscope.lab.observations import Observation, Results
from ncscope.measurement.history_file import measurement_line
from ncscope.measurement.records import Measurement


class PartMark(BaseModel):
    """Count and hashes of the results of a finished part.

    Attributes:
        rows: Number of observations.
        sha256: Hash of the part's lines in metrics.jsonl.
        history: Hash of the part's lines in history.json; empty if the part has no such line.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rows: int
    sha256: str
    history: str = ""


class FinishedParts(BaseModel):
    """Content of finished.json.

    Attributes:
        config: Hash of config.yaml, which holds the settings of the parts.
        parts: Mark of every finished part, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    config: str
    parts: dict[str, PartMark]


@dataclass(frozen=True)
class KeptResults:
    """Results that a run folder holds, checked against the record of finished parts.

    Attributes:
        whole: All results in the folder, including those of unfinished parts.
        parts: Results of each finished part whose files are as the run wrote them.
        damaged: Description of the damage, for each finished part whose files were changed.
    """

    whole: Results
    parts: Mapping[str, Results]
    damaged: Mapping[str, str]


def checked_results(
    lines: Sequence[tuple[str, Observation]],
    measurements: Sequence[Measurement],
    finished: Mapping[str, PartMark],
) -> KeptResults:
    """Group results by part, and separate undamaged from damaged finished parts.

    Args:
        lines: Every line of metrics.jsonl with the observation that was read from it.
        measurements: Every measurement of history.json, as read.
        finished: Marks of the finished parts.
    """
    parts, damaged = dict[str, Results](), dict[str, str]()
    for name, mark in finished.items():
        of_part = [(line, each) for line, each in lines if each.part == name]
        measured = [each for each in measurements if each.run == name]
        # Hash the text of the file, not the parsed observations written again: another version of
        # the program could write them differently, and the hash would no longer match.
        present = _mark([line for line, _ in of_part], measured)
        if present == mark:
            parts[name] = Results([each for _, each in of_part], measured)
        elif present.rows != mark.rows:
            damaged[name] = f"{present.rows} rows in place of {mark.rows} in metrics.jsonl"
        elif present.sha256 != mark.sha256:
            damaged[name] = "that metrics.jsonl was changed"
        else:
            damaged[name] = "that history.json was changed or lost"
    everything = Results([each for _, each in lines], measurements)
    return KeptResults(everything, parts, damaged)


def mark_of(results: Results) -> PartMark:
    """Count and hash the results of a part.

    Args:
        results: Results of the part, in order. In observations NaN replaces every number that is
            not finite.
    """
    return _mark(list(map(observation_line, results)), results.measurements)


def _mark(lines: Sequence[str], measurements: Iterable[Measurement]) -> PartMark:
    history = "\n".join(map(measurement_line, measurements))
    return PartMark(
        rows=len(lines),
        sha256=sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest(),
        history=sha256(history.encode()).hexdigest() if history else "",
    )


def observation_line(observation: Observation) -> str:
    """Write an observation as a line of JSON, NaN and infinities as null."""
    row = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in observation.as_line().items()
    }
    return json.dumps(row, allow_nan=False)
