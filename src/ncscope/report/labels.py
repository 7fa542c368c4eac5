"""Labels of metrics in reports: from the registry, or from the key of an unregistered value."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ncscope.metrics.metric import Metric
from ncscope.metrics.registry import METRICS

GROUP_TITLES = {
    "nc1": "NC1: variability collapse",
    "nc2": "NC2: class means form a simplex ETF",
    "nc3": "NC3: classifier aligns with class means",
    "nc4": "NC4: decisions and accuracy",
    "pfc": "Progressive feedforward collapse",
    "mse": "MSE loss decomposition",
    "information": "Matrix information",
    "spectra": "Spectra",
    "other": "Other",
}

KEY_METRICS = (
    "nc1_quotient",
    "vci",
    "cdnv",
    "nc2_etf",
    "nc3_self_duality",
    "nc3_etf",
    "nc4_disagreement",
    "ncc_accuracy",
    "accuracy",
    "mir_centered",
    "hdr_centered",
)
"""Metrics that a summary shows, in its order."""

PFC_METRICS = ("pfc1", "pfc2", "pfc3")


@dataclass(frozen=True)
class Label:
    """Label of a metric for readers; see :class:`ncscope.metrics.metric.Metric`."""

    key: str
    group: str
    title: str
    formula: str = ""
    source: str = ""
    zero: str = ""
    better: str = ""
    log_scale: bool = False
    undefined: str = ""
    at_collapse: Callable[[int], float] | None = None
    aliases: tuple[str, ...] = ()

    @property
    def direction(self) -> str:
        """Direction in which collapse drives the metric, as text; empty if unknown."""
        directions = {"low": "lower is more collapsed", "high": "higher is more collapsed"}
        return directions.get(self.better, "")


def label_of(key: str) -> Label:
    """Return the label of a key or alias; for an unregistered key, a label with the name alone."""
    return _LABELS.get(key) or Label(key, "other", capitalised(key.replace("_", " ")))


def capitalised(text: str) -> str:
    """Capitalise the first letter of a text and leave the rest unchanged."""
    return text[:1].upper() + text[1:]


def _registered(metric: Metric) -> Label:
    return Label(
        metric.key,
        metric.group,
        capitalised(metric.title),
        metric.formula,
        metric.source,
        metric.zero,
        metric.better,
        metric.log_scale,
        metric.undefined,
        metric.at_collapse,
        metric.aliases,
    )


_LABELS = {
    name: _registered(metric)
    for metric in METRICS.values()
    for name in (metric.key, *metric.aliases)
}


def value_of(metrics: Mapping[str, float], key: str) -> float | None:
    """Return the value under the key or any of its aliases; None if there is none."""
    label = label_of(key)
    names = (key, label.key, *label.aliases)
    return next((metrics[name] for name in names if name in metrics), None)


def distinct_labels(keys: Iterable[str]) -> list[Label]:
    """Return the labels of the keys, each metric once, in the registry's order of groups."""
    rows = {key: index for index, key in enumerate(METRICS)}
    groups = {group: index for index, group in enumerate(GROUP_TITLES)}
    labels = {label.key: label for label in map(label_of, keys)}
    return sorted(
        labels.values(),
        key=lambda label: (
            groups.get(label.group, len(groups)),
            label.group,
            rows.get(label.key, len(rows)),
        ),
    )


def by_group(labels: Iterable[Label]) -> dict[str, list[Label]]:
    """Group the labels by their group's title, in the order given."""
    grouped: dict[str, list[Label]] = {}
    for label in labels:
        grouped.setdefault(GROUP_TITLES.get(label.group, label.group), []).append(label)
    return grouped
