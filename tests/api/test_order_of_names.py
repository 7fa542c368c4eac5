"""Names beside a weight: their order is refused where it is doubtful, and said where it is not."""

from collections.abc import Sequence

import numpy as np
import pandas
import pytest

import ncscope
from ncscope.errors import InputError

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(30, 4)), RNG.normal(size=(3, 4))
ORDER = "rows of the weight taken for the classes in this order: ant, bee, cat"


@pytest.mark.parametrize(
    "names",
    [("8.0", "9.0", "10.0"), ("3", " 10", " 20"), ("class_9", "class_10", "class_11"), "a2 b a10"],
)
def test_numbers_in_names_that_are_not_in_alphabetical_order_are_refused(
    names: str | Sequence[str],
) -> None:
    names = names.split() if isinstance(names, str) else names
    labels = list(names) * 10
    with pytest.raises(InputError, match="texts of numbers"):
        ncscope.measure(X, labels, W)
    with pytest.raises(InputError, match="texts of numbers"):
        ncscope.measure_shards([[(X, labels)]], weight=W)
    ncscope.measure(X, labels)
    ncscope.measure(X, labels, W, class_names=names)
    ncscope.measure(X, pandas.Categorical(labels, names), W)


@pytest.mark.parametrize("names", [("-1", "0", "1"), ("n01", "n02", "n10"), ("a1", "b", "c0")])
def test_numbers_in_alphabetical_order_are_taken(names: Sequence[str]) -> None:
    assert ncscope.measure(X, list(names) * 10, W).class_names == names


def test_a_note_says_the_order_of_the_rows() -> None:
    labels = ["ant", "bee", "cat"] * 10
    shards = [[(X[:15], labels[:15])], [(X[15:], labels[15:])]]
    for report in (ncscope.measure(X, labels, W), ncscope.measure_shards(shards, weight=W)):
        assert ORDER in report.notes
    given = ncscope.measure(X, labels, W, class_names=["ant", "bee", "cat"])
    assert ORDER not in given.notes + ncscope.measure(X, labels).notes
