"""Writing histories and reports as one JSON object, and reading them."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache, partial, singledispatch
from typing import Any, get_args, get_origin, get_type_hints

from ncscope.files import replace_surrogates
from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import (
    ClassTable,
    GeodesicRecord,
    LayerRecord,
    Measurement,
    ModelRecord,
)
from ncscope.metrics.registry import METRICS

_LARGEST = sys.float_info.max
_LARGEST_COUNT = 2**63 - 1
_ROUNDING = 1e-6
_BOUNDS = {row.key: (row.low, row.high) for row in METRICS.values()}

_TRUST = ("baseline", "standard_errors", "bias_corrected")
"""Fields of a layer that say how far its values can be trusted."""

SCHEMA_VERSION = 1
"""Version of the file format; a file of any other version is refused."""


def format_history(measurements: Iterable[Measurement], unit: str, provenance: Provenance) -> str:
    """Write measurements as strict JSON; NaN and infinities are strings.

    Args:
        measurements: Measurements, in order.
        unit: Unit of the measurements' steps.
        provenance: Origin of the measurements.
    """
    head = {"schema_version": SCHEMA_VERSION, "unit": unit, "provenance": asdict(provenance)}
    # One measurement on each line, so that two files can be compared line by line.
    lines = ",\n".join(map(measurement_line, measurements))
    return f'{_text(head)[:-1]}, "measurements": [\n{lines}\n]}}\n'


def measurement_line(measurement: Measurement) -> str:
    """Write a measurement as one line of strict JSON; NaN and infinities are strings."""
    return _text(measurement_fields(measurement))


def measurement_fields(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as nested dictionaries and lists, with the names of the file format."""
    fields = asdict(measurement)
    return {"probe": fields.pop("model_record"), **fields}


def parse_history(content: bytes) -> tuple[list[Measurement], str, Provenance]:
    """Read a file that `format_history` wrote: measurements, unit of the steps, and provenance.

    What is read can be shown: fields are checked against each other.

    Raises:
        ValueError: If the content is of another form or version, or contradicts itself. TypeError
            and KeyError mean the former too.
    """
    whole, origin = _open(content)
    measurements = [parse_measurement(_map(each)) for each in _list(whole["measurements"])]
    return measurements, _word(whole["unit"]), origin


def format_report(summary: Mapping[str, Any], model: ModelRecord, provenance: Provenance) -> str:
    """Write a report as strict JSON: a summary for scripts, then the whole record.

    Args:
        summary: Entries for scripts, whose numbers are finite or None; `parse_report` ignores
            them.
        model: Record of all layers.
        provenance: Origin of the report.
    """
    record = {"provenance": asdict(provenance), "probe": asdict(model)}
    return _text({"schema_version": SCHEMA_VERSION, **summary, **record})


def parse_report(content: bytes) -> tuple[ModelRecord, Provenance, bool]:
    """Read a file that `format_report` wrote: record, provenance, and whether a model was measured.

    What is read can be shown: fields are checked against each other.

    Raises:
        ValueError: If the content is of another form or version, or contradicts itself. TypeError
            and KeyError mean the former too.
    """
    whole, origin = _open(content)
    model: ModelRecord = _reader(ModelRecord)(whole["probe"])
    of_model = "layers" in whole
    names = {record.layer for record in model.layers}
    if of_model and set(_map(whole["layers"])) != names:
        msg = "a summary and a record of different layers"
        raise ValueError(msg)
    if not of_model and len(names) > 1:
        msg = f"{len(names)} layers in a report of features"
        raise ValueError(msg)
    return model, origin, of_model


def is_history(content: bytes) -> bool:
    """Return whether a JSON file that ncscope wrote holds a history, and not a report.

    Raises:
        ValueError: If the content is no JSON object.
    """
    return "measurements" in parse_object(content.decode())


def parse_object(text: str) -> Mapping[str, Any]:
    """Parse one JSON object whose names, and those of all objects inside, are distinct.

    Raises:
        ValueError: If the text is something else.
    """
    return _map(json.loads(text, object_pairs_hook=_object))


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_twice("a name in an object", [name for name, _ in pairs])
    return dict(pairs)


def _refuse_twice(what: str, values: Sequence[Any]) -> None:
    distinct = set(values)
    if len(distinct) < len(values):
        twice = next(value for value in distinct if values.count(value) > 1)
        msg = f"twice {what}: {twice!r:.80}"
        raise ValueError(msg)


def _open(content: bytes) -> tuple[Mapping[str, Any], Provenance]:
    """Return the object that a file holds, and its provenance."""
    whole = parse_object(content.decode())
    version = whole["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:
        msg = f"schema version {version!r:.80}, where this ncscope reads {SCHEMA_VERSION}"
        raise ValueError(msg)
    return whole, _reader(Provenance)(whole["provenance"])


def _text(value: Any) -> str:
    return json.dumps(_strict(value), allow_nan=False)


def _strict(value: Any) -> Any:
    """Replace NaN and infinities by strings, and surrogates by escapes, at any depth.

    Many readers of JSON refuse a lone surrogate.
    """
    if isinstance(value, Mapping):
        return {_strict(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, str):
        return replace_surrogates(value)
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def parse_measurement(given: Mapping[str, Any]) -> Measurement:
    """Build a measurement from nested dictionaries and lists, as `measurement_fields` makes them.

    Args:
        given: Dictionaries and lists; NaN and infinities may be strings.

    Raises:
        ValueError: If a value is no measurement's, or contradicts another. TypeError and KeyError
            mean the same.
    """
    fields = dict(given)
    measurement: Measurement = _reader(Measurement)({"model_record": fields.pop("probe"), **fields})
    return measurement


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the function that reads a value of a type from parsed JSON, and refuses any other.

    Args:
        kind: A record, or the type of a record's field.
    """
    inside = get_args(kind)
    if is_dataclass(kind):
        fields = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}
        return partial(_read_record, kind, fields)
    if not inside:
        return {float: _number, int: _whole, str: _word, bool: _flag}[kind]
    if inside[-1] is type(None):
        read = _reader(inside[0])
        return lambda value: None if value is None else read(value)
    if (origin := get_origin(kind)) is Mapping:
        read = _reader(inside[1])
        return lambda value: {name: read(item) for name, item in _map(value).items()}
    read = _reader(inside[0])
    return lambda value: origin(map(read, _list(value)))


def _read_record(kind: Any, readers: Mapping[str, Callable[[Any], Any]], given: Any) -> Any:
    """Read a record, whose fields must all be there, and no others."""
    values = _map(given)
    if unknown := ", ".join(sorted(values.keys() - readers.keys())):
        msg = f"{unknown:.200} in the {kind.__name__}, which this ncscope does not know"
        raise ValueError(msg)
    record = kind(**{name: read(values[name]) for name, read in readers.items()})
    for contradiction in _contradictions(record):
        raise ValueError(contradiction)
    return record


@singledispatch
def _contradictions(record: Any) -> Iterator[str]:
    """Yield what the fields of a record say against each other."""
    yield from ()


@_contradictions.register
def _(record: Measurement) -> Iterator[str]:
    if not math.isfinite(record.step):
        yield "a measurement without a finite step"
    if columns := record.values.keys() & {"run", "split", "step", "layer"}:
        yield f"a further number named {min(columns)}, as a column of the table is"


@_contradictions.register
def _(record: ModelRecord) -> Iterator[str]:
    if not record.layers:
        yield "a measurement without a layer"
    names = [layer.layer for layer in record.layers]
    _refuse_twice("a layer", names)
    comparable = set(record.comparable)
    in_order = [layer for layer in record.layers if layer.layer in comparable]
    if [layer.layer for layer in in_order] != list(record.comparable):
        yield "comparable layers that are not among the layers, in their order"
    if len({layer.dim for layer in in_order}) > 1:
        yield "comparable layers of different dimensions"
    if len(record.relative_position) not in (0, len(comparable)):
        yield f"{len(record.relative_position)} positions of {len(comparable)} comparable layers"


@_contradictions.register
def _(record: LayerRecord) -> Iterator[str]:
    for count in (record.num_classes, record.num_present, record.num_samples, record.dim):
        if not 0 <= count <= _LARGEST_COUNT:
            yield f"{count!r:.80} where a count should be"
    if record.num_present > record.num_classes:
        yield f"{record.num_present} classes present of {record.num_classes}"
    if not record.num_samples or not record.dim:
        yield f"{record.num_samples} samples in {record.dim} dimensions"
    for curve in record.spectra.values():
        if len(curve) > record.dim or any(value < 0 for value in curve):
            yield f"{len(curve)} eigenvalues, some below 0 or beyond {record.dim} dimensions"
    for key, value in record.metrics.items():
        low, high = _BOUNDS.get(key, (-math.inf, math.inf))
        if value < low - _ROUNDING or value > high + _ROUNDING:
            yield f"{key} of {value:.6g}, beyond its range"
    for part in _TRUST:
        if strangers := getattr(record, part).keys() - record.metrics.keys():
            yield f"{part.replace('_', ' ')} of {min(strangers)!r:.80}, which was not measured"
    if not all(0 <= error < math.inf for error in record.standard_errors.values()):
        yield "a standard error that is negative or not finite"
    if (gram := record.gram) is not None:
        if not 2 <= len(gram) <= record.k or any(len(row) != len(gram) for row in gram):
            yield f"cosines of {len(gram)} class means that are no square of at most the classes"
        if any(abs(cosine) > 1 + _ROUNDING for row in gram for cosine in row):
            yield "a cosine beyond 1"
    if (table := record.per_class) is not None:
        if table.classes[-1] >= record.num_classes:
            yield f"a table with class {table.classes[-1]} of {record.num_classes}"
        if len(table.classes) != record.k or sum(table.samples) != record.num_samples:
            yield (
                f"a table of {sum(table.samples)} samples of {len(table.classes)} classes beside "
                f"{record.num_samples} of {record.k}"
            )


@_contradictions.register
def _(record: ClassTable) -> Iterator[str]:
    yield from _uneven_columns(record)
    classes, present = record.classes, set(record.classes)
    ascending = classes == sorted(present) and classes[:1] >= [0]
    others = all(
        other in present and other != own
        for own, other in zip(classes, record.nearest, strict=True)
    )
    if not (ascending and others and min(record.samples) > 0):
        yield "a table of classes whose labels and columns do not belong together"


@_contradictions.register
def _(record: GeodesicRecord) -> Iterator[str]:
    if len(record.t) < 2:
        yield f"a line of {len(record.t)} positions"
    yield from _uneven_columns(record)


def _uneven_columns(record: ClassTable | GeodesicRecord) -> Iterator[str]:
    first, *others = [column for column in vars(record).values() if isinstance(column, list)]
    for column in others:
        if len(column) != len(first):
            yield f"a column of {len(column)} numbers beside one of {len(first)}"


def _number(value: Any) -> float:
    if type(value) is float and value == value:  # nearly every value of a file
        return value
    if value in ("nan", "inf", "-inf"):
        number = float(value)
        # NaN is one object, as in a measurement: it makes equal reports compare equal.
        return math.nan if math.isnan(number) else number
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{value!r:.80} where a number should be"
        raise ValueError(msg)
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        msg = f"a whole number of {len(str(abs(value)))} digits, beyond the range of float64"
        raise ValueError(msg)
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{value!r:.80} where a whole number should be"
        raise ValueError(msg)
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        msg = f"{value!r:.80} where true or false should be"
        raise ValueError(msg)
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str):
        msg = f"{value!r:.80} where a text should be"
        raise ValueError(msg)
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        msg = "no JSON list where one should be"
        raise ValueError(msg)
    return value


def _map(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        msg = "no JSON object where one should be"
        raise ValueError(msg)
    return value
