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

import ast
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from html import escape
from math import inf, nan
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page
from pydantic import BaseModel

from ncscope.metrics.registry import METRICS
from ncscope_lab import experiments
from ncscope_lab.catalogue import EXPERIMENTS, REPRODUCTIONS, find_experiment
from ncscope_lab.experiments.pfc import mufm
from ncscope_lab.experiments.xufm import extended, ufm
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
            return tabulate_protocol(name, runs)
        if kind == "claims":
            return tabulate_claims(name, runs, uri)
        if kind == "verdict":
            return find_claim(name, rest[0], runs).verdict
        return write_measured(mark[2], runs)

    filled = _MARK.sub(write, markdown).replace(_OUTDATED, name_outdated())
    return filled.replace(_EXPERIMENTS, tabulate_experiments(runs, uri))


OUTDATED = (
    "*The settings or the claims are new, and their run has not ended: these are verdicts as "
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
    keys = [each.name for each in fields(Interval)]

    def read_interval(ends: Mapping[str, Any]) -> Interval:
        return Interval(**{key: unknown[key] if ends[key] is None else ends[key] for key in keys})

    def read_power(record: Mapping[str, Any]) -> dict[str, Any]:
        return {key: record[key] for key in ("verdict", "detectable", "seeds_to_decide", "of")}

    text, source = record["claim"], record["source"]

    def read_parts(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Finding]:
        rest = {"text": text, "source": source, "evidence": ""}
        return {
            name: Finding(**rest, interval=read_interval(each), **read_power(each))
            for name, each in records.items()
        }

    return Finding(
        text=text,
        source=source,
        evidence=record["evidence"],
        interval=record["interval"] and read_interval(record["interval"]),
        groups=read_parts(record["groups"]),
        uncounted=read_parts(record["uncounted"]),
        **read_power(record),
    )


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
    return _write_number(find_number(place, runs))


def find_number(place: str, runs: Runs) -> Finding:
    """Return the claim of a place, or the finding on the group of the claim that it names.

    Raises:
        PluginError: If there is no such claim or group, or several groups and none is named.
    """
    name, part, *groups = (each.strip() for each in place.split("|"))
    claim = find_claim(name, part, runs)
    group = "".join(groups)
    numbers = list_findings(claim)
    if not group and len(numbers) < 2:
        return next(iter(numbers.values()), claim)
    numbers = numbers if group in numbers else claim.uncounted
    if group not in numbers:
        named = ", ".join(map(repr, numbers)) or "none"
        msg = f"{claim.text!r} has no number of {group!r}; it has those of {named}"
        raise PluginError(msg)
    return numbers[group]


def list_findings(claim: Finding) -> Mapping[str, Finding]:
    """Return the findings with intervals on which a verdict rests, by group."""
    return claim.groups if claim.interval is None else {"": claim}


def _write_number(finding: Finding) -> str:
    """Return an estimate with its interval; without an interval the evidence in brief."""
    if finding.interval is None:
        return _shorten(finding.evidence, 150)
    each = finding.interval
    return f"{each.estimate:.3g} [{each.low:.3g}, {each.high:.3g}]"


def fill_sentence(sentence: str, finding: Finding) -> str:
    """Return a sentence with the numbers of the evidence that its places name.

    A place such as ``{falls to * at the end}`` holds words of the evidence, with ``*`` for the
    number; without a ``*`` the number follows the words. Where several runs have such a number, the
    range is written.

    Args:
        sentence: Words with places in braces.
        finding: Finding with the evidence.

    Raises:
        PluginError: If there is no place, or the evidence lacks the words of one.
    """

    def find(place: re.Match[str]) -> str:
        words = place[1] if "*" in place[1] else f"{place[1]} *"
        form = re.escape(words).replace(r"\*", r"([-+]?\d[\d.,]*(?:e[-+]?\d+)?)")
        seen = [each.rstrip(".,") for each in re.findall(form, finding.evidence)]
        if not seen:
            msg = f"the evidence of {finding.text!r} has no number at {place[1]!r}"
            raise PluginError(msg)
        least, most = (choose(seen, key=_read_number) for choose in (min, max))
        return least if least == most else f"{least} to {most}"

    filled, count = re.subn(r"\{(.+?)\}", find, sentence)
    if not count:
        msg = (
            f"{finding.text!r} has no interval: {sentence!r} needs a place in braces for its number"
        )
        raise PluginError(msg)
    return filled


def _read_number(text: str) -> float:
    return float(text.replace(",", ""))


@cache
def read_captions(name: str, scale: str) -> Mapping[str, str]:
    """Read the captions of the figures that a run of an experiment has drawn, by figure."""
    return _read_record(name, scale).get("figures", {})


@cache
def _read_record(name: str, scale: str) -> Mapping[str, Any]:
    """Read the committed record of an experiment's run; empty if there is none."""
    file = FIGURES / f"verdicts-{scale}.json"
    if not file.exists():
        return {}
    return json.loads(file.read_text(encoding="utf-8"))["experiments"].get(name, {})


def show_figure(
    name: str, figure: str, scale: str, uri: str, caption: str = "", anchor: str = ""
) -> str:
    """Return a figure of an experiment with its caption, for a page.

    Args:
        name: Name of the experiment.
        figure: Name of the figure.
        scale: Scale of the run that drew it.
        uri: Path of the page below ``docs``.
        caption: Markdown to show in place of the whole caption.
        anchor: Anchor of the figure, for links to it.
    """
    note = OLD_DRAWING if is_older(read_captions(name, scale)[figure]) else ""
    picture = f"images/runs/{name.replace('/', '-')}-{figure}.png"
    path = posixpath.relpath(picture, posixpath.dirname(uri) or ".")
    whole = read_captions(name, scale)[figure]
    attributes = " ".join(filter(None, [".run", f"#{anchor}" * bool(anchor), "loading=lazy"]))
    shown = f"![{write_headline(whole)}]({path}){{ {attributes} }}"
    return f"[{shown}]({path})\n{caption or f'*{to_markdown(whole)}*'}{note}"


OLD_DRAWING = " *The drawing is older than its code: the next run draws what the claims compare.*"
LONGEST_VALUE = 30
"""Characters of the longest number or name that captions have in their places."""


def is_older(caption: str) -> bool:
    """Return whether the code would write another caption, so that it draws another figure.

    A caption consists of strings of the code with short values between them. A drawing that
    changed and kept its caption goes unnoticed.

    Args:
        caption: Caption of a committed figure.
    """
    rest = caption
    for part in _read_strings():
        rest = rest.replace(part, "\n")
    return any(len(gap) > LONGEST_VALUE for gap in rest.splitlines())


@cache
def _read_strings() -> Sequence[str]:
    """Read the strings of the experiments' code, cut at places for values; the longest first."""
    folder = Path(experiments.__file__).parent
    strings = {
        part
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for part in re.split(r"\{.*?\}", node.value)
    }
    return sorted((part for part in strings if len(part) > 5), key=len, reverse=True)


def write_headline(caption: str) -> str:
    """Return the first sentence of a caption, as Markdown: what the figure shows.

    Example:
        >>> write_headline("Accuracy over training; lines are means. Dots are seeds.")
        'Accuracy over training; lines are means.'
    """
    first = re.split(r"(?<=[^.][^. ])\. (?=[A-Z(])", caption, maxsplit=1)[0]
    return to_markdown(first.rstrip(".") + ".")


def tabulate_claims(name: str, runs: Runs, uri: str) -> str:
    """Return a figure and the claims of an experiment at each scale, more figures, and evidence."""
    parts = []
    for scale in SCALES:
        if name not in runs.get(scale, {}):
            continue
        claims = runs[scale][name]
        if claims is None:
            parts.append(f"*{scale.capitalize()} scale:* its run did not end.")
            continue
        ran, figures = "", []
        is_old = name in list_outdated(scale)
        if is_old:
            parts.append(OUTDATED)
        else:
            ran = f" *Run:* {to_markdown(describe_run(name, scale))}."
            figures = [show_figure(name, each, scale, uri) for each in read_captions(name, scale)]
        lines = [
            *figures[:1],
            "",
            f"*{scale.capitalize()} scale:* {count_verdicts(claims)}.{ran}",
            "",
            "| claim | whose | verdict | estimate [95 % interval], and what would have shown |",
            "|---|---|---|---|",
        ]
        for claim in claims:
            cells = [
                to_markdown(claim.text),
                to_markdown(claim.source),
                claim.verdict,
                _measured(claim, is_old),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        parts += ["\n".join(lines), *figures[1:]]
        told = [f"* {to_markdown(claim.text)}: {name_keys(claim.evidence)}" for claim in claims]
        lines = [
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
        '1 claim: 1 held'
    """
    counts = tally(claims)
    return f"{counts.total} claim{'s' * (counts.total != 1)}: {counts.in_words()}"


def _measured(claim: Finding, is_old: bool) -> str:
    """Return the numbers of a claim by group, with the power of a run of today's settings.

    A claim without an interval has its evidence in brief.
    """
    lines = []
    for group, finding in list_findings(claim).items():
        number = _write_number(finding).replace(" ", "&nbsp;")
        power = "" if is_old else finding.write_power()
        lines.append(
            f"{to_markdown(group)}: " * bool(group) + number + f"<br>*{power}*" * bool(power)
        )
    return "<br>".join(lines) or _shorten(claim.evidence, 80)


def _shorten(evidence: str, size: int) -> str:
    """Return the first statements of evidence, whole, as many as fit a size; at least one."""
    first, *others = evidence.partition("; ")[0].split(", ")
    for other in others:
        if len(first) + len(other) + 2 > size:
            break
        first += f", {other}"
    return name_keys(first)


def name_keys(text: str) -> str:
    """Return a text as Markdown, with keys of metrics as code and other names as words.

    Example:
        >>> name_keys("nc2_etf 0.1, projected_deviation 0.2")
        '`nc2_etf` 0.1, projected deviation 0.2'
    """
    parts = re.split(r"\b([a-z][a-z\d]*(?:_[a-z\d]+)+)\b", text)
    for place, name in enumerate(parts):
        if place % 2 == 0:
            parts[place] = to_markdown(name)
        else:
            parts[place] = f"`{name}`" if name in METRICS else name.replace("_", " ")
    return "".join(parts)


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


def tabulate_protocol(name: str, runs: Runs) -> str:
    """Return the settings of an experiment, a table for each scale, each in a fold."""
    found = find_experiment(name)
    scales = [scale for scale in reversed(SCALES) if scale in found.scales]
    columns = [describe_settings(found.scales[scale]) for scale in scales]
    shown = [
        key
        for key in dict.fromkeys(key for column in columns for key in column)
        if any(column[key][1] and column[key][0] != NONE for column in columns if key in column)
    ]
    titles = {}
    if all(column == columns[0] for column in columns):
        titles["small"] = f"Settings, alike at the {' and the '.join(scales)} scale"
    else:
        for scale in scales:
            missing = "" if name in runs.get(scale, {}) else ", not run"
            titles[scale] = f"Settings of the {scale} scale{missing}"
    lines = [f"`{COMMAND} {name}` runs it at the small scale."]
    for scale, title in titles.items():
        column = columns[scales.index(scale)]
        lines += [
            "",
            f'<details markdown="1"><summary>{title}</summary>',
            "",
            "| setting | value |",
            "|---|---|",
            *(f"| {key} | {to_markdown(column[key][0])} |" for key in shown if key in column),
            f"| cost | {to_markdown(found.cost[scale])} |",
            "",
            "</details>",
        ]
    return "\n".join(lines)


MODELS: Mapping[str, Callable[[Any], str]] = {
    "info/grokking": lambda config: (
        f"a transformer of width {config.training.width} on addition modulo "
        f"{config.training.modulus}, {config.training.steps:,} steps, "
        f"seeds {_write(config.seeds)}"
    ),
    "mse/central-path": lambda config: (
        f"free features, K = {config.num_classes}, d = {config.dim}, n = {config.per_class}, "
        f"one start, up to {max(config.descent_steps):,} steps"
    ),
    "pfc/mufm": lambda config: (
        f"free features, K = {mufm.K}, d = {mufm.D}, n = {mufm.N}, {config.seeds} draws of data "
        f"and starts, {config.steps:,} steps"
    ),
    "xufm/extended": lambda config: (
        f"free features, {_write_sizes(extended.SIZES[k] for k in config.classes)}, "
        f"{config.starts} starts, {config.steps:,} steps"
    ),
    "xufm/ufm": lambda config: (
        f"free features, {_write_sizes(ufm.SIZES[k][:3] for k, _ in config.descents)}, one start "
        f"in each figure, {config.starts} for arrival, {config.first_steps:,} steps"
    ),
}
"""Functions that say from the settings what an experiment without networks on data runs."""


def describe_run(name: str, scale: str) -> str:
    """Return in one line what an experiment runs at a scale: networks, data, seeds and cost.

    Networks are listed by data set. Networks with other seeds stand apart, and so do controls
    without weight decay if their seeds differ.
    """
    experiment = find_experiment(name)
    config = experiment.scales[scale]
    record = _read_record(name, scale)
    if name in MODELS:
        what = MODELS[name](config)
    else:
        what = _list_networks([dict(_flatten(run)) for run in config.runs.values()])
    return ", ".join(filter(None, [what, experiment.cost[scale], record.get("hardware", "")]))


def _list_networks(runs: Sequence[Mapping[str, tuple[Any, Any]]]) -> str:
    seeds: dict[tuple[str, str], dict[str, set[int]]] = {}
    for run in runs:
        data, network, decay, seed = (
            run[key][0] for key in ("data", "network", "weight_decay", "seed")
        )
        by_decay = seeds.setdefault((data, network), {})
        by_decay.setdefault("" if decay else " without decay", set()).add(seed)
    alike: dict[tuple[int, ...], list[tuple[str, str, str]]] = {}
    for (data, network), by_decay in seeds.items():
        if len(set(map(frozenset, by_decay.values()))) == 1:
            by_decay = {"": next(iter(by_decay.values()))}
        for words, each in by_decay.items():
            alike.setdefault(tuple(sorted(each)), []).append((network, data, words))
    told = []
    for each, places in alike.items():
        by_data: dict[tuple[str, str], list[str]] = {}
        for network, data, words in places:
            by_data.setdefault((data, words), []).append(network)
        by_networks: dict[tuple[str, str], list[str]] = {}
        for (data, words), networks in by_data.items():
            by_networks.setdefault((_join(networks), words), []).append(data)
        listed = [f"{nets} on {_join(sets)}{words}" for (nets, words), sets in by_networks.items()]
        is_range = len(each) > 2 and each == tuple(range(each[0], each[-1] + 1))
        numbers = f"{each[0]} to {each[-1]}" if is_range else _write(each)
        told.append(f"{', '.join(listed)}: seeds {numbers}")
    return "; ".join(told)


def _join(words: Sequence[str]) -> str:
    """Join words as in a sentence: a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _write_sizes(sizes: Iterable[tuple[int, int, int]]) -> str:
    written = dict.fromkeys(f"K = {k}, d = {d}, n = {n}" for k, d, n in sizes)
    return " and ".join(written)


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
