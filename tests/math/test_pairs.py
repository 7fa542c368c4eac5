"""Sums over pairs do not depend on the blocks they are taken in."""

import math

import pytest
import torch
from torch import Tensor

from ncscope.math import pairs, symmetric
from ncscope.math.pairs import nearest_rows, row_blocks, sum_over_pairs
from ncscope.metrics import duality
from ncscope.metrics.class_means import (
    equiangular,
    etf_distance,
    maxangle,
    orthogonal_frame_distance,
)
from ncscope.metrics.duality import logit_etf_distance

BLOCKS = [1, 8 * 11, 3 * 8 * 11, 8 * 8 * 11, 64 * 2**20]


def rows(k: int = 11, d: int = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(k, d, dtype=torch.float64, generator=generator)


@pytest.fixture(params=BLOCKS)
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(pairs, "_BLOCK_BYTES", request.param)
    if request.param < BLOCKS[-1]:  # as with so many classes that no matrix of them is formed
        monkeypatch.setattr(symmetric, "SMALL_BYTES", 0)
        monkeypatch.setattr(duality, "_ONE_BLOCK", 0)
    return request.param


def test_blocks_cover_every_row_once(block_bytes: int) -> None:
    blocks = list(row_blocks(11, 11))
    assert [i for block in blocks for i in range(11)[block]] == list(range(11))
    assert len(blocks) == -(-11 // max(1, block_bytes // 88))


@pytest.mark.usefixtures("block_bytes")
def test_a_sum_over_pairs_is_that_of_the_full_matrix() -> None:
    vectors, numbers = rows(), torch.arange(11.0, dtype=torch.float64)

    def term(gram: Tensor, i: slice, j: slice) -> Tensor:
        return torch.stack([gram.square(), numbers[i, None] * 100 + numbers[j]])

    gram = vectors @ vectors.T
    expected = [
        sum(float(gram[i, j]) ** 2 for i in range(11) for j in range(i + 1, 11)),
        sum(100 * i + j for i in range(11) for j in range(i + 1, 11)),
    ]
    assert sum_over_pairs(vectors, term).tolist() == pytest.approx(expected, rel=1e-13)


@pytest.mark.usefixtures("block_bytes")
@pytest.mark.parametrize("d", [4, 8], ids=["few dimensions", "more"])
def test_frame_metrics_are_those_of_the_full_matrices(d: int) -> None:
    vectors, weight = rows(d=d), rows(d=d, seed=1)
    unit = torch.nn.functional.normalize(vectors)
    off = ~torch.eye(11, dtype=torch.bool)
    cosines = (unit @ unit.T)[off]
    torch.testing.assert_close(equiangular(vectors), cosines.std(correction=0))
    torch.testing.assert_close(maxangle(vectors), (cosines + 0.1).abs().mean())
    frame = (torch.eye(11, dtype=torch.float64) - 1 / 11) / 10**0.5
    gram, logits = vectors @ vectors.T, weight @ vectors.T
    norm = torch.linalg.matrix_norm
    torch.testing.assert_close(etf_distance(vectors), norm(gram / norm(gram) - frame))
    unit_frame = torch.eye(11, dtype=torch.float64) / 11**0.5
    expected = norm(gram / norm(gram) - unit_frame)
    torch.testing.assert_close(orthogonal_frame_distance(vectors), expected)
    torch.testing.assert_close(
        logit_etf_distance(weight, vectors), norm(logits / norm(logits) - frame)
    )


@pytest.mark.usefixtures("block_bytes")
def test_pairs_of_two() -> None:
    assert float(sum_over_pairs(rows(2), lambda gram, i, j: gram * 0 + 1)) == 1


def direct(rows: Tensor) -> tuple[Tensor, Tensor]:
    distances = torch.linalg.vector_norm(rows[:, None] - rows, dim=2).fill_diagonal_(math.inf)
    least = distances.min(1)
    return least.indices, least.values


@pytest.mark.parametrize("block_bytes", [8, 8 * 9, 2**20])
@pytest.mark.parametrize(("k", "d"), [(2, 1), (7, 3), (40, 5)])
def test_nearest_rows(block_bytes: int, k: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_BLOCK_BYTES", block_bytes)
    rows = torch.randn(k, d, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
    nearest, distance = nearest_rows(rows)
    assert torch.equal(nearest, direct(rows)[0])
    torch.testing.assert_close(distance, direct(rows)[1], rtol=1e-14, atol=0)


@pytest.mark.parametrize("apart", [1e-3, 1e-8, 1e-12])
def test_nearest_of_rows_that_are_far_longer_than_apart(apart: float) -> None:
    """The Gram matrix has no digit of these distances."""
    draws = torch.Generator().manual_seed(0)
    rows = 1 + apart * torch.randn(30, 4, generator=draws, dtype=torch.float64)
    rows[4] = 5.0
    rows[9] = rows[17]
    nearest, distance = nearest_rows(rows)
    assert torch.equal(nearest, direct(rows)[0])
    torch.testing.assert_close(distance, direct(rows)[1], rtol=1e-14, atol=0)
    assert distance[9] == distance[17] == 0


def test_nearest_of_many_rows_whose_distances_are_rounding_of_the_gram_matrix() -> None:
    draws = torch.Generator().manual_seed(1)
    rows = 1 + 1e-9 * torch.randn(200, 64, generator=draws, dtype=torch.float64)
    nearest, distance = nearest_rows(rows)
    assert torch.equal(nearest, direct(rows)[0])
    torch.testing.assert_close(distance, direct(rows)[1], rtol=1e-14, atol=0)


def test_close_rows_are_compared_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, the differences of many close rows would take k x k x d numbers."""
    sizes, compare = [], pairs._compare_close

    def count(vectors: Tensor, squares: Tensor, index: Tensor, best: Tensor) -> Tensor:
        sizes.append(len(index))
        return compare(vectors, squares, index, best)

    monkeypatch.setattr(pairs, "_compare_close", count)
    monkeypatch.setattr(pairs, "_BLOCK_BYTES", 3 * 8 * 11)
    nearest_rows(1 + 1e-5 * rows())
    assert sizes == [3, 3, 3, 2]
