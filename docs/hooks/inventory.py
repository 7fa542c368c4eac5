"""Inventory of the five papers, read from ``docs/inventory``, and the items that a source names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

FOLDER = Path(__file__).parents[1] / "inventory"
TAGS = ("INFO", "MSE", "PFC", "VCI", "XUFM")
"""Tag of each paper; its file is named by the tag in small letters."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A definition, statement, figure, table or unnumbered claim of a paper.

    Attributes:
        paper: Tag of the paper, such as ``"VCI"``.
        label: Kind and number as printed, such as ``"figure 2"``; for content without a number
            the section, such as ``"section 4.3"``.
        content: Content of the item, one plain sentence.
        coverage: ``"full"`` if the project has all of the item, ``"partial"`` if the note says
            which part is absent, ``"missing"`` if all is absent, ``"illustration"`` if the item is
            a drawing that shows no measurement.
        metrics: Keys of the metrics registry.
        statements: Ids of the table of theory.
        experiments: Names of experiments.
        code: Dotted names of functions, classes and values.
        note: Restriction of the coverage; required unless the coverage is full.

    Raises:
        ValueError: If coverage, places and note contradict each other.
    """

    paper: str
    label: str
    content: str
    coverage: Literal["full", "partial", "missing", "illustration"] = "full"
    metrics: Sequence[str] = ()
    statements: Sequence[str] = ()
    experiments: Sequence[str] = ()
    code: Sequence[str] = ()
    note: str = ""

    def __post_init__(self) -> None:
        places = bool(self.metrics or self.statements or self.experiments or self.code)
        if self.coverage == "missing" and places:
            self._refuse("is missing but has places")
        if self.coverage in {"full", "partial"} and not places:
            self._refuse("is in the project but has no places")
        if self.coverage != "full" and not self.note:
            self._refuse("is not covered in full and has no note")

    def _refuse(self, reason: str) -> None:
        msg = f"{self.paper}, {self.label} {reason}"
        raise ValueError(msg)


def read_items(paper: str) -> list[Item]:
    """Read the items of a paper, in the order of the paper."""
    text = (FOLDER / f"{paper.lower()}.yaml").read_text(encoding="utf-8")
    return [Item(paper=paper, **entry) for entry in yaml.safe_load(text)]


ITEMS: Mapping[str, Sequence[Item]] = {paper: read_items(paper) for paper in TAGS}
"""Items of each paper by tag."""

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
        labels += [f"{single} {number}" for number in _expand(numbers)]
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


def _expand(numbers: str) -> list[str]:
    """Return all numbers of a list such as ``1-3 and 6``."""
    expanded: list[str] = []
    for part in re.split(r", and |, | and ", numbers):
        ends = re.fullmatch(r"(\d+)(?:-| to )(\d+)", part)
        if ends:
            expanded += [str(number) for number in range(int(ends[1]), int(ends[2]) + 1)]
        else:
            expanded.append(part)
    return expanded
