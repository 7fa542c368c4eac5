"""Table of all metrics that ncscope reports, with requirements, meaning and source of each.

The measurement, the conformance tests, the reference in the docs, the tables in the terminal and
the axis labels of all figures use this table.
"""

from ncscope.metrics import (
    class_means,
    duality,
    imbalance,
    information,
    mse,
    names,
    nearest_mean,
    ood,
    spectrum,
    uniformity,
    variability,
)
from ncscope.metrics.metric import Metric, metrics_of_module

GROUPS = tuple(names.GROUPS)

_MODULES = (
    variability,
    class_means,
    uniformity,
    imbalance,
    duality,
    nearest_mean,
    mse,
    information,
    spectrum,
    ood,
)
"""Modules of metrics, in the order of reports; within a module the order is that of its text."""

METRICS: dict[str, Metric] = {
    row.key: row for module in _MODULES for row in metrics_of_module(module.__name__)
}

BY_NAME = {name: row for row in METRICS.values() for name in (row.key, *row.aliases)}
"""Metric of each key and alias."""
