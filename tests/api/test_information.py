"""The batch estimate and the comparison of two representations, through the front door."""

import numpy as np
import pytest
import torch

import ncscope


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 5
    means = rng.normal(size=(5, 16))
    return means[labels] + rng.normal(size=(400, 16)), labels, means


def test_the_batch_estimate_depends_on_the_batch_size(samples):
    small = ncscope.batch_information(*samples, batch_size=20)
    large = ncscope.batch_information(*samples, batch_size=200)
    exact = ncscope.measure(*samples, groups=["information"])["mir"]
    assert small.batches == 20
    assert small.mir > large.mir > exact
    assert small.mir_spread > 0


def test_one_batch_is_not_enough(samples):
    with pytest.raises(ncscope.InputError, match="400 samples at batch size 300"):
        ncscope.batch_information(*samples, batch_size=300)


def test_a_representation_against_its_rotation_and_scaling_is_itself(samples):
    features = samples[0]
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(16, 16)))[0]
    same = ncscope.information_between(features, features)
    turned = ncscope.information_between(features, 3 * features @ rotation)
    assert turned.mir == pytest.approx(same.mir, rel=1e-10)
    assert turned.hdr == pytest.approx(0, abs=1e-10)


def test_rows_must_match(samples):
    with pytest.raises(ncscope.InputError, match="400 and 399 rows"):
        ncscope.information_between(samples[0], torch.ones(399, 3))


def test_two_rows_are_the_least(samples):
    with pytest.raises(ncscope.InputError, match="at least two rows, found 1"):
        ncscope.information_between(samples[0][:1], samples[0][:1])


@pytest.mark.parametrize("size", [1, 0, -5])
def test_a_batch_has_two_samples_at_least(samples, size):
    with pytest.raises(ncscope.InputError, match=f"batch_size of at least 2, found {size}"):
        ncscope.batch_information(*samples, batch_size=size)


def test_the_batch_estimate_needs_a_weight(samples):
    features, labels, _ = samples
    with pytest.raises(ncscope.InputError, match="expected a classifier weight, found None"):
        ncscope.batch_information(features, labels, None)


def test_a_row_without_a_direction_is_named(samples):
    features, labels, means = samples
    features[[7, 9]] = 0
    with pytest.raises(ncscope.InputError, match="zero row 7 of features"):
        ncscope.batch_information(features, labels, means)


def test_a_zero_head_is_named_if_its_class_has_samples(samples):
    features, labels, means = samples
    unused = np.vstack([means, np.zeros(16)])
    found = ncscope.batch_information(features, labels, unused)
    assert found == ncscope.batch_information(features, labels, means)
    means[3] = 0
    with pytest.raises(ncscope.InputError, match="zero row 3 of the weight"):
        ncscope.batch_information(features, labels, means)
