"""Normalisation by hand; each augmentation does what its name says."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import AutoAugmentPolicy

from ncscope.data.draws import seed_global_generator
from ncscope.data.preprocessing import AUGMENTATIONS, Preprocessing, Traits
from ncscope.errors import InputError

MEAN, DEVIATION = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)


def traits(size=16, native: int | None = 16, mirrored=True) -> Traits:
    return Traits(size, native, MEAN, DEVIATION, mirrored, AutoAugmentPolicy.CIFAR10)


def picture(size=16) -> torch.Tensor:
    """All pixels of a channel differ, and none is black."""
    values = 1 + torch.randperm(size * size, generator=torch.Generator().manual_seed(0)) % 255
    return values.to(torch.uint8).reshape(1, size, size).expand(3, -1, -1).contiguous()


def grey(image: torch.Tensor) -> torch.Tensor:
    mean, deviation = (torch.tensor(s)[:, None, None] for s in (MEAN, DEVIATION))
    return (255 * (image * deviation + mean)).round()


def trained(augmentation, seed, **kwargs) -> torch.Tensor:
    with seed_global_generator(seed):
        return grey(Preprocessing(traits(**kwargs), augmentation).prepare_random(picture()))


def test_pixels_are_centred_and_scaled_by_channel():
    image = Preprocessing(traits()).prepare_plain(picture())
    for channel in range(3):
        expected = (picture()[channel] / 255 - MEAN[channel]) / DEVIATION[channel]
        torch.testing.assert_close(image[channel], expected)


def test_small_images_are_padded_with_black():
    image = grey(Preprocessing(traits(size=21)).prepare_plain(picture()))
    assert image.shape == (3, 21, 21)
    assert torch.equal(image[:, 2:18, 2:18], picture().float())
    assert image.sum() == picture().sum()


def test_photographs_are_resized_and_cropped_at_the_centre():
    array = np.zeros((256, 512, 3), np.uint8)
    array[:, 256:] = 255
    image = grey(Preprocessing(traits(224, None)).prepare_plain(Image.fromarray(array)))
    assert image.shape == (3, 224, 224)
    assert image[:, :, :112].max() == 0
    assert image[:, :, 112:].min() == 255


def test_crops_are_shifts_by_an_eighth_at_most():
    padded = torch.nn.functional.pad(picture().float(), (2, 2, 2, 2))
    shifts = {(r, c): padded[:, r : r + 16, c : c + 16] for r in range(5) for c in range(5)}
    found = set()
    for seed in range(40):
        image = trained("crop", seed)
        found |= {shift for shift, expected in shifts.items() if torch.equal(image, expected)}
    assert len(found) > 12


def test_half_are_mirrored():
    padded = torch.nn.functional.pad(picture().float(), (2, 2, 2, 2))
    both = [padded, padded.flip(2)]
    counts = [0, 0]
    for seed in range(60):
        image = trained("crop-flip", seed)
        for side, source in enumerate(both):
            windows = source.unfold(1, 16, 1).unfold(2, 16, 1)
            counts[side] += bool((windows == image[:, None, None]).all((0, 3, 4)).any())
    assert sum(counts) == 60
    assert 15 < counts[1] < 45


def test_reflected_borders_have_no_black():
    assert all(trained("reflect-crop-flip", seed).min() > 0 for seed in range(20))
    assert any(trained("crop-flip", seed).min() == 0 for seed in range(20))


def test_autoaugment_goes_on_from_the_crop():
    changed = [
        not torch.equal(trained("autoaugment", seed), trained("crop-flip", seed))
        for seed in range(30)
    ]
    assert sum(changed) > 10


def test_erasing_fills_a_quarter_of_the_images_with_noise():
    changed = [
        not torch.equal(trained("autoaugment", seed), trained("autoaugment-erasing", seed))
        for seed in range(120)
    ]
    assert 15 < sum(changed) < 48


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_augmentation_works_on_grey_and_colour(augmentation, channels):
    known = Traits(16, 16, MEAN[:channels], DEVIATION[:channels], True, AutoAugmentPolicy.SVHN)
    steps = Preprocessing(known, augmentation)
    for seed in range(15):
        with seed_global_generator(seed):
            image = steps.prepare_random(picture()[:channels])
        assert image.shape == (channels, 16, 16)
        assert image.isfinite().all()


@pytest.mark.parametrize("augmentation", [a for a in AUGMENTATIONS if a[:3] != "ref"])
def test_photographs_are_augmented_to_the_input_size(augmentation):
    photograph = Image.fromarray(picture(40).permute(1, 2, 0).numpy())
    with seed_global_generator(0):
        image = Preprocessing(traits(24, None), augmentation).prepare_random(photograph)
    assert image.shape == (3, 24, 24)


@pytest.mark.parametrize(
    ("augmentation", "kwargs", "fix"),
    [
        ("crop-flip", {"mirrored": False}, "pass crop,"),
        ("reflect-crop-flip", {"native": None}, "pass crop-flip"),
    ],
)
def test_augmentations_that_do_not_fit_are_refused(augmentation, kwargs, fix):
    with pytest.raises(InputError, match=fix):
        Preprocessing(traits(**kwargs), augmentation)


@pytest.mark.usefixtures("unchecked_signatures")
def test_unknown_augmentations_are_refused():
    with pytest.raises(InputError, match="pass one of none, crop"):
        Preprocessing(traits(), "blur")


def test_autoaugment_mirrors_nothing_that_must_not_be():
    known = traits(mirrored=False)
    names = [type(step).__name__ for step in Preprocessing(known, "autoaugment")._random.transforms]
    assert "RandomHorizontalFlip" not in names
    assert "AutoAugment" in names
