"""The abstracts, sentence by sentence, with verdicts that follow from claims and statements.

``docs/inventory/abstracts.yaml`` says, for each sentence, which claims of experiments and which
statements of the table of theory carry it. The verdict follows from theirs.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from inventory import FOLDER, TAGS
from mkdocs.exceptions import PluginError
from results import (
    SCALES,
    Runs,
    describe_run,
    fill_sentence,
    find_claim,
    find_number,
    list_outdated,
    page_of_experiment,
    read_captions,
    show_figure,
    to_markdown,
    write_headline,
    write_measured,
)

from ncscope_lab.findings import Finding, tally
from ncscope_lab.report.verdicts import owner_of

Theory = Mapping[str, Mapping[str, Any]]
"""Verdict, grade, kind and number of instances of each statement, by id."""
Verdict = Literal["shown", "shown in part", "not shown", "refuted"]
VERDICTS: Sequence[Verdict] = ("shown", "shown in part", "not shown", "refuted")
UNDECIDED, CONTRADICTED = "not shown: undecided", "not shown: contradicted here"
BADGES: Sequence[str] = ("shown", "shown in part", UNDECIDED, CONTRADICTED, "refuted")
"""Verdicts, of which *not shown* is split by what the claims and statements say against it."""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence of an abstract, in our words, and what carries it.

    Attributes:
        paper: Tag of the paper.
        text: The sentence.
        mind: Limits of the verdict, that a reader should keep in mind.
        claims: Parts of the texts of claims, by experiment; ``"all"`` for those of the paper.
        statements: Ids of statements of theory.
        remarks: Subjects of statements, by id, where they are not that of the sentence.
        refuted_by: Id of a statement whose printed form a counterexample refutes; the sentence then
            is refuted, whatever else is held.
        at_most: Best verdict that the experiments can give, where they are too narrow for more.
        numbers: Units by place: experiment, part of a claim's text and, if it has several, name of
            a group, separated by ``|``. For a claim without interval, in place of the unit, a
            sentence with places for the numbers of its evidence, see `results.fill_sentence`.
        figure: Experiment and name of a figure that shows the sentence, separated by ``|``; empty
            if a figure cannot show it. The page has it as soon as the experiment has run.

    Raises:
        ValueError: If nothing carries the sentence.
    """

    paper: str
    text: str
    mind: str
    claims: Mapping[str, Sequence[str] | Literal["all"]] = field(default_factory=dict)
    statements: Sequence[str] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)
    refuted_by: str = ""
    at_most: Verdict = "shown"
    numbers: Mapping[str, str] = field(default_factory=dict)
    figure: str = ""

    def __post_init__(self) -> None:
        if not self.claims and not self.statements:
            msg = f"{self.paper}: {self.text!r} has neither claims nor statements"
            raise ValueError(msg)


def read_sentences() -> list[Sentence]:
    """Read all sentences, paper by paper."""
    papers = yaml.safe_load((FOLDER / "abstracts.yaml").read_text(encoding="utf-8"))
    return [Sentence(paper=paper, **entry) for paper in TAGS for entry in papers[paper]]


def collect_claims(sentence: Sentence, runs: Runs) -> dict[str, list[Finding]]:
    """Return the claims that carry a sentence, by experiment, at the largest scale that was run.

    Raises:
        PluginError: If an experiment was not run, or none of its claims has a named part.
    """
    collected = {}
    for name, parts in sentence.claims.items():
        _, claims = _largest(name, runs)
        if parts == "all":
            chosen = [claim for claim in claims if owner_of(claim) == sentence.paper]
            missing = [] if chosen else ["all"]
        else:
            chosen = [claim for claim in claims if any(part in claim.text for part in parts)]
            missing = [part for part in parts if not any(part in claim.text for claim in claims)]
        if missing:
            msg = f"abstracts.yaml, {sentence.text!r}: {name} has no claim with {missing[0]!r}"
            raise PluginError(msg)
        collected[name] = chosen
    return collected


def _largest(name: str, runs: Runs) -> tuple[str, Sequence[Finding]]:
    for scale in SCALES:
        claims = runs.get(scale, {}).get(name)
        if claims:
            return scale, claims
    msg = f"abstracts.yaml: {name} has no verdicts"
    raise PluginError(msg)


def judge_sentence(sentence: Sentence, claims: Sequence[Finding], theory: Theory) -> Verdict:
    """Return the verdict on a sentence.

    It is *shown* if all of its claims are held and all of its statements hold as printed, *not
    shown* if none is, and *shown in part* otherwise, or if a statement holds with a gap or a slip.
    It is *refuted* only if the file names the statement that refutes it, and that one is false.

    Raises:
        PluginError: If a named statement is not in the table, or does not refute.
    """
    for name in (*sentence.statements, *filter(None, [sentence.refuted_by])):
        if name not in theory:
            msg = f"abstracts.yaml, {sentence.text!r}: {name} is no statement of the table"
            raise PluginError(msg)
    if sentence.refuted_by:
        if theory[sentence.refuted_by].get("grade") != "false":
            msg = f"abstracts.yaml, {sentence.text!r}: {sentence.refuted_by} is not graded false"
            raise PluginError(msg)
        return "refuted"
    worth = {None: 1.0, "gap": 0.5, "slip": 0.5, "false": 0.0}
    marks = [float(claim.held) for claim in claims]
    marks += [worth[theory[name].get("grade")] for name in sentence.statements]
    verdict: Verdict = "shown in part"
    if min(marks) == 1:
        verdict = "shown"
    elif max(marks) == 0:
        verdict = "not shown"
    return max(verdict, sentence.at_most, key=VERDICTS.index)


def choose_badge(
    sentence: Sentence, verdict: Verdict, claims: Sequence[Finding], theory: Theory
) -> str:
    """Return the verdict on a sentence, and of one that is not shown what is against it.

    It is *contradicted here* if a claim is not held, or a statement is false as printed, else
    *undecided*.
    """
    if verdict != "not shown":
        return verdict
    against = any(claim.verdict == "not held" for claim in claims)
    against |= any(theory[name].get("grade") == "false" for name in sentence.statements)
    return CONTRADICTED if against else UNDECIDED


def write_abstracts(sentences: Sequence[Sentence], theory: Theory, runs: Runs) -> str:
    """Return a table of the verdicts by paper, then every sentence."""
    found = []
    for sentence in sentences:
        claims = collect_claims(sentence, runs)
        flat = [claim for each in claims.values() for claim in each]
        verdict = judge_sentence(sentence, flat, theory)
        found.append((sentence, claims, choose_badge(sentence, verdict, flat, theory)))
    lines = [f"| paper | {' | '.join(BADGES)} |", "|---" * (len(BADGES) + 1) + "|"]
    for paper in TAGS:
        counts = Counter(badge for sentence, _, badge in found if sentence.paper == paper)
        cells = [str(counts[badge] or "") for badge in BADGES]
        lines.append(f"| [{paper}](#{paper.lower()}-abstract) | {' | '.join(cells)} |")
    drawn: set[str] = set()
    for paper in TAGS:
        lines += ["", f"### {paper}, the abstract {{ #{paper.lower()}-abstract }}"]
        for sentence, claims, badge in found:
            if sentence.paper == paper:
                figure = _write_figure(sentence.figure, runs, drawn)
                lines += ["", _write_sentence(sentence, claims, badge, figure, theory, runs)]
    return "\n".join(lines)


def _write_figure(place: str, runs: Runs, drawn: set[str]) -> list[str]:
    """Return a figure with one line of its caption, or a link if the page has it already."""
    if not place:
        return []
    name, figure = (part.strip() for part in place.split("|"))
    scale, _ = _largest(name, runs)
    captions = read_captions(name, scale)
    if figure not in captions or name in list_outdated(scale):
        return []
    anchor = f"{name.replace('/', '-')}-{figure}"
    headline = write_headline(captions[figure])
    if anchor in drawn:
        return [f"[*Figure above: {headline}*](#{anchor})", ""]
    drawn.add(anchor)
    caption = f"*{headline}* [More]({page_of_experiment(name)})"
    return [show_figure(name, figure, scale, "evidence.md", caption, anchor), ""]


def _write_sentence(
    sentence: Sentence,
    claims: Mapping[str, Sequence[Finding]],
    badge: str,
    figure: Sequence[str],
    theory: Theory,
    runs: Runs,
) -> str:
    flat = [claim for each in claims.values() for claim in each]
    scales = dict.fromkeys(_largest(name, runs)[0] for name in claims)
    counts = [tally(flat).in_words()] if flat else []
    counts += [f"{' and '.join(scales)} scale"] if scales and badge != "refuted" else []
    kind = re.sub(r"\W+", "-", badge)
    detail = f" ({'; '.join(counts)})" if counts else ""
    head = f'<span class="verdict {kind}">{badge}{detail}</span>'
    stated = [
        f"[`{name}`][{re.sub('[/.]', '-', name)}] "
        + _write_grade(theory[name], sentence.remarks.get(name, ""))
        for name in dict.fromkeys([*filter(None, [sentence.refuted_by]), *sentence.statements])
    ]
    ran = [_write_run(name, runs) for name in claims]
    if sentence.statements:
        instances = sum(theory[name]["instances"] for name in sentence.statements)
        ran.append(f"theory: {instances:,} random instances, with counterexamples sought")
    lines = [
        '<div class="sentence" markdown="1">',
        "",
        f"**{sentence.text}**",
        "",
        f"{head} {'; '.join(stated)}{'.' * bool(stated)}",
        "",
        *_write_numbers(sentence.numbers, runs),
        "",
        *figure,
        f"*Run:* {'; '.join(ran)}.",
        "",
        f"*Mind:* {sentence.mind}",
        "",
        "</div>",
    ]
    return "\n".join(lines)


def _write_numbers(numbers: Mapping[str, str], runs: Runs) -> list[str]:
    """Return a line for each claim with its numbers and its verdict: the text says the border."""
    told: dict[tuple[str, str], list[str]] = {}
    for place, unit in numbers.items():
        name, part, *_ = (each.strip() for each in place.split("|"))
        claim, number = find_claim(name, part, runs), find_number(place, runs)
        words = f"{write_measured(place, runs)}, {unit}"
        if number.interval is None:
            words = fill_sentence(unit, number)
        is_old = name in list_outdated(_largest(name, runs)[0])
        power = "" if is_old else number.write_power()
        told.setdefault((claim.text, claim.verdict), []).append(words + f" ({power})" * bool(power))
    return [
        f"* {'; '.join(measured)}. *Claim, {verdict}:* {to_markdown(text)}."
        for (text, verdict), measured in told.items()
    ]


def _write_grade(checked: Mapping[str, str], remark: str) -> str:
    grade = checked.get("grade")
    words = "holds" if grade is None else f"holds as corrected ({grade})"
    if grade == "false":
        words = "is false as printed"
    return f"{words} ({remark})" if remark else words


def _write_run(name: str, runs: Runs) -> str:
    """Return a link to an experiment, and what was run."""
    scale, _ = _largest(name, runs)
    link = f"[`{name}`]({page_of_experiment(name)})"
    if name in list_outdated(scale):
        return f"{link}: a run before its settings or claims changed"
    return f"{link}: {to_markdown(describe_run(name, scale))}"
