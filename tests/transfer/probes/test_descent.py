"""The parts of a descent: loss, span and directions against their derivatives, passes counted."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ncscope.transfer.probes import logistic
from ncscope.transfer.probes.logistic import Descent, Iterate, Move, _chord, _loss, _Span

K, Q, N = 3, 4, 12
LABELS = torch.arange(N) % K
STRENGTH = 0.7


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


COLUMNS = torch.cat([normal(Q - 1, N), torch.ones(1, N, dtype=torch.float64)])
PENALISED = torch.tensor([1.0, 1, 1, 0], dtype=torch.float64)


def fresh() -> Descent:
    return Descent(COLUMNS, LABELS, K, PENALISED)


def margins_of(weights: Tensor) -> Tensor:
    scores = weights @ COLUMNS
    return scores - scores.gather(0, LABELS[None])


def loss_of(weights: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy((weights @ COLUMNS).T, LABELS, reduction="sum")


def objective_of(weights: Tensor) -> Tensor:
    return loss_of(weights) + STRENGTH / 2 * weights[:, :-1].square().sum()


def point_at(weights: Tensor, growth: float = 1.0) -> Iterate:
    margins = margins_of(weights)
    loss, residuals = _loss(margins, LABELS[None])
    return Iterate(weights, margins, loss, residuals, residuals @ COLUMNS.mT, growth)


def test_the_loss_and_its_residuals_are_those_of_cross_entropy() -> None:
    weights = normal(K, Q, seed=1).requires_grad_()
    found = point_at(weights.detach())
    loss = loss_of(weights)
    loss.backward()
    torch.testing.assert_close(found.loss, loss.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(found.slope, weights.grad, rtol=1e-12, atol=1e-13)
    assert float(found.residuals.sum(0).abs().max()) < 1e-14


def test_the_loss_keeps_its_digits_where_the_own_class_is_all_but_certain() -> None:
    margins = torch.tensor([[0.0, -50], [-100, 0], [-101, -52]], dtype=torch.float64)
    loss, residuals = _loss(margins, torch.tensor([[0, 1]]))
    others = [math.exp(-100) + math.exp(-101), math.exp(-50) + math.exp(-52)]
    assert float(loss) == pytest.approx(sum(others), rel=1e-13)
    assert residuals[[0, 1], [0, 1]].tolist() == pytest.approx([-x for x in others], rel=1e-13)
    assert float(residuals[2, 0]) == pytest.approx(math.exp(-101), rel=1e-13)


def test_it_begins_at_the_shares_of_the_classes_after_one_pass() -> None:
    labels = torch.tensor([0] * 6 + [1] * 4 + [2] * 2)
    found = Descent(COLUMNS, labels, K, PENALISED)
    assert found.passes == 0
    point = found.start()
    assert found.passes == 1
    assert not point.weights[:, :-1].any()
    shares = point.weights[:, -1].softmax(0)
    torch.testing.assert_close(shares, torch.tensor([6, 4, 2]).double() / 12)
    assert float(point.weights.sum()) == pytest.approx(0, abs=1e-15)
    entropy = -sum(n * math.log(n / 12) for n in (6, 4, 2))
    assert found.objective(point, STRENGTH) == pytest.approx(entropy, rel=1e-14)
    assert point.growth == 1


def test_the_objective_has_half_the_penalty_of_all_weights_but_the_bias() -> None:
    weights = normal(K, Q, seed=1)
    expected = float(objective_of(weights))
    assert fresh().objective(point_at(weights), STRENGTH) == pytest.approx(expected, rel=1e-14)


def test_the_first_direction_is_scaled_by_the_diagonal_and_free_of_what_no_score_sees() -> None:
    point = point_at(normal(K, Q, seed=1))
    gradient = point.slope + STRENGTH * point.weights * PENALISED
    found = fresh()._direction(point, gradient, STRENGTH)
    wrong = point.residuals.abs()
    curvature = (wrong * (1 - wrong)).mean(1)
    scale = 1 / (curvature[:, None] * COLUMNS.square().sum(1) + STRENGTH * PENALISED)
    steep = scale * (gradient - gradient.mean(0))
    torch.testing.assert_close(found, steep.mean(0) - steep, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("count", [1, 2])
def test_a_span_knows_the_objective_its_slope_and_its_bend(count: int) -> None:
    weights = normal(K, Q, seed=1)
    steps = [normal(K, Q, seed=seed) for seed in (2, 3)[:count]]
    growths = [1.0, 3.0][:count]
    moves = [Move(s, margins_of(s), growth) for s, growth in zip(steps, growths, strict=True)]
    span = _Span(point_at(weights), moves, STRENGTH * PENALISED)
    taken = torch.tensor([0.5, -0.25], dtype=torch.float64)[:count]

    def there(taken: Tensor) -> Tensor:
        return weights + sum(part * step for part, step in zip(taken, steps, strict=True))

    def objective(taken: Tensor) -> Tensor:
        return objective_of(there(taken))

    torch.testing.assert_close(span.weights(taken), there(taken))
    torch.testing.assert_close(span.margins(taken), margins_of(there(taken)))
    assert span.growth(taken) == (0.5 if count == 1 else 1.25)
    loss, residuals = _loss(span.margins(taken), LABELS[None])
    penalty = STRENGTH / 2 * float(weights[:, :-1].square().sum())
    assert span.height(taken, loss) == pytest.approx(float(objective(taken)) - penalty, rel=1e-12)
    slope = torch.autograd.functional.jacobian(objective, taken)
    bend = torch.autograd.functional.hessian(objective, taken)
    move, promise = span.newton(taken, residuals)
    torch.testing.assert_close(move, -torch.linalg.solve(bend, slope), rtol=1e-6, atol=0)
    assert promise == pytest.approx(float(-slope @ move) / 2, rel=1e-9)


def test_the_rounding_of_a_chord_is_that_met_since_its_first_end() -> None:
    first, second = point_at(normal(K, Q, seed=1), 5.0), point_at(normal(K, Q, seed=2), 7.0)
    move = _chord(first, second)
    torch.testing.assert_close(move.weights, second.weights - first.weights)
    torch.testing.assert_close(move.margins, margins_of(move.weights))
    assert move.growth == 1 + 7 - 5
    assert _chord(second, first).growth == 1 + 5 + 7  # computed anew in between
    assert _chord(first, first).growth == 1


def test_a_minimum_is_one_and_every_pass_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found, products = fresh(), []
    margins, point = found._margins, found._point

    def counted(work: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: products.append(0.5) or work(*args, **named)

    monkeypatch.setattr(found, "_margins", counted(margins))
    monkeypatch.setattr(found, "_point", counted(point))
    start = found.start()
    end = found.minimise(start, STRENGTH, 1e-12)
    assert found.passes == sum(products) > 2
    weights = end.weights.clone().requires_grad_()
    objective_of(weights).backward()
    assert float(weights.grad.abs().max()) < 1e-5
    torch.testing.assert_close(end.margins, margins_of(end.weights))
    assert found.minimise(end, STRENGTH, 1e-12) is end
    weaker = found.minimise(end, STRENGTH / 2, 1e-12, before=start)
    expected = fresh()
    torch.testing.assert_close(
        weaker.weights,
        expected.minimise(expected.start(), STRENGTH / 2, 1e-12).weights,
        rtol=1e-4,
        atol=1e-5,
    )


def test_margins_that_rounding_has_grown_in_are_computed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for most, anew in ((1e6, False), (0.5, True)):
        monkeypatch.setattr(logistic, "_MOST_GROWTH", most)
        found = fresh()
        point = found.start()
        direction = found._direction(point, point.slope, STRENGTH)
        found.passes = 0.0
        moves = [Move(direction, margins_of(direction), 1.0)]
        end = found._step(point, moves, STRENGTH, 0.0)
        assert found.passes == (1.0 if anew else 0.5)
        assert (end.growth == 1) == anew
        torch.testing.assert_close(end.margins, margins_of(end.weights))
        torch.testing.assert_close(end.slope, point_at(end.weights).slope)
