"""The shortened computation against the whole causal transformer, position by position."""

import pytest
import torch
from torch.nn import functional

from ncscope.lab.papers.info.modular_addition import ModularTransformer

Found = tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]


def whole(model: ModularTransformer, pairs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stream and logits at the last position of every position's transformer."""
    equals = torch.full((len(pairs), 1), model.modulus)
    stream = model.tokens(torch.cat([pairs, equals], 1)) + model.positions.weight
    query, key, value = (
        layer(stream).unflatten(2, (model.heads, -1)).transpose(1, 2)
        for layer in (model.query, model.key, model.value)
    )
    read = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    stream = stream + model.mix(read.transpose(1, 2).flatten(2))
    stream = stream + model.contract(functional.relu(model.expand(stream)))
    return stream[:, -1], model.head(stream)[:, -1]


def transformer(modulus: int, **sizes: int) -> ModularTransformer:
    """Weights large enough for attention to be far from even; biases that are not zero."""
    draws = torch.Generator().manual_seed(3)
    model = ModularTransformer(modulus, **sizes, generator=draws).double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
            parameter.mul_(3).add_(0.1 * noise)
    return model


@pytest.mark.parametrize(
    ("modulus", "count", "sizes"),
    [(113, 200, {}), (11, 300, {"width": 12, "heads": 3, "hidden": 7}), (5, 1, {"heads": 1})],
)
def test_logits_and_gradients_are_those_of_the_whole_causal_transformer(
    modulus: int, count: int, sizes: dict[str, int]
) -> None:
    model = transformer(modulus, **sizes)
    pairs = torch.randint(modulus, (count, 2), generator=torch.Generator().manual_seed(4))

    def found(stream: torch.Tensor, logits: torch.Tensor) -> Found:
        model.zero_grad()
        functional.cross_entropy(logits, pairs.sum(1) % modulus).backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        return stream.detach(), logits.detach(), gradients

    short = found(model.features(pairs), model(pairs))
    long = found(*whole(model, pairs))
    for mine, theirs in zip(short[:2], long[:2], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    for name, gradient in long[2].items():
        assert gradient.abs().max() > 1e-9, name
        torch.testing.assert_close(short[2][name], gradient, rtol=1e-9, atol=1e-11, msg=name)


def test_attention_is_neither_even_nor_all_on_one_token() -> None:
    model = transformer(11)
    pairs = torch.cartesian_prod(torch.arange(11), torch.arange(11))
    with torch.no_grad():
        weights = model._attention(*model._inputs(), pairs)
    assert weights.shape == (121, 4, 2)
    assert weights.min() < 0.05
    assert weights.max() > 0.6


def test_weights_start_with_the_variance_of_one_over_the_width_and_biases_from_zero() -> None:
    model = ModularTransformer(113, generator=torch.Generator().manual_seed(0))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        elif name != "positions.weight":
            assert abs(float(parameter.detach().var()) * 128 - 1) < 0.05, name
    again = ModularTransformer(113, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.head.weight, again.head.weight)
