"""A reservoir is a simple random sample of its stream, and shares of it know their errors."""

import pytest
import torch

from ncscope import InputError
from ncscope.stats import reservoir
from ncscope.stats.reservoir import Reservoir
from ncscope.stats.shares import Stratum, estimate_share

N = 40


def drawn(size: int, seed: int, batch: int) -> list[int]:
    sample = Reservoir(size, seed)
    for rows in torch.arange(N).split(batch):
        sample.append({"a": rows[:, None].float(), "b": 2 * rows[:, None]}, rows)
    assert sample.seen == N
    found = list(sample)
    for features, labels in found:
        assert torch.equal(features["a"][:, 0].long(), labels)
        assert torch.equal(features["b"][:, 0], 2 * labels)
    return [int(label) for _, labels in found for label in labels]


@pytest.mark.parametrize("batch", [7, pytest.param(40, marks=pytest.mark.slow)])
def test_every_sample_is_as_likely(batch: int) -> None:
    runs, size = 300, 10
    counts = torch.zeros(N)
    for seed in range(runs):
        rows = drawn(size, seed, batch)
        assert len(set(rows)) == size
        counts[rows] += 1
    expected, spread = runs * size / N, (runs * size / N * (1 - size / N)) ** 0.5
    assert float((counts - expected).abs().max()) < 4 * spread
    assert float(counts.std()) == pytest.approx(spread, rel=0.4)


def test_the_seed_decides() -> None:
    assert drawn(5, 0, 1) == drawn(5, 0, 1) != drawn(5, 1, 1)


@pytest.mark.parametrize("size", [N, N + 1])
def test_a_large_one_keeps_all_in_order(size: int) -> None:
    assert drawn(size, 0, 8) == list(range(N))


def test_batches_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservoir, "_ROWS", 8)
    sample = Reservoir(20)
    rows = torch.arange(N)
    sample.append({"a": rows[:, None].to(torch.bfloat16)}, rows)
    assert [len(labels) for _, labels in sample] == [8, 8, 4]
    assert [len(labels) for _, labels in sample] == [8, 8, 4]
    assert next(iter(sample))[0]["a"].dtype == torch.bfloat16


def test_one_that_does_not_fit_is_refused() -> None:
    rows = torch.zeros(3, 10**6)
    with pytest.raises(InputError, match="bytes of memory for a sample of 100,000,000 rows"):
        Reservoir(10**8).append({"a": rows}, torch.zeros(3, dtype=torch.int64))


def test_a_share_of_strata() -> None:
    share = estimate_share([Stratum(0, 0, 0), Stratum(300, 30, 15), Stratum(100, 20, 5)])
    assert share.value == pytest.approx(0.75 * 0.5 + 0.25 * 0.25)
    variance = 0.75**2 * 0.25 / 29 * 0.9 + 0.25**2 * 0.1875 / 19 * 0.8
    assert share.standard_error == pytest.approx(variance**0.5)
    assert estimate_share([Stratum(10, 10, 5)]).standard_error == 0
    for few in (4, 16):
        assert estimate_share([Stratum(100, 20, few)]).standard_error is None
    assert estimate_share([Stratum(100, 20, 10), Stratum(9, 1, 1)]).standard_error is None
