"""All items of the five papers, and the items that a claim's source names."""

import re
from collections.abc import Mapping, Sequence

from ncscope.lab.inventory import info, mse, pfc, vci, xufm
from ncscope.lab.inventory.item import Item

ITEMS: Mapping[str, Sequence[Item]] = {
    "INFO": info.ITEMS,
    "MSE": mse.ITEMS,
    "PFC": pfc.ITEMS,
    "VCI": vci.ITEMS,
    "XUFM": xufm.ITEMS,
}
"""Items of each paper by tag, in the order of the paper."""

_KINDS = (
    *("figure", "table", "theorem", "proposition", "lemma", "corollary", "definition"),
    *("observation", "assumption", "conjecture", "equation", "section", "appendix"),
)
_PLURALS = {"corollaries": "corollary", "appendices": "appendix"}
_NUMBER = r"(?:[IVX]+(?:-[A-Z])?|[A-Z](?:\.\d+)?|\d+(?:\.\d+)*)(?!\w)"
_NAMED = re.compile(
    rf"\b({'|'.join([*_KINDS, *(f'{kind}s' for kind in _KINDS), *_PLURALS])}) "
    rf"({_NUMBER}(?:(?:, | and |, and | to |-){_NUMBER})*)|\((\d+)\)"
)


def labels_of(source: str) -> list[str]:
    """Return the labels that a claim's source names, in order.

    Args:
        source: Source of a claim, such as ``"VCI, figures 1-3 and 6"``.

    Example:
        >>> labels_of("VCI, section 6.2, figures 1-3 and 6")
        ['section 6.2', 'figure 1', 'figure 2', 'figure 3', 'figure 6']
        >>> labels_of("XUFM, lemma C.1 (58)")
        ['lemma C.1', 'equation 58']
    """
    labels = []
    for named in _NAMED.finditer(source):
        kind, numbers, equation = named.groups()
        if equation:
            labels.append(f"equation {equation}")
            continue
        single = _PLURALS.get(kind) or (kind if kind in _KINDS else kind.removesuffix("s"))
        labels += [f"{single} {number}" for number in _expanded(numbers)]
    return labels


def items_of(source: str) -> list[Item]:
    """Return the items that a claim's source names; none if it names only a paper.

    Args:
        source: Source of a claim, such as ``"VCI, figure 2"``. A remark is named by its label.
    """
    paper = source.split(",")[0].split(" ")[0]
    labels = set(labels_of(source))
    return [
        item
        for item in ITEMS.get(paper, ())
        if item.label in labels or (item.label.startswith("remark") and item.label in source)
    ]


def _expanded(numbers: str) -> list[str]:
    """Return all numbers of a list such as ``1-3 and 6``."""
    expanded: list[str] = []
    for part in re.split(r", and |, | and ", numbers):
        ends = re.fullmatch(r"(\d+)(?:-| to )(\d+)", part)
        if ends:
            expanded += [str(number) for number in range(int(ends[1]), int(ends[2]) + 1)]
        else:
            expanded.append(part)
    return expanded
