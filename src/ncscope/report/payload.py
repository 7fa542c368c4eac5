"""Records as the one JSON object that a page embeds and its script draws from."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.metrics.metric import Metric
from ncscope.report.classes import build_class_frame, name_class
from ncscope.report.curves import (
    SPECTRUM_TITLES,
    describe_layers,
    find_effective_depth,
    geodesic_curves,
    group_by_run,
    group_by_split,
    list_layers,
    relative_positions,
    select_drawable,
)
from ncscope.report.labels import (
    PFC_METRICS,
    find_label,
    find_value,
    is_fixed,
    sort_labels,
    value_at_collapse,
)
from ncscope.report.overview import format_collapse_value
from ncscope.report.wording import name_step, round_for_json, typeset

GRAM_CLASSES = 64
"""At most so many classes of a Gram matrix are drawn."""
FRAME_NUMBERS = 100_000
"""About so many numbers are in all heat maps and spectra of a page, 0.2 MB of it."""


def write_json(payload: Mapping[str, Any]) -> str:
    """Write the payload as JSON that cannot end the script element it stands in."""
    return json.dumps(payload, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def build_history_payload(
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
        ``grid`` is the run that the grid of headline charts draws.
    """
    runs = group_by_run(measurements)
    moments, most = _choose_frames([*runs.values()])
    payload = {
        name: _build_run(of_run, unit, class_names, moments, most) for name, of_run in runs.items()
    }
    together = f"all runs by {unit}, last layer" if len(runs) > 1 else ""
    if together:
        # A run whose layers are the last layers of all runs: one chart then compares the runs.
        by_step: dict[tuple[str, float], list[LayerRecord]] = {}
        for name, of_run in runs.items():
            for each in of_run:
                record = replace(
                    each.model_record.last,
                    layer=name or "(no name)",
                    metrics=each.last_values,
                    gram=None,
                )
                by_step.setdefault((each.split, each.step), []).append(record)
        last_layers = [
            Measurement(ModelRecord(tuple(records)), step, split)
            for (split, step), records in by_step.items()
        ]
        absent: dict[str, Any] = {"profiles": {}, "grams": {}, "spectra": {}, "classes": {}}
        payload[together] = _build_run(last_layers, unit) | absent
    longest = max(runs, key=lambda name: len(runs[name]))
    return {"runs": payload, "shown": longest, "together": together, "grid": together or longest}


def _choose_frames(runs: Sequence[Sequence[Measurement]]) -> tuple[int, int]:
    """Return the moments of a split, and the classes, whose heat maps and spectra a page can hold.

    Many networks with many classes would take tens of megabytes. Fewer moments are shown first,
    but the first and the last of each split; if these are too many, fewer classes.
    """
    splits = [of_split for of_run in runs for of_split in group_by_split(of_run).values()]
    most = max(map(len, splits), default=2)
    last = [(of_split, of_split[-1].model_record.last) for of_split in splits]
    spectra = [sum(min(200, len(one)) for one in record.spectra.values()) for _, record in last]
    classes = [min(GRAM_CLASSES, len(record.gram or ())) for _, record in last]

    def count(moments: int) -> int:
        return sum(
            min(len(of_split), moments) * (one + own**2)
            for (of_split, _), one, own in zip(last, spectra, classes, strict=True)
        )

    moments = max(2, most)
    while moments > 2 and count(moments) > FRAME_NUMBERS:
        moments = moments * 2 // 3
    moments = max(2, moments)
    if moments > 2:
        return moments, GRAM_CLASSES
    return moments, _limit_classes(2 * sum(spectra), classes * 2)


def choose_class_limit(models: Sequence[ModelRecord]) -> int:
    """Return the number of classes whose heat maps fit on a page of single measurements."""
    records = [record for model in models for record in model.layers]
    spectra = sum(min(200, len(one)) for record in records for one in record.spectra.values())
    return _limit_classes(
        spectra, [min(GRAM_CLASSES, len(record.gram or ())) for record in records]
    )


def _limit_classes(spectra: int, classes: Sequence[int]) -> int:
    """Return the number of classes with which heat maps and spectra are about `FRAME_NUMBERS`."""
    left, squares = max(FRAME_NUMBERS - spectra, 0), sum(own**2 for own in classes)
    if squares <= left:
        return GRAM_CLASSES
    return max(8, int(max(classes) * math.sqrt(left / squares)))


def _build_run(
    measurements: Sequence[Measurement],
    unit: str,
    class_names: Sequence[str] = (),
    moments: int = 2,
    most: int = GRAM_CLASSES,
) -> dict[str, Any]:
    """Return everything that the charts of one run draw.

    Args:
        measurements: Measurements of one run.
        unit: Unit of their steps.
        class_names: Names of the classes, in the order of the labels.
        moments: Number of moments of a split that heat maps and spectra are drawn of.
        most: Number of classes that a heat map is drawn of.
    """
    splits = group_by_split(measurements)
    records = [record for measurement in measurements for record in measurement.model_record.layers]
    keys = [key for record in records for key in record.metrics]
    keys += [key for measurement in measurements for key in measurement.values]
    metrics = sort_labels(keys)
    layers = list_layers(measurement.model_record for measurement in measurements)
    tables = {
        name: [
            {record.layer: record.metrics for record in each.model_record.layers}
            | {each.model_record.last.layer: each.last_values}
            for each in of_split
        ]
        for name, of_split in splits.items()
    }

    def label(each: Measurement, frame: dict[str, Any]) -> dict[str, Any]:
        return {"label": name_step(each, unit), "step": each.step, **frame}

    def build_frames(
        build: Callable[[LayerRecord], dict[str, Any] | None],
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the frames of the last layer by split, without splits that have none."""
        frames = {
            name: [
                label(each, frame)
                for each in _space_evenly(of_split, moments)
                if (frame := build(each.model_record.last)) is not None
            ]
            for name, of_split in splits.items()
        }
        return {name: of_split for name, of_split in frames.items() if of_split}

    return {
        "unit": unit,
        "layers": layers,
        "metrics": [_describe_metric(metric, at=records[-1]) for metric in metrics],
        "series": {
            name: {
                "times": [each.step for each in of_split],
                "values": {
                    metric.key: [
                        [_round_value(table.get(layer, {}), metric.key) for table in tables[name]]
                        for layer in layers
                    ]
                    for metric in metrics
                },
                "gaps": _find_gaps(metrics, layers, tables[name]),
            }
            for name, of_split in splits.items()
        },
        "profiles": {
            name: [label(each, build_profile(each.model_record)) for each in of_split]
            for name, of_split in splits.items()
            if len(layers) > 1
        },
        "grams": build_frames(lambda record: build_gram_frame(record, class_names, most)),
        "spectra": build_frames(_build_spectra_frame),
        "classes": build_frames(lambda record: build_class_frame(record, class_names)),
        "pfc": [_describe_metric(find_label(key), key) for key in PFC_METRICS],
    }


def _find_gaps(
    metrics: Sequence[Metric],
    layers: Sequence[str],
    tables: Sequence[Mapping[str, Mapping[str, float]]],
) -> dict[str, list[list[int]]]:
    """Return the layer and the time of each value that is undefined, by the key of its metric.

    There a curve has a gap. It has none where a layer was not measured, as in a run that is
    measured at other steps than the runs beside it.

    Args:
        metrics: Labels of the metrics.
        layers: Names of the layers.
        tables: Metrics by layer, at each time.
    """
    gaps: dict[str, list[list[int]]] = {}
    for metric in metrics:
        for place, layer in enumerate(layers):
            for time, table in enumerate(tables):
                value = find_value(table.get(layer, {}), metric.key)
                if value is not None and not math.isfinite(value):
                    gaps.setdefault(metric.key, []).append([place, time])
    return gaps


def _space_evenly(values: Sequence[Measurement], count: int) -> Sequence[Measurement]:
    """Return so many of the values, evenly spaced, the first and the last among them."""
    if len(values) <= count:
        return values
    last = len(values) - 1
    return [values[round(at * last / (count - 1))] for at in range(count)]


def build_model_payload(
    model: ModelRecord, class_names: Sequence[str] = (), most: int = GRAM_CLASSES
) -> dict[str, Any]:
    """Return everything that the page of a single measurement draws, one frame a layer.

    Args:
        model: Measurement of one or more layers.
        class_names: Names of the classes, in the order of the labels.
        most: Number of classes that a heat map is drawn of.
    """

    def build_frames(
        build: Callable[[LayerRecord], dict[str, Any] | None],
    ) -> dict[str, list[dict[str, Any]]]:
        frames = [
            {"label": record.layer, **frame}
            for record in model.layers
            if (frame := build(record)) is not None
        ]
        return {"all": frames} if frames else {}

    run = {
        "unit": "layer",
        "layers": [record.layer for record in model.layers],
        "metrics": [],
        "series": {},
        "profiles": {"all": [{"label": "", **build_profile(model)}]} if model.layers[1:] else {},
        "grams": build_frames(lambda record: build_gram_frame(record, class_names, most)),
        "spectra": build_frames(_build_spectra_frame),
        "classes": build_frames(lambda record: build_class_frame(record, class_names)),
        "pfc": [_describe_metric(find_label(key), key) for key in PFC_METRICS],
    }
    return {"runs": {"": run}, "shown": ""}


def _describe_metric(
    metric: Metric, key: str = "", at: LayerRecord | None = None
) -> dict[str, Any]:
    """Return the script's data on one metric; with its value at collapse, if a record is given."""
    target = None if at is None else value_at_collapse(metric.key, at.k, at.dim)
    return {
        # Charts mark a value at collapse that is neither 0 nor 1.
        "collapse": None if target is None or target in (0.0, 1.0) else round_for_json(target),
        "collapsed": "" if at is None else format_collapse_value(metric, at),
        "key": key or metric.key,
        "title": metric.title,
        "formula": metric.formula,
        "zero": metric.zero,
        "source": metric.source,
        "direction": metric.direction,
        "fixed": at is not None and is_fixed(metric.key, at.k),
        "log": metric.log_scale,
    }


def build_profile(model: ModelRecord) -> dict[str, Any]:
    """Return PFC1-3 of every layer, the geodesic's prediction and what they say."""
    places = relative_positions(model)
    geodesic = None
    if places and model.geodesic is not None:
        curves = geodesic_curves(model.geodesic)
        geodesic = {
            "t": [round_for_json(t) for t in model.geodesic.t],
            "values": {
                key: [round_for_json(value) for value in curve] for key, curve in curves.items()
            },
        }
    return {
        "names": [record.layer for record in model.layers],
        "positions": [
            round_for_json(places.get(record.layer, math.nan)) for record in model.layers
        ],
        "values": {
            key: [_round_value(record.metrics, key) for record in model.layers]
            for key in PFC_METRICS
        },
        "gaps": {
            key: [
                place
                for place, record in enumerate(model.layers)
                if not math.isfinite(find_value(record.metrics, key) or 0.0)
            ]
            for key in PFC_METRICS
        },
        "geodesic": geodesic,
        "depth": find_effective_depth(model),
        "reading": describe_layers(model),
    }


def build_gram_frame(
    record: LayerRecord, class_names: Sequence[str] = (), most: int = GRAM_CLASSES
) -> dict[str, Any] | None:
    """Return the cosines between the centred class means, and how far they are from the ETF’s.

    Args:
        record: Measurement of the layer.
        class_names: Names of all classes; a class without a name has its label.
        most: Number of classes to draw at most.
    """
    gram = record.gram
    if not gram:
        return None
    count = len(gram)
    most = min(count, most)
    labels = range(count) if record.per_class is None else record.per_class.classes
    # Without a table of classes, which of them are absent is not known.
    is_known = record.per_class is not None or not record.num_present
    names = [name_class(label, class_names) for label in labels] if is_known else []
    target = -1 / (count - 1) if count > 1 else math.nan
    apart = [
        abs(value - target)
        for row, cosines in enumerate(gram)
        for column, value in enumerate(cosines)
        if row != column and math.isfinite(value)
    ]
    sentences = []
    if apart:
        mean, largest = typeset(sum(apart) / len(apart), 3), typeset(max(apart), 3)
        sentences.append(
            f"Between classes the cosine differs from the ETF’s {typeset(target, 3)} by {mean} on "
            f"average and {largest} at most."
        )
    pairs = [
        (value, names[row], names[column])
        for row in range(len(names))
        for column, value in enumerate(gram[row][:row])
        if math.isfinite(value)
    ]
    if len(names) > 2 and pairs:
        value, first, second = max(pairs)
        sentences.append(
            f"Closest to each other: {'' if class_names else 'classes '}{second} and {first}, with "
            f"cosine {typeset(value, 3)}."
        )
    if most < count:
        sentences.append(f"Drawn: the first {most} of {count} classes.")
    return {
        "classes": count,
        # Up to the diagonal; the page mirrors the rest.
        "cosines": [
            [round_for_json(value, 4) for value in row[: place + 1]]
            for place, row in enumerate(gram[:most])
        ],
        "names": names[:most],
        "reading": sentences,
    }


def _build_spectra_frame(record: LayerRecord) -> dict[str, Any] | None:
    """Return the drawable part of each spectrum."""
    curves = {}
    for name in SPECTRUM_TITLES:
        if values := record.spectra.get(name):
            index, drawable, omission = select_drawable(name, values)
            rounded = [round_for_json(value) for value in drawable]
            curves[name] = {"index": index, "values": rounded, "omitted": omission}
    return {"curves": curves} if curves else None


def _round_value(metrics: Mapping[str, float], key: str) -> float | None:
    value = find_value(metrics, key)
    return None if value is None else round_for_json(value)
