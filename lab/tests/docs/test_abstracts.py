"""The abstracts, sentence by sentence: what carries each exists, and verdicts follow from it."""

import re
from collections import Counter

import pytest
from mkdocs.exceptions import PluginError

from ncscope_lab.catalogue import EXPERIMENTS
from ncscope_lab.findings import Finding
from ncscope_lab.theory.table import STATEMENTS
from tests.docs.pages import ROOT, load_hook

abstracts, evidence, results = map(load_hook, ("abstracts", "evidence", "results"))
Sentence = abstracts.Sentence
SENTENCES = abstracts.read_sentences()
RUNS = evidence.read_runs(evidence.FIGURES)
WITHOUT_NETWORKS = {"xufm/ufm", "xufm/extended", "pfc/mufm", "mse/central-path"}
"""Experiments on features that are free."""
THEORY = evidence.theory_of(evidence.FIGURES)
GIVEN = {
    "ours/holds": {"verdict": "holds"},
    "ours/gap": {"verdict": "holds-as-corrected", "grade": "gap"},
    "ours/false": {"verdict": "holds-as-corrected", "grade": "false"},
}


def claims(*verdicts: str) -> list[Finding]:
    return [Finding(text="A claim.", source="VCI", verdict=one, evidence="") for one in verdicts]


def sentence(**fields: object) -> object:
    return Sentence(**{"paper": "VCI", "text": "It is so.", "mind": "", **fields})


def test_what_carries_a_sentence_exists():
    assert len(SENTENCES) >= 30
    for one in SENTENCES:
        assert set(one.claims) <= set(EXPERIMENTS)
        assert {*one.statements} <= {each.id for each in STATEMENTS}
        assert one.mind.endswith(".")
        assert one.text.endswith(".")
        assert bool(one.numbers) == bool(one.claims)
        assert abstracts.collect_claims(one, RUNS).keys() == one.claims.keys()
        name, _, figure = one.figure.partition(" | ")
        assert not figure or name in EXPERIMENTS
        assert not figure or figure in (list(captions(name)) or [figure])


def captions(name: str) -> dict[str, str]:
    """Captions of the committed figures of an experiment whose run is of today's settings."""
    return {} if name in results.list_outdated("small") else results.read_captions(name, "small")


def test_sentences_show_the_figures_that_have_been_drawn():
    page = abstracts.write_abstracts(SENTENCES, THEORY, RUNS)
    drawn = [one.figure for one in SENTENCES if one.figure and captions(one.figure.split(" | ")[0])]
    places = [f"#{one.replace('/', '-').replace(' | ', '-')}" for one in drawn]
    pattern = r"^\[(?:!\[.+\]\(\S+\){ .run (\S+) |\*Figure above: .*\((\S+)\)$)"
    shown = [first or again for first, again in re.findall(pattern, page, re.M)]
    assert shown == places
    assert page.count("{ .run ") == len(set(drawn)) < len(drawn)
    assert len(drawn) >= 8


def test_a_number_stands_with_the_power_of_its_claim():
    page = abstracts.write_abstracts(SENTENCES, THEORY, RUNS)
    lines = re.findall(r"^\* (.*?\. \*Claim, .*)$", page, re.M)
    for one in SENTENCES:
        for place in one.numbers:
            finding, name = results.find_number(place, RUNS), place.split(" | ")[0]
            if finding.interval is None or name in results.list_outdated("small"):
                continue
            number = results.write_measured(place, RUNS)
            shown = [each for each in lines if f"{number}, {one.numbers[place]}" in each]
            assert shown
            assert (finding.verdict == "held") == (finding.write_power() == "")
            told = f"{one.numbers[place]} ({finding.write_power()})"
            assert finding.held or all(told in each for each in shown)


def test_every_sentence_has_its_verdict_on_the_page():
    page = abstracts.write_abstracts(SENTENCES, THEORY, RUNS)
    verdicts = re.findall(r'<span class="verdict ([\w-]+)">', page)
    assert len(verdicts) == len(SENTENCES)
    for one in SENTENCES:
        for unit in one.numbers.values():
            assert ("{" in unit) or f", {unit}" in page
    assert not re.search(r"^\* .*[{}]", page, re.M)
    for column, verdict in enumerate(abstracts.BADGES, 1):
        counts = [
            row.split("|")[column + 1] for row in re.findall(r"^\| \[\w+\]\(#.*$", page, re.M)
        ]
        kind = re.sub(r"\W+", "-", verdict)
        assert sum(int(count.strip() or 0) for count in counts) == verdicts.count(kind)


def test_the_readme_counts_the_verdicts():
    page = abstracts.write_abstracts(SENTENCES, THEORY, RUNS)
    found = re.findall(r'<span class="verdict ([\w-]+)">', page)
    verdicts = Counter(found)
    untrained = sum(
        verdict == "shown" and set(one.claims) <= WITHOUT_NETWORKS
        for one, verdict in zip(SENTENCES, found, strict=True)
    )
    readme = " ".join((ROOT / "README.md").read_text().split())
    numbers = re.search(
        r"Of (\d+) sentences of their abstracts, (\d+) are shown there \((\d+) without training a "
        r"network\), (\d+) in part, (\d+) are contradicted, (\d+) stays undecided and (\d+) is "
        r"refuted(?:; (\d+) rest on runs of earlier settings or claims)?:",
        readme,
    )
    assert numbers is not None
    kinds = ("shown-in-part", "not-shown-contradicted-here", "not-shown-undecided", "refuted")
    old = sum(not results.list_outdated("small").isdisjoint(one.claims) for one in SENTENCES)
    expected = [len(SENTENCES), verdicts["shown"], untrained, *map(verdicts.get, kinds), old]
    assert [int(each or 0) for each in numbers.groups()] == expected


@pytest.mark.parametrize(
    ("verdicts", "fields", "expected"),
    [
        (("held", "held"), {}, "shown"),
        (("held", "undecided"), {}, "shown in part"),
        (("undecided", "not held"), {}, "not shown"),
        (("held",), {"statements": ["ours/holds"]}, "shown"),
        (("held",), {"statements": ["ours/gap"]}, "shown in part"),
        (("not held",), {"statements": ["ours/gap"]}, "shown in part"),
        (("held",), {"statements": ["ours/false"]}, "shown in part"),
        ((), {"statements": ["ours/false"]}, "not shown"),
        (("held", "held"), {"at_most": "shown in part"}, "shown in part"),
        (("undecided",), {"at_most": "shown in part"}, "not shown"),
        (("held",), {"refuted_by": "ours/false"}, "refuted"),
    ],
)
def test_the_verdict_follows(verdicts: tuple[str, ...], fields: dict, expected: str):
    one = sentence(claims={"vci/training": "all"}, **fields)
    assert abstracts.judge_sentence(one, claims(*verdicts), GIVEN) == expected


@pytest.mark.parametrize(
    ("verdicts", "statements", "badge"),
    [
        (("held", "undecided"), [], "shown in part"),
        (("undecided", "undecided"), [], "not shown: undecided"),
        (("undecided", "not held"), [], "not shown: contradicted here"),
        (("undecided",), ["ours/false"], "not shown: contradicted here"),
    ],
)
def test_what_is_not_shown_is_undecided_or_contradicted(
    verdicts: tuple[str, ...], statements: list[str], badge: str
):
    one, found = sentence(claims={"vci/training": "all"}, statements=statements), claims(*verdicts)
    verdict = abstracts.judge_sentence(one, found, GIVEN)
    assert abstracts.choose_badge(one, verdict, found, GIVEN) == badge


def test_a_warning_is_a_sentence_that_is_true():
    for one in SENTENCES:  # "That it is so." says the opposite of what is meant
        first = one.mind.split(". ")[0]
        assert not first.startswith("That ") or re.search(r" is (?:not|no) ", first), one.mind


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"statements": ["ours/nothing"]}, "no statement of the table"),
        ({"statements": ["ours/holds"], "refuted_by": "ours/gap"}, "not graded false"),
    ],
)
def test_a_statement_that_cannot_carry_is_refused(fields: dict, message: str):
    with pytest.raises(PluginError, match=message):
        abstracts.judge_sentence(sentence(**fields), [], GIVEN)


def test_a_claim_that_is_gone_is_seen():
    one = sentence(claims={"vci/training": ["A claim", "nothing"]})
    with pytest.raises(PluginError, match="vci/training has no claim with 'nothing'"):
        abstracts.collect_claims(one, {"small": {"vci/training": claims("held")}})
    with pytest.raises(PluginError, match="vci/training has no verdicts"):
        abstracts.collect_claims(one, {})


def test_a_sentence_that_nothing_carries_is_refused():
    with pytest.raises(ValueError, match="neither claims nor statements"):
        sentence()
