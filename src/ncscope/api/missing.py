"""Reasons why a report lacks a metric, for messages and notes."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from ncscope.metrics.evaluate import select
from ncscope.metrics.registry import BY_NAME

_NEEDS = {
    "head": "the classifier's weight",
    "outputs": "a classifier with an output for each class, not one logit",
    "decisions": "a second pass over the features",
    "hits": "a second pass over the features",
    "information": "a second pass over the features",
    "ood": "samples from outside the distribution (ood)",
    "scores": "samples from outside the distribution (ood)",
}
"""What a metric needs beside features and labels, by its entry of `Metric.needs`."""


def explain_missing_key(key: object, present: Iterable[str], *, labelled: bool) -> object:
    """Say why a report lacks a metric, or which key is nearest; without either return the key.

    Args:
        key: Key that was asked for.
        present: Keys of the report.
        labelled: True if the report is of samples with labels.
    """
    if isinstance(key, str) and (row := BY_NAME.get(key)):
        needs = ["labels"] if row.needs_classes and not labelled else []
        needs += dict.fromkeys(text for name, text in _NEEDS.items() if name in row.needs)
        and_needs = f" and needs {', '.join(needs)}" if needs else ""
        where = f"is in the group {row.group!r}"
        if row.on_request:
            where = "must be asked for by its key"
        return f"{key!r} was not measured; it {where}{and_needs}"
    nearest = get_close_matches(str(key).lower(), list(present), n=1)
    return f"{key!r}; did you mean {nearest[0]!r}?" if nearest else key


def note_omissions(
    groups: Collection[str] | None, present: Collection[str], *, one_logit: bool = False
) -> list[str]:
    """Note which of the groups and keys that were asked for are absent for lack of a weight.

    Args:
        groups: Groups and keys of metrics that were asked for; None for all.
        present: Keys of the report of `measure`.
        one_logit: True if a classifier of one logit was given.
    """
    omissions = []
    for name in [groups] if isinstance(groups, str) else groups or ():
        metrics = select([name])
        if metrics and all("head" in row.needs and row.key not in present for row in metrics):
            omissions.append(name)
    if not omissions:
        return []
    why = "the classifier has one logit" if one_logit else "no weight was given"
    return [f"left out, because {why}: {', '.join(omissions)}"]
