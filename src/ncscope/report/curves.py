"""Curves that figures and pages draw: over steps, over layers (PFC IV), and of a spectrum."""

import math
from collections.abc import Iterable, Sequence

from ncscope.measurement.records import GeodesicRecord, Measurement, ModelRecord
from ncscope.metrics.layerwise import effective_depth, order_breaks
from ncscope.report.labels import PFC_METRICS, find_label, find_value
from ncscope.report.wording import join_words, quote_number, typeset

EPSILON = 0.01
"""Tolerance of the effective depth: allowed share of samples nearest to a wrong class mean."""

SHORTEST_CHAIN = 3
"""Fewest layers of one dimension whose positions say something: two stand at 0 and 1 always."""

SPECTRUM_TITLES = {
    "between": "between classes",
    "within": "within classes",
    "total": "total",
    "snr_singular_values": "signal to noise",
}

_RESOLUTION = 0.01
"""Share of PFC1 or PFC2 by which it may rise without breaking the order."""

_MOST_BREAKS = 3
_MOST_NAMES = 6

_NOISE_FLOOR = 1e-12
_LARGEST = 1e300  # matplotlib's margin overflows for larger values
_MOST_POINTS = 240


def group_by_split(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements by split, in order of their steps, the training split first."""
    splits: dict[str, list[Measurement]] = {}
    for measurement in sorted(measurements, key=lambda measurement: measurement.step):
        splits.setdefault(measurement.split, []).append(measurement)
    return dict(sorted(splits.items(), key=lambda item: (item[0] != "train", item[0])))


def group_by_run(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements by run, in order of first appearance."""
    runs: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        runs.setdefault(measurement.run, []).append(measurement)
    return runs


def list_layers(models: Iterable[ModelRecord]) -> list[str]:
    """Return every layer's name, in forward order of first appearance."""
    return list(dict.fromkeys(record.layer for model in models for record in model.layers))


def collect_layer_values(model: ModelRecord, key: str) -> list[float]:
    """Return a metric of each layer in forward order; NaN for layers without the metric."""
    values = (find_value(record.metrics, key) for record in model.layers)
    return [math.nan if value is None else value for value in values]


def find_effective_depth(model: ModelRecord) -> int | None:
    """Return the index of the first layer with NCC error at most :data:`EPSILON`, or None."""
    return effective_depth(collect_layer_values(model, "pfc3"), EPSILON)


def geodesic_curves(geodesic: GeodesicRecord) -> dict[str, list[float]]:
    """Return the predicted PFC1-3 by key."""
    return {"pfc1": geodesic.pfc1, "pfc2": geodesic.pfc2, "pfc3": geodesic.pfc3}


def relative_positions(model: ModelRecord) -> dict[str, float]:
    """Return the relative position of each comparable layer, by name.

    Empty if positions were not measured, or if fewer than three layers share a dimension.
    """
    count = len(model.comparable)
    if count < SHORTEST_CHAIN or len(model.relative_position) != count:
        return {}
    return dict(zip(model.comparable, model.relative_position, strict=True))


def describe_layers(model: ModelRecord) -> list[str]:
    """Describe the layers in sentences: depth, order, premise of the theorem, layers left out."""
    if len(model.layers) < 2:
        return []
    sentences = []
    if not all(map(math.isnan, collect_layer_values(model, "pfc3"))):
        index, rule = find_effective_depth(model), f"NCC error at most {EPSILON:g}"
        if index is None:
            sentences.append(f"No layer reaches the effective depth ({rule}).")
        else:
            name, count = quote_number(model.layers[index].layer), len(model.layers)
            sentences.append(f"Effective depth ({rule}): {name}, layer {index + 1} of {count}.")
    sentences += [_describe_order(model, key) for key in PFC_METRICS]
    if relative_positions(model):
        sentences.append(_describe_chain(model))
        if model.straightness is not None and not math.isnan(model.straightness):
            sentences.append(
                f"Straightness {typeset(model.straightness, 3)}: the distance from the first of "
                "these layers to the last over the length of the samples’ path, 1 for a straight "
                "line."
            )
        if model.geodesic is not None:
            alignment, cost = model.geodesic.alignment, model.geodesic.transport_cost
            ends = f"{quote_number(model.comparable[0])} and {quote_number(model.comparable[-1])}"
            sentences.append(
                f"The geodesic theorem’s premise, class means of {ends} that do not oppose each "
                f"other, {'holds' if alignment >= 0 else 'does not hold'} (inner products sum to "
                f"{typeset(alignment)}); transport cost {typeset(cost)}."
            )
    return [sentence for sentence in sentences if sentence]


def _describe_order(model: ModelRecord, key: str) -> str:
    """Say where a metric goes against its order from layer to layer; empty if unmeasured."""
    values = collect_layer_values(model, key)
    if all(map(math.isnan, values)):
        return ""
    falling = find_label(key).better != "high"
    name, wrong = key.upper(), "rises" if falling else "falls"
    every = order_breaks(values, falling)
    # Two samples decided otherwise, or a hundredth of a value, are within the resolution.
    count = model.last.num_samples
    breaks = [
        (later, by)
        for later, by in every
        if by > (_RESOLUTION * abs(values[later - 1]) if falling else 2 / count) * (1 + 1e-9)
    ]
    if not breaks:
        border = f" by more than {'1 %' if falling else f'2 of {count:,} samples'}" if every else ""
        return f"{name} never {wrong}{border} from one layer to the next."
    worst = sorted(breaks, key=lambda step: -step[1])[:_MOST_BREAKS]
    phrases = []
    for later, by in worst:
        before, after = (quote_number(model.layers[at].layer) for at in (later - 1, later))
        phrases.append(f"from {before} to {after} (by {typeset(by, 3)})")
    if len(breaks) > len(worst):
        rest = len(breaks) - len(worst)
        phrases.append(f"at {rest} smaller step{'s' * (rest > 1)}")
    return f"{name} breaks the order: it {wrong} {join_words(phrases)}."


def _describe_chain(model: ModelRecord) -> str:
    """Name the layers that relative position and geodesic compare, and the layers left out."""
    chain = model.comparable
    dims = {record.layer: record.dim for record in model.layers}
    others = [name for name in dims if name not in chain]
    sentence = (
        f"Relative position and geodesic compare the {len(chain)} layers of one dimension "
        f"(d = {dims[chain[-1]]}) from {quote_number(chain[0])} to {quote_number(chain[-1])}"
    )
    if not others:
        return f"{sentence}."
    phrases = [f"{quote_number(name)} (d = {dims[name]})" for name in others[:_MOST_NAMES]]
    if len(others) > len(phrases):
        phrases.append(f"{len(others) - len(phrases)} more")
    return f"{sentence}; without a relative position: {join_words(phrases)}."


def select_drawable(name: str, values: Sequence[float]) -> tuple[list[int], list[float], str]:
    """Return the values of a spectrum that a logarithmic axis can show.

    Zeros, negative values and values below 1e-12 of the largest are rounding errors. They are not
    drawn, and neither are values above 1e300; a sentence gives their numbers. Long spectra are
    thinned evenly in the logarithm of the index.

    Args:
        name: Key of the spectrum.
        values: Eigenvalues or singular values, descending.

    Returns:
        Indices in the spectrum, from 1; the positive finite values there; and a sentence about the
        values that are not drawn, empty if there are none.
    """
    finite = [value for value in values if math.isfinite(value)]
    least = _NOISE_FLOOR * max(finite, default=0.0)
    points = [
        (index, value) for index, value in enumerate(values, start=1) if least < value <= _LARGEST
    ]
    count = len(points)
    infinite = sum(map(math.isinf, values))
    huge = sum(_LARGEST < value < math.inf for value in values)
    undefined = sum(map(math.isnan, values))
    noise = len(values) - count - infinite - huge - undefined
    parts = [
        f"{number} {what}"
        for number, what in (
            (noise, "at or below 10⁻¹² of the largest, zero to rounding"),
            (huge, "above 10³⁰⁰"),
            (infinite, "infinite"),
            (undefined, "undefined"),
        )
        if number
    ]
    title = SPECTRUM_TITLES.get(name, name)
    omission = f"Not drawn of the {len(values)} values of “{title}”: {', '.join(parts)}."
    if count > _MOST_POINTS:
        steps = [count ** (step / (_MOST_POINTS - 1)) for step in range(_MOST_POINTS)]
        # A set, since the first steps are shorter than 1 and round to the same index.
        places = sorted({min(count - 1, round(step) - 1) for step in steps})
        points = [points[place] for place in places]
    return (
        [index for index, _ in points],
        [value for _, value in points],
        omission if parts else "",
    )
