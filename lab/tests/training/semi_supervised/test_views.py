"""Views of an image depend on its key alone, hold no label, and are what they say."""

import numpy as np
import pytest
import torch
from scipy import stats

from ncscope.data.catalogue import load
from ncscope.data.draws import Draw
from ncscope_lab.training.semi_supervised.views import (
    LabelledViews,
    NumberedViews,
    Views,
    Warp,
    uniforms,
    warp,
)

BOTH = ("weak", "strong")
KINDS = {"warp": "digits", "randaugment": "patterns"}
KEYS = [Draw(0, 0, 3), Draw(0, 1, 3), Draw(0, 0, 4), Draw(1, 0, 3)]
STILL = {"degrees": 0, "shear": 0, "zoom": 0, "shift": 0, "brightness": 0, "cutout": 0}


def views(kind: str) -> Views:
    return Views(load(KINDS[kind]).train, kind, BOTH)


@pytest.mark.parametrize("kind", KINDS)
def test_views_depend_on_their_key_alone(kind: str) -> None:
    made = views(kind)
    together = made.__getitems__(KEYS)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        alone = [made[key] for key in reversed(KEYS)][::-1]
    for strength, batch in enumerate(together):
        for image, single in zip(batch, alone, strict=True):
            assert torch.equal(image, single[strength])
        for one, other in ((0, 1), (0, 2), (0, 3)):
            assert not torch.equal(batch[one], batch[other])
    assert not torch.equal(*together)


@pytest.mark.parametrize("kind", KINDS)
def test_strong_views_are_further_from_the_image(kind: str) -> None:
    made = views(kind)
    images = load(KINDS[kind]).train
    indices = range(60)
    plain = torch.stack([images[index][0] for index in indices])
    batch = made.__getitems__([Draw(0, 0, index) for index in indices])
    weak, strong = ((view - plain).square().mean().item() for view in batch)
    assert 0 < weak < 0.9 * strong


def test_labels_come_with_labelled_views_only() -> None:
    images = load("digits").train
    *weak, labels = LabelledViews(images, "warp", ("weak",)).__getitems__(KEYS)
    assert torch.equal(labels, images.labels[[3, 3, 4, 3]])
    assert torch.equal(*weak, Views(images, "warp", ("weak",)).__getitems__(KEYS)[0])
    assert len(views("warp").__getitems__(KEYS)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_two_weak_views_differ_and_come_with_the_images_indices(kind: str) -> None:
    images = load(KINDS[kind]).train
    *weak, indices = NumberedViews(images, kind, ("weak", "weak")).__getitems__(KEYS)
    assert indices.tolist() == [3, 3, 4, 3]
    plain = Views(images, kind, ("weak", "weak")).__getitems__(KEYS)
    assert all(torch.equal(*pair) for pair in zip(weak, plain, strict=True))
    assert not torch.equal(*weak)


@pytest.mark.parametrize(
    ("most", "numbers", "expected"),
    [
        ({"shift": 0.25}, {3: 1.0}, lambda x: torch.nn.functional.pad(x, (-1, 1))),
        ({"degrees": 90}, {0: 1.0}, lambda x: torch.rot90(x, 1, (2, 3))),
        ({"brightness": 0.5}, {5: 1.0}, lambda x: 1.5 * x),
        ({"cutout": 2.0}, {6: 0.5, 7: 0.5, 8: 1.0}, lambda x: 0 * x),
    ],
    ids=["shift", "rotation", "brightness", "cutout"],
)
def test_a_warp_is_what_its_numbers_say(most, numbers, expected) -> None:
    image = torch.rand(1, 1, 4, 4)
    drawn = torch.full((1, 9), 0.5)
    for place, number in numbers.items():
        drawn[0, place] = number
    torch.testing.assert_close(warp(image, Warp(**STILL | most), drawn), expected(image))


def test_uniforms_are_uniform_and_unrelated() -> None:
    keys = [Draw(0, epoch, image) for epoch in range(40) for image in range(50)]
    found = uniforms(keys, 3).double().numpy()
    assert found.min() >= 0
    assert found.max() < 1
    for column in found.T:
        assert stats.kstest(column, "uniform").pvalue > 0.01
    assert np.abs(np.corrcoef(np.c_[found[:-1], found[1:]].T) - np.eye(6)).max() < 0.08
