"""Generated sets are balanced, 8-bit, of disjoint halves, and neither trivial nor hopeless."""

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from ncscope.data import generated
from ncscope.data.generated import patterns, warped_digits


@pytest.mark.parametrize("make", [warped_digits, patterns])
def test_classes_are_balanced_and_pixels_have_8_bits(make):
    for half, per_class in zip(make(train_per_class=7, test_per_class=3), (7, 3), strict=True):
        assert half.labels.bincount().tolist() == [per_class] * 10
        assert half.images.dtype == torch.uint8
        # Neither end of the range is where most pixels are cut to.
        assert ((half.images == 0) | (half.images == 255)).float().mean() < 0.02


def test_no_digit_is_in_both_halves():
    labels = torch.as_tensor(load_digits(return_X_y=True)[1], dtype=torch.int64)
    halves = [set(generated._originals(labels, half, 200, 0).tolist()) for half in (0, 1)]
    assert not halves[0] & halves[1]
    assert len(halves[0] | halves[1]) == len(labels)


@pytest.mark.parametrize("make", [warped_digits, patterns])
def test_every_image_is_another(make):
    split = make(train_per_class=60, test_per_class=60)
    images = torch.cat([half.images for half in split]).flatten(1)
    assert len(images.unique(dim=0)) == len(images)


def test_images_of_a_class_share_its_pattern_up_to_a_shift():
    """The classes' mean spectra of energy, which no shift or mirroring changes, are apart."""
    train, test = patterns(clutter=0.0, noise=0.0)

    def energy(half):
        image = half.images.float() - half.images.float().mean((2, 3), keepdim=True)
        spectrum = torch.fft.fft2(image).abs()
        both_ways = spectrum + spectrum.roll(-1, 3).flip(3)
        return torch.nn.functional.normalize(both_ways.flatten(1))

    nearest = (energy(test) @ energy(train).T).argmax(1)
    assert (train.labels[nearest] == test.labels).float().mean() > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("make", [warped_digits, patterns])
def test_pixels_alone_do_not_suffice(make):
    """A linear rule is far from chance and from perfect on held-out images."""
    train, test = make()
    rows = [half.images.flatten(1).float().numpy() / 255 - 0.4 for half in (train, test)]
    rule = LogisticRegression(C=0.1, max_iter=300).fit(rows[0], train.labels.numpy())
    assert 0.3 < rule.score(rows[1], test.labels.numpy()) < 0.92


def test_some_digits_are_numbered_anew():
    """The nearest mean image of all ten digits is most often that of the digit it was."""
    train = warped_digits(test_per_class=1)[0]
    rows = train.images.flatten(1).float()
    means = torch.stack([rows[train.labels == digit].mean(0) for digit in range(10)])
    some = warped_digits(test_per_class=1, digits=range(5, 8), seed=1)[0]
    assert some.labels.bincount().tolist() == [200] * 3
    nearest = torch.cdist(some.images.flatten(1).float(), means).argmin(1)
    for label in range(3):
        assert int(nearest[some.labels == label].mode().values) == label + 5
