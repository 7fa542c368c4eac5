"""The compact form against the recursion that defines BFGS, at a penalty other than that met."""

from functools import partial

import torch

from ncscope.transfer.probes.logistic import _MOST_PAIRS, Secants


def inverse_hessian(pairs, scale):
    """By the rank-two updates, one after the other, from the scale fitted to the last pair."""
    step, turn = pairs[-1]
    inverse = torch.diag(scale) * (step @ turn) / (turn.square() @ scale)
    for step, turn in pairs:
        left = torch.eye(len(step)).double() - torch.outer(step, turn) / (step @ turn)
        inverse = left @ inverse @ left.mT + torch.outer(step, step) / (step @ turn)
    return inverse


def test_it_is_bfgs_of_the_pairs_that_are_kept_at_any_strength():
    draws = torch.Generator().manual_seed(0)
    factor = torch.randn(8, 8, generator=draws).double()
    penalised = torch.tensor([1.0] * 7 + [0.0]).double()
    known, kept = Secants(penalised), []
    for count in range(1, 2 * _MOST_PAIRS):
        step = torch.randn(8, generator=draws).double()
        turn = factor @ (factor.mT @ step) + 0.1 * count * step
        known.append(step, turn)
        kept = [*(kept[_MOST_PAIRS // 2 :] if len(kept) == _MOST_PAIRS else kept), (step, turn)]
        if count in (1, 5, _MOST_PAIRS, _MOST_PAIRS + 1, 2 * _MOST_PAIRS - 1):
            gradient, scale = torch.rand(2, 8, generator=draws).double() + 0.1
            at = [(step, turn + 0.7 * step * penalised) for step, turn in kept]
            found = known.newton(gradient, 0.7, partial(torch.mul, scale))
            torch.testing.assert_close(
                found, inverse_hessian(at, scale) @ gradient, rtol=1e-6, atol=1e-9
            )


def test_without_pairs_it_is_the_scale_and_a_step_of_no_curvature_teaches_nothing():
    known = Secants(torch.ones(3).double())
    gradient, scale = (
        torch.tensor([1.0, -2.0, 3.0]).double(),
        torch.tensor([2.0, 1.0, 0.5]).double(),
    )
    known.append(gradient, torch.zeros(3).double())
    found = known.newton(gradient, 1.0, partial(torch.mul, scale))
    assert torch.equal(found, scale * gradient)


def test_a_pair_of_any_positive_product_is_kept():
    known = Secants(torch.ones(2).double())
    step = 2.0**-20 * torch.tensor([1.0, 0.0]).double()
    known.append(step, 4 * step)
    gradient = torch.tensor([3.0, 5.0]).double()
    found = known.newton(gradient, 0.0, partial(torch.mul, torch.ones(2).double()))
    assert found.tolist() == [0.75, 1.25]  # the curvature along the step is 4, and so all of it
