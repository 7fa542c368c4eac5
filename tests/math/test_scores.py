"""Linear scores: float64's choice, the bound beyond which float32 decides, pieces of any size."""

import math

import pytest
import torch
from torch import Tensor

from ncscope.math import scores
from ncscope.math.scores import (
    LinearScores,
    find_float32_bounds,
    float32_centre,
    head_scores,
    nearest_mean_scores,
)

EPS, TINY, MOST = 2.0**-23, 2.0**-126, (2 - 2.0**-23) * 2.0**127  # of float32
K, D = 7, 5


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def zeros(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.float64)


@pytest.fixture
def doubtful(monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """The rows that are scored in float64."""
    rows, exact = [], LinearScores._decide_in_float64

    def spied(scorer: LinearScores, chunk: Tensor) -> Tensor:
        rows.extend(chunk.tolist())
        return exact(scorer, chunk)

    monkeypatch.setattr(LinearScores, "_decide_in_float64", spied)
    return rows


@pytest.fixture(params=["whole", "in pieces"])
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in pieces":
        monkeypatch.setattr(scores, "_CHUNK_BYTES", 1)
        monkeypatch.setattr(scores, "_FEWEST_ROWS", 11)
        monkeypatch.setattr(scores, "_BLOCK", 3)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("weight_dtype", [torch.float64, torch.float32])
def test_largest_scores_and_nearest_means(dtype: torch.dtype, weight_dtype: torch.dtype) -> None:
    rows = (5 * normal(100, D) + 3).to(dtype)
    weight, bias = normal(K, D, seed=1).to(weight_dtype), normal(K, seed=2)
    means = normal(K, D, seed=3) * 4 + 3
    centre, wide = float32_centre(means), rows.double()
    logits = wide @ weight.double().T
    assert torch.equal(head_scores(weight, None, centre).argmax(rows), logits.argmax(1))
    assert torch.equal(head_scores(weight, bias, centre).argmax(rows), (logits + bias).argmax(1))
    distances = (wide[:, None] - means).square().sum(2)
    assert torch.equal(nearest_mean_scores(means, centre).argmax(rows), distances.argmin(1))
    shift = normal(D, seed=4)
    shifted = (wide - centre) @ (weight.double() - shift).T + bias
    found = LinearScores(weight, bias, centre, shift).argmax(rows)
    assert torch.equal(found, shifted.argmax(1))


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_first_of_equal_scores_wins(dtype: torch.dtype) -> None:
    weight = torch.tensor([[0.0], [1], [-1], [0], [1], [-1], [1]], dtype=dtype)
    rows = torch.tensor([[2.0], [-3], [0]], dtype=dtype)
    found = LinearScores(weight, zeros(K), zeros(1)).argmax(rows)
    assert found.tolist() == [1, 2, 0]


def test_one_class_always_wins() -> None:
    found = LinearScores(zeros(1, 2), zeros(1), zeros(2)).argmax(torch.ones(3, 2))
    assert found.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("longest", "largest", "relative", "absolute"),
    [
        (0.0, 0.0, 2 * TINY, 8 * TINY),
        (3.0, 0.0, 24 * EPS, 24 * EPS * 2 * TINY**0.5 + 32 * TINY),
        (2.0**30, 0.0, 2.0**33 * EPS, 2.0**34 * EPS * TINY**0.5 + 8 * TINY * (1 + 2.0**30)),
        (1.0, 5.0, 8 * EPS, 10 * EPS),
        (1.0, 2.0**120, 8 * EPS, 2.0**121 * EPS),
    ],
)
def test_the_bounds_of_four_dimensions_by_hand(
    longest: float, largest: float, relative: float, absolute: float
) -> None:
    bounds = find_float32_bounds(longest, largest, 4)
    assert bounds[0] == pytest.approx(relative, rel=1e-14, abs=0)
    assert bounds[1] == pytest.approx(absolute, rel=1e-14, abs=0)
    assert bounds[2] == pytest.approx(MOST / 4 - largest, rel=1e-14)


def test_the_bounds_know_the_longest_weight_and_the_largest_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scores, "_BLOCK", 2)
    weight = torch.tensor([[0.25, 0], [0, 0.5], [0.0, 0.125]], dtype=torch.float64)
    offset = torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)  # 2 is taken off
    for dtype in (torch.float64, torch.float32):
        narrow, offsets, bounds = LinearScores(weight.to(dtype), offset, zeros(2))._float32_form
        assert bounds == find_float32_bounds(0.5, 3.0, 2)
        assert (narrow.dtype, offsets.tolist()) == (torch.float32, [-2, -1, 3])
        assert torch.equal(narrow, weight.float())
    shift = torch.tensor([0.0, 1.0], dtype=torch.float64)
    scorer = LinearScores(weight.float(), offset, zeros(2), shift)
    assert torch.equal(scorer._float32_form[0], (weight - shift).float())
    assert scorer._longest == math.hypot(0.25, 1)


def test_scores_further_apart_than_twice_the_bound_are_float32s(doubtful: list) -> None:
    """Two opposite weights of length 1: the bound is 6 eps times the length, 6 at 2^23."""
    length = 1 / EPS
    rows = torch.tensor([[length, y] for y in (5.0, 6.0, 7.0, -5.0, -6.0, -7.0)])
    weight = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    found = LinearScores(weight, zeros(2), zeros(2)).argmax(rows)
    assert found.tolist() == [0, 0, 0, 1, 1, 1]
    assert [row[1] for row in doubtful] == [5, 6, -5, -6]


def test_the_rounding_of_the_offsets_is_in_the_bound(doubtful: list) -> None:
    """The largest offset is 2^23: the bound is 2 eps times it, 2, whatever the feature."""
    weight, rows = torch.tensor([[1.0], [-1.0], [0.0]]), torch.tensor([[1.0], [2], [3], [-3]])
    offset = torch.tensor([1.0, 1.0, -2]).double() / (2 * EPS)
    found = LinearScores(weight, offset, zeros(1)).argmax(rows)
    assert found.tolist() == [0, 0, 0, 1]
    assert doubtful == [[1.0], [2.0]]


def test_products_that_might_overflow_are_float64s(doubtful: list) -> None:
    """With a weight of length 2^70 the largest product is a length of a quarter of 2^58."""
    weight = torch.tensor([[2.0**70], [-(2.0**70)]])
    most = 2.0**56 * (1 - 2.0**-24)
    rows = torch.tensor([[most], [most * (1 - 2.0**-24)], [2.0**57], [-(2.0**55)]])
    found = LinearScores(weight, zeros(2), zeros(1)).argmax(rows)
    assert found.tolist() == [0, 0, 0, 1]
    assert doubtful == [[most], [2.0**57]]


def test_wide_features_are_float64s(doubtful: list) -> None:
    scorer = LinearScores(torch.tensor([[1.0], [-1.0]]), zeros(2), zeros(1))
    for dtype in (torch.float64, torch.int32, torch.int64):
        doubtful.clear()
        assert scorer.argmax(torch.tensor([[1], [-1]]).to(dtype)).tolist() == [0, 1]
        assert doubtful == [[1], [-1]]


def test_the_digits_of_a_centre_are_float32s_at_any_scale() -> None:
    mean = normal(1000) * normal(1000, seed=1).mul_(9).exp()
    for scale in (1.0, 2.0**400, 2.0**-400):
        found = float32_centre(scale * torch.stack([mean, 3 * mean]))
        assert torch.equal(found / scale, (2 * mean).float().double())


def test_the_precision_of_float32_products_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def setting(**values: str) -> type:
        return type("Backend", (), values)

    backends = scores.torch.backends
    for precision, reduced in {"none": False, "ieee": False, "tf32": True, "bf16": True}.items():
        one, other = setting(fp32_precision=precision), setting(fp32_precision="ieee")
        monkeypatch.setattr(backends.mkldnn, "matmul", one, raising=False)
        monkeypatch.setattr(backends.cuda, "matmul", other)
        assert scores.float32_is_reduced("cpu") == reduced
        assert not scores.float32_is_reduced("cuda")
        monkeypatch.setattr(backends.mkldnn, "matmul", other, raising=False)
        monkeypatch.setattr(backends.cuda, "matmul", one)
        assert scores.float32_is_reduced("cuda") == reduced
        assert not scores.float32_is_reduced("cpu")
    monkeypatch.setattr(backends.cuda, "matmul", setting())
    for precision, reduced in {"highest": False, "high": True, "medium": True}.items():
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda value=precision: value)
        assert scores.float32_is_reduced("cuda") == reduced
