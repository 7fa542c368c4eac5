"""CKA: 50-digit reference, invariances, range, batches, merging, degenerate and bad input."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ncscope
from ncscope.errors import InputError
from ncscope.stats.merging import merge_across_processes

from ..ranks import joined_ranks
from ..reference.exact import vectors
from ..reference.regression import cka, hsic, kernel


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def pair(n: int, d1: int, d2: int, *, offset: float = 0.0, seed: int = 0):
    first = normal(n, d1, seed=seed)
    second = normal(n, d2, seed=seed + 1)
    second[:, 0] += 2 * first[:, 0]
    return first + offset, second - offset


def streamed(first, second, size: int) -> float:
    moments = ncscope.CkaMoments()
    for batch in zip(first.split(size), second.split(size), strict=True):
        moments.update(*batch)
    return float(moments.cka()[0, 1])


@pytest.mark.parametrize(
    ("n", "d1", "d2"), [(4, 1, 1), (5, 3, 2), (20, 4, 6), (12, 20, 15), (40, 3, 60)]
)
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_reference(n: int, d1: int, d2: int, offset: float) -> None:
    first, second = pair(n, d1, d2, offset=offset)
    expected = pytest.approx(cka(first.numpy(), second.numpy()), rel=1e-11)
    assert ncscope.cka(first, second) == expected
    for size in (1, 3, n):
        assert streamed(first, second, size) == expected


def test_hsic_is_that_of_the_reference_in_its_units() -> None:
    first, second = pair(20, 3, 5, offset=10)
    kernels = [kernel(vectors(rows.numpy())) for rows in (first, second)]
    moments = ncscope.CkaMoments()
    moments.update(first, second)
    found = moments.hsic()
    for i in (0, 1):
        for j in (0, 1):
            assert float(found[i, j]) == pytest.approx(
                float(hsic(kernels[i], kernels[j])), rel=1e-11
            )


def test_drifting_and_sorted_batches_cost_no_digits() -> None:
    """The first batches are far from the mean of all, as with samples sorted by class."""
    first, second = pair(60, 4, 3)
    shift = torch.linspace(-1e4, 1e4, 60).double()[:, None]
    first, second = first + shift, second - 3 * shift
    expected = cka(first.numpy(), second.numpy())
    assert streamed(first, second, 2) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("sizes", [(1, 499), (250, 250), (1, 9, 490)])
def test_a_first_batch_far_from_the_rest_costs_no_digits(sizes: tuple[int, ...]) -> None:
    """Sums about the first batch alone would lose six digits."""
    first, second = pair(500, 3, 4)
    first[0] += 30
    second[0] -= 30
    moments = ncscope.CkaMoments()
    for rows in torch.arange(500).split(sizes):
        moments.update(first[rows], second[rows])
    wide = torch.cat([first, torch.zeros(500, 900)], dim=1)  # so that kernels are used
    assert float(moments.cka()[0, 1]) == pytest.approx(ncscope.cka(wide, second), abs=1e-13)


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(4, 25), st.floats(1e-3, 1e3))
def test_invariances_and_range(seed: int, n: int, factor: float) -> None:
    first, second = pair(n, 4, 6, seed=seed)
    value = ncscope.cka(first, second)
    assert -1 - 1e-12 <= value <= 1 + 1e-12  # an inner product of U-centred matrices
    turn = torch.linalg.qr(normal(4, 4, seed=seed + 7)).Q
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    other = ncscope.cka(factor * first[order] @ turn + 5, -second[order] - 100)
    assert other == pytest.approx(value, rel=1e-7, abs=1e-9)
    assert ncscope.cka(second, first) == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert ncscope.cka(first, 2 * first @ turn - 3) == pytest.approx(1.0, abs=1e-9)


def test_independent_features_have_mean_zero() -> None:
    values = [ncscope.cka(normal(30, 20, seed=i), normal(30, 20, seed=i + 500)) for i in range(40)]
    assert min(values) < 0
    assert abs(sum(values)) / 40 < 3 * torch.tensor(values).std().item() / 40**0.5


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.integers(1, 29), st.integers(1, 29))
def test_moments_are_a_monoid(seed: int, one: int, other: int) -> None:
    first, second = pair(30, 3, 4, offset=100, seed=seed)
    parts = []
    for rows in torch.arange(30).tensor_split(sorted((one, other))):
        part = ncscope.CkaMoments()
        part.update(first[rows], second[rows])
        parts.append(part)
    a, b, c = parts
    whole = ncscope.cka(first, second)
    for moments in (a + b + c, a + (b + c), sum([c, a, b]), ncscope.CkaMoments() + a + (c + b)):
        assert int(moments.counts) == 30
        assert float(moments.cka()[0, 1]) == pytest.approx(whole, rel=1e-9, abs=1e-12)
    again = pickle.loads(pickle.dumps(a + b + c))
    assert torch.equal(again.cka(), (a + b + c).cka())
    assert int(copy.deepcopy(a).counts) == len(first[: min(one, other)])


def test_several_sets_and_chosen_pairs() -> None:
    sets = [normal(40, d, seed=d) for d in (2, 5, 3)]
    every, some = ncscope.CkaMoments(), ncscope.CkaMoments(pairs=[(2, 0)])
    for moments in (every, some):
        for rows in torch.arange(40).split(7):
            moments.update(*(each[rows] for each in sets))
    found = every.cka()
    for i, first in enumerate(sets):
        for j, second in enumerate(sets):
            assert float(found[i, j]) == pytest.approx(ncscope.cka(first, second), rel=1e-9)
    chosen = some.cka()
    assert torch.isnan(chosen).tolist() == [
        [False, True, False],
        [True, False, True],
        [False, True, False],
    ]
    assert float(chosen[0, 2]) == pytest.approx(float(found[0, 2]), rel=1e-12)


def test_types_and_magnitudes() -> None:
    first, second = (rows.float() for rows in pair(25, 3, 4, offset=50))
    value = ncscope.cka(first.double(), second.double())
    assert ncscope.cka(first, second) == value
    assert ncscope.cka(first.numpy(), second.tolist()) == pytest.approx(value, rel=1e-12)
    for exponent in (-900, 900):
        scaled = first.double() * 2.0**exponent
        assert ncscope.cka(scaled, second) == value
        wide = torch.cat([scaled] * 9, dim=1)
        assert ncscope.cka(wide, wide) == pytest.approx(1.0, rel=1e-12)


def share(rank: int) -> list[float]:
    first, second = pair(30, 3, 4, offset=1000)
    moments = ncscope.CkaMoments()
    moments.update(first[rank::2], second[rank::2])
    merged = merge_across_processes(moments)
    regression = ncscope.RegressionMoments()
    regression.update(first[rank::2], second[rank::2, :2])
    whole = ncscope.measure_regression_moments(merge_across_processes(regression))
    return [float(merged.cka()[0, 1]), *whole.values()]


def test_two_processes_know_what_one_would(tmp_path) -> None:
    first, second = pair(30, 3, 4, offset=1000)
    report = ncscope.measure_regression(first, second[:, :2])
    expected = pytest.approx([ncscope.cka(first, second), *report.values()], rel=1e-8, abs=1e-12)
    one, other = joined_ranks(2, tmp_path, share)
    assert one == expected
    assert one == other


@pytest.mark.parametrize("width", [1, 12])
def test_constant_and_equidistant_features_are_refused(width: int) -> None:
    other = normal(6, 3)
    for features in (torch.full((6, width), 0.1), torch.eye(6).repeat(1, width)):
        with pytest.raises(InputError, match="constant or has only equidistant"):
            ncscope.cka(features, other)
        moments = ncscope.CkaMoments()
        for rows in torch.arange(6).split(2):
            moments.update(features[rows], other[rows])
        assert torch.isnan(moments.cka()).tolist() == [[True, True], [True, False]]


BAD = {
    "NaN": (lambda: ncscope.cka(normal(5, 2), normal(5, 2) / 0), "finite features in the second"),
    "lengths": (lambda: ncscope.cka(normal(5, 2), normal(6, 2)), "found 5 and 6"),
    "few": (lambda: ncscope.cka(normal(3, 2), normal(3, 2)), "at least 4 samples"),
    "shape": (lambda: ncscope.cka(normal(5), normal(5, 2)), r"shape \(n, d\)"),
    "one set": (lambda: ncscope.CkaMoments().update(normal(5, 2)), "at least two sets"),
    "rows": (lambda: ncscope.CkaMoments().update(normal(5, 2), normal(4, 2)), "as many rows"),
    "pairs": (lambda: ncscope.CkaMoments([(0, 2)]).update(*2 * [normal(5, 2)]), "these sets"),
    "no samples": (lambda: ncscope.CkaMoments().cka(), "at least 4 samples"),
    "huge": (lambda: ncscope.CkaMoments().update(normal(5, 2) * 1e60, normal(5, 2)), "cka does so"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(InputError, match=message):
        call()


def test_a_refused_batch_changes_nothing() -> None:
    first, second = pair(10, 2, 3)
    moments = ncscope.CkaMoments()
    moments.update(first, second)
    before = moments.cka()
    for batch in ((first / 0, second), (first, second[:, :2]), (first, second, first)):
        with pytest.raises(InputError):
            moments.update(*batch)
    assert torch.equal(moments.cka(), before)
    other = ncscope.CkaMoments()
    other.update(second, first)
    with pytest.raises(InputError, match="build both alike"):
        moments.merge(other)
