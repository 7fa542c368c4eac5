"""MkDocs hook: the evidence page, written from the inventory and from committed verdicts.

``evidence.md`` marks with ``<!-- abstracts -->`` where the sentences of the abstracts go, with
``<!-- evidence summary -->`` where the counts go, and with ``<!-- evidence: VCI -->`` where the
table of a paper goes. The verdicts on statements are those of docs/figures/theory-verdicts.json,
and those on claims of docs/figures/verdicts-SCALE.json; experiments may be absent.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from abstracts import Theory, read_sentences, write_abstracts
from inventory import ITEMS, Item, items_of
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page
from results import (
    DOCS,
    FIGURES,
    ILLUSTRATES,
    NEVER,
    REPRODUCTIONS,
    Runs,
    page_of_experiment,
    read_runs,
)

from ncscope_lab.findings import tally
from ncscope_lab.report.verdicts import PAPERS, owner_of

_MARK = re.compile(r"<!-- evidence: (\w+) -->")
_SUMMARY = "<!-- evidence summary -->"
_ABSTRACTS = "<!-- abstracts -->"
_VERDICTS = {"holds": "holds", "holds-as-corrected": "holds as corrected", "fails": "**fails**"}
_COVERAGE = {"full": "", "partial": "**In part:** ", "missing": "**Missing:** "}
OURS = "ours"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in the evidence page.

    Args:
        markdown: Source of a page.
        page: Page that is being built.

    Raises:
        PluginError: If the page has no mark for a paper.
    """
    if page.file.src_uri != "evidence.md":
        return markdown
    theory, runs = theory_of(FIGURES), read_runs(FIGURES)
    return written(markdown, theory, runs).replace(
        _ABSTRACTS, write_abstracts(read_sentences(), theory, runs)
    )


def written(markdown: str, theory: Theory, runs: Runs) -> str:
    """Write the counts, and the table of each paper at its mark.

    Raises:
        PluginError: If a paper has no mark.
    """
    for paper in set(ITEMS) - set(_MARK.findall(markdown)):
        msg = f"docs/evidence.md: add a section with <!-- evidence: {paper} -->"
        raise PluginError(msg)
    filled = _MARK.sub(lambda mark: _table(mark[1], theory, runs), markdown)
    return filled.replace(_SUMMARY, _summary(theory, runs))


def theory_of(folder: Path) -> Theory:
    """Read the verdicts on all statements."""
    text = (folder / "theory-verdicts.json").read_text(encoding="utf-8")
    return json.loads(text)["statements"]


def _summary(theory: Theory, runs: Runs) -> str:
    heads = ["paper", "items", "statements", *(f"claims, {scale} scale" for scale in runs)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for paper, items in ITEMS.items():
        checked = dict.fromkeys(name for item in items for name in item.statements)
        cells = [f"[{paper}](#{paper.lower()})", _coverage(items)]
        cells.append(_statement_counts([theory[name] for name in checked if name in theory]))
        for experiments in runs.values():
            claims = [claim for each in experiments.values() for claim in each or ()]
            cells.append(f"{tally(claim for claim in claims if owner_of(claim) == paper)}")
        lines.append(f"| {' | '.join(cells)} |")
    ours = (
        [claim for each in experiments.values() for claim in each or () if owner_of(claim) == OURS]
        for experiments in runs.values()
    )
    lines.append(f"| {' | '.join(['ours', '', '', *(f'{tally(claims)}' for claims in ours)])} |")
    return "\n".join(lines)


def _coverage(items: Sequence[Item]) -> str:
    """Return how many items there are of each kind of coverage."""
    kinds = {"full": "in full", "partial": "in part", "missing": "missing"}
    covered = Counter(item.coverage for item in items)
    kinds["illustration"] = "drawings" if covered["illustration"] > 1 else "drawing"
    return ", ".join(f"{covered[kind]} {name}" for kind, name in kinds.items() if covered[kind])


def _statement_counts(checked: Sequence[Mapping[str, str]]) -> str:
    """Return how many hold, hold as corrected (by grade), and fail, without definitions."""
    counted = [one for one in checked if one.get("kind") != "definition"]
    verdicts = Counter(one["verdict"] for one in counted)
    corrected = [one for one in counted if one["verdict"] == "holds-as-corrected"]
    grades = Counter(one["grade"] for one in corrected if "grade" in one)
    graded = ", ".join(f"{count} {grade}" for grade, count in sorted(grades.items()))
    said = [f"{verdicts['holds']} hold"]
    if corrected:
        said.append(f"{len(corrected)} as corrected" + (f" ({graded})" if graded else ""))
    if verdicts["fails"]:
        said.append(f"{verdicts['fails']} fail")
    return ", ".join(said)


def _table(paper: str, theory: Theory, runs: Runs) -> str:
    lines = [f"*{PAPERS[paper]}.*", "", "| item | content | where | found |", "|---|---|---|---|"]
    for item in ITEMS[paper]:
        cells = [item.label, _content(item), _places(item), _findings(item, theory, runs)]
        escaped = [cell.replace("|", "\\|") for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def _content(item: Item) -> str:
    if not item.note:
        return item.content
    return f"{item.content} {_COVERAGE.get(item.coverage, '')}{_capital(item.note)}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _places(item: Item) -> str:
    places = [f"[`{name}`][{re.sub('[/.]', '-', name)}]" for name in item.statements]
    places += [f"[`{key}`](metrics.md#{key})" for key in item.metrics]
    keys = set(item.metrics)  # a function that has the name of its metric stands there already
    places += [_code(name) for name in item.code if name.rpartition(".")[2] not in keys]
    places += [f"[`{name}`]({page_of_experiment(name)})" for name in item.experiments]
    return ", ".join(places)


def _code(name: str) -> str:
    return f"[`{name.rpartition('.')[2]}`][{name}]" if documented(name) else f"`{name}`"


def _findings(item: Item, theory: Theory, runs: Runs) -> str:
    lines = [_verdict(name, theory.get(name)) for name in item.statements]
    for name in item.experiments:
        found = _tallies(item, name, runs)
        lines += [f"`{name}`: {found}"] * bool(found)
    return "<br>".join(lines)


def _verdict(name: str, checked: Mapping[str, str] | None) -> str:
    if checked is None:
        return f"`{name}`: not checked"
    grade = f" ({checked['grade']})" if "grade" in checked else ""
    kind = " (a definition)" if checked.get("kind") == "definition" else ""
    return f"`{name}`: {_VERDICTS[checked['verdict']]}{grade}{kind}"


def _tallies(item: Item, experiment: str, runs: Runs) -> str:
    """Return the counts of claims on an item at each scale; nothing if no claim names it."""
    if experiment not in REPRODUCTIONS:
        return ILLUSTRATES
    ran = {scale: found[experiment] for scale, found in runs.items() if experiment in found}
    if not ran:
        return NEVER
    told = []
    for scale, claims in ran.items():
        if claims is None:
            told.append(f"{scale} scale: its run did not end")
        elif own := [claim for claim in claims if item in items_of(claim.source)]:
            told.append(f"{scale} scale: {tally(own)}")
    return "; ".join(told)


@cache
def documented(name: str) -> bool:
    """Return whether a page of the API shows a dotted name."""
    pages = (DOCS / "api").glob("*.md")
    shown = {one for page in pages for one in re.findall(r"^::: (\S+)", page.read_text(), re.M)}
    return any(name == one or name.rpartition(".")[0] == one for one in shown)
