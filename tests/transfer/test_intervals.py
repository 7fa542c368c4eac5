"""Intervals of accuracies and of their differences: known values, a slow reference, coverage."""

import math

import numpy as np
import pytest
import torch

from ncscope.errors import InputError
from ncscope.transfer.intervals import (
    Answers,
    Gap,
    accuracy_gap,
    accuracy_interval,
    sort_answers,
)
from ncscope.transfer.probes.linear_probe import MEASURES
from tests.pace import others_slow


def answers(*counts: tuple[int, int]) -> Answers:
    """Of each class so many right, and so many in all."""
    rows = [torch.arange(total) < right for right, total in counts]
    return Answers(torch.cat(rows), torch.tensor([total for _, total in counts]))


@pytest.mark.parametrize(
    ("right", "total", "ends"),
    [  # Newcombe 1998, table I, method 3
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0000, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
        (29, 29, (0.8830, 1.0000)),
    ],
)
def test_wilson_limits_are_the_published_ones(right, total, ends):
    found = accuracy_interval(answers((right, total)), "top-1")
    assert found == pytest.approx(ends, abs=5.1e-5)
    assert (found[0] == 0.0) == (right == 0)
    assert (found[1] == 1.0) == (right == total)
    wider = accuracy_interval(answers((right, total)), "top-1", level=0.99)
    assert wider[0] <= found[0] < found[1] <= wider[1]
    assert wider != found


def test_paired_limits_are_those_of_the_formula():
    """Of Bonett and Price, by hand: b = 9, c = 2 of 40."""
    cells = torch.arange(4).repeat_interleave(torch.tensor([20, 9, 2, 9]))
    first, second = (Answers((cells == 0) | (cells == n), torch.tensor([40])) for n in (1, 2))
    gap = accuracy_gap(first, second, "top-1")
    p, q, z = 10 / 42, 3 / 42, 1.959964
    reach = z * math.sqrt((p + q - (p - q) ** 2) / 42)
    assert gap == pytest.approx((7 / 40, p - q - reach, p - q + reach))
    both = accuracy_gap(first, second, "top-1", pairs=10)
    wide = 2.807034 / z * reach  # the quantile of 1 - 0.05 / 20
    assert both == pytest.approx((7 / 40, p - q - wide, p - q + wide), abs=1e-6)


def test_the_gap_is_separable_only_beyond_chance_and_turns_with_the_order():
    counts = torch.tensor([100])
    one, other = torch.ones(100).bool(), torch.ones(100).bool()
    for differences, said in ((0, False), (5, False), (6, True)):  # McNemar's exact p: 0.06, 0.03
        other[:differences] = False
        gap = accuracy_gap(Answers(one, counts), Answers(other, counts), "top-1")
        back = accuracy_gap(Answers(other, counts), Answers(one, counts), "top-1")
        assert gap.is_separable is back.is_separable is said
        assert back == pytest.approx((-gap.value, -gap.high, -gap.low))
    assert Gap(0.1, 0.0, 0.2).is_separable is Gap(-0.1, -0.2, 0.0).is_separable is False


def test_answers_are_sorted_by_class_and_give_the_accuracies():
    draws = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (60,), generator=draws) * 3  # labels need not be consecutive
    predictions = torch.where(torch.rand(60, generator=draws) < 0.6, labels, 0)
    found = sort_answers(predictions, labels)
    assert found.counts.tolist() == [int((labels == label).sum()) for label in labels.unique()]
    shares = [part.double().mean() for part in found.correct.split(found.counts.tolist())]
    for measure, known in (
        ("top-1", float(found.correct.double().mean())),
        ("mean per class", float(torch.stack(shares).mean())),
    ):
        assert MEASURES[measure](predictions, labels) == pytest.approx(known)
        none = Answers(torch.zeros(60).bool(), found.counts)
        assert accuracy_gap(found, none, measure).value == pytest.approx(known)
        low, high = accuracy_interval(found, measure)
        assert low < known < high


def test_classes_of_one_size_and_accuracy_are_as_one_class():
    """Up to the one sample that each class takes from all."""
    counts = [(40, 50)] * 4
    one = accuracy_interval(answers((160, 200)), "top-1")
    assert accuracy_interval(answers(*counts), "mean per class") == pytest.approx(one, abs=2e-3)
    assert accuracy_interval(answers(*counts), "top-1") == one
    perfect = accuracy_interval(answers((10, 10), (40, 40)), "mean per class")
    assert perfect == accuracy_interval(answers((32, 32)), "top-1")  # 4 / (1/10 + 1/40)
    alone = answers(*[(1, 1)] * 7, *[(0, 1)] * 3)  # a sample a class: every mean is the same
    same = accuracy_interval(alone, "top-1")
    assert accuracy_interval(alone, "mean per class") == pytest.approx(same)
    uneven = accuracy_interval(answers((3, 4), (750, 1000)), "mean per class")
    assert uneven[1] - uneven[0] > 0.3  # four samples do not know their class
    certain = accuracy_interval(answers((10, 10), (10, 10), (0, 10)), "mean per class")
    assert certain[0] < 0.62 < 0.7 < certain[1]


def test_the_mean_per_class_is_compared_as_a_bootstrap_within_the_classes_does():
    draws = np.random.default_rng(0)
    counts, shares = (150, 60, 30), ((0.9, 0.85), (0.7, 0.5), (0.6, 0.5))
    parts = [
        [draws.random(count) < share for share in pair]
        for count, pair in zip(counts, shares, strict=True)
    ]
    first, second = (
        Answers(torch.from_numpy(np.concatenate(side)), torch.tensor(counts))
        for side in zip(*parts, strict=True)
    )
    means = []
    for one, other in parts:
        rows = draws.integers(0, len(one), (4000, len(one)))
        means.append([one[rows].mean(1), other[rows].mean(1)])
    one, other = np.mean(means, axis=0)
    gap = accuracy_gap(first, second, "mean per class")
    known = np.percentile(one - other, [2.5, 97.5])
    assert (gap.low, gap.high) == pytest.approx(tuple(known), abs=0.015)
    ends = accuracy_interval(first, "mean per class")
    assert ends == pytest.approx(tuple(np.percentile(one, [2.5, 97.5])), abs=0.015)
    top = accuracy_gap(first, second, "top-1")
    assert top.high - top.low < 0.8 * (gap.high - gap.low)  # the small classes weigh less


def test_probes_on_other_samples_are_not_compared():
    with pytest.raises(InputError, match="same held-out samples, found 5 in 1 classes and 6 in 2"):
        accuracy_gap(answers((3, 5)), answers((3, 3), (1, 3)), "top-1")


CASES = {  # samples of a class; shares that both, only the first, only the second decides right
    "one class": ([200], [(0.8, 0.08, 0.05)]),
    "few of many classes": ([3] * 40, [(0.6, 0.15, 0.1)] * 40),
    "classes of their own": (
        [15] * 6,
        [(p, 0.3 - p / 3, 0.02) for p in (0.2, 0.4, 0.6, 0.7, 0.8, 0.9)],
    ),
    "rare classes are hard": ([100] * 5 + [4] * 5, [(0.9, 0.03, 0.03)] * 5 + [(0.3, 0.3, 0.1)] * 5),
    "four samples of one class of four": (
        [200, 50, 10, 4],
        [(0.93, 0.02, 0.02), (0.85, 0.05, 0.05), (0.6, 0.1, 0.1), (0.4, 0.1, 0.2)],
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("measure", ["top-1", "mean per class"])
def test_the_intervals_cover_as_often_as_they_say(name, measure):
    """Of 1500 draws; a coverage of 0.95 is between the ends, an interval too wide is not."""
    counts, shares = CASES[name]
    draws = np.random.default_rng(0)
    weights = np.ones(len(counts)) if measure == "mean per class" else np.array(counts)
    both, one, other = np.average(shares, axis=0, weights=weights)
    held = {"accuracy": 0, "gap": 0}
    for _ in range(1500):
        cells = [
            draws.choice(4, count, p=[*share, 1 - sum(share)])
            for count, share in zip(counts, shares, strict=True)
        ]
        cell = torch.from_numpy(np.concatenate(cells))
        first, second = (
            Answers((cell == 0) | (cell == side), torch.tensor(counts)) for side in (1, 2)
        )
        low, high = accuracy_interval(first, measure)
        held["accuracy"] += low <= both + one <= high
        gap = accuracy_gap(first, second, measure)
        held["gap"] += gap.low <= one - other <= gap.high
    least = 0.9 if name.startswith("four") else 0.925
    assert all(least <= count / 1500 <= 0.985 for count in held.values()), held


@pytest.mark.parametrize("count", others_slow([300, 1500], 300))
def test_of_equal_probes_the_best_is_rarely_said_to_be_separable(count):
    """Of six alike the best was chosen by looking; by pairs alone it would be in 3 of 10 draws."""
    draws = torch.Generator().manual_seed(1)
    found = {1: 0, 15: 0}
    for _ in range(count):
        probes = [
            Answers(rows, torch.tensor([200])) for rows in torch.rand(6, 200, generator=draws) < 0.8
        ]
        probes.sort(key=lambda each: int(each.correct.sum()), reverse=True)
        for pairs in found:
            gaps = [accuracy_gap(probes[0], each, "top-1", pairs=pairs) for each in probes[1:]]
            found[pairs] += any(gap.is_separable for gap in gaps)
    assert found[15] <= 0.06 * count < 0.2 * count < found[1]
