"""All statements: expected verdicts, determinism, errors; no check that cannot fail."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ncscope.errors import InputError
from ncscope.metrics.information import Entropies
from ncscope.theory import information, regression
from ncscope.theory.statement import Result
from ncscope.theory.table import STATEMENTS, check_all

VERDICTS = {
    "info/theorem-4.2": "holds",
    "info/corollary-4.3": "holds",
    "info/corollary-4.3-relu": "holds-as-corrected",
    "info/remark-4.3": "holds",
    "info/mir-limit": "holds-as-corrected",
    "info/lemma-4.4": "holds",
    "info/lemma-4.5": "holds",
    "info/theorem-4.6": "holds",
    "info/remark-4.6": "holds-as-corrected",
}


@pytest.fixture(scope="module")
def everything() -> list[Result]:
    return check_all(seed=0)


def test_verdicts(everything: list[Result]) -> None:
    assert {result.id: result.verdict for result in everything} == VERDICTS
    for result in everything:
        assert result.deviation < 1e-11, result
        if result.verdict == "holds-as-corrected":
            assert result.printed_deviation is not None
            assert result.printed_deviation > 0.1, result


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_verdicts_do_not_hang_on_the_seed(seed: int) -> None:
    assert {result.id: result.verdict for result in check_all(seed)} == VERDICTS


def test_ids_are_unique_and_sentences_complete() -> None:
    assert len({statement.id for statement in STATEMENTS}) == len(STATEMENTS)
    for statement in STATEMENTS:
        assert statement.statement.endswith(".")
        assert statement.source
        assert (statement.corrected is not None) == ("; corrected: " in statement.statement)


def test_the_same_seed_gives_the_same_results_alone_and_among_all(
    everything: list[Result],
) -> None:
    by_id = {result.id: result for result in everything}
    for chosen in ("info/theorem-4.2", "info/lemma-4.5", "info/remark-4.6"):
        assert check_all(seed=0, only=chosen) == [by_id[chosen]]
    (other,) = check_all(seed=1, only="info/remark-4.6")
    assert other.printed_deviation != by_id["info/remark-4.6"].printed_deviation


def test_the_number_of_threads_is_left_as_it_was() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    check_all(seed=0, only="info/theorem-4.2")
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [("info/lemma-4.6", "info/lemma-4."), ("INFO/Theorem-4.2", "info/theorem-4.2"), ("", "info/")],
)
def test_an_unknown_id_names_the_nearest(wanted: str, nearest: str) -> None:
    with pytest.raises(InputError, match="expected the id of one of .*; the nearest is " + nearest):
        check_all(seed=0, only=wanted)


collapse, entropies = information.collapse_mir, information.pair_entropies
transfer = regression.transfer_bound
tail, ranks, fano = regression.tail_mass, regression.rank_bounds, regression.largest_entropy


def joint_swollen(first: Tensor, second: Tensor) -> Entropies:
    """As if the joint entropy could exceed the sum: subadditivity broken."""
    seen = entropies(first, second)
    return replace(seen, joint=replace(seen.joint, mean=1.01 * (seen.first + seen.second)))


def joint_shrunk(first: Tensor, second: Tensor) -> Entropies:
    """As if the joint entropy could be less than the larger of the two."""
    seen = entropies(first, second)
    return replace(seen, joint=replace(seen.joint, mean=0.99 * max(seen.first, seen.second)))


BREAKS: list[tuple[str, str, Any]] = [
    ("info/theorem-4.2", "collapse_mir", lambda c: collapse(c) - 1 / (c - 1) + 1 / c),
    ("info/theorem-4.2", "collapse_mir", lambda c: collapse(c + 1)),
    ("info/corollary-4.3", "collapse_mir", lambda c: collapse(c) + 1e-6),
    ("info/corollary-4.3-relu", "collapse_mir", lambda c: collapse(c) + 1e-6),
    ("info/remark-4.3", "pair_entropies", joint_swollen),
    ("info/remark-4.3", "pair_entropies", joint_shrunk),
    ("info/mir-limit", "pair_entropies", joint_shrunk),
    ("info/lemma-4.4", "transfer_bound", lambda *parts: 0.999 * transfer(*parts)),
    ("info/lemma-4.4", "transfer_bound", lambda error, weight, gap: error + gap),
    ("info/lemma-4.5", "tail_mass", lambda z, rank: tail(z, rank - 1)),
    ("info/lemma-4.5", "tail_mass", lambda z, rank: 1.001 * tail(z, rank)),
    ("info/theorem-4.6", "tail_mass", lambda z, rank: tail(z, rank - 1)),
    ("info/theorem-4.6", "rank_bounds", lambda a, b: (0.999 * ranks(a, b)[0], 1.0)),
    ("info/theorem-4.6", "rank_bounds", lambda a, b: (ranks(a, b)[0], 0.0)),
    ("info/remark-4.6", "largest_entropy", lambda *parts: 0.999 * fano(*parts)),
    ("info/remark-4.6", "largest_entropy", lambda error, *parts: fano(0.9 * error, *parts)),
]


@pytest.mark.parametrize(("statement", "name", "broken"), BREAKS)
def test_a_broken_formula_fails(
    statement: str, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(information if hasattr(information, name) else regression, name, broken)
    (result,) = check_all(seed=0, only=statement)
    assert result.verdict == "fails"
