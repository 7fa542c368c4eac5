"""Names of several layers' metrics in a flat log."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

from ncscope.measurement.records import ModelRecord
from ncscope.metrics.registry import METRICS

LogChoice: TypeAlias = Literal["headline", "all"]
"""Metrics to log: a few, or all that were measured."""

HEADLINE = (
    "nc1",
    "cdnv",
    "vci",
    "nc2_etf",
    "nc3_self_duality",
    "nc4_disagreement",
    "mir_centered",
)
"""Metrics of the head's features that are logged by default."""

LAYER_HEADLINE = ("pfc1", "pfc2", "pfc3")
"""Metrics of the other layers that are logged by default."""

_ALIASES = {alias: row.key for row in METRICS.values() for alias in row.aliases}


def flatten_for_log(
    record: ModelRecord, prefix: str, log: LogChoice = "headline"
) -> dict[str, float]:
    """Return the metrics of all layers under unique names, each metric under one name only.

    Metrics with two names, such as PFC1, which is ``nc1_quotient``, are named ``pfc1`` in the
    layers before the head, and ``nc1_quotient`` in the head's features.

    Args:
        record: Record of the measurement.
        prefix: Beginning of all names.
        log: ``"headline"`` for `HEADLINE` and `LAYER_HEADLINE`, ``"all"`` for all metrics.

    Returns:
        Metrics of the head's features, named by their keys, and metrics of the other layers, named
        by layer, a slash and the key.

    Example:
        >>> from ncscope.measurement.records import LayerRecord
        >>> metrics = {"nc1": 0.5, "nc1_quotient": 0.2, "pfc1": 0.2}
        >>> layers = [LayerRecord(name, metrics, (), 2, 10, 3) for name in ("stem", "last")]
        >>> flatten_for_log(ModelRecord(tuple(layers)), "val/nc/")
        {'val/nc/stem/pfc1': 0.2, 'val/nc/nc1': 0.5}
    """
    *before, last = record.layers
    twins = [_ALIASES[alias] for alias in LAYER_HEADLINE]
    named = {
        f"{prefix}{layer.layer}/{key}": value
        for layer in before
        for key, value in _select(layer.metrics, log, LAYER_HEADLINE, twins).items()
    }
    chosen = _select(last.metrics, log, HEADLINE, _ALIASES)
    return named | {f"{prefix}{key}": value for key, value in chosen.items()}


def _select(
    metrics: Mapping[str, float],
    log: LogChoice,
    headline: Sequence[str],
    left_out: Collection[str],
) -> dict[str, float]:
    if log == "headline":
        return {key: metrics[key] for key in headline if key in metrics}
    return {key: value for key, value in metrics.items() if key not in left_out}
