"""Each downstream set is read through the real loader, with its makers' parts and accuracy."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets

from ncscope.data.catalogue import load
from ncscope.data.downstream_sets import prepare_like
from ncscope.data.images import ImageData, Images
from ncscope.errors import InputError
from tests.data.downstream_on_disk import DOWNSTREAM_WRITERS, Half, write_sun
from tests.data.on_disk import write_cifar


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **kwargs: object) -> None:
        raise AssertionError("the internet was asked")

    monkeypatch.setattr("urllib.request.urlopen", refused)


def colours_of(images: Images) -> Half:
    """The number of each image's colour, the normalisation undone, and its label."""
    traits = images.preprocessing.traits
    mean, deviation = torch.tensor(traits.mean), torch.tensor(traits.deviation)
    found = []
    for index in range(len(images)):
        pixels, label = images[index]
        corner, centre = (pixels[:, at, at] for at in (0, pixels.shape[1] // 2))
        assert torch.equal(corner, centre)
        red, green, blue = (255 * (centre * deviation + mean)).round().int().tolist()
        found.append((65536 * red + 256 * green + blue, label))
    assert [label for _, label in found] == images.labels.tolist()
    return found


def parts_of(data: ImageData) -> dict[str, Half]:
    images = {"train": data.train, "validation": data.validation, "test": data.test}
    return {part: colours_of(own) for part, own in images.items() if own is not None}


@pytest.mark.parametrize("name", DOWNSTREAM_WRITERS)
def test_every_part_is_the_one_on_disk(name, tmp_path, monkeypatch) -> None:
    written = DOWNSTREAM_WRITERS[name](tmp_path, monkeypatch)
    data = load(name, tmp_path, size=16)
    found = parts_of(data)
    if "whole" not in written:
        assert found == written
    else:
        assert sorted(found["train"] + found["test"]) == sorted(written["whole"])
    assert data.num_classes == 2
    assert data.shape == data.train[0][0].shape == (3, 16, 16)
    again = load(name, tmp_path, size=16, seed=7, download=True)  # nothing is to be fetched
    assert again.train.labels.tolist() == data.train.labels.tolist()


def test_caltech_trains_on_thirty_of_each_class(tmp_path, monkeypatch) -> None:
    DOWNSTREAM_WRITERS["caltech101"](tmp_path, monkeypatch)
    one, other = (load("caltech101", tmp_path, size=8, seed=seed) for seed in (0, 1))
    assert one.train.labels.bincount().tolist() == [30, 30]
    assert one.test.labels.bincount().tolist() == [2, 3]
    assert colours_of(one.test) == colours_of(other.test)
    names = sorted(file.name for file in (tmp_path / "caltech101").rglob("image_0003*"))
    next((tmp_path / "caltech101").rglob(names[0])).with_name("image_0032.jpg").unlink()
    for number in (31, 30):
        next((tmp_path / "caltech101").rglob(f"Faces/image_00{number}.jpg")).unlink()
    with pytest.raises(InputError, match="at least 31 images of each class of Caltech101, found"):
        load("caltech101", tmp_path)


def test_sun_without_its_lists_is_drawn_once_for_all(tmp_path, monkeypatch) -> None:
    (whole,) = write_sun(tmp_path, monkeypatch).values()
    found = parts_of(load("sun397", tmp_path, size=8))
    assert {part: len(own) for part, own in found.items()} == {"train": 100, "test": 100}
    for own in found.values():
        assert sum(label for _, label in own) == 50
    assert len({*found["train"], *found["test"]} & set(whole)) == 200
    monkeypatch.setattr(Path, "rglob", lambda self, pattern, found=Path.rglob: reversed(
        list(found(self, pattern))
    ))  # fmt: skip
    assert parts_of(load("sun397", tmp_path, size=8)) == found  # whatever the disk's order


def test_sun_wants_both_lists_and_every_image_in_them(tmp_path, monkeypatch) -> None:
    halves = DOWNSTREAM_WRITERS["sun397"](tmp_path, monkeypatch)
    lost = tmp_path / "SUN397" / "a" / "abbey" / f"sun_{halves['test'][0][0]:08d}.jpg"
    lost.unlink()
    with pytest.raises(InputError, match=lost.name):
        load("sun397", tmp_path)
    (tmp_path / "SUN397" / "Partitions" / "Testing_01.txt").unlink()
    with pytest.raises(InputError, match=r"no SUN397/Partitions/Testing_01\.txt"):
        load("sun397", tmp_path)


@pytest.mark.parametrize("name", DOWNSTREAM_WRITERS)
def test_a_missing_set_says_what_to_do(name, tmp_path) -> None:
    with pytest.raises(InputError, match=str(tmp_path)) as error:
        load(name, tmp_path)
    wanted = "nobody offers it" if name == "cars" else "pass --download"
    assert wanted in str(error.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"the internet was asked|nobody offers it"):
        load(name, tmp_path, download=True)


@pytest.mark.parametrize("name", sorted(set(DOWNSTREAM_WRITERS) - {"caltech101"}))
def test_a_missing_image_or_list_is_named(name, tmp_path, monkeypatch) -> None:
    DOWNSTREAM_WRITERS[name](tmp_path, monkeypatch)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    image = next(file for file in sorted(files) if file.suffix == ".jpg")
    list_file = next(file for file in sorted(files) if file.suffix in (".txt", ".mat", ".json"))
    for lost in ([] if name == "sun397" else [image]) + [list_file]:
        content = lost.read_bytes()
        lost.unlink()
        with pytest.raises(InputError, match=lost.name):
            load(name, tmp_path)
        lost.write_bytes(content)
    assert load(name, tmp_path).num_classes == 2


@pytest.mark.parametrize(
    ("name", "file", "size"),
    [
        ("cars", "stanford_cars/devkit/cars_train_annos.mat", 300),
        ("cars", "stanford_cars/devkit/cars_meta.mat", 0),
        ("food101", "food-101/meta/test.json", 40),
        ("flowers", "flowers-102/setid.mat", 200),
        ("pets", "oxford-iiit-pet/annotations/test.txt", 7),
    ],
)
def test_a_cut_off_list_is_an_input_error(name, file, size, tmp_path, monkeypatch) -> None:
    DOWNSTREAM_WRITERS[name](tmp_path, monkeypatch)
    found = tmp_path / file
    found.write_bytes(found.read_bytes()[:size])
    with pytest.raises(InputError, match="whole and unchanged"):
        load(name, tmp_path)


def levels(images: Images, place: int) -> torch.Tensor:
    """An image from 0 to 255 by channel, the normalisation undone."""
    traits = images.preprocessing.traits
    mean, deviation = (
        torch.tensor(found)[:, None, None] for found in (traits.mean, traits.deviation)
    )
    return 255 * (images[place][0] * deviation + mean)


def test_small_images_are_enlarged_and_not_padded(tmp_path, monkeypatch) -> None:
    written = write_cifar(datasets.CIFAR10, tmp_path, monkeypatch)
    DOWNSTREAM_WRITERS["flowers"](tmp_path, monkeypatch)
    cifar, photographs = load("cifar10", tmp_path), load("flowers", tmp_path, size=48)
    seen = prepare_like(cifar, photographs)
    assert seen.shape == seen.train[0][0].shape == (3, 48, 48)
    assert seen.train.preprocessing.traits.mean == photographs.train.preprocessing.traits.mean
    means = levels(seen.train, 0).mean((1, 2)), written.train[0][0].mean((1, 2))
    assert np.abs(means[0].numpy() - means[1]).max() < 1  # nothing black is around it


def test_a_network_of_grey_images_sees_the_luma(tmp_path, monkeypatch) -> None:
    written = DOWNSTREAM_WRITERS["flowers"](tmp_path, monkeypatch)
    seen = prepare_like(load("flowers", tmp_path), load("digits", size=40))
    assert seen.validation is not None
    assert seen.shape == (1, 40, 40)
    for part, images in (("train", seen.train), ("validation", seen.validation)):
        colour, label = written[part][0]
        bands = colour // 65536, colour // 256 % 256, colour % 256
        luma = float(np.dot(bands, (0.299, 0.587, 0.114)))
        found = levels(images, 0)
        torch.testing.assert_close(found, torch.full((1, 40, 40), luma), atol=1.0, rtol=0)
        assert images[0][1] == label


def test_batches_are_seen_as_single_images_are() -> None:
    seen = prepare_like(load("digits"), load("patterns"))
    batch = seen.test.__getitems__([3, 5])
    for (pixels, label), place in zip(batch, (3, 5), strict=True):
        torch.testing.assert_close(pixels, seen.test[place][0])
        assert label == seen.test[place][1]
    assert torch.equal(seen.test.labels, load("digits").test.labels)


def test_a_part_of_a_set_is_seen_as_that_part() -> None:
    digits = load("digits")
    part = replace(digits, test=digits.test.subset(torch.tensor([7, 2])))
    whole, few = (prepare_like(data, load("patterns")).test for data in (digits, part))
    assert few.labels.tolist() == digits.test.labels[[7, 2]].tolist()
    assert torch.equal(few[1][0], whole[2][0])


def test_images_larger_than_the_network_s_input_are_refused() -> None:
    with pytest.raises(InputError, match=r"at most 8 pixels a side.*found 16 of patterns"):
        prepare_like(load("patterns"), load("digits"))
