"""Losses of logits and labels against loops written from the formulas."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from ncscope.errors import InputError
from ncscope.losses import (
    pick_all_label,
    rescaled_squared_error,
    smoothed_cross_entropy,
    squared_error,
    temperature_cross_entropy,
)
from tests.losses import brute_force

LOSSES = {
    "squared error": (squared_error, lambda z, y: brute_force.squared_error(z, y, 1, 1)),
    "rescaled squared error": (
        lambda z, y: rescaled_squared_error(z, y, factor=15.0, target=30.0),
        lambda z, y: brute_force.squared_error(z, y, 15, 30),
    ),
    "temperature": (
        lambda z, y: temperature_cross_entropy(z, y, 0.5),
        lambda z, y: brute_force.cross_entropy(z, y, 0.5, 0),
    ),
    "smoothing": (
        lambda z, y: smoothed_cross_entropy(z, y, 0.2),
        lambda z, y: brute_force.cross_entropy(z, y, 1, 0.2),
    ),
}
each = pytest.mark.parametrize(("loss", "slow"), LOSSES.values(), ids=LOSSES.keys())


def logits_and_labels() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 4, dtype=torch.float64, generator=generator)
    return logits, torch.tensor([0, 3, 1, 1, 2, 0, 3])


@each
def test_value(loss, slow):
    logits, labels = logits_and_labels()
    expected = slow(logits.numpy(), labels.numpy())
    assert float(loss(logits, labels)) == pytest.approx(expected, rel=1e-12)


@each
@pytest.mark.parametrize("one_class", [False, True])
def test_gradcheck(loss, slow, one_class):
    logits, labels = logits_and_labels()
    labels = torch.ones_like(labels) if one_class else labels
    assert gradcheck(lambda z: loss(z, labels), logits.repeat(2, 1)[:7].requires_grad_())


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_dtypes(loss, slow, dtype):
    logits, labels = logits_and_labels()
    leaf = logits.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(leaf, labels)
    value.backward()
    exact = slow(leaf.detach().double().numpy(), labels.numpy())
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact, rel=1e-5)
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()


@pytest.mark.usefixtures("unchecked_signatures")
@each
def test_bad_labels_are_refused(loss, slow):
    logits, labels = logits_and_labels()
    with pytest.raises(InputError, match=r"labels in 0\.\.3, found label -100"):
        loss(logits, labels.index_fill(0, torch.tensor([4]), -100))
    with pytest.raises(InputError, match="one label a sample"):
        loss(logits, labels[1:])
    with pytest.raises(InputError, match="at least one sample"):
        loss(logits[:0], labels[:0])


@pytest.mark.parametrize("form", [torch.int64, torch.bool, torch.float64])
def test_pick_all_label_adds_the_cross_entropies_of_all_labels(form):
    logits, labels = logits_and_labels()
    targets = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).repeat(3, 1)[:7]
    value = float(pick_all_label(logits, targets.to(form)))
    expected = brute_force.pick_all_label(logits.numpy(), targets.numpy())
    assert value == pytest.approx(expected, rel=1e-12)
    single = torch.nn.functional.one_hot(labels, 4).to(form)
    plain = torch.nn.functional.cross_entropy(logits, labels)
    assert float(pick_all_label(logits, single)) == pytest.approx(float(plain), rel=1e-14)
    assert gradcheck(lambda z: pick_all_label(z, targets), logits.requires_grad_())


def test_pick_all_label_is_least_where_the_labels_share_the_probability():
    targets = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [0, 1, 1, 1]])
    logits = (50.0 * targets).requires_grad_()
    value = pick_all_label(logits, targets)
    assert value.item() == pytest.approx((2 * np.log(2) + 3 * np.log(3)) / 3)
    (gradient,) = torch.autograd.grad(value, logits)
    assert gradient.abs().max() < 1e-6
    assert pick_all_label(logits.bfloat16(), targets).dtype == torch.float32


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda z, y: (z, y[:, :2]), r"targets of shape \(7, 4\), found shape \(7, 2\)"),
        (lambda z, y: (z, y.argmax(1)), "a column for each class"),
        (lambda z, y: (z, 2 * y), "found 2 at row 0, column 0; pass 1 where"),
        (lambda z, y: (z[:0], y[:0]), "at least one sample"),
    ],
)
def test_bad_targets_are_refused(change, message):
    logits, labels = logits_and_labels()
    with pytest.raises(InputError, match=message):
        pick_all_label(*change(logits, torch.nn.functional.one_hot(labels, 4)))


def test_targets_are_the_minimisers():
    _, labels = logits_and_labels()
    one_hot = torch.nn.functional.one_hot(labels, 4).double()
    assert float(squared_error(one_hot, labels)) == 0
    assert float(rescaled_squared_error(30 * one_hot, labels, 15.0, 30.0)) == 0


def test_rescaling_by_one_is_plain():
    logits, labels = logits_and_labels()
    plain = float(squared_error(logits, labels))
    assert float(rescaled_squared_error(logits, labels, 1.0, 1.0)) == pytest.approx(
        plain, rel=1e-14
    )


def test_smoothed_targets_are_the_minimisers():
    labels = torch.tensor([0, 2])
    target = torch.full((2, 4), 0.05, dtype=torch.float64)
    target[[0, 1], labels] += 0.8
    logits = target.log().requires_grad_()
    value = smoothed_cross_entropy(logits, labels, 0.2)
    value.backward()
    assert value.item() == pytest.approx(float(-(target * target.log()).sum() / 2))
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-15


@pytest.mark.parametrize("smoothing", [0, 1])
def test_smoothing_at_its_ends(smoothing):
    logits, labels = logits_and_labels()
    expected = brute_force.cross_entropy(logits.numpy(), labels.numpy(), 1, smoothing)
    value = smoothed_cross_entropy(logits, labels, smoothing)
    assert float(value) == pytest.approx(expected, rel=1e-12)


def test_small_temperature_is_satisfied_with_small_differences():
    logits, labels = torch.tensor([[0.1, 0.0]]), torch.tensor([0])
    values = [float(temperature_cross_entropy(logits, labels, t)) for t in (0.01, 1.0, 100.0)]
    assert values[0] < 1e-4 < values[1] < values[2] < np.log(2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda z, y: temperature_cross_entropy(z, y, 0.0),
            "temperature as a finite number above",
        ),
        (lambda z, y: rescaled_squared_error(z, y, -1.0, 1.0), "factor as a finite number above"),
        (
            lambda z, y: rescaled_squared_error(z, y, 1.0, float("nan")),
            "target as a finite number above",
        ),
        (
            lambda z, y: smoothed_cross_entropy(z, y, 1.5),
            "smoothing as a finite number from",
        ),
    ],
)
def test_bad_parameters_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(*logits_and_labels())
