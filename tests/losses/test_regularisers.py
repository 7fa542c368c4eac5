"""The within-class cosine and the decay of features and classifier."""

import pytest
import torch
from torch.autograd import gradcheck

from ncscope.errors import InputError
from ncscope.losses import feature_and_classifier_decay, within_class_cosine
from tests.losses import brute_force
from tests.losses.batches import BATCHES, Batch


def test_cosine_value(batch: Batch):
    expected = brute_force.within_class_cosine(batch.features.numpy(), batch.labels.numpy())
    value = float(within_class_cosine(batch.features, batch.labels))
    assert value == pytest.approx(expected, abs=1e-12)


def test_cosine_of_uneven_classes():
    features = BATCHES["more dimensions than samples"].features
    labels = torch.tensor([5, 5, 5, 5, -2, 9])
    expected = brute_force.within_class_cosine(features.numpy(), labels.numpy())
    assert float(within_class_cosine(features, labels)) == pytest.approx(expected, abs=1e-12)


def test_cosine_gradcheck(batch: Batch):
    features = batch.features.clone().requires_grad_()
    assert gradcheck(lambda f: within_class_cosine(f, batch.labels), features)


def test_cosine_at_its_ends():
    collapsed = BATCHES["simplex collapse"]
    value = float(within_class_cosine(collapsed.features, collapsed.labels))
    assert value == pytest.approx(1 / 3, abs=1e-12)
    opposite = torch.tensor([[2.0, 1.0], [-4.0, -2.0]])
    assert float(within_class_cosine(opposite, torch.zeros(2, dtype=int))) == pytest.approx(0)


def test_cosine_descent_spreads_a_class():
    batch = BATCHES["one class in the batch"]
    features = batch.features.abs().requires_grad_()
    before = within_class_cosine(features, batch.labels)
    before.backward()
    moved = (features - 0.1 * features.grad).detach().numpy()
    after = brute_force.within_class_cosine(moved, batch.labels.numpy())
    assert after < before.item()


def test_cosine_of_an_empty_batch_is_zero():
    features = torch.zeros(0, 3, requires_grad=True)
    value = within_class_cosine(features, torch.zeros(0, dtype=int))
    value.backward()
    assert value.item() == 0


def test_cosine_refuses_zero_rows():
    features = torch.ones(4, 2)
    features[2] = 0
    with pytest.raises(InputError, match=r"zero \(row 2\)"):
        within_class_cosine(features, torch.zeros(4, dtype=int))


def test_decay_value(batch: Batch):
    rows, head = batch.features, batch.weight
    expected = brute_force.decay(rows.numpy(), head.numpy(), 0.3, 0.07)
    value = feature_and_classifier_decay(rows, head, feature_decay=0.3, weight_decay=0.07)
    assert float(value) == pytest.approx(expected, rel=1e-12)


def test_decay_of_the_bias():
    rows, head, bias = torch.zeros(2, 3), torch.eye(3), torch.tensor([1.0, 2.0, 3.0])
    value = feature_and_classifier_decay(rows, head, bias, feature_decay=1.0, weight_decay=0.1)
    assert float(value) == pytest.approx(0.05 * (3 + 14))


def test_decay_gradcheck(batch: Batch):
    bias = batch.weight[:, 0].clone().requires_grad_()
    leaves = (batch.features.clone().requires_grad_(), batch.weight.clone().requires_grad_(), bias)
    assert gradcheck(
        lambda h, w, b: feature_and_classifier_decay(h, w, b, feature_decay=0.3, weight_decay=0.1),
        leaves,
    )


def test_decay_does_not_depend_on_the_batch_size():
    rows, head = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.eye(3)
    once = feature_and_classifier_decay(rows, head, feature_decay=1.0, weight_decay=1.0)
    twice = feature_and_classifier_decay(
        rows.repeat(2, 1), head, feature_decay=1.0, weight_decay=1.0
    )
    assert float(once) == pytest.approx(float(twice), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["fewer dimensions than samples", "duplicated rows"])
def test_narrow_dtypes(dtype, name):
    batch = BATCHES[name]
    features = batch.features.to(dtype).requires_grad_()
    weight = batch.weight.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cosine = within_class_cosine(features, batch.labels)
        decay = feature_and_classifier_decay(features, weight, feature_decay=1.0, weight_decay=1.0)
    (cosine + decay).backward()
    assert cosine.dtype == decay.dtype == torch.float32
    exact = features.detach().double().numpy(), weight.detach().double().numpy()
    expected = brute_force.within_class_cosine(exact[0], batch.labels.numpy())
    assert cosine.item() == pytest.approx(expected, abs=1e-6)
    assert decay.item() == pytest.approx(brute_force.decay(*exact, 1, 1), rel=1e-5)
    for leaf in (features, weight):
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()


@pytest.mark.usefixtures("unchecked_signatures")
def test_a_bias_of_another_length_is_refused() -> None:
    features, weight = torch.ones(4, 2), torch.ones(3, 2)
    for bias in (torch.ones(2), torch.ones(3, 1), torch.tensor(1.0)):
        with pytest.raises(InputError, match=r"a bias of shape \(3,\)"):
            feature_and_classifier_decay(
                features, weight, bias, feature_decay=0.1, weight_decay=0.1
            )
