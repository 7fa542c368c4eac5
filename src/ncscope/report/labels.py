"""Metrics as reports name them: from the registry, or from the key of an unregistered value."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ncscope.metrics.metric import Metric
from ncscope.metrics.names import GROUPS
from ncscope.metrics.registry import BY_NAME, METRICS

GROUP_TITLES = GROUPS | {"other": "Other"}

KEY_METRICS = (
    "nc1",
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

SPECTRAL_METRICS = ("rankme", "effective_rank_features", "participation_ratio", "alpha_req")
"""Metrics that a summary shows if none of the key metrics was measured, as without labels."""

PFC_METRICS = ("pfc1", "pfc2", "pfc3")


_NC = {
    "NC1": ("nc1", "nc1_quotient", "vci", "cdnv"),
    "NC2": ("nc2_etf", "nc2_equinorm", "nc2_equiangularity"),
    "NC3": ("nc3_self_duality", "nc3_etf"),
    "NC4": ("nc4_disagreement",),
}

_NC_WITHOUT_SIMPLEX = _NC | {
    "NC2": ("gnc2_log", "gnc2_log_std"),
    "NC3": ("unc3", "unc3_mean"),
}


NC_METRICS = {tag: keys[0] for tag, keys in _NC.items()}
"""Metrics chosen by ``"nc"``: for each of NC1 to NC4, one that is 0 at collapse."""

SHORT_NAMES = {
    **{key: tag for tag, key in NC_METRICS.items()},
    **{key: key.upper() for key in PFC_METRICS},
    "accuracy": "Acc.",
    "ncc_accuracy": "NCC acc.",
}
"""Names of metrics at the heads of a paper's table."""

SHORT_TITLES = {"nc2_etf": "Distance to ETF", "nc4_disagreement": "Disagreement"}
"""Titles of metrics beside an axis, where the whole title would be longer than the axis."""


def list_nc_metrics(num_classes: int, dim: int) -> Mapping[str, Sequence[str]]:
    """Return the metrics that stand for NC1 to NC4, the first choice of each first.

    Two class means are always a simplex, so that NC2 says nothing of two classes. In fewer than
    K - 1 dimensions K means cannot be one: their evenness and uniform duality are read instead.

    Args:
        num_classes: Number of classes K.
        dim: Feature dimension d.

    Example:
        >>> list(list_nc_metrics(2, 8)), list_nc_metrics(100, 8)["NC3"]
        (['NC1', 'NC3', 'NC4'], ('unc3', 'unc3_mean'))
    """
    if num_classes == 2:
        return {tag: keys for tag, keys in _NC.items() if tag != "NC2"}
    return _NC_WITHOUT_SIMPLEX if num_classes > dim + 1 else _NC


def choose_key_metrics(metrics: Collection[str]) -> tuple[str, ...]:
    """Return the metrics that a summary shows, in its order, measured or not.

    Args:
        metrics: Keys or aliases of the metrics that were measured.

    Example:
        >>> choose_key_metrics(["rankme"])[0], choose_key_metrics(["rankme", "accuracy"])[0]
        ('rankme', 'nc1')
    """
    any_key = any(find_key(metrics, key) is not None for key in KEY_METRICS)
    return KEY_METRICS if any_key else SPECTRAL_METRICS


def find_label(key: str) -> Metric:
    """Return the metric of a key or alias, its title capitalised; for another key, a name alone."""
    if key in _LABELS:
        return _LABELS[key]
    title = capitalise(key.replace("_", " "))
    return Metric(
        float, key=key, group="other", title=title, meaning="", formula="", source="", better=""
    )


def is_fixed(key: str, num_classes: int) -> bool:
    """Return whether the number of classes alone fixes a metric, as two fix NC2 of the means.

    Example:
        >>> is_fixed("nc2_etf", 2), is_fixed("nc2_etf", 3), is_fixed("nc1", 2)
        (True, False, False)
    """
    return num_classes == 2 and find_label(key).for_two_classes is not None


_WITHOUT_A_SIMPLEX = ("nc3_etf", "linear_probe_mse", "mse_loss", "mse_nc23")
"""Metrics besides those of NC2 whose 0 needs the K class means of a simplex."""


def value_at_collapse(key: str, num_classes: int, dim: int) -> float | None:
    """Return the value of a metric at collapse to a simplex ETF, whose classifier is the means'.

    The class means sum to zero, the classifier is the least-squares one, and there is no weight
    decay.

    Args:
        key: Key or alias of the metric.
        num_classes: Number of classes K.
        dim: Feature dimension d.

    Returns:
        The value; None for an unregistered metric, for one that is undefined at collapse, for one
        that two classes fix, and where the value belongs to a simplex, which does not exist for
        K > d + 1.

    Example:
        >>> value_at_collapse("accuracy", 10, 512), value_at_collapse("nc2_etf", 10, 8)
        (1.0, None)
    """
    label = find_label(key)
    of_simplex = label.at_collapse or label.group == "nc2" or label.key in _WITHOUT_A_SIMPLEX
    if not label.better or num_classes < 2 or (of_simplex and num_classes > dim + 1):
        return None
    # HDR is a ratio of entropies, which are 0 for two classes.
    if is_fixed(key, num_classes) or (num_classes == 2 and "hdr" in label.key):
        return None
    value = label.target(num_classes)
    return None if math.isnan(value) else value


def capitalise(text: str) -> str:
    """Capitalise the first letter of a text and leave the rest unchanged."""
    return text[:1].upper() + text[1:]


_LABELS = {
    name: replace(metric, title=capitalise(metric.title)) for name, metric in BY_NAME.items()
}


def find_value(metrics: Mapping[str, float], key: str) -> float | None:
    """Return the value under the key or any of its aliases; None if there is none."""
    name = find_key(metrics, key)
    return None if name is None else metrics[name]


def find_key(names: Collection[str], key: str) -> str | None:
    """Return the key or the alias of it that stands among the names; None if there is none."""
    label = find_label(key)
    return next((name for name in (key, label.key, *label.aliases) if name in names), None)


def sort_labels(keys: Iterable[str]) -> list[Metric]:
    """Return the labels of the keys, each metric once, in the registry's order of groups."""
    rows = {key: index for index, key in enumerate(METRICS)}
    groups = {group: index for index, group in enumerate(GROUP_TITLES)}
    labels = {label.key: label for label in map(find_label, keys)}
    return sorted(
        labels.values(),
        key=lambda label: (
            groups.get(label.group, len(groups)),
            label.group,
            rows.get(label.key, len(rows)),
        ),
    )


def group_labels(labels: Iterable[Metric]) -> dict[str, list[Metric]]:
    """Group the labels by their group's title, in the order given."""
    groups: dict[str, list[Metric]] = {}
    for label in labels:
        groups.setdefault(GROUP_TITLES.get(label.group, label.group), []).append(label)
    return groups
