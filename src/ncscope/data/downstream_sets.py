"""The sets on which transfer is measured: eight beside CIFAR, read from disk by torchvision.

Where their makers have named training, validation and held-out images, these are taken; see
`read_caltech101` and `read_sun397` for the two of which torchvision knows no halves.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torchvision import datasets
from torchvision.datasets.folder import default_loader

from ncscope.data.draws import generator
from ncscope.data.images import ImageData, LabelledPictures
from ncscope.data.preprocessing import Preprocessing
from ncscope.data.torchvision_sets import PictureSplit, explained, require
from ncscope.errors import InputError

CALTECH_TRAINING = 30
"""Images of each class of Caltech-101 to train on."""

SUN_TRAINING = SUN_TEST = 50
"""Images of each class of SUN397 in either half."""

_SUN = "SUN397"
_SPLIT_SEED = 0


def seen_as(data: ImageData, pretraining: ImageData) -> ImageData:
    """Return a set's images as a network that was trained on another set is to see them.

    Grey or coloured, and normalised by channel, as the other's are; images of one size enlarged
    to the network's input instead of padded, photographs resized and cropped at the centre.

    Args:
        data: The set.
        pretraining: The other.

    Raises:
        InputError: If the images are larger than the network's input.

    Example:
        >>> from ncscope.data.catalogue import load
        >>> seen_as(load("digits"), load("patterns")).train[0][0].shape
        torch.Size([3, 16, 16])
    """
    theirs, own = pretraining.train.preprocessing.traits, data.train.preprocessing.traits
    if own.native is not None and own.native > theirs.size:
        expected = f"images of at most {theirs.size} pixels a side, as the network takes"
        fix = "train with a larger image_size, or leave the set out"
        raise InputError(expected=expected, found=f"{own.native} of {data.name}", fix=fix)
    seen = replace(theirs, native=own.native, mirrored=own.mirrored, resized=True)
    through = Preprocessing(seen)
    return replace(
        data,
        train=data.train.through(through),
        test=data.test.through(through),
        validation=None if data.validation is None else data.validation.through(through),
        shape=pretraining.shape,
    )


def read_pets(folder: Path, download: bool) -> PictureSplit:
    """Oxford-IIIT Pets, 37 breeds, from ``oxford-iiit-pet``."""
    base = folder / "oxford-iiit-pet"
    files = [base / "annotations" / f"{part}.txt" for part in ("trainval", "test")]
    require("Pets", [*files, base / "images"], folder, download)
    with explained("Pets", folder, download):
        parts = [
            datasets.OxfordIIITPet(folder, split=part, download=download)
            for part in ("trainval", "test")
        ]
    return PictureSplit(*(_photographs("Pets", part._images, part._labels) for part in parts))


def read_flowers(folder: Path, download: bool) -> PictureSplit:
    """Oxford Flowers, 102 kinds, from ``flowers-102``; 10 of each to train, 10 to validate."""
    base = folder / "flowers-102"
    files = [base / name for name, _ in datasets.Flowers102._file_dict.values()][1:]
    require("Flowers", [*files, base / "jpg"], folder, download)
    with explained("Flowers", folder, download):
        parts = [
            datasets.Flowers102(folder, split=part, download=download)
            for part in ("train", "test", "val")
        ]
    return _listed("Flowers", parts)


def read_aircraft(folder: Path, download: bool) -> PictureSplit:
    """FGVC Aircraft, 100 variants, from ``fgvc-aircraft-2013b/data``."""
    parts = ("train", "test", "val")
    base = folder / "fgvc-aircraft-2013b" / "data"
    files = [base / "variants.txt", *(base / f"images_variant_{part}.txt" for part in parts)]
    require("Aircraft", files, folder, download)
    with explained("Aircraft", folder, download):
        read = [datasets.FGVCAircraft(folder, part, download=download) for part in parts]
    return _listed("Aircraft", read)


def read_cars(folder: Path, download: bool) -> PictureSplit:
    """Stanford Cars, 196 models, from ``stanford_cars``. Its makers offer it no longer."""
    base = folder / "stanford_cars"
    needed = ("devkit/cars_train_annos.mat", "devkit/cars_meta.mat", "cars_train", "cars_test")
    for file in (base / name for name in (*needed, "cars_test_annos_withlabels.mat")):
        if not file.exists():
            found = f"no {file.relative_to(folder)} in {folder.absolute()}"
            fix = f"put a copy of the set into {base.absolute()} (nobody offers it for download)"
            raise InputError(expected="the data set Cars", found=found, fix=fix)
    with explained("Cars", folder, download=False):
        parts = [datasets.StanfordCars(folder, part) for part in ("train", "test")]
    halves = (zip(*part._samples, strict=True) for part in parts)
    return PictureSplit(*(_photographs("Cars", list(files), y) for files, y in halves))


def read_dtd(folder: Path, download: bool) -> PictureSplit:
    """Read Describable Textures, 47 kinds, from ``dtd/dtd``; the first of its ten partitions."""
    parts = ("train", "test", "val")
    base = folder / "dtd" / "dtd"
    files = [base / "labels" / f"{part}1.txt" for part in parts]
    require("DTD", [*files, base / "images"], folder, download)
    with explained("DTD", folder, download):
        read = [datasets.DTD(folder, part, download=download) for part in parts]
    return _listed("DTD", read)


def read_food101(folder: Path, download: bool) -> PictureSplit:
    """Food-101, from ``food-101``; 750 of each dish to train, 250 held out."""
    base = folder / "food-101"
    files = [base / "meta" / f"{part}.json" for part in ("train", "test")]
    require("Food101", [*files, base / "images"], folder, download)
    with explained("Food101", folder, download):
        read = [datasets.Food101(folder, part, download=download) for part in ("train", "test")]
    return _listed("Food101", read)


def read_caltech101(folder: Path, download: bool) -> PictureSplit:
    """Caltech-101 without its background class, from ``caltech101/101_ObjectCategories``.

    Its makers name no halves: 30 images of each class, drawn once for all, are to train on and
    all others held out. Chen et al. 2020 draw as many, of 102 classes: the background is theirs.
    """
    base = folder / "caltech101" / "101_ObjectCategories"
    require("Caltech101", [base], folder, download)
    with explained("Caltech101", folder, download):
        whole = datasets.Caltech101(folder, download=download)
    names = [base / kind for kind in whole.categories]
    numbered = zip(whole.y, whole.index, strict=True)
    files = [names[label] / f"image_{number:04d}.jpg" for label, number in numbered]
    train, test = _drawn("Caltech101", torch.as_tensor(whole.y), CALTECH_TRAINING)
    return _halves("Caltech101", files, whole.y, (train, test))


def read_sun397(folder: Path, download: bool) -> PictureSplit:
    """SUN397, from ``SUN397``: 50 images of each scene to train on, 50 held out.

    Its makers' first partition where ``Partitions/Training_01.txt`` and ``Testing_01.txt`` are in
    that folder, which are in an archive of their own; else 50 and 50 drawn once for all.
    """
    base = folder / _SUN
    require(_SUN, [base / "ClassName.txt"], folder, download)
    with explained(_SUN, folder, download):
        whole = datasets.SUN397(folder, download=download)
    found = dict(sorted(zip(whole._image_files, whole._labels, strict=True)))
    files, labels = list(found), list(found.values())
    lists = [base / "Partitions" / f"{part}_01.txt" for part in ("Training", "Testing")]
    if not any(file.exists() for file in lists):
        train, test = _drawn(_SUN, torch.tensor(labels), SUN_TRAINING, SUN_TEST)
        return _halves(_SUN, files, labels, (train, test))
    require(_SUN, lists, folder, download=False)
    place = {file.relative_to(base).as_posix(): index for index, file in enumerate(files)}
    named = [[line.strip("/") for line in file.read_text().splitlines()] for file in lists]
    lost = [name for half in named for name in half if name not in place]
    if lost:
        raise _missing(_SUN, base / lost[0])
    return _halves(_SUN, files, labels, [[place[name] for name in half] for half in named])


def _listed(name: str, parts: Sequence[Any]) -> PictureSplit:
    """Return what torchvision has listed: training, held-out and perhaps validation images."""
    return PictureSplit(*(_photographs(name, part._image_files, part._labels) for part in parts))


def _halves(
    name: str, files: Sequence[Path], labels: Sequence[int], halves: Sequence[Sequence[int]]
) -> PictureSplit:
    """Training and held-out images by their places in a list."""
    return PictureSplit(
        *(_photographs(name, [files[i] for i in own], [labels[i] for i in own]) for own in halves)
    )


def _photographs(name: str, files: Sequence[str | Path], labels: Sequence[int]) -> LabelledPictures:
    """Photographs to be read when they are needed, all of which are there."""
    for file in map(Path, files):
        if not file.exists():
            raise _missing(name, file)
    return LabelledPictures(
        lambda index: default_loader(files[index]), torch.as_tensor(labels, dtype=torch.int64)
    )


def _missing(name: str, file: Path) -> InputError:
    fix = f"put the images of {name} back, or remove its folder and pass --download"
    return InputError(expected=f"every image of {name}", found=f"no {file}", fix=fix)


def _drawn(
    name: str, labels: Int[Tensor, " n"], training: int, test: int | None = None
) -> tuple[list[int], list[int]]:
    """Places of training and held-out images, so many of each class; by default all others."""
    draws = generator(_SPLIT_SEED)
    halves: tuple[list[int], list[int]] = [], []
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        least = training + (test or 1)
        if len(members) < least:
            expected = f"at least {least} images of each class of {name}"
            found, fix = f"{len(members)} of class {int(label)}", "unpack all of its files again"
            raise InputError(expected=expected, found=found, fix=fix)
        chosen = members[torch.randperm(len(members), generator=draws)].tolist()
        halves[0].extend(chosen[:training])
        halves[1].extend(chosen[training:] if test is None else chosen[training:least])
    return sorted(halves[0]), sorted(halves[1])
