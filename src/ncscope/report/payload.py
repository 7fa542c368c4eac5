"""Records as the one JSON object that a page embeds and its script draws from."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ncscope.errors import printable
from ncscope.measurement.records import LayerRecord, Measurement, ProbeRecord
from ncscope.report import layer_order, spectra
from ncscope.report.classes import class_frame
from ncscope.report.formulas import formula
from ncscope.report.labels import (
    PFC_METRICS,
    Label,
    collapse_line,
    distinct_labels,
    label_of,
    value_of,
)
from ncscope.report.numbers import compact, typeset
from ncscope.report.overview import collapsed_text
from ncscope.report.timeline import by_run, by_split, layer_names, moment

GRAM_CLASSES = 64
"""At most so many classes of a Gram matrix are drawn."""


def as_json(payload: Mapping[str, Any]) -> str:
    """Write the payload as JSON that cannot end the script element it stands in."""
    return json.dumps(payload, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def history_payload(
    measurements: Sequence[Measurement], unit: str, class_names: Sequence[str] = ()
) -> dict[str, Any]:
    """Return everything that the page of a history draws, run by run.

    Args:
        measurements: Measurements of one run or several, in any order.
        unit: Unit of their steps.
        class_names: Names of the classes, in the order of the labels.

    Returns:
        Plain dictionaries and lists, numbers of six digits, None for what is not finite.
        ``shown`` is the run to show first, the one that was measured at the most steps.
        ``together`` is a run with the last layers of several runs; empty if there is one run only.
    """
    runs = by_run(measurements)
    payload = {name: _run(own, unit, class_names) for name, own in runs.items()}
    together = f"all runs by {unit}, last layer" if len(runs) > 1 else ""
    if together:
        payload[together] = _overlaid(runs, unit)
    longest = max(runs, key=lambda name: len(runs[name]))
    return {"runs": payload, "shown": longest, "together": together}


def _overlaid(runs: Mapping[str, Sequence[Measurement]], unit: str) -> dict[str, Any]:
    """Return a run whose layers are the last layers of several runs, to draw them in one chart."""
    by_step: dict[tuple[str, float], list[LayerRecord]] = {}
    for name, measurements in runs.items():
        for each in measurements:
            last = replace(each.probe.layers[-1], layer=name or "(no name)", metrics=beside(each))
            by_step.setdefault((each.split, each.step), []).append(replace(last, gram=None))
    joined = [
        Measurement(ProbeRecord(tuple(records)), step, split)
        for (split, step), records in by_step.items()
    ]
    nothing: dict[str, Any] = {"profiles": {}, "grams": {}, "spectra": {}, "classes": {}}
    return _run(joined, unit) | nothing


def _run(
    measurements: Sequence[Measurement], unit: str, class_names: Sequence[str] = ()
) -> dict[str, Any]:
    """Return everything that the charts of one run draw."""
    splits = by_split(measurements)
    records = [record for measurement in measurements for record in measurement.probe.layers]
    keys = [key for record in records for key in record.metrics]
    keys += [key for measurement in measurements for key in measurement.values]
    metrics = distinct_labels(keys)
    layers = layer_names(measurement.probe for measurement in measurements)
    return {
        "unit": unit,
        "layers": layers,
        "metrics": [_metric_entry(metric, at=records[-1]) for metric in metrics],
        "series": {name: _series(own, layers, metrics) for name, own in splits.items()},
        "profiles": {
            name: [_labelled(one, unit, profile(one.probe)) for one in own]
            for name, own in splits.items()
            if len(layers) > 1
        },
        "grams": _last_layer_frames(splits, unit, lambda own: gram_frame(own, class_names)),
        "spectra": _last_layer_frames(splits, unit, _spectra_frame),
        "classes": _last_layer_frames(splits, unit, lambda own: class_frame(own, class_names)),
        "pfc": [_metric_entry(label_of(key), key) for key in PFC_METRICS],
    }


def probe_payload(probe: ProbeRecord, class_names: Sequence[str] = ()) -> dict[str, Any]:
    """Return everything that the page of a single measurement draws, one frame a layer."""
    grams = [(record.layer, gram_frame(record, class_names)) for record in probe.layers]
    curves = [(record.layer, _spectra_frame(record)) for record in probe.layers]
    classes = [(record.layer, class_frame(record, class_names)) for record in probe.layers]
    run = {
        "unit": "layer",
        "layers": [record.layer for record in probe.layers],
        "metrics": [],
        "series": {},
        "profiles": {"all": [{"label": "", **profile(probe)}]} if len(probe.layers) > 1 else {},
        "grams": _nonempty({"all": [{"label": n, **frame} for n, frame in grams if frame]}),
        "spectra": _nonempty({"all": [{"label": n, **frame} for n, frame in curves if frame]}),
        "classes": _nonempty({"all": [{"label": n, **frame} for n, frame in classes if frame]}),
        "pfc": [_metric_entry(label_of(key), key) for key in PFC_METRICS],
    }
    return {"runs": {"": run}, "shown": ""}


def _metric_entry(metric: Label, key: str = "", at: LayerRecord | None = None) -> dict[str, Any]:
    """Return the script's data on one metric; with its value at collapse, if a record is given."""
    line = None if at is None else collapse_line(metric.key, at.k, at.dim)
    return {
        "collapse": None if line is None else compact(line),
        "collapsed": "" if at is None else collapsed_text(metric, at),
        "key": key or metric.key,
        "title": metric.title,
        "formula": formula(metric.formula, display=True),
        "zero": metric.zero,
        "source": metric.source,
        "direction": metric.direction,
        "log": metric.log_scale,
    }


def profile(probe: ProbeRecord) -> dict[str, Any]:
    """PFC1-3 of every layer, the geodesic's prediction and what they say."""
    places = layer_order.positions(probe)
    depth = layer_order.depth_of(probe)
    return {
        "names": [record.layer for record in probe.layers],
        "positions": [compact(places.get(record.layer, math.nan)) for record in probe.layers],
        "values": {
            key: [_value(record.metrics, key) for record in probe.layers] for key in PFC_METRICS
        },
        "geodesic": _geodesic(probe) if places else None,
        "depth": depth,
        "reading": layer_order.reading(probe),
    }


def gram_frame(record: LayerRecord, class_names: Sequence[str] = ()) -> dict[str, Any] | None:
    """Cosines between the centred class means, and how far they are from the ETF’s.

    Args:
        record: Measurement of the layer.
        class_names: Names of all classes; left out where a class has no samples, and so no row.
    """
    if not record.gram:
        return None
    count = len(record.gram)
    shown = min(count, GRAM_CLASSES)
    cosines = [[compact(value, 4) for value in row[:shown]] for row in record.gram[:shown]]
    names = list(map(printable, class_names)) if len(class_names) == count else []
    reading = _gram_reading(record.gram, shown) + _closest(record.gram, names)
    return {"classes": count, "cosines": cosines, "names": names[:shown], "reading": reading}


def _closest(gram: Sequence[Sequence[float]], names: Sequence[str]) -> list[str]:
    """Name the two classes with the greatest cosine."""
    pairs = [
        (value, names[row], names[column])
        for row in range(len(names))
        for column, value in enumerate(gram[row][:row])
        if math.isfinite(value)
    ]
    if len(names) < 3 or not pairs:
        return []
    value, first, second = max(pairs)
    return [f"Closest to each other: {second} and {first}, with cosine {typeset(value, 3)}."]


def _spectra_frame(record: LayerRecord) -> dict[str, Any] | None:
    """Return the drawable part of each spectrum."""
    found = {
        name: spectra.drawable(name, record.spectra[name])
        for name in spectra.CURVES
        if record.spectra.get(name)
    }
    if not found:
        return None
    return {
        "curves": {
            name: {
                "index": curve.index,
                "values": [compact(value) for value in curve.values],
                "omitted": curve.omitted,
            }
            for name, curve in found.items()
        },
    }


def _series(
    measurements: Sequence[Measurement], layers: Sequence[str], metrics: Sequence[Label]
) -> dict[str, Any]:
    tables = [
        {record.layer: record.metrics for record in measurement.probe.layers}
        | {measurement.probe.layers[-1].layer: beside(measurement)}
        for measurement in measurements
    ]
    return {
        "times": [measurement.step for measurement in measurements],
        "values": {
            metric.key: [
                [_value(table.get(layer, {}), metric.key) for table in tables] for layer in layers
            ]
            for metric in metrics
        },
    }


def beside(measurement: Measurement) -> dict[str, float]:
    """Return the further numbers of a measurement and the last layer's metrics."""
    return {**measurement.values, **measurement.probe.layers[-1].metrics}


def _value(metrics: Mapping[str, float], key: str) -> float | None:
    value = value_of(metrics, key)
    return None if value is None else compact(value)


def _labelled(measurement: Measurement, unit: str, frame: dict[str, Any]) -> dict[str, Any]:
    return {"label": moment(measurement, unit), "step": measurement.step, **frame}


def _last_layer_frames(
    splits: Mapping[str, Sequence[Measurement]],
    unit: str,
    build: Callable[[LayerRecord], dict[str, Any] | None],
) -> dict[str, list[dict[str, Any]]]:
    frames: dict[str, list[dict[str, Any]]] = {}
    for name, own in splits.items():
        built = [(one, build(one.probe.layers[-1])) for one in own]
        frames[name] = [_labelled(one, unit, frame) for one, frame in built if frame]
    return _nonempty(frames)


def _nonempty(frames: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {name: own for name, own in frames.items() if own}


def _geodesic(probe: ProbeRecord) -> dict[str, Any] | None:
    if probe.geodesic is None:
        return None
    curves = layer_order.geodesic_curves(probe.geodesic)
    return {
        "t": [compact(t) for t in probe.geodesic.t],
        "values": {key: [compact(value) for value in curve] for key, curve in curves.items()},
    }


def _gram_reading(gram: Sequence[Sequence[float]], shown: int) -> list[str]:
    count = len(gram)
    if count < 2:
        return []
    target = -1 / (count - 1)
    apart = [
        abs(value - target)
        for row, cosines in enumerate(gram)
        for column, value in enumerate(cosines)
        if row != column and math.isfinite(value)
    ]
    parts = []
    if apart:
        mean, most = typeset(sum(apart) / len(apart), 3), typeset(max(apart), 3)
        parts.append(
            f"Between classes the cosine differs from the ETF’s {typeset(target, 3)} by {mean} on "
            f"average and {most} at most."
        )
    if shown < count:
        parts.append(f"Drawn: the first {shown} of {count} classes.")
    return parts
