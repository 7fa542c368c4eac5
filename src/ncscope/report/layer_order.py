"""Progressive feedforward collapse in a probe record: depth, order, geodesic (PFC IV)."""

import math

from ncscope.measurement.records import GeodesicRecord, ProbeRecord
from ncscope.metrics.layerwise import effective_depth, order_breaks
from ncscope.report.labels import PFC_METRICS, label_of, value_of
from ncscope.report.names import quoted
from ncscope.report.numbers import listed, typeset

EPSILON = 0.01
"""Tolerance of the effective depth: allowed share of samples nearest to a wrong class mean."""

_BREAKS_SHOWN = 3
_NAMES_SHOWN = 6

SHORTEST_CHAIN = 3
"""Fewest layers of one dimension whose positions say something: two stand at 0 and 1 always."""


def values_by_layer(probe: ProbeRecord, key: str) -> list[float]:
    """Return a metric of each layer in forward order; NaN for layers without the metric."""
    values = (value_of(record.metrics, key) for record in probe.layers)
    return [math.nan if value is None else value for value in values]


def depth_of(probe: ProbeRecord) -> int | None:
    """Return the index of the first layer with NCC error at most :data:`EPSILON`, or None."""
    return effective_depth(values_by_layer(probe, "pfc3"), EPSILON)


def geodesic_curves(geodesic: GeodesicRecord) -> dict[str, list[float]]:
    """Return the predicted PFC1-3 by key."""
    return {"pfc1": geodesic.pfc1, "pfc2": geodesic.pfc2, "pfc3": geodesic.pfc3}


def positions(probe: ProbeRecord) -> dict[str, float]:
    """Return the relative position of each comparable layer, by name.

    Empty if positions were not measured, or if fewer than three layers share a dimension.
    """
    count = len(probe.comparable)
    if count < SHORTEST_CHAIN or len(probe.relative_position) != count:
        return {}
    return dict(zip(probe.comparable, probe.relative_position, strict=True))


def reading(probe: ProbeRecord) -> list[str]:
    """Describe the layers in sentences: depth, order, premise of the theorem, layers left out."""
    if len(probe.layers) < 2:
        return []
    sentences = [_depth_sentence(probe)]
    sentences += [_order_sentence(probe, key) for key in PFC_METRICS]
    if positions(probe):
        sentences += [_chain_sentence(probe), _straightness_sentence(probe)]
        if probe.geodesic is not None:
            sentences.append(_premise_sentence(probe, probe.geodesic))
    return [sentence for sentence in sentences if sentence]


def _depth_sentence(probe: ProbeRecord) -> str:
    if all(map(math.isnan, values_by_layer(probe, "pfc3"))):
        return ""
    index, rule = depth_of(probe), f"NCC error at most {EPSILON:g}"
    if index is None:
        return f"No layer reaches the effective depth ({rule})."
    name = quoted(probe.layers[index].layer)
    return f"Effective depth ({rule}): {name}, layer {index + 1} of {len(probe.layers)}."


def _order_sentence(probe: ProbeRecord, key: str) -> str:
    values = values_by_layer(probe, key)
    if all(map(math.isnan, values)):
        return ""
    falling = label_of(key).better != "high"
    name, wrong = key.upper(), "rises" if falling else "falls"
    breaks = order_breaks(values, falling)
    if not breaks:
        return f"{name} never {wrong} from one layer to the next."
    worst = sorted(breaks, key=lambda step: -step[1])[:_BREAKS_SHOWN]
    phrases = [
        f"from {quoted(probe.layers[later - 1].layer)} to {quoted(probe.layers[later].layer)} "
        f"(by {typeset(by, 3)})"
        for later, by in worst
    ]
    if len(breaks) > len(worst):
        rest = len(breaks) - len(worst)
        phrases.append(f"at {rest} smaller step{'s' * (rest > 1)}")
    return f"{name} breaks the order: it {wrong} {listed(phrases)}."


def _premise_sentence(probe: ProbeRecord, geodesic: GeodesicRecord) -> str:
    holds = "holds" if geodesic.alignment >= 0 else "does not hold"
    return (
        f"The geodesic theorem’s premise, class means of {quoted(probe.comparable[0])} and "
        f"{quoted(probe.comparable[-1])} that do not oppose each other, {holds} (inner products "
        f"sum to {typeset(geodesic.alignment)}); transport cost {typeset(geodesic.transport_cost)}."
    )


def _straightness_sentence(probe: ProbeRecord) -> str:
    if probe.straightness is None or math.isnan(probe.straightness):
        return ""
    return (
        f"Straightness {typeset(probe.straightness, 3)}: the distance from the first of these "
        "layers to the last over the length of the samples’ path, 1 for a straight line."
    )


def _chain_sentence(probe: ProbeRecord) -> str:
    """Name the layers that relative position and geodesic compare, and the layers left out."""
    compared = probe.comparable
    dims = {record.layer: record.dim for record in probe.layers}
    others = [name for name in dims if name not in compared]
    sentence = (
        f"Relative position and geodesic compare the {len(compared)} layers of one dimension "
        f"(d = {dims[compared[-1]]}) from {quoted(compared[0])} to {quoted(compared[-1])}"
    )
    if not others:
        return f"{sentence}."
    named = [f"{quoted(name)} (d = {dims[name]})" for name in others[:_NAMES_SHOWN]]
    if len(others) > len(named):
        named.append(f"{len(others) - len(named)} more")
    return f"{sentence}; without a relative position: {listed(named)}."
