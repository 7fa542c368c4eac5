"""Folders of images: which splits they have, and how their classes are numbered."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ncscope.data.folders import list_classes, list_splits, read_folder
from ncscope.errors import InputError


def write(folder: Path, **counts: int) -> None:
    """Images of a class each, grey as its letter."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.full((8, 8, 3), ord(name), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def test_classes_have_one_number_in_all_splits(tmp_path):
    write(tmp_path / "train", a=2, b=1, c=1)
    write(tmp_path / "val", c=1, b=2, d=1)
    assert list_splits(tmp_path) == ["train", "test"]
    assert list_classes(tmp_path) == ["a", "b", "c", "d"]
    assert read_folder(tmp_path, "train").labels.tolist() == [0, 0, 1, 2]
    test = read_folder(tmp_path, "test")
    assert test.labels.tolist() == [1, 1, 2, 3]
    assert test.picture(2).getpixel((0, 0)) == (ord("c"),) * 3


def test_beside_test_images_those_in_val_are_to_validate(tmp_path):
    write(tmp_path / "train", a=1, c=1)
    write(tmp_path / "test", a=1)
    write(tmp_path / "val", b=1, c=2)
    assert list_splits(tmp_path) == ["train", "test", "validation"]
    assert list_classes(tmp_path) == ["a", "b", "c"]
    found = {split: read_folder(tmp_path, split).labels.tolist() for split in list_splits(tmp_path)}
    assert found == {"train": [0, 2], "test": [0], "validation": [1, 2, 2]}


def test_classes_in_the_folder_itself_are_every_split(tmp_path):
    write(tmp_path, x=1, y=2)
    assert list_splits(tmp_path) == []
    assert list_classes(tmp_path) == ["x", "y"]
    assert read_folder(tmp_path, "test").labels.tolist() == [0, 1, 1]


def test_a_pipe_among_the_images_is_not_opened(tmp_path):
    write(tmp_path, a=1, b=1)
    (tmp_path / "b" / "0.png").unlink()
    os.mkfifo(tmp_path / "b" / "0.png")
    images = read_folder(tmp_path, "train")
    with pytest.raises(InputError, match=r"expected an image, found a pipe, .*b/0\.png; remove"):
        images.picture(1)


def test_folders_without_classes_or_images_are_described_in_our_words(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"found no folders in it; arrange them as CLASS/"):
        read_folder(tmp_path, "train")
    write(tmp_path, **{f"n{number}": 0 for number in range(10)})
    named = "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more"
    with pytest.raises(InputError, match=rf"found no images in {named}; arrange"):
        read_folder(tmp_path, "train")


def test_a_split_that_is_missing_is_named(tmp_path):
    write(tmp_path / "test", a=1)
    with pytest.raises(InputError, match=r"a folder train in .*found test only"):
        read_folder(tmp_path, "train")


def test_a_class_without_images_keeps_its_number_unless_it_is_no_class(tmp_path):
    write(tmp_path, a=1, b=0, c=2)
    assert read_folder(tmp_path, "train").labels.tolist() == [0, 2, 2]
    (tmp_path / ".ipynb_checkpoints").mkdir()  # a notebook's, which would shift all numbers
    with pytest.raises(InputError, match=r"no images in \.ipynb_checkpoints; arrange"):
        read_folder(tmp_path, "train")


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_validation_images_by_their_own_name(tmp_path, name):
    write(tmp_path / "train", a=1, b=1)
    write(tmp_path / name, b=2)
    for split in ("test", "validation"):
        assert read_folder(tmp_path, split).labels.tolist() == [1, 1]
    write(tmp_path / "test", a=3)
    labels = [read_folder(tmp_path, split).labels.tolist() for split in ("test", "validation")]
    assert labels == [[0, 0, 0], [1, 1]]


def test_damaged_images_and_those_that_could_fill_the_memory_are_refused(tmp_path, monkeypatch):
    write(tmp_path, a=1, b=1)
    images = read_folder(tmp_path, "train")
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 30)  # of 64
    with pytest.raises(InputError, match=r"an image in 0\.png, found DecompressionBombError"):
        images.picture(0)
    (tmp_path / "a" / "0.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"found UnidentifiedImageError: .*; replace or remove"):
        images.picture(0)
