"""Griffe extensions: sections of docstrings by our names, and the formulas of metrics."""

import re
from typing import Any

import griffe

from ncscope.metrics.metric import Metric
from ncscope.metrics.registry import METRICS

_SINGULAR = re.compile(r"^( *)Example:$", re.M)


class OneExample(griffe.Extension):
    """Read ``Example:`` as ``Examples:``, so that its code is typeset as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _SINGULAR.sub(r"\1Examples:", obj.docstring.value)


def facts_of(metric: Metric) -> str:
    """Write formula and source of a metric as an item of a list."""
    source = f" ({metric.source})" if metric.source else ""
    return f"* `{metric.key}`{source}: ${metric.formula}$"


class DeclaredMetrics(griffe.Extension):
    """Add to a function's docstring the formulas that its decorators declare."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Insert the formulas after the first paragraph, before the docstring is parsed."""
        rows = [row for row in METRICS.values() if definition(row) == func.path]
        if rows and func.docstring is not None:
            head, *rest = func.docstring.value.split("\n\n", 1)
            facts = "\n".join(map(facts_of, rows))
            func.docstring.value = "\n\n".join([head, facts, *rest])


def definition(metric: Metric) -> str:
    """Return module and name of the function beside which a metric is declared."""
    return f"{metric.function.__module__}.{metric.function.__qualname__}"
