"""Modular addition: every pair once, the shortened transformer against the whole one, its runs."""

import math

import pytest
import torch
from lab.tests.observed import gathered
from torch.nn import functional

from ncscope.metrics.information import pair_entropies
from ncscope_lab.experiments.info.modular_addition import (
    Grokking,
    ModularTransformer,
    cross_entropy,
    grokking_events,
    mark_mirror_images,
    prepare_run,
    split_pairs,
)
from ncscope_lab.runs.resources import Resources


def test_the_parts_are_all_pairs_with_their_sums() -> None:
    split = split_pairs(13, 0.3, seed=5)
    assert [len(part.labels) for part in split] == [51, 118]
    together = torch.cat([part.pairs for part in split])
    assert len({(int(a), int(b)) for a, b in together}) == 13**2
    assert int(together.min()) == 0
    assert int(together.max()) == 12
    for pairs, labels in split:
        assert labels.tolist() == [int(a + b) % 13 for a, b in pairs]


def test_the_choice_is_the_seed_s() -> None:
    first, again, other = (split_pairs(13, 0.3, seed).train.pairs for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_mirrored_pairs_are_training_pairs_in_the_other_order() -> None:
    split = split_pairs(13, 0.3, seed=5)
    known = {(int(a), int(b)) for a, b in split.train.pairs}
    found = mark_mirror_images(split).tolist()
    assert found == [(int(b), int(a)) in known for a, b in split.test.pairs]
    assert 0 < sum(found) < len(found)


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


TINY = Grokking(
    modulus=7,
    train_share=0.5,
    width=32,
    hidden=64,
    steps=40,
    learning_rate=0.01,
    measurements=4,
    accuracy_measurements=6,
    batch_size=8,
    batch_every=16,
)


def test_information_at_some_of_the_steps_at_which_accuracy_is_measured() -> None:
    found = gathered(grokking_events(TINY, 0, Resources()))
    assert TINY.information_steps == [0, 1, 6, 40]
    assert TINY.batch_steps == [0, 1, 6, 16, 32, 40]
    assert TINY.accuracy_steps == [0, 1, 3, 6, 16, 32, 40]
    for split in ("train", "test"):
        own = [row for row in found if row.split == split]
        assert [row.step for row in own] == TINY.accuracy_steps
        assert [row.step for row in own if "mir" in row] == TINY.information_steps
        assert [row.step for row in own if "mir_batch" in row] == TINY.batch_steps
        for key in ("hdr", "mir_centered", "mir_means", "mir_batch", "hdr_batch_spread"):
            assert all(key in row for row in own if "mir" in row)
    train, test = found[-2:]
    assert train["accuracy"] == 1
    assert float(test["accuracy"]) < 1
    assert float(train["loss"]) < 0.01 < float(test["loss"])


def test_what_is_measured_is_the_stream_against_the_unembedding() -> None:
    data, learner = prepare_run(TINY, 3, Resources().fabric)
    (pairs, labels), model = data.train, learner.model
    with torch.no_grad():
        features = model.features(pairs)
        loss = functional.cross_entropy(model(pairs).double(), labels)
    first, *_ = gathered(grokking_events(TINY, 3, Resources()))
    expected = pair_entropies(features, model.head.weight.detach()[labels])
    assert first.split == "train"
    assert math.isclose(float(first["mir"]), expected.mir, rel_tol=1e-6)
    assert math.isclose(float(first["hdr"]), expected.hdr, rel_tol=1e-6)
    assert math.isclose(float(first["loss"]), float(loss), rel_tol=1e-9)


def test_every_parameter_decays_apart_from_its_gradient() -> None:
    _, learner = prepare_run(TINY, 0, Resources().fabric)
    (group,) = learner.optimiser.param_groups
    assert len(group["params"]) == len(list(learner.model.parameters()))
    assert group["weight_decay"] == 1
    assert group["lr"] == 0.01
    assert group["betas"] == (0.9, 0.98)


def test_the_loss_of_what_is_known_well_does_not_round_to_nothing() -> None:
    logits = torch.tensor([[30.0, 0.0, 0.0]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([0]))
    assert math.isclose(float(loss.detach()), 2 * math.exp(-30), rel_tol=1e-2)
    loss.backward()
    assert float(logits.grad[0, 0]) < 0
