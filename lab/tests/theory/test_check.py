"""The front door of the theory checks."""

import json

import pytest

from ncscope.errors import InputError
from ncscope_lab.theory.table import check_theory, theory_json

CHOSEN = "info/theorem-4.2"


def test_without_a_seed_a_fresh_one_is_drawn_and_reported() -> None:
    (first,), (second,) = check_theory(only=CHOSEN), check_theory(only=CHOSEN)
    assert first.seed != second.seed
    assert check_theory(first.seed, CHOSEN) == [first]


def test_json_is_a_list_of_the_contract() -> None:
    results = check_theory(seed=0, only="info/corollary-4.3-relu")
    (record,) = json.loads(theory_json(results))
    assert set(record) == {
        *("id", "statement", "source", "kind", "instances", "deviation", "tolerance", "verdict"),
        *("grade", "printed_deviation"),
    }
    assert record["verdict"] == "holds-as-corrected"
    assert (record["kind"], record["grade"]) == ("statement", "gap")
    assert record["deviation"] <= record["tolerance"] < record["printed_deviation"]


def test_unknown_id() -> None:
    with pytest.raises(InputError, match=r"the nearest is \w+/theorem-4\.2;"):
        check_theory(only="theorem 4.2")
