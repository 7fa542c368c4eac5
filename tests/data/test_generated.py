"""Generated sets are balanced, 8-bit, of disjoint halves, and neither trivial nor hopeless."""

import math
from functools import partial

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from ncscope.data import generated
from ncscope.data.generated import FACTORS, make_gratings, make_patterns, make_warped_digits
from ncscope.errors import InputError


@pytest.mark.parametrize(
    ("make", "classes"), [(make_warped_digits, 10), (make_patterns, 10), (make_gratings, 8 * 4 * 6)]
)
def test_classes_are_balanced_and_pixels_have_8_bits(make, classes):
    for half, per_class in zip(make(train_per_class=7, test_per_class=3), (7, 3), strict=True):
        assert half.labels.bincount().tolist() == [per_class] * classes
        assert half.pictures.dtype == torch.uint8
        # Neither end of the range is where most pixels are cut to.
        assert ((half.pictures == 0) | (half.pictures == 255)).float().mean() < 0.02


def test_no_digit_is_in_both_halves():
    labels = torch.as_tensor(load_digits(return_X_y=True)[1], dtype=torch.int64)
    halves = [set(generated._choose_originals(labels, half, 200, 0).tolist()) for half in (0, 1)]
    assert not halves[0] & halves[1]
    assert len(halves[0] | halves[1]) == len(labels)


@pytest.mark.parametrize(
    "make", [make_warped_digits, make_patterns, partial(make_gratings, ["frequency"])]
)
def test_every_image_is_another(make):
    split = make(train_per_class=60, test_per_class=60)
    images = torch.cat([half.pictures for half in split]).flatten(1)
    assert len(images.unique(dim=0)) == len(images)


def test_images_of_a_class_share_its_pattern_up_to_a_shift():
    """The classes' mean spectra of energy, which no shift or mirroring changes, are apart."""
    train, test = make_patterns(clutter=0.0, noise=0.0)

    def energy(half):
        image = half.pictures.float() - half.pictures.float().mean((2, 3), keepdim=True)
        spectrum = torch.fft.fft2(image).abs()
        both_ways = spectrum + spectrum.roll(-1, 3).flip(3)
        return torch.nn.functional.normalize(both_ways.flatten(1))

    nearest = (energy(test) @ energy(train).T).argmax(1)
    assert (train.labels[nearest] == test.labels).float().mean() > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("make", [make_warped_digits, make_patterns])
def test_pixels_alone_do_not_suffice(make):
    """A linear rule is far from chance and from perfect on held-out images."""
    train, test = make()
    rows = [half.pictures.flatten(1).float().numpy() / 255 - 0.4 for half in (train, test)]
    rule = LogisticRegression(C=0.1, max_iter=300).fit(rows[0], train.labels.numpy())
    assert 0.3 < rule.score(rows[1], test.labels.numpy()) < 0.92


def test_some_digits_are_numbered_anew():
    """The nearest mean image of all ten digits is most often that of the digit it was."""
    train = make_warped_digits(test_per_class=1)[0]
    rows = train.pictures.flatten(1).float()
    means = torch.stack([rows[train.labels == digit].mean(0) for digit in range(10)])
    some = make_warped_digits(test_per_class=1, digits=range(5, 8), seed=1)[0]
    assert some.labels.bincount().tolist() == [200] * 3
    nearest = torch.cdist(some.pictures.flatten(1).float(), means).argmin(1)
    for label in range(3):
        assert int(nearest[some.labels == label].mode().values) == label + 5


def levels(images: torch.Tensor) -> dict[str, torch.Tensor]:
    """Positions of gratings on the scale of each factor's levels, to 1/32 of a level.

    The colour is the direction of most variance. Orientation and frequency are those of the wave,
    of a grid of 16 steps a level, that explains most of the variance along the colour.
    """
    pixels = images.double() / 255 - 0.5
    size = pixels.shape[-1]
    covariance = torch.einsum("nchw,ndhw->ncd", pixels, pixels)
    direction = torch.linalg.eigh(covariance).eigenvectors[:, :, -1]
    grey = direction.sum(1).abs() / math.sqrt(3)
    assert float(grey.max()) < 0.02
    red = direction @ torch.tensor([2.0, -1.0, -1.0], dtype=torch.float64) / math.sqrt(6)
    green = direction @ torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64) / math.sqrt(2)
    along = torch.einsum("nchw,nc->nhw", pixels, direction).flatten(1).float()
    turns = torch.arange(0, FACTORS["orientation"], 1 / 16)
    ratios = torch.arange(-0.5, FACTORS["frequency"] - 0.5, 1 / 16)
    turn, ratio = torch.cartesian_prod(turns, ratios).unbind(1)
    angle, waves = math.pi * turn / FACTORS["orientation"], 1.5 * 3 ** (ratio / 3)
    # From the centre the pixels are symmetric, so that sine and cosine are orthogonal.
    side = (torch.arange(size) + 0.5) / size - 0.5
    column, row = side.repeat(size), side.repeat_interleave(size)
    way = angle.cos()[:, None] * column + angle.sin()[:, None] * row
    wave = 2 * math.pi * waves[:, None] * way
    explained = sum(
        (along @ each.mT).square() / each.square().sum(1) for each in (wave.sin(), wave.cos())
    )
    best = explained.argmax(1)
    # One plane wave, but for the rounding to 8 bits and the steps of the grid.
    assert (explained.amax(1) > 0.98 * along.square().sum(1)).all()
    return {
        "orientation": turn[best].double(),
        "frequency": ratio[best].double(),
        "colour": torch.atan2(green, red) % math.pi / math.pi * FACTORS["colour"],
    }


@pytest.mark.parametrize("name", FACTORS)
def test_the_class_of_a_grating_is_the_level_of_its_factor(name: str):
    train, _ = make_gratings([name], 12, 1, clutter=0.0, noise=0.0, size=32)
    found = levels(train.pictures)
    count = FACTORS[name]
    off = found[name] - train.labels
    if name != "frequency":
        off = (off + count / 2) % count - count / 2  # the scale is a circle
    # A quarter of the spacing, and half a step of the grid.
    assert 0.15 < float(off.abs().max()) < 0.29
    for other in set(FACTORS) - {name}:
        seen = (found[other].round() % FACTORS[other]).long()
        assert set(seen.tolist()) == set(range(FACTORS[other]))


def test_classes_of_several_factors_are_all_combinations():
    train, _ = make_gratings(["frequency", "orientation"], 2, 1, clutter=0.0, noise=0.0, size=32)
    assert train.labels.bincount().tolist() == [2] * 32
    found = levels(train.pictures)
    assert torch.equal(found["frequency"].round().long(), train.labels // 8)
    assert torch.equal(found["orientation"].round().long() % 8, train.labels % 8)


@pytest.mark.parametrize("factors", [[], ["shape"], ["colour", "colour"]])
def test_factors_that_gratings_lack_are_refused(factors: list[str]):
    with pytest.raises(InputError, match="name one or more of orientation, frequency, colour"):
        make_gratings(factors)
