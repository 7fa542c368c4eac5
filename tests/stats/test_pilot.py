"""A pilot takes a common offset away, and never the digits of anything else."""

import math

import pytest
import torch

import ncscope
from ncscope import ClassMoments, InputError
from ncscope.stats.batch_moments import choose_pilot, common_pilot

GENERATOR = torch.Generator().manual_seed(0)
NARROW = 1e-6 * torch.randn(60, 3, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.arange(60) % 3


def moments(*batches: tuple[torch.Tensor, torch.Tensor], classes: int = 4) -> ClassMoments:
    found = ClassMoments(classes, 3)
    for rows, labels in batches:
        found.update(rows, labels)
    return found


@pytest.mark.parametrize("offset", [1e8, 1e12, -1e15])
def test_one_far_row_costs_the_other_classes_no_digits(offset: float) -> None:
    far = torch.full((1, 3), offset, dtype=torch.float64), torch.tensor([3])
    near = NARROW + 1, LABELS
    expected = moments(near).traces[:3]
    for batches in ((far, near), (near, far)):
        torch.testing.assert_close(moments(*batches).traces[:3], expected, rtol=1e-12, atol=0)
    merged = moments(far) + moments(near)
    torch.testing.assert_close(merged.traces[:3], expected, rtol=1e-12, atol=0)


def test_the_order_of_classes_with_offsets_of_their_own_decides_nothing() -> None:
    labels = torch.arange(3).repeat_interleave(64)
    noise = 1e-6 * torch.randn(192, 3, generator=GENERATOR, dtype=torch.float64)
    features = noise + torch.tensor([1e10, 1.0, 2.0]).double()[labels][:, None]
    order = torch.randperm(192, generator=GENERATOR)
    one = ncscope.measure(features, labels, groups=["nc1"])
    other = ncscope.measure(features[order], labels[order], groups=["nc1"])
    assert other["cdnv"] == pytest.approx(one["cdnv"], rel=1e-9)


@pytest.mark.parametrize("value", [math.inf, math.nan, 2.0**480])
def test_a_batch_that_is_refused_leaves_no_pilot(value: float) -> None:
    found = ClassMoments(3, 3)
    with pytest.raises(InputError):
        found.update(torch.full((4, 3), value, dtype=torch.float64), LABELS[:4])
    found.update(NARROW, LABELS)
    expected = moments((NARROW, LABELS), classes=3)
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("exponent", [149, 300, 600])
def test_features_of_any_magnitude_may_have_an_offset(exponent: int) -> None:
    features = 1e5 * NARROW + 5
    for labels in (LABELS, None):
        expected = ncscope.measure(features, labels)
        found = ncscope.measure(features * 2.0**exponent, labels)
        for key in ("nc1", "vci", "rankme", "participation_ratio"):
            if key in expected:
                assert found[key] == pytest.approx(expected[key], rel=1e-12), key


def test_pilots_by_hand() -> None:
    rows = torch.tensor([[3.0, -5.0, 1.0, 2.0, 0.0], [4.0, -4.0, -1.0, 5.0, 0.0]])
    assert choose_pilot(rows).tolist() == [3.0, -4.0, 0.0, 0.0, 0.0]
    one, other = torch.tensor([3.0, 9.0, 2.0, 1.0, 0.0]), torch.tensor([5.0, 4.0, 5.0, -1.0, 2.0])
    assert common_pilot(one, other).tolist() == [3.0, 4.0, 2.0, 0.0, 0.0]


def test_a_damaged_state_is_refused() -> None:
    state = moments((NARROW + 1, LABELS)).state_dict()
    for name, value in (("pilot", math.nan), ("counts", -1)):
        bad = {key: tensor.clone() for key, tensor in state.items()}
        bad[name][0] = value
        with pytest.raises(InputError, match="damaged"):
            ClassMoments(4, 3).load_state_dict(bad)
