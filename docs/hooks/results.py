"""MkDocs hook: protocols and results of experiments, written from settings and committed verdicts.

A page never holds a measured number of its own. It marks where they go:

* ``<!-- protocol: info/training -->``: the settings of each scale, as a table.
* ``<!-- claims: info/training -->``: the figures, and the claims with verdict and interval, as a
  table.
* ``<!-- number: info/training | MIR rises | digits -->``: one estimate with its interval. The claim
  is named by a part of its text that no other claim of the experiment has, and the group, if the
  claim has several, by its name.
  A group may also be what stands beside the verdict uncounted, such as ``exact values``.
* ``<!-- verdict: info/training | MIR rises -->``: one verdict.
* ``<!-- experiments -->``: the papers' experiments, with the number of claims that are held.

Settings are those of the experiments; verdicts are those of docs/figures/verdicts-SCALE.json.
"""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from math import inf, nan
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page
from pydantic import BaseModel

from ncscope_lab.catalogue import EXPERIMENTS, REPRODUCTIONS, find_experiment
from ncscope_lab.findings import Finding, tally
from ncscope_lab.intervals import Interval

Runs = Mapping[str, Mapping[str, Sequence[Finding] | None]]
"""Claims by scale and experiment; None for a run that has not ended."""

DOCS = Path(__file__).parents[1]
FIGURES = DOCS / "figures"
SCALES = ("paper", "small")
NEVER = "not run since the claims have intervals"
ILLUSTRATES = "illustrates, and is not counted"
COMMAND = "ncscope run"

_MARK = re.compile(r"<!-- (protocol|claims|number|verdict): (.+?) -->")
_EXPERIMENTS = "<!-- experiments -->"
_OUTDATED = "<!-- outdated -->"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in the marks of a page.

    Args:
        markdown: Source of a page.
        page: Page that is being built.

    Raises:
        PluginError: If a mark names an experiment, claim or group that does not exist.
    """
    if not {_EXPERIMENTS, _OUTDATED} & set(markdown.splitlines()) and not _MARK.search(markdown):
        return markdown
    return fill(markdown, read_runs(FIGURES), page.file.src_uri)


def fill(markdown: str, runs: Runs, uri: str) -> str:
    """Fill in the marks of a page.

    Args:
        markdown: Source of the page.
        runs: Claims that were judged.
        uri: Path of the page below ``docs``, for links to other pages.

    Raises:
        PluginError: If a mark names an experiment, claim or group that does not exist.
    """

    def write(mark: re.Match[str]) -> str:
        kind, name, *rest = mark[1], *(part.strip() for part in mark[2].split("|"))
        if name not in EXPERIMENTS:
            msg = f"{uri}: {mark[0]} names no experiment"
            raise PluginError(msg)
        if kind == "protocol":
            return tabulate_protocol(name)
        if kind == "claims":
            return tabulate_claims(name, runs, uri)
        if kind == "verdict":
            return find_claim(name, rest[0], runs).verdict
        return write_measured(mark[2], runs)

    filled = _MARK.sub(write, markdown).replace(_OUTDATED, name_outdated())
    return filled.replace(_EXPERIMENTS, tabulate_experiments(runs, uri))


OUTDATED = (
    "*The settings above or the claims are new, and their run has not ended: these are verdicts as "
    "they were before, mostly of fewer seeds and less training.*"
)


@cache
def list_outdated(scale: str) -> frozenset[str]:
    """List the experiments whose settings or claims are newer than the committed verdicts."""
    record = json.loads((FIGURES / f"verdicts-{scale}.json").read_text(encoding="utf-8"))
    return frozenset(name for name, one in record["experiments"].items() if one["outdated"])


def name_outdated() -> str:
    """Return the sentence that names experiments whose verdicts are of before; or none."""
    names = [name for name in REPRODUCTIONS if name in list_outdated("small")]
    if not names:
        return ""
    return (
        f"**{len(names)} of {len(REPRODUCTIONS)} experiments have new settings or claims, and "
        "their runs have not ended.** Their verdicts and numbers on this page are as they were "
        f"before, mostly of fewer seeds and less training: {', '.join(names)}."
    )


def read_runs(folder: Path) -> Runs:
    """Read the verdicts on all claims that count, at each scale that has a file."""
    runs = {}
    for scale in SCALES:
        file = folder / f"verdicts-{scale}.json"
        if file.exists():
            record = json.loads(file.read_text(encoding="utf-8"))
            runs[scale] = {
                name: None if one["failure"] else [_read_claim(each) for each in one["claims"]]
                for name, one in record["experiments"].items()
                if name in REPRODUCTIONS
            }
    return runs


def _read_claim(record: Mapping[str, Any]) -> Finding:
    unknown = {"estimate": nan, "low": -inf, "high": inf}

    def read_interval(ends: Mapping[str, Any]) -> Interval:
        return Interval(
            **{key: unknown[key] if value is None else value for key, value in ends.items()}
        )

    interval = record["interval"] and read_interval(record["interval"])
    groups = {name: read_interval(each) for name, each in record["groups"].items()}
    rest = {key: record[key] for key in ("source", "verdict", "evidence")}
    power = {key: record.get(key) for key in ("detectable", "seeds_to_decide")}
    return Finding(text=record["claim"], interval=interval, groups=groups, **rest, **power)


# Claims


def find_claim(name: str, part: str, runs: Runs) -> Finding:
    """Return the claim of an experiment whose text has a part, at the largest scale that was run.

    Raises:
        PluginError: If no claim, or more than one, has this part in its text.
    """
    for scale in SCALES:
        claims = runs.get(scale, {}).get(name)
        if claims:
            found = [claim for claim in claims if part in claim.text]
            if len(found) == 1:
                return found[0]
            msg = f"{len(found)} claims of {name} have {part!r} in their text, not one"
            raise PluginError(msg)
    msg = f"{name} has no verdicts"
    raise PluginError(msg)


def write_measured(place: str, runs: Runs) -> str:
    """Return the number of a claim, or of a group of it, with its interval.

    A claim that is deterministic has no interval; its number then is in words.

    Args:
        place: Experiment, part of the claim's text and name of the group, separated by ``|``.
        runs: Claims that were judged.

    Raises:
        PluginError: If there is no such claim or group, or several groups and none is named.
    """
    name, part, *groups = (each.strip() for each in place.split("|"))
    claim = find_claim(name, part, runs)
    group = "".join(groups)
    numbers = list_numbers(claim)
    if not group and len(numbers) < 2:
        return next(iter(numbers.values()), _shorten(claim.evidence, 150))
    numbers = numbers if group in numbers else list_uncounted(claim)
    if group not in numbers:
        named = ", ".join(map(repr, numbers)) or "none"
        msg = f"{claim.text!r} has no number of {group!r}; it has those of {named}"
        raise PluginError(msg)
    return numbers[group]


def list_numbers(claim: Finding) -> dict[str, str]:
    """Return the estimates on which a verdict rests, with their intervals, by group."""
    intervals = claim.groups if claim.interval is None else {"": claim.interval}
    return {
        group: f"{each.estimate:.3g} [{each.low:.3g}, {each.high:.3g}]"
        for group, each in intervals.items()
    }


_UNCOUNTED = re.compile(
    r"not counted: on (.+?) (?:not held|held|undecided), [a-z' ]*mean(?: by Fisher's z)? (\S+), "
    r"95 % interval (\S+) to (\S+) "
)


def list_uncounted(claim: Finding) -> dict[str, str]:
    """Return the estimates that the evidence tells beside the verdict, by what they are of."""
    return {
        name: f"{estimate} [{low}, {high}]"
        for name, estimate, low, high in _UNCOUNTED.findall(claim.evidence)
    }


@cache
def read_captions(name: str, scale: str) -> Mapping[str, str]:
    """Read the captions of the figures that a run of an experiment has drawn, by figure."""
    file = FIGURES / f"verdicts-{scale}.json"
    if not file.exists():
        return {}
    record = json.loads(file.read_text(encoding="utf-8"))
    return record["experiments"].get(name, {}).get("figures", {})


def show_figure(name: str, figure: str, scale: str, uri: str) -> str:
    """Return a figure of an experiment with its caption, for a page."""
    picture = f"images/runs/{name.replace('/', '-')}-{figure}.png"
    path = posixpath.relpath(picture, posixpath.dirname(uri) or ".")
    caption = read_captions(name, scale)[figure]
    shown = f"![{name}: {figure}]({path}){{ .run loading=lazy }}"
    return f"[{shown}]({path})\n*{to_markdown(caption)}*"


def tabulate_claims(name: str, runs: Runs, uri: str) -> str:
    """Return figures and a table of the claims of an experiment at each scale, then evidence."""
    parts = []
    for scale in SCALES:
        if name not in runs.get(scale, {}):
            continue
        claims = runs[scale][name]
        if claims is None:
            parts.append(f"*{scale.capitalize()} scale:* its run did not end.")
            continue
        if name in list_outdated(scale):
            parts.append(OUTDATED)
        else:
            parts += [show_figure(name, each, scale, uri) for each in read_captions(name, scale)]
        lines = [
            f"*{scale.capitalize()} scale:* {count_verdicts(claims)}.",
            "",
            "| claim | whose | verdict | estimate [95 % interval] |",
            "|---|---|---|---|",
        ]
        for claim in claims:
            cells = [
                to_markdown(claim.text),
                to_markdown(claim.source),
                claim.verdict,
                _measured(claim),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        told = [f"* {to_markdown(claim.text)}: {to_markdown(claim.evidence)}" for claim in claims]
        lines += [
            "",
            '<details markdown="1"><summary>Evidence in full</summary>',
            "",
            *told,
            "",
            "</details>",
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or f"*{_capital(NEVER)}.*"


def count_verdicts(claims: Sequence[Finding]) -> str:
    """Return how many claims there are of each verdict.

    Example:
        >>> held = Finding(text="a", source="ours", verdict="held", evidence="")
        >>> count_verdicts([held])
        '1 of 1 claim is held'
    """
    counts = tally(claims)
    noun = f"claim{'s' * (counts.total != 1)} {'is' if counts.held == 1 else 'are'}"
    rest = [(counts.not_held, "not held"), (counts.undecided, "undecided")]
    return f"{counts.held} of {counts.total} {noun} held" + "".join(
        f", {count} {verdict}" for count, verdict in rest if count
    )


def _measured(claim: Finding) -> str:
    """Return the numbers of a claim by group; those in its evidence if it has no interval."""
    numbers = list_numbers(claim)
    if numbers:
        unbroken = {group: number.replace(" ", "&nbsp;") for group, number in numbers.items()}
        lines = [
            f"{to_markdown(group)}: {number}" if group else number
            for group, number in unbroken.items()
        ]
        if claim.detectable is not None:
            lines.append(f"{claim.detectable:.3g} would have shown")
        if claim.seeds_to_decide is not None:
            lines.append(f"{claim.seeds_to_decide} values would decide")
        return "<br>".join(lines)
    return _shorten(claim.evidence, 80)


def _shorten(evidence: str, size: int) -> str:
    """Return the first statements of evidence, whole, as many as fit a size; at least one."""
    first, *others = evidence.partition("; ")[0].split(", ")
    for other in others:
        if len(first) + len(other) + 2 > size:
            break
        first += f", {other}"
    return to_markdown(first)


def to_markdown(text: str) -> str:
    """Return a text as Markdown that shows it, in one cell of a table."""
    return re.sub(r"([\\`*_|\[\]$])", r"\\\1", escape(text, quote=False))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


# Protocols

ALWAYS = ("data", "network", "seed", "epochs", "batch_size", "learning_rate", "weight_decay")
"""Fields of a training run that the table shows, whatever their values."""
HIDDEN = ("groups", "layer_groups", "order_seed")
NONE = "–"
LABELS = {
    "seed": "seeds",
    "every": "measured every",
    "measurements": "measurements, about",
    "measured": "training images measured",
    "schedule": "schedule of the rate",
    "decay": "factor of the schedule",
    "average": "averaged weights, decay a step",
    "layers": "layers measured",
}
"""Words for fields whose names do not explain themselves."""


def tabulate_protocol(name: str) -> str:
    """Return a table of the settings of an experiment, with a column for each scale."""
    found = find_experiment(name)
    scales = [scale for scale in SCALES if scale in found.scales]
    columns = [describe_settings(found.scales[scale]) for scale in scales]
    shown = [
        key
        for key in dict.fromkeys(key for column in columns for key in column)
        if any(column[key][1] and column[key][0] != NONE for column in columns if key in column)
    ]
    lines = [f"| | {' | '.join(scales)} |", "|---" * (len(scales) + 1) + "|"]
    for key in shown:
        cells = [to_markdown(column[key][0]) if key in column else NONE for column in columns]
        lines.append(f"| {key} | {' | '.join(cells)} |")
    lines.append(f"| cost | {' | '.join(to_markdown(found.cost[scale]) for scale in scales)} |")
    return "\n".join([f"`{COMMAND} {name}` runs it at the small scale.", "", *lines])


def describe_settings(settings: BaseModel) -> dict[str, tuple[str, bool]]:
    """Return the value of each setting in words, and whether the table must show it.

    A setting of training runs is shown if a run has another value than the default, or if it is
    one of `ALWAYS`. It may differ between runs: by data set or network, or else in any way.
    """
    described = {}
    for field, info in type(settings).model_fields.items():
        value = getattr(settings, field)
        if isinstance(value, dict) and value:
            runs = list(value.values())
            described["runs"] = (str(len(runs)), True)
            described |= _describe_runs([dict(_flatten(run)) for run in runs])
        elif isinstance(value, BaseModel):
            prefix = "" if field == "training" else f"{_label(field)}: "
            for key, (inner, default) in _flatten(value):
                always = not prefix or inner != default
                described[prefix + _label(key)] = (_write(inner), always)
        else:
            described[_words_of(info.description) or _label(field)] = (_write(value), True)
    return described


def _words_of(description: str | None) -> str:
    """Return the first clause of a setting's description; nothing if it is long."""
    words = re.split(r"[.;:] |\.$", description or "")[0]
    return to_markdown(words[:1].lower() + words[1:] if words[1:2].islower() else words) * (
        len(words) <= 70
    )


def _flatten(model: BaseModel) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the name of each field with its value and its default."""
    for field, info in type(model).model_fields.items():
        value = getattr(model, field)
        if isinstance(value, BaseModel):
            yield from _flatten(value)
        elif field not in HIDDEN:
            yield field, (value, info.default)


def _describe_runs(runs: Sequence[Mapping[str, tuple[Any, Any]]]) -> dict[str, tuple[str, bool]]:
    described = {}
    for key in dict.fromkeys(key for run in runs for key in run):
        pairs = [run[key] for run in runs if key in run]
        changed = key in ALWAYS or any(value != default for value, default in pairs)
        described[_label(key)] = (_write_over(key, runs), changed)
    return described


def _write_over(key: str, runs: Sequence[Mapping[str, tuple[Any, Any]]]) -> str:
    """Return all values of a field: one, one for each data set or network, or a list."""
    of_runs = [(run, run[key][0]) for run in runs if key in run]
    values = list(dict.fromkeys(value for _, value in of_runs))
    if len(values) == 1 or key in ("data", "seed"):
        return _write(tuple(values))
    for by in ("data", "network"):
        groups: dict[Any, list[Any]] = {}
        for run, value in of_runs:
            if by in run and by != key:
                groups.setdefault(run[by][0], []).append(value)
        if len(groups) > 1 and all(len(set(group)) == 1 for group in groups.values()):
            names: dict[Any, list[str]] = {}
            for name, group in groups.items():
                names.setdefault(group[0], []).append(name)
            return "; ".join(f"{', '.join(each)}: {_write(value)}" for value, each in names.items())
    return _write(tuple(values))


def _label(field: str) -> str:
    return LABELS.get(field, field.replace("_", " "))


def _write(value: Any) -> str:
    if isinstance(value, tuple):
        whole = [each for each in value if isinstance(each, int) and not isinstance(each, bool)]
        if len(whole) == len(value) > 3 and value == tuple(range(value[0], value[0] + len(value))):
            return f"{value[0]} to {value[-1]}"
        return ", ".join(map(_write, value)) or NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "default"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# The list of experiments


def tabulate_experiments(runs: Runs, uri: str) -> str:
    """Return a table of the papers' experiments: what they show, and how many claims are held."""
    scales = [scale for scale in SCALES if scale in runs]
    heads = ["experiment", "shows", *(f"claims held, {scale} scale" for scale in scales)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in (*REPRODUCTIONS, "pfc/demo"):
        link = posixpath.relpath(page_of_experiment(name), posixpath.dirname(uri) or ".")
        cells = [f"[`{name}`]({link})", EXPERIMENTS[name]]
        for scale in scales:
            if name not in REPRODUCTIONS:
                cells.append(ILLUSTRATES)
            elif name not in runs[scale]:
                cells.append(NEVER)
            else:
                claims = runs[scale][name]
                cells.append("its run did not end" if claims is None else str(tally(claims)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@cache
def page_of_experiment(name: str) -> str:
    """Return the page and section that show the claims of an experiment."""
    for page in sorted([*DOCS.glob("experiments/*.md"), *DOCS.glob("models/*.md")]):
        before, mark, _ = page.read_text(encoding="utf-8").partition(f"<!-- claims: {name} -->")
        if mark:
            anchors = re.findall(r"^#+ .*\{ #(\S+) \}", before, re.M)
            place = f"{page.parent.name}/{page.name}"
            return f"{place}#{anchors[-1]}" if anchors else place
    return "experiments/index.md"
