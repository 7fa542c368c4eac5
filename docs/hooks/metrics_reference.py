"""MkDocs hook: the metrics reference, written from the registry.

``metrics.md`` says in words what a group is about, and marks with ``<!-- metrics: nc1 -->`` where
the group's metrics go.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

from ncscope.metrics.metric import Metric
from ncscope.metrics.registry import METRICS

_MARK = re.compile(r"<!-- metrics: (\w+) -->")
_SUMMARY = "<!-- metrics summary -->"
_PAPERS = (
    *("INFO", "VCI", "MSE", "PFC", "XUFM", "Galanti", "Zhu", "Roy"),
    *("Zhao", "Liu", "Wu", "Fang", "Thrampoulidis"),
    *("Garrido", "Gao", "Agrawal", "Thilak"),
    *("NECO", "NCI", "Hendrycks", "Energy"),
)
_NEEDS = {
    "scatter": "pooled scatter",
    "directions": "unit vectors",
    "head": "classifier",
    "decisions": "second pass",
    "hits": "logits, or second pass",
    "outputs": "an output for each class",
    "information": "second pass",
    "ood": "OOD samples",
    "scores": "second pass",
}
_TYPICAL: dict[str, dict[str, float]] = json.loads(
    (Path(__file__).parents[1] / "figures" / "typical.json").read_text(encoding="utf-8")
)
"""Values of each metric by stage of training, which docs/figures/typical.py measures."""

_BOUNDS = {2**0.5: r"\sqrt2", math.inf: r"\infty", 0.5: r"\tfrac12"}


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in the metrics page.

    Args:
        markdown: Source of a page.
        page: Page that is being built.

    Raises:
        PluginError: If the page has no place for a group of the registry.
    """
    return written(markdown) if page.file.src_uri == "metrics.md" else markdown


def written(markdown: str) -> str:
    """Write every metric at its group's mark of the metrics page.

    Raises:
        PluginError: If a group that has metrics has no mark.
    """
    missing = {row.group for row in METRICS.values()} - set(_MARK.findall(markdown))
    if missing:
        group = min(missing)
        msg = f"docs/metrics.md: add a section for group {group!r} with <!-- metrics: {group} -->"
        raise PluginError(msg)
    return _MARK.sub(lambda mark: _group(mark[1]), markdown).replace(_SUMMARY, _summary())


def _summary() -> str:
    heads = ["key", "what it measures", *_TYPICAL]
    lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * len(_TYPICAL)]
    for row in METRICS.values():
        cells = [f"[`{row.key}`](#{row.key})", row.meaning, *_typical(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _typical(row: Metric) -> list[str]:
    """Return the typical values; empty for a metric that was not there when they were measured."""
    return [f"{values[row.key]:.3g}" if row.key in values else "" for values in _TYPICAL.values()]


def _group(name: str) -> str:
    return "\n".join(_entry(row) for row in METRICS.values() if row.group == name)


def _entry(row: Metric) -> str:
    path = f"{row.function.__module__}.{row.function.__qualname__}"
    facts = {
        "Typical": ", ".join(
            f"{value} {name}" for name, value in zip(_TYPICAL, _typical(row), strict=True) if value
        ),
        "Source": _source(row),
        "Range": f"${_range(row)}$; {row.better} when collapsed",
        "0 means": row.zero or "does not occur",
        "Undefined (NaN) when": row.undefined or "never",
        "Needs": ", ".join(sorted({_NEEDS[need] for need in row.needs})) or "counts, means, traces",
        "Labels": "" if row.needs_classes else "not needed",
        "Measured": "only if `groups=` names its key" if row.on_request else "",
        "Groups": ", ".join(f"`{group}`" for group in (row.group, *row.also)),
        "Also reported as": ", ".join(f"`{alias}`" for alias in row.aliases),
        "Code": f"[`{path}`][{path}]",
    }
    table = "\n".join(f"| {name} | {fact} |" for name, fact in facts.items() if fact)
    head = f"### `{row.key}` {{ #{row.key} }}\n\n{row.title[:1].upper()}{row.title[1:]}."
    return f"{head} {row.meaning}\n\n$$\n{row.formula}\n$$\n\n| | |\n|---|---|\n{table}\n"


def _source(row: Metric) -> str:
    """Return the source, each paper's tag a link to the list of references."""
    text = row.source
    for tag in _PAPERS:
        text = re.sub(rf"\b{tag}\b", f"[{tag}](references.md#{tag.lower()})", text)
    return text


def _range(row: Metric) -> str:
    closing = ")" if math.isinf(row.high) else "]"
    return f"[{_bound(row.low)},{_bound(row.high)}{closing}"


def _bound(value: float) -> str:
    return _BOUNDS.get(value, f"{value:g}")
