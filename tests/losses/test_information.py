"""Mutual information and entropy difference of a batch: values, gradients, selections."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from ncscope.errors import InputError
from ncscope.losses import (
    entropy_difference,
    head_entropy_difference,
    head_mutual_information,
    mutual_information,
)
from ncscope.math.frames import orthogonal_frame, simplex_etf
from tests.losses import brute_force
from tests.losses.batches import BATCHES, Batch
from tests.pace import others_slow

PAIRS = {
    mutual_information: brute_force.mutual_information,
    entropy_difference: brute_force.entropy_difference,
}
ON_HEADS = {
    head_mutual_information: mutual_information,
    head_entropy_difference: entropy_difference,
}
pairs = pytest.mark.parametrize("loss", PAIRS, ids=lambda f: f.__name__)
on_heads = pytest.mark.parametrize("loss", ON_HEADS, ids=lambda f: f.__name__)


def leaves(batch: Batch, dtype=torch.float64):
    return (
        batch.features.to(dtype, copy=True).requires_grad_(),
        batch.weight.to(dtype, copy=True).requires_grad_(),
    )


@pairs
def test_value(loss, batch: Batch):
    expected = PAIRS[loss](batch.features.numpy(), batch.heads.numpy())
    assert float(loss(batch.features, batch.heads)) == pytest.approx(expected, abs=1e-10)


@pairs
def test_value_in_different_dimensions(loss):
    features, vectors = BATCHES["duplicated rows"].features, torch.arange(20.0).view(10, 2) + 1
    expected = PAIRS[loss](features.numpy(), vectors.double().numpy())
    assert float(loss(features, vectors)) == pytest.approx(expected, abs=1e-10)


@pairs
@pytest.mark.parametrize(
    "batch",
    others_slow(
        BATCHES,
        *("more dimensions than samples", "fewer heads than samples", "features on one line"),
        *("duplicated rows", "one class in the batch"),
    ),
    indirect=True,
)
@pytest.mark.usefixtures("unchecked_signatures")  # hundreds of calls of the same sizes
def test_gradcheck(loss, batch: Batch):
    features, heads = batch.features.clone(), batch.heads.clone()
    assert gradcheck(loss, (features.requires_grad_(), heads.requires_grad_()))


@on_heads
@pytest.mark.parametrize(
    "batch",
    others_slow(BATCHES, "fewer heads than samples", "one class in the batch"),
    indirect=True,
)
@pytest.mark.usefixtures("unchecked_signatures")  # hundreds of calls of the same sizes
def test_gradcheck_on_heads(loss, batch: Batch):
    assert gradcheck(lambda f, w: loss(f, batch.labels, w), leaves(batch))


@on_heads
def test_heads_are_the_rows_of_the_labels(loss, batch: Batch):
    expected = ON_HEADS[loss](batch.features, batch.heads)
    assert float(loss(batch.features, batch.labels, batch.weight)) == pytest.approx(
        float(expected), abs=1e-12
    )


@pytest.mark.parametrize("classes", [3, 4, 10])
def test_simplex_collapse(classes):
    frame = simplex_etf(classes, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(classes).repeat(3)
    features = 2.5 * frame[labels]
    rest = (classes - 2) / (classes - 1)
    expected = math.log(classes - 1) / (classes - 1) + rest * math.log(classes - 2)
    value = float(head_mutual_information(features, labels, frame))
    assert value == pytest.approx(expected, abs=1e-12)
    assert float(head_entropy_difference(features, labels, frame)) == pytest.approx(0, abs=1e-12)


def test_orthogonal_collapse_is_the_largest_information():
    frame = orthogonal_frame(5)
    labels = torch.arange(5).repeat(2)
    value = head_mutual_information(3 * frame[labels], labels, frame)
    assert float(value) == pytest.approx(math.log(5), abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(2, 8),
    d=st.integers(1, 8),
    p=st.integers(1, 8),
    same=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_information_lies_between_zero_and_the_smaller_entropy(n, d, p, same, seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, dtype=torch.float64, generator=generator)
    vectors = features if same else torch.randn(n, p, dtype=torch.float64, generator=generator)
    value = float(mutual_information(features, vectors))
    entropies = [brute_force.entropy(brute_force.gram(m.numpy())) for m in (features, vectors)]
    assert -1e-12 <= value <= min(entropies) + 1e-12


@pairs
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_invariance(loss, seed):
    batch = BATCHES["fewer dimensions than samples"]
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(12, generator=generator)
    turn = orthogonal_frame(4, generator=generator)
    scale = torch.rand(12, 1, generator=generator) + 0.1
    moved = loss((scale * batch.features @ turn)[order], (batch.heads / scale)[order])
    assert float(moved) == pytest.approx(float(loss(batch.features, batch.heads)), abs=1e-10)


@pairs
def test_one_line_shares_nothing(loss):
    features = BATCHES["one class in the batch"].features
    value = float(loss(features, torch.ones(7, 2).double()))
    alone = brute_force.entropy(brute_force.gram(features.numpy()))
    expected = 0 if loss is mutual_information else alone
    assert value == pytest.approx(expected, abs=1e-12)


def test_equal_entropies_have_zero_gradient():
    features = BATCHES["more dimensions than samples"].features.clone().requires_grad_()
    vectors = features.detach().clone().requires_grad_()
    entropy_difference(features, vectors).backward()
    assert features.grad is not None
    assert not features.grad.any()
    assert vectors.grad is not None
    assert not vectors.grad.any()


@pairs
@pytest.mark.parametrize("size", [0, 1])
def test_fewer_than_two_pairs_contribute_nothing(loss, size):
    batch = BATCHES["two samples"]
    features, vectors = batch.features.clone(), batch.heads.clone()
    for leaf in (features, vectors):
        leaf[1:] = torch.nan
        leaf.requires_grad_()
    value = loss(features[:size], vectors[:size])
    assert value.item() == 0
    value.backward()
    for leaf in (features, vectors):
        assert leaf.grad is not None
        assert not leaf.grad.any()


@on_heads
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("masked", [True, False])
def test_fewer_than_two_samples_contribute_nothing(loss, size, masked):
    features, weight = leaves(BATCHES["two samples"], torch.float32)
    labels = torch.tensor([0, 1])
    if masked:
        with torch.no_grad():
            features[1] = torch.nan
        value = loss(features, labels, weight, torch.arange(2) < size)
    else:
        value = loss(features[:size], labels[:size], weight)
    assert value.item() == 0
    value.backward()
    for leaf in (features, weight):
        assert leaf.grad is not None
        assert not leaf.grad.any()


@on_heads
def test_unselected_samples_are_not_read(loss):
    batch = BATCHES["fewer dimensions than samples"]
    selected = torch.arange(12) % 3 > 0
    features, labels = batch.features.clone(), batch.labels.clone()
    features[0], features[3], labels[6] = torch.nan, 0, -1
    leaf = features.requires_grad_()
    value = loss(leaf, labels, batch.weight, selected)
    value.backward()
    expected = loss(batch.features[selected], batch.labels[selected], batch.weight)
    assert value.item() == pytest.approx(float(expected), abs=1e-12)
    assert leaf.grad is not None
    assert not leaf.grad[~selected].any()
    assert (leaf.grad[selected].abs().sum(1) > 0).all()


@on_heads
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["fewer dimensions than samples", "duplicated rows"])
def test_narrow_dtypes(loss, dtype, name):
    batch = BATCHES[name]
    narrow = leaves(batch, dtype)
    exact = tuple(leaf.detach().double().requires_grad_() for leaf in narrow)
    value, true_value = (loss(f, batch.labels, w) for f, w in (narrow, exact))
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(true_value.item(), rel=1e-6)
    (value + true_value).backward()
    for found, true in zip(narrow, exact, strict=True):
        assert found.grad is not None
        assert found.grad.dtype == dtype
        error = (found.grad - true.grad).abs().max()
        digits = torch.finfo(dtype)
        assert error <= digits.eps * (true.grad.abs().max() + digits.smallest_normal)


@on_heads
def test_mixed_dtypes_take_the_wider(loss):
    batch = BATCHES["two samples"]
    half, single = batch.features.half(), batch.weight.float()
    assert loss(half, batch.labels, single).dtype == torch.float32
    assert loss(half, batch.labels, batch.weight).dtype == torch.float64


@on_heads
def test_autocast(loss):
    torch.manual_seed(0)
    body, head = torch.nn.Linear(20, 8), torch.nn.Linear(8, 4)
    inputs, labels = torch.randn(16, 20), torch.arange(16) % 4
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = body(inputs).relu()
        assert features.dtype == torch.bfloat16
        value = loss(features, labels, head.weight)
        (value + torch.nn.functional.cross_entropy(head(features), labels)).backward()
    inside = value.item()
    outside = float(loss(features.detach().double(), labels, head.weight.detach().double()))
    assert inside == pytest.approx(outside, rel=1e-6)
    for parameter in (body.weight, head.weight):
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


@on_heads
def test_one_class_moves_no_head(loss):
    batch = BATCHES["one class in the batch"]
    features, weight = leaves(batch, torch.float32)
    loss(features, batch.labels, weight).backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()
    assert weight.grad is not None
    assert weight.grad.abs().max() < 1e-12


def test_ascent_raises_the_information():
    batch = BATCHES["fewer heads than samples"]
    features, weight = leaves(batch)
    before = head_mutual_information(features, batch.labels, weight)
    before.backward()
    with torch.no_grad():
        moved = (features + 0.05 * features.grad, batch.labels, weight + 0.05 * weight.grad)
    heads = moved[2].numpy()[batch.labels]
    assert brute_force.mutual_information(moved[0].numpy(), heads) > before.item()


@on_heads
def test_dead_rows_and_heads_are_named(loss):
    batch = BATCHES["fewer dimensions than samples"]
    features, weight = batch.features.clone(), batch.weight.clone()
    features[5] = 0
    with pytest.raises(InputError, match=r"of features .* found 1 that are zero \(row 5\)"):
        loss(features, batch.labels, weight, torch.arange(12) > 3)
    weight[2] = 0
    with pytest.raises(InputError, match=r"of weight .* found 1 that are zero \(row 2\)"):
        loss(batch.features, batch.labels, weight, batch.labels > 0)
    keep = batch.labels != 2
    assert loss(batch.features, batch.labels, weight, keep).isfinite()


@pytest.mark.usefixtures("unchecked_signatures")
@on_heads
def test_bad_batches_are_refused(loss):
    features, labels, weight = torch.ones(3, 2), torch.tensor([0, 1, 4]), torch.eye(2)
    with pytest.raises(InputError, match=r"labels in 0\.\.1, found label 4"):
        loss(features, labels, weight)
    with pytest.raises(InputError, match="one label a sample"):
        loss(features, labels[:2], weight)
    with pytest.raises(InputError, match=r"a boolean mask of shape \(3,\), found torch.float32"):
        loss(features, labels, weight, torch.ones(3))
    with pytest.raises(InputError, match=r"weight of shape \(n, d\), found shape \(2,\)"):
        loss(features, labels, weight[0])


@pytest.mark.usefixtures("unchecked_signatures")
@pairs
def test_unpaired_rows_are_refused(loss):
    with pytest.raises(InputError, match=r"vectors of shape \(3, d\), found shape \(2, 2\)"):
        loss(torch.ones(3, 2), torch.ones(2, 2))


def test_duplicating_the_batch_changes_nothing():
    batch = BATCHES["more dimensions than samples"]
    twice = (np.tile(batch.features.numpy(), (2, 1)), np.tile(batch.heads.numpy(), (2, 1)))
    value = float(mutual_information(*map(torch.from_numpy, twice)))
    once = float(mutual_information(batch.features, batch.heads))
    assert value == pytest.approx(once, abs=1e-10)
