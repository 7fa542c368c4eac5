"""Newton's method for penalised logistic regression, each weight in a unit of its own."""

import torch
from torch import Tensor


def least_objective(features: Tensor, labels: Tensor, strength: float) -> float:
    """Find the minimum with the whole Hessian.

    The penalty is that of the weights of the features as given; the unit of a weight is one over
    the root of the curvature that the loss, at most, and the penalty give it.
    """
    centred = features - features.mean(0)
    unit = (centred.square().sum(0) + strength).rsqrt()
    k, d = int(labels.max()) + 1, features.shape[1]

    def objective(flat: Tensor) -> Tensor:
        weight, bias = flat[: k * d].view(k, d), flat[k * d :]
        scores = (centred * unit) @ weight.mT + bias
        loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
        return loss + strength / 2 * (weight * unit).square().sum()

    at = features.new_zeros(k * d + k, requires_grad=True)
    for _ in range(200):
        value = objective(at)
        (slope,) = torch.autograd.grad(value, at)
        values, axes = torch.linalg.eigh(torch.autograd.functional.hessian(objective, at))
        seen = values > 1e-15 * values[-1]
        step = -axes[:, seen] @ ((axes[:, seen].mT @ slope) / values[seen])
        promise, share, value = float(-slope @ step), 1.0, value.detach()
        if promise <= 1e-15 * float(value):
            return float(value)
        while objective(at + share * step) > value - 0.1 * share * promise + 1e-14 * value:
            share /= 2
        at = (at + share * step).detach().requires_grad_()
    raise AssertionError("no minimum in 200 steps of Newton's method")
