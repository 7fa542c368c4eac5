"""Two layers of the same samples: cross moments, path length, decisions on the line between."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ncscope.stats.paths import CrossMoments, nearest_hits_on_line, step_length

LINE = torch.linspace(0, 1, 9, dtype=torch.float64)


def layers(seed: int, n: int = 60, d: int = 4, k: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(k, (n,), generator=generator)
    means = torch.randn(2, k, d, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
    first, last = means[:, labels] + 0.8 * noise
    return first, last, labels


def gathered(first: Tensor, last: Tensor, labels: Tensor, k: int) -> CrossMoments:
    pair = CrossMoments(k, first.shape[1])
    pair.update(first, last, labels)
    return pair


def test_cross_moments_equal_their_definition() -> None:
    first, last, labels = layers(0)
    pair = gathered(first + 1e4, last - 1e4, labels, 3)
    for c in range(3):
        own = [h[labels == c] - h[labels == c].mean(0) for h in (first, last)]
        assert float(pair.cross[c]) == pytest.approx(float((own[0] * own[1]).sum()), rel=1e-10)
        assert int(pair.counts[c]) == int((labels == c).sum())
    torch.testing.assert_close(pair.first[1] - 1e4, first[labels == 1].mean(0), rtol=0, atol=1e-10)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 60), max_size=5), st.booleans())
def test_any_split_and_merge_give_the_same(seed: int, cuts: list[int], merge: bool) -> None:
    first, last, labels = layers(seed)
    whole, pieces = gathered(first, last, labels, 4), CrossMoments(4, 4)
    batches = zip(*(h.tensor_split(sorted(cuts)) for h in (first, last, labels)), strict=True)
    for batch in batches:
        if merge:
            pieces.merge(gathered(*batch, 4))
        else:
            pieces.update(*batch)
    torch.testing.assert_close(pieces.counts, whole.counts)
    for name in ("first", "last", "cross"):
        torch.testing.assert_close(
            getattr(pieces, name), getattr(whole, name), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_hits_on_the_line_are_those_of_interpolated_features(seed: int, dtype) -> None:
    first, last, labels = layers(seed)
    labels = torch.where(labels == 1, 4, labels)  # with absent classes
    first, last = (h.to(dtype).double() for h in (first + 100, last - 50))
    pair = gathered(first.to(dtype), last.to(dtype), labels, 6)
    batches = zip(*(h.split(17) for h in (first.to(dtype), last.to(dtype), labels)), strict=True)
    found = sum(nearest_hits_on_line(*batch, pair.ends(), LINE) for batch in batches)
    present = labels.unique()
    for t, hits in zip(LINE.tolist(), found.tolist(), strict=True):
        points = (1 - t) * first + t * last
        means = torch.stack([points[labels == c].mean(0) for c in present])
        nearest = present[torch.cdist(points[None], means[None])[0].argmin(1)]
        assert hits == int((nearest == labels).sum())


def test_step_length_is_the_sum_of_the_steps() -> None:
    start = torch.zeros(3, 2)
    later = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-6.0, 8.0]])
    assert step_length(start, later) == 15
    assert step_length(start.half(), later.bfloat16()) == 15


def test_step_length_of_small_steps_far_out_is_in_float64() -> None:
    start = torch.full((4, 1), 1e4, dtype=torch.float64)
    assert step_length(start, start + 1e-9) == pytest.approx(4e-9, rel=1e-2)
