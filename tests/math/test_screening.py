"""Screening in bfloat16 changes no decision, whatever the ties; its bound holds."""

import pytest
import torch
from torch import Tensor

from ncscope.math import scores
from ncscope.math.scores import (
    LinearScores,
    Screen,
    float32_centre,
    head_scores,
    nearest_mean_scores,
)

from ..stats.test_decisions import in_float64, near_ties

pytestmark = pytest.mark.usefixtures("_forced")
CPU = torch.device("cpu")


@pytest.fixture
def _forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "should_screen", lambda device, num_classes, dim: True)


@pytest.fixture
def rescored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of rows that float32 decided."""
    counts, quick = [], LinearScores._decide_in_float32

    def spied(scorer: LinearScores, chunk: Tensor, space: Tensor) -> Tensor:
        counts.append(len(chunk))
        return quick(scorer, chunk, space)

    monkeypatch.setattr(LinearScores, "_decide_in_float32", spied)
    return counts


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("offset", [0.0, 10.0, 1e4])
@pytest.mark.parametrize("seed", range(3))
def test_near_ties_are_decided_as_in_float64(seed: int, offset: float) -> None:
    features, means, weight, bias = near_ties(seed, offset)
    nearest, chosen = in_float64(features, means, weight, bias)
    centre = float32_centre(means)
    assert torch.equal(nearest_mean_scores(means, centre).argmax(features), nearest)
    assert torch.equal(head_scores(weight, bias, centre).argmax(features), chosen)


@pytest.mark.parametrize("k", [2, 31, 32, 33, 700])
@pytest.mark.parametrize("spacing", [1.0, 2.0**-8, 2.0**-9, 2.0**-20, 2.0**-40])
def test_classes_that_bfloat16_cannot_tell_apart(
    k: int, spacing: float, rescored: list[int]
) -> None:
    """Each class has a twin at a distance that bfloat16 or float32 rounds away."""
    weight = normal(k, 24)
    weight[1::2] = weight[: 2 * (k // 2) : 2] * (1 + spacing)
    rows, bias = normal(500, 24, seed=1).float(), normal(k, seed=2)
    bias[1::2] = bias[: 2 * (k // 2) : 2]
    chosen = (rows.double() @ weight.T + bias).argmax(1)
    found = head_scores(weight, bias, torch.zeros(24).double()).argmax(rows)
    assert torch.equal(found, chosen)
    assert k < 32 or not rescored


def test_the_first_of_equal_scores_wins() -> None:
    weight = (8 * normal(40, 6)).round().float()  # products without rounding
    weight[30:] = weight[10:20].flip(0)
    rows = (8 * normal(300, 6, seed=1)).round().float()
    chosen = (rows.double() @ weight.double().T).argmax(1)
    assert int(chosen.max()) < 30
    found = LinearScores(weight, torch.zeros(40).double(), torch.zeros(6).double()).argmax(rows)
    assert torch.equal(found, chosen)


def test_too_many_candidates_are_decided_in_float32(rescored: list[int]) -> None:
    """A feature near which all classes are equal; after such a chunk screening ends."""
    weight = 1 + 1e-5 * normal(100, 8)
    rows = (1 + 0.1 * normal(600, 8, seed=1)).float()
    scorer = head_scores(weight, None, torch.zeros(8).double())
    assert torch.equal(scorer.argmax(rows), (rows.double() @ weight.T).argmax(1))
    assert sum(rescored) >= 600 - 256
    assert not scorer._may_screen


@pytest.mark.parametrize("scale", [1e-45, 1e-30, 1e-8, 1e8, 1e18, 1e30])
@pytest.mark.parametrize("weight_by", [1e-30, 1.0, 1e30])
def test_rows_out_of_range_are_decided_in_float32(scale: float, weight_by: float) -> None:
    weight, rows = weight_by * normal(40, 8), (scale * normal(200, 8, seed=1)).float()
    rows[0] = 0
    chosen = (rows.double() @ weight.T).argmax(1)
    scorer = LinearScores(weight, torch.zeros(40).double(), torch.zeros(8).double())
    assert torch.equal(scorer.argmax(rows), chosen)


@pytest.mark.parametrize("dim", [1, 30, 2000])
@pytest.mark.parametrize("offset_by", [0.0, 1.0, 1e3])
def test_the_bound_holds_for_every_score(dim: int, offset_by: float) -> None:
    """Every class within the true bound of the best is a candidate, and the best always is."""
    weight, rows = normal(300, dim), normal(200, dim, seed=1).float()
    offset = offset_by * (normal(300, seed=2) - 100)
    screen = Screen(300, dim, offset)
    screen.add(0, weight[:200])
    screen.add(200, weight[200:])
    of_row, classes, holds = screen.find_candidates(rows)
    exact = rows.double() @ weight.T + offset
    assert bool(holds.all())
    assert int(classes.max()) < 300  # no class of the last group is made up
    candidate = torch.zeros(200, 300, dtype=torch.bool)
    candidate[of_row, classes] = True
    few = candidate.any(1)
    assert float(few.double().mean()) > 0.9
    assert bool(candidate[few, exact.argmax(1)[few]].all())
    low = (rows.bfloat16() @ weight.bfloat16().T).double() + offset
    assert bool(candidate[few, low.argmax(1)[few]].all())


def test_it_is_used_for_many_classes_on_processors_with_bfloat16_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    for fast in (True, False):
        monkeypatch.setattr(scores, "_has_fast_bfloat16", lambda device, fast=fast: fast)
        assert (
            scores.should_screen(CPU, 50_000, 1024) == scores.should_screen(CPU, 512, 512) == fast
        )
        assert not scores.should_screen(CPU, 100, 10_000)
        assert not scores.should_screen(CPU, 1000, 16)
    assert not scores._has_fast_bfloat16(torch.device("meta"))


def test_screening_is_left_out_where_it_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "should_screen", lambda device, num_classes, dim: False)
    monkeypatch.setattr(LinearScores, "_decide_by_screening", None)
    scorer = LinearScores(normal(40, 8), torch.zeros(40).double(), torch.zeros(8).double())
    assert len(scorer.argmax(normal(10, 8).float())) == 10


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(3))
def test_near_ties_on_a_gpu(seed: int) -> None:
    features, means, weight, bias = near_ties(seed, 10.0)
    nearest, chosen = in_float64(features, means, weight, bias)
    on = lambda tensor: tensor.cuda()  # noqa: E731
    centre = on(float32_centre(means))
    found = nearest_mean_scores(on(means), centre).argmax(on(features))
    assert torch.equal(found.cpu(), nearest)
    found = head_scores(on(weight), on(bias), centre).argmax(on(features))
    assert torch.equal(found.cpu(), chosen)


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("k", [2, 10, 64, 65])
def test_both_layouts_of_the_float32_product(
    k: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "should_screen", lambda device, num_classes, dim: False)
    monkeypatch.setattr(scores, "_FEW_CLASSES", few)
    weight, bias, rows = normal(k, 20), normal(k, seed=1), normal(300, 20, seed=2).float()
    centre = float32_centre(weight)
    chosen = (rows.double() @ weight.T + bias).argmax(1)
    assert torch.equal(head_scores(weight, bias, centre).argmax(rows), chosen)


def test_no_rows_give_no_decisions() -> None:
    scorer = LinearScores(normal(40, 8), torch.zeros(40).double(), torch.zeros(8).double())
    assert scorer.argmax(torch.zeros(0, 8)).tolist() == []
