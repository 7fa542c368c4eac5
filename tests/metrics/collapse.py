"""The metrics of collapse, which the slow reference knows: all but the information group.

`ON_REQUEST` are those that only their keys select.
"""

from collections.abc import Mapping

from ncscope.metrics.registry import METRICS

ON_REQUEST = [key for key, row in METRICS.items() if row.on_request]
COLLAPSE = {
    key: row
    for key, row in METRICS.items()
    if row.group not in ("information", "ood") and not row.on_request
}
ALIASES = {alias: row.key for row in COLLAPSE.values() for alias in row.aliases}


def collapse_of(values: Mapping[str, float]) -> dict[str, float]:
    """A report without its information metrics."""
    return {key: value for key, value in values.items() if key in COLLAPSE or key in ALIASES}
