"""Downstream sets for transfer: eight sets besides CIFAR, read from disk by torchvision.

The training, validation and held-out images are those that the makers of a set define. For
Caltech-101 and SUN397, which torchvision does not split, see `read_caltech101` and `read_sun397`.
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
from ncscope.data.images import ImageData, Pictures, PictureSplit
from ncscope.data.preprocessing import Preprocessing
from ncscope.data.torchvision_sets import explain_broken_set, require
from ncscope.errors import InputError

CALTECH_TRAINING = 30
"""Number of training images of each class of Caltech-101."""

SUN_TRAINING = SUN_TEST = 50
"""Number of training and of held-out images of each class of SUN397."""

_SUN = "SUN397"
_SPLIT_SEED = 0


def prepare_like(data: ImageData, pretraining: ImageData) -> ImageData:
    """Prepare a set's images for a network that was trained on another set.

    The images are made grey or coloured and normalised by channel like the other set's. Images of
    one size are enlarged to the network's input instead of padded; photographs are resized and
    cropped at the centre.

    Raises:
        InputError: If the images are larger than the network's input.

    Example:
        >>> from ncscope.data.catalogue import load
        >>> prepare_like(load("digits"), load("patterns")).train[0][0].shape
        torch.Size([3, 16, 16])
    """
    theirs, ours = pretraining.train.preprocessing.traits, data.train.preprocessing.traits
    if ours.native is not None and ours.native > theirs.size:
        expected = f"images of at most {theirs.size} pixels a side, as the network takes"
        fix = "train with a larger image_size, or leave the set out"
        raise InputError(expected=expected, found=f"{ours.native} of {data.name}", fix=fix)
    seen = replace(theirs, native=ours.native, mirrored=ours.mirrored, resized=True)
    through = Preprocessing(seen)
    return replace(
        data,
        train=data.train.through(through),
        test=data.test.through(through),
        validation=None if data.validation is None else data.validation.through(through),
        shape=pretraining.shape,
    )


def read_pets(folder: Path, download: bool) -> PictureSplit:
    """Read Oxford-IIIT Pets, 37 breeds, from ``oxford-iiit-pet``."""
    base = folder / "oxford-iiit-pet"
    files = [base / "annotations" / f"{part}.txt" for part in ("trainval", "test")]
    require("Pets", [*files, base / "images"], folder, download)
    with explain_broken_set("Pets", folder, download):
        parts = [
            datasets.OxfordIIITPet(folder, split=part, download=download)
            for part in ("trainval", "test")
        ]
    return PictureSplit(*(_open_photographs("Pets", part._images, part._labels) for part in parts))


def read_flowers(folder: Path, download: bool) -> PictureSplit:
    """Read Oxford Flowers, 102 kinds, from ``flowers-102``; 10 of each train, 10 validate."""
    base = folder / "flowers-102"
    files = [base / name for name, _ in datasets.Flowers102._file_dict.values()][1:]
    require("Flowers", [*files, base / "jpg"], folder, download)
    with explain_broken_set("Flowers", folder, download):
        parts = [
            datasets.Flowers102(folder, split=part, download=download)
            for part in ("train", "test", "val")
        ]
    return _open_listed("Flowers", parts)


def read_aircraft(folder: Path, download: bool) -> PictureSplit:
    """Read FGVC Aircraft, 100 variants, from ``fgvc-aircraft-2013b/data``."""
    parts = ("train", "test", "val")
    base = folder / "fgvc-aircraft-2013b" / "data"
    files = [base / "variants.txt", *(base / f"images_variant_{part}.txt" for part in parts)]
    require("Aircraft", files, folder, download)
    with explain_broken_set("Aircraft", folder, download):
        read = [datasets.FGVCAircraft(folder, part, download=download) for part in parts]
    return _open_listed("Aircraft", read)


def read_cars(folder: Path, download: bool) -> PictureSplit:
    """Read Stanford Cars, 196 models, from ``stanford_cars``; it is no longer offered."""
    base = folder / "stanford_cars"
    needed = ("devkit/cars_train_annos.mat", "devkit/cars_meta.mat", "cars_train", "cars_test")
    for file in (base / name for name in (*needed, "cars_test_annos_withlabels.mat")):
        if not file.exists():
            found = f"no {file.relative_to(folder)} in {folder.absolute()}"
            fix = f"put a copy of the set into {base.absolute()} (nobody offers it for download)"
            raise InputError(expected="the data set Cars", found=found, fix=fix)
    with explain_broken_set("Cars", folder, download=False):
        parts = [datasets.StanfordCars(folder, part) for part in ("train", "test")]
    halves = (zip(*part._samples, strict=True) for part in parts)
    return PictureSplit(*(_open_photographs("Cars", list(files), y) for files, y in halves))


def read_dtd(folder: Path, download: bool) -> PictureSplit:
    """Read Describable Textures, 47 kinds, from ``dtd/dtd``, in the first of its ten partitions."""
    parts = ("train", "test", "val")
    base = folder / "dtd" / "dtd"
    files = [base / "labels" / f"{part}1.txt" for part in parts]
    require("DTD", [*files, base / "images"], folder, download)
    with explain_broken_set("DTD", folder, download):
        read = [datasets.DTD(folder, part, download=download) for part in parts]
    return _open_listed("DTD", read)


def read_food101(folder: Path, download: bool) -> PictureSplit:
    """Read Food-101 from ``food-101``; 750 images of each dish train, 250 are held out."""
    base = folder / "food-101"
    files = [base / "meta" / f"{part}.json" for part in ("train", "test")]
    require("Food101", [*files, base / "images"], folder, download)
    with explain_broken_set("Food101", folder, download):
        read = [datasets.Food101(folder, part, download=download) for part in ("train", "test")]
    return _open_listed("Food101", read)


def read_caltech101(folder: Path, download: bool) -> PictureSplit:
    """Read Caltech-101 without its background class, from ``caltech101/101_ObjectCategories``.

    The makers of the set define no split. The training images are 30 of each class, drawn with a
    fixed seed; all others are held out. Chen et al. 2020 draw 30 of each of 102 classes, including
    the background.
    """
    base = folder / "caltech101" / "101_ObjectCategories"
    require("Caltech101", [base], folder, download)
    with explain_broken_set("Caltech101", folder, download):
        whole = datasets.Caltech101(folder, download=download)
    names = [base / kind for kind in whole.categories]
    numbered = zip(whole.y, whole.index, strict=True)
    files = [names[label] / f"image_{number:04d}.jpg" for label, number in numbered]
    train, test = _draw_halves(
        "Caltech101", torch.as_tensor(whole.y, device="cpu"), CALTECH_TRAINING
    )
    return _split_photographs("Caltech101", files, whole.y, (train, test))


def read_sun397(folder: Path, download: bool) -> PictureSplit:
    """Read SUN397 from ``SUN397``: 50 images of each scene train, 50 are held out.

    The split is the first partition of the set's makers if ``Partitions/Training_01.txt`` and
    ``Testing_01.txt`` are in this folder; the makers offer these files in a separate archive.
    Otherwise the images are drawn with a fixed seed.
    """
    base = folder / _SUN
    require(_SUN, [base / "ClassName.txt"], folder, download)
    with explain_broken_set(_SUN, folder, download):
        whole = datasets.SUN397(folder, download=download)
    by_file = dict(sorted(zip(whole._image_files, whole._labels, strict=True)))
    files, labels = list(by_file), list(by_file.values())
    lists = [base / "Partitions" / f"{part}_01.txt" for part in ("Training", "Testing")]
    if not any(file.exists() for file in lists):
        train, test = _draw_halves(_SUN, torch.tensor(labels, device="cpu"), SUN_TRAINING, SUN_TEST)
        return _split_photographs(_SUN, files, labels, (train, test))
    require(_SUN, lists, folder, download=False)
    indices = {file.relative_to(base).as_posix(): index for index, file in enumerate(files)}
    names = [[line.strip("/") for line in file.read_text().splitlines()] for file in lists]
    lost = [name for half in names for name in half if name not in indices]
    if lost:
        raise _make_missing_error(_SUN, base / lost[0])
    return _split_photographs(
        _SUN, files, labels, [[indices[name] for name in half] for half in names]
    )


def _open_listed(name: str, parts: Sequence[Any]) -> PictureSplit:
    """Return the images of torchvision's sets: training, held-out and perhaps validation."""
    return PictureSplit(
        *(_open_photographs(name, part._image_files, part._labels) for part in parts)
    )


def _split_photographs(
    name: str, files: Sequence[Path], labels: Sequence[int], halves: Sequence[Sequence[int]]
) -> PictureSplit:
    """Return training and held-out images by their indices in a list."""
    return PictureSplit(
        *(
            _open_photographs(name, [files[i] for i in half], [labels[i] for i in half])
            for half in halves
        )
    )


def _open_photographs(name: str, files: Sequence[str | Path], labels: Sequence[int]) -> Pictures:
    """Return photographs that are read on access; check that all files exist."""
    for file in map(Path, files):
        if not file.exists():
            raise _make_missing_error(name, file)
    return Pictures(
        lambda index: default_loader(files[index]),
        torch.as_tensor(labels, dtype=torch.int64, device="cpu"),
    )


def _make_missing_error(name: str, file: Path) -> InputError:
    fix = f"put the images of {name} back, or remove its folder and pass --download"
    return InputError(expected=f"every image of {name}", found=f"no {file}", fix=fix)


def _draw_halves(
    name: str, labels: Int[Tensor, " n"], training: int, test: int | None = None
) -> tuple[list[int], list[int]]:
    """Draw the indices of training and held-out images of each class.

    Args:
        name: Name of the set.
        labels: Labels of all images.
        training: Number of training images of each class.
        test: Number of held-out images of each class; None for all others.
    """
    draws = generator(_SPLIT_SEED)
    halves: tuple[list[int], list[int]] = [], []
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        least = training + (test or 1)
        if len(members) < least:
            expected = f"at least {least} images of each class of {name}"
            found, fix = f"{len(members)} of class {int(label)}", "unpack all of its files again"
            raise InputError(expected=expected, found=found, fix=fix)
        shuffled = members[torch.randperm(len(members), generator=draws, device="cpu")].tolist()
        halves[0].extend(shuffled[:training])
        halves[1].extend(shuffled[training:] if test is None else shuffled[training:least])
    return sorted(halves[0]), sorted(halves[1])
