"""Tiny files in the downstream sets' own formats, each image of one colour of its own."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision import datasets

from tests.data.on_disk import md5

Half = list[tuple[int, int]]  # colours as numbers, labels
Written = Mapping[str, Half]  # by train, validation, test; "whole" where no halves are named


def write_image(file: Path, colour: int) -> None:
    """A photograph of one colour. Named JPEG as the set's are; PNG inside loses nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    bands = colour // 65536, colour // 256 % 256, colour % 256
    with file.open("wb") as opened:
        Image.new("RGB", (6, 4), bands).save(opened, "PNG")


def colours() -> Iterator[int]:
    """Numbers of 24 bits that all differ."""
    return (1_234_567 * place % 16_777_213 for place in count(1))


def lines(file: Path, found: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in found))


def write_pets(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Labels from 1; species and breed beside them."""
    base, fresh = root / "oxford-iiit-pet", colours()
    written: dict[str, Half] = {}
    for name, part, numbers in (("trainval", "train", (2, 1, 3)), ("test", "test", (4, 5))):
        listed, written[part] = [], []
        for number in numbers:
            for label, kind in enumerate(("Abyssinian", "great_pyrenees")):
                written[part].append((next(fresh), label))
                write_image(base / "images" / f"{kind}_{number}.jpg", written[part][-1][0])
                listed.append(f"{kind}_{number} {label + 1} {label + 1} 1")
        lines(base / "annotations" / f"{name}.txt", listed)
    return written


def write_flowers(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Labels from 1 of all images, numbered from 1, and the numbers of each part."""
    base, labels = root / "flowers-102", [2, 1, 1, 2, 2, 1, 2]
    chosen = zip(range(1, 8), colours(), labels, strict=False)
    images = {number: (colour, label - 1) for number, colour, label in chosen}
    for number, (colour, _) in images.items():
        write_image(base / "jpg" / f"image_{number:05d}.jpg", colour)
    ids = {"trnid": [3, 1], "valid": [7, 2], "tstid": [4, 5, 6]}
    savemat(base / "setid.mat", ids)
    savemat(base / "imagelabels.mat", {"labels": [labels]})
    known = datasets.Flowers102._file_dict
    sums = {key: (file, md5(base / file)) for key, (file, _) in known.items() if key != "image"}
    patch.setattr(datasets.Flowers102, "_file_dict", known | sums)
    parts = zip(("train", "validation", "test"), ids.values(), strict=True)
    return {part: [images[number] for number in numbers] for part, numbers in parts}


def write_aircraft(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Names of variants, which have spaces, after the images' numbers."""
    base, fresh = root / "fgvc-aircraft-2013b" / "data", colours()
    variants = ["707-320", "A300 B4"]
    lines(base / "variants.txt", variants)
    written: dict[str, Half] = {}
    for name, part, labels in (
        ("train", "train", (1, 0)), ("val", "validation", (0, 1)), ("test", "test", (1, 1, 0))
    ):  # fmt: skip
        written[part] = list(zip(fresh, labels, strict=False))
        numbers = [f"{colour % 10**7:07d}" for colour, _ in written[part]]
        for number, (colour, _) in zip(numbers, written[part], strict=True):
            write_image(base / "images" / f"{number}.jpg", colour)
        listed = [f"{a} {variants[y]}" for a, y in zip(numbers, labels, strict=True)]
        lines(base / f"images_variant_{name}.txt", listed)
    return written


def write_cars(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """MATLAB's arrays of records, classes from 1."""
    base, fresh = root / "stanford_cars", colours()
    (base / "devkit").mkdir(parents=True)
    names = np.array(["AM General Hummer", "Audi TTS"], dtype=object)
    savemat(base / "devkit" / "cars_meta.mat", {"class_names": names})
    files = {"train": "devkit/cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}
    written: dict[str, Half] = {}
    for part, labels in (("train", (1, 0, 1, 0)), ("test", (0, 1))):
        written[part] = list(zip(fresh, labels, strict=False))
        kinds = [("class", "O"), ("fname", "O")]
        records = np.empty(len(labels), dtype=kinds)
        for place, (colour, label) in enumerate(written[part]):
            write_image(base / f"cars_{part}" / f"{place:05d}.jpg", colour)
            records[place] = label + 1, f"{place:05d}.jpg"
        savemat(base / files[part], {"annotations": records})
    return written


def write_dtd(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """The first partition, beside another."""
    base, fresh = root / "dtd" / "dtd", colours()
    parts = {"train": "train", "val": "validation", "test": "test"}
    written: dict[str, Half] = {part: [] for part in parts.values()}
    for name, part in parts.items():
        listed = []
        for label, kind in enumerate(("banded", "zigzagged")):
            written[part].append((next(fresh), label))
            listed.append(f"{kind}/{kind}_{written[part][-1][0]}.jpg")
            write_image(base / "images" / listed[-1], written[part][-1][0])
        lines(base / "labels" / f"{name}1.txt", listed)
        lines(base / "labels" / f"{name}2.txt", listed[::-1])
    return written


def write_food(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Names of dishes and files without a suffix."""
    base, fresh = root / "food-101", colours()
    written: dict[str, Half] = {}
    for part, number in (("train", 3), ("test", 2)):
        listed: dict[str, list[str]] = {}
        written[part] = []
        for label, dish in enumerate(("apple_pie", "waffles")):
            for _ in range(number):
                written[part].append((next(fresh), label))
                listed.setdefault(dish, []).append(f"{dish}/{written[part][-1][0]}")
                write_image(base / "images" / f"{listed[dish][-1]}.jpg", written[part][-1][0])
        (base / "meta").mkdir(exist_ok=True)
        (base / "meta" / f"{part}.json").write_text(json.dumps(listed))
    return written


def write_caltech(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Folders of numbered images, one of them of no class; an image is grey."""
    base, fresh = root / "caltech101" / "101_ObjectCategories", colours()
    write_image(base / "BACKGROUND_Google" / "image_0001.jpg", next(fresh))
    whole = []
    for label, (kind, size) in enumerate((("Faces", 32), ("accordion", 33))):
        for number in range(1, size + 1):
            whole.append((next(fresh), label))
            write_image(base / kind / f"image_{number:04d}.jpg", whole[-1][0])
    file = base / "accordion" / "image_0033.jpg"
    with file.open("wb") as opened:
        Image.new("L", (6, 4), 77).save(opened, "PNG")
    whole[-1] = 77 * 65536 + 77 * 256 + 77, 1
    return {"whole": whole}


def write_sun(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Scenes in folders by letter, some of two names; enough of each to draw from."""
    base, fresh = root / "SUN397", colours()
    kinds = ("a/abbey", "c/church/outdoor")
    lines(base / "ClassName.txt", [f"/{kind}" for kind in kinds])
    whole = []
    for label, kind in enumerate(kinds):
        for _ in range(101):
            whole.append((next(fresh), label))
            write_image(base / kind / f"sun_{whole[-1][0]:08d}.jpg", whole[-1][0])
    return {"whole": whole}


def write_sun_partition(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """The same with the first partition of its makers, of a few images."""
    (whole,) = write_sun(root, patch).values()
    halves = {"train": whole[3:6] + whole[150:152], "test": whole[:2] + whole[120:121]}
    kinds = ("a/abbey", "c/church/outdoor")
    for name, part in (("Training", "train"), ("Testing", "test")):
        listed = [f"/{kinds[label]}/sun_{colour:08d}.jpg" for colour, label in halves[part]]
        lines(root / "SUN397" / "Partitions" / f"{name}_01.txt", listed)
    return halves


DOWNSTREAM_WRITERS: dict[str, Callable[[Path, pytest.MonkeyPatch], Written]] = {
    "pets": write_pets,
    "flowers": write_flowers,
    "aircraft": write_aircraft,
    "cars": write_cars,
    "dtd": write_dtd,
    "food101": write_food,
    "caltech101": write_caltech,
    "sun397": write_sun_partition,
}
