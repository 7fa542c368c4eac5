"""Writing histories and reports as one JSON object, and reading them."""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

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
    model = _model_record(_map(whole["probe"]))
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
    return whole, _provenance(_map(whole["provenance"]))


def _provenance(origin: Mapping[str, Any]) -> Provenance:
    if unknown := origin.keys() - {field.name for field in fields(Provenance)}:
        named = ", ".join(sorted(unknown))
        msg = f"{named:.200} in the provenance, which this ncscope does not know"
        raise ValueError(msg)
    seed = origin["seed"]
    return Provenance(
        **{name: _word(origin[name]) for name in ("model", "weights", "data", "caller", "date")},
        class_names=_words(origin["class_names"]),
        seed=None if seed is None else _whole(seed),
        split=_word(origin.get("split", "")),  # absent from the files of earlier versions
        versions={name: _word(text) for name, text in _map(origin["versions"]).items()},
    )


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
    step, values = _number(given["step"]), _number_map(given["values"])
    if not -_LARGEST <= step <= _LARGEST:
        msg = "a measurement without a finite step"
        raise ValueError(msg)
    if columns := values.keys() & {"run", "split", "step", "layer"}:
        msg = f"a further number named {min(columns)}, as a column of the table is"
        raise ValueError(msg)
    model = _model_record(_map(given["probe"]))
    return Measurement(model, step, _word(given["split"]), _word(given["run"]), values)


def _model_record(given: Mapping[str, Any]) -> ModelRecord:
    geodesic, layers = given["geodesic"], _list(given["layers"])
    straightness = given.get("straightness")  # absent from the files of earlier versions
    if not layers:
        msg = "a measurement without a layer"
        raise ValueError(msg)
    model = ModelRecord(
        tuple(_layer(_map(layer)) for layer in layers),
        _words(given["comparable"]),
        _numbers(given["relative_position"]),
        None if geodesic is None else _geodesic(_map(geodesic)),
        None if straightness is None else _number(straightness),
    )
    _check_chain(model)
    return model


def _check_chain(model: ModelRecord) -> None:
    """Check that the comparable layers are layers of one dimension, in order, with positions."""
    names = [record.layer for record in model.layers]
    _refuse_twice("a layer", names)
    comparable = set(model.comparable)
    in_order = [record for record in model.layers if record.layer in comparable]
    if [record.layer for record in in_order] != list(model.comparable):
        msg = "comparable layers that are not among the layers, in their order"
        raise ValueError(msg)
    if len({record.dim for record in in_order}) > 1:
        msg = "comparable layers of different dimensions"
        raise ValueError(msg)
    if len(model.relative_position) not in (0, len(comparable)):
        msg = f"{len(model.relative_position)} positions of {len(comparable)} comparable layers"
        raise ValueError(msg)


def _layer(given: Mapping[str, Any]) -> LayerRecord:
    gram = given["gram"]
    record = LayerRecord(
        layer=_word(given["layer"]),
        metrics=_number_map(given["metrics"]),
        notes=_words(given["notes"]),
        num_classes=_count(given["num_classes"]),
        num_present=_count(given.get("num_present", 0)),
        num_samples=_count(given["num_samples"]),
        dim=_count(given["dim"]),
        spectra={name: list(_numbers(curve)) for name, curve in _map(given["spectra"]).items()},
        gram=None if gram is None else [list(_numbers(row)) for row in _list(gram)],
        # Absent from the files of versions that did not measure them.
        warnings=_words(given.get("warnings", [])),
        baseline=_number_map(given.get("baseline", {})),
        standard_errors=_number_map(given.get("standard_errors", {})),
        bias_corrected=_number_map(given.get("bias_corrected", {})),
        random_sizes=_flag(given.get("random_sizes", False)),
        per_class=None if (table := given.get("per_class")) is None else _table(_map(table)),
    )
    for contradiction in _contradictions(record):
        raise ValueError(contradiction)
    return record


def _contradictions(record: LayerRecord) -> Iterator[str]:
    """Yield what the parts of a record say against each other, or against its sizes."""
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


def _table(given: Mapping[str, Any]) -> ClassTable:
    """Read a table of classes.

    Raises:
        ValueError: If columns differ in length, or a label or a number of samples cannot be.
    """
    classes = [_count(value) for value in _list(given["classes"])]
    nearest = [_count(value) for value in _list(given["nearest"])]
    samples = [_count(value) for value in _list(given["samples"])]
    present = set(classes)
    ascending = classes == sorted(present) and classes[:1] >= [0]
    others = len(nearest) == len(classes) and all(
        other in present and other != own for own, other in zip(classes, nearest, strict=True)
    )
    if not (ascending and others and len(samples) == len(classes) and min(samples) > 0):
        msg = "a table of classes whose labels and columns do not belong together"
        raise ValueError(msg)

    def numbers(name: str) -> list[float]:
        return _column(given[name], len(classes))

    def if_known(name: str) -> list[float] | None:
        return None if given[name] is None else numbers(name)

    return ClassTable(
        classes=classes,
        samples=samples,
        within_share=numbers("within_share"),
        nc1_quotient=numbers("nc1_quotient"),
        mean_norm=numbers("mean_norm"),
        head_norm=if_known("head_norm"),
        head_cosine=if_known("head_cosine"),
        nearest=nearest,
        nearest_distance=numbers("nearest_distance"),
        nearest_cosine=numbers("nearest_cosine"),
        nearest_cdnv=numbers("nearest_cdnv"),
        ncc_accuracy=if_known("ncc_accuracy"),
        accuracy=if_known("accuracy"),
    )


def _column(given: Any, length: int) -> list[float]:
    column = list(_numbers(given))
    if len(column) != length:
        msg = f"a column of {len(column)} numbers beside one of {length}"
        raise ValueError(msg)
    return column


def _geodesic(given: Mapping[str, Any]) -> GeodesicRecord:
    t = list(_numbers(given["t"]))
    if len(t) < 2:
        msg = f"a line of {len(t)} positions"
        raise ValueError(msg)
    return GeodesicRecord(
        t=t,
        pfc1=_column(given["pfc1"], len(t)),
        pfc2=_column(given["pfc2"], len(t)),
        pfc3=_column(given["pfc3"], len(t)),
        alignment=_number(given["alignment"]),
        transport_cost=_number(given["transport_cost"]),
    )


def _number_map(given: Any) -> dict[str, float]:
    return {name: _number(value) for name, value in _map(given).items()}


def _numbers(given: Any) -> tuple[float, ...]:
    return tuple(map(_number, _list(given)))


def _number(value: Any) -> float:
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


def _count(value: Any) -> int:
    if not 0 <= _whole(value) <= _LARGEST_COUNT:
        msg = f"{value!r:.80} where a count should be"
        raise ValueError(msg)
    return int(value)


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


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(_word, _list(value)))


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
