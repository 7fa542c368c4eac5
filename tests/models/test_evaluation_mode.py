"""Measuring leaves no trace: flags, buffers, gradients, hooks and random states are as before."""

import random

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.heads import find_head
from ncscope.models.tracing import trace


def mixed_model() -> nn.Module:
    """In training mode but for a frozen batch norm; with gradients and a frozen weight."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Flatten(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(64, 5)),
        nn.BatchNorm1d(5),
        nn.Linear(5, 3),
    ).train()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    model(images()).square().sum().backward()
    return model


def images() -> Tensor:
    return torch.randn(8, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def trace_of(model: nn.Module) -> dict[str, object]:
    """Everything that measuring must not change, in comparable form."""
    return {
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "training": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "hooks": [
            (len(module._forward_hooks), len(module._forward_pre_hooks))
            for module in model.modules()
        ],
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
    }


def assert_same(before: dict[str, object], after: dict[str, object]) -> None:
    torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)


def assert_comparable(trace: dict[str, object]) -> None:
    """The comparison itself must be able to fail."""
    with pytest.raises(AssertionError):
        assert_same(trace, {**trace, "training": [not flag for flag in trace["training"]]})


def measure(model: nn.Module) -> None:
    """What a probe does, and what a loader and a transform draw."""
    with evaluation_mode(model):
        with trace(model, images(), ["*"]).taps(model):
            for batch in DataLoader(images(), batch_size=4, shuffle=True):
                model(batch)
        random.random()


def test_measuring_leaves_no_trace() -> None:
    model = mixed_model()
    before = trace_of(model)
    assert_comparable(before)
    measure(model)
    assert_same(before, trace_of(model))


def test_head_finding_leaves_no_trace() -> None:
    model = mixed_model()
    before = trace_of(model)
    find_head(model, images())
    assert_same(before, trace_of(model))


def test_training_is_the_same_with_and_without_measuring() -> None:
    def train(measured: bool) -> dict[str, Tensor]:
        torch.manual_seed(3)
        model = mixed_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(images(), batch_size=4, shuffle=True):
            optimizer.zero_grad()
            model(batch).square().sum().backward()
            optimizer.step()
            if measured:
                measure(model)
        return model.state_dict()

    torch.testing.assert_close(train(True), train(False), rtol=0, atol=0)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_restores_all(error: type[BaseException]) -> None:
    model = mixed_model()
    before = trace_of(model)

    def fail(*_: object) -> None:
        torch.rand(3)
        raise error

    handle = model[4].register_forward_hook(fail)
    with pytest.raises(error):
        measure(model)
    handle.remove()
    assert_same(before, trace_of(model))
    assert torch.is_grad_enabled()


def test_inside_all_is_off() -> None:
    model = mixed_model()
    with torch.autocast("cpu", dtype=torch.bfloat16), evaluation_mode(model):
        logits = model(images())
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
        assert logits.dtype == torch.float32
    assert torch.is_grad_enabled()


def test_nested() -> None:
    model = mixed_model()
    before = trace_of(model)
    with evaluation_mode(model):
        with evaluation_mode(model):
            torch.rand(2)
        assert not any(module.training for module in model.modules())
    assert_same(before, trace_of(model))


class MergesOnEval(nn.Linear):
    """Like some adapters: going to evaluation mode rewrites the weight."""

    def train(self, mode: bool = True) -> "MergesOnEval":
        if not mode:
            self.weight.data.add_(1)
        return super().train(mode)


def test_modules_that_act_on_eval_are_not_asked_to() -> None:
    model = nn.Sequential(MergesOnEval(3, 2))
    before = model[0].weight.clone()
    with evaluation_mode(model):
        assert not model[0].training
    assert torch.equal(model[0].weight, before)


@pytest.mark.gpu
def test_cuda_random_state_is_restored() -> None:
    model = nn.Linear(3, 2).cuda()
    before = torch.cuda.get_rng_state()
    with evaluation_mode(model), torch.autocast("cuda", enabled=True):
        torch.rand(5, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), before)
    with torch.autocast("cuda", dtype=torch.bfloat16), evaluation_mode(model):
        assert model(torch.ones(2, 3, device="cuda")).dtype == torch.float32
