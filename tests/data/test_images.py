"""An item depends on its key alone; a subset is the same images under other numbers."""

import pytest
import torch

from ncscope.data.catalogue import load
from ncscope.data.draws import Draw
from ncscope.errors import InputError


@pytest.fixture(scope="module")
def images():
    return load("patterns", augmentation="autoaugment").train


def test_a_draw_gives_the_same_image_whatever_came_before(images):
    first = images[Draw(0, 3, 5)][0]
    images[Draw(0, 3, 6)], torch.rand(7)
    assert torch.equal(images[Draw(0, 3, 5)][0], first)


def test_seed_epoch_and_image_all_matter(images):
    keys = [Draw(0, 3, 5), Draw(1, 3, 5), Draw(0, 4, 5), Draw(0, 3, 6)]
    items = [images[key][0] for key in keys]
    assert all(not torch.equal(items[0], other) for other in items[1:])


def test_one_picture_under_two_indices_is_changed_in_two_ways(images):
    twice = images.subset(torch.tensor([5] * 6))
    made = torch.stack([twice[Draw(0, 3, i)][0] for i in range(6)]).flatten(1)
    assert len(made.unique(dim=0)) > 3


def test_reading_leaves_the_global_generator_alone(images):
    state = torch.default_generator.get_state()
    images[Draw(0, 0, 0)], images[0]
    assert torch.equal(torch.default_generator.get_state(), state)


def test_measured_images_are_never_augmented(images):
    plain = load("patterns").train
    for index in range(5):
        assert torch.equal(images[index][0], plain[index][0])
        assert torch.equal(plain[Draw(0, 0, index)][0], plain[index][0])


def test_a_subset_of_a_subset_has_the_right_images(images):
    outer, inner = torch.tensor([900, 30, 1500, 7]), torch.tensor([2, 0])
    chosen = images.subset(outer).subset(inner)
    assert len(chosen) == 2
    for index, original in enumerate((1500, 900)):
        assert torch.equal(chosen[index][0], images[original][0])
        assert chosen[index][1] == int(chosen.labels[index]) == images[original][1]


def test_a_balanced_subset_has_as_many_of_each_class(images):
    assert images.draw_balanced(50, seed=1).labels.bincount().tolist() == [5] * 10


@pytest.mark.parametrize("augmentation", ["none", "crop-flip"])
@pytest.mark.parametrize("drawn", [False, True])
def test_a_batch_is_its_items(augmentation, drawn):
    images = load("patterns", augmentation=augmentation, size=20).train.draw_balanced(30)
    keys = [Draw(0, 2, i) if drawn else i for i in (29, 0, 7)]
    for (image, label), key in zip(images.__getitems__(keys), keys, strict=True):
        assert torch.equal(image, images[key][0])
        assert label == images[key][1]


def test_a_balanced_training_set_has_equally_many_of_each_class_and_the_same_test_set():
    whole = load("digits")
    half = whole.draw_balanced(700, seed=3)
    assert half.train.labels.bincount().tolist() == [70] * 10
    assert half.test is whole.test
    image, label = half.train[5]
    place = int(half.train._positions[5])
    assert torch.equal(image, whole.train[place][0])
    assert label == whole.train[place][1]
    assert not torch.equal(half.train._positions, whole.draw_balanced(700, seed=4).train._positions)


@pytest.mark.parametrize("size", [5, 705, 1430])
def test_a_training_set_that_cannot_be_balanced_is_refused(size):
    whole = load("digits")  # 1,437 images, 139 of an eight
    with pytest.raises(InputError, match=rf"a multiple of 10 up to 1,390 .* found {size:,};"):
        whole.draw_balanced(size, seed=0)
