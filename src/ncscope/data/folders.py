"""Photographs of the user, in a folder for each class."""

from pathlib import Path
from typing import Any, Literal

import torch
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import IMG_EXTENSIONS
from torchvision.transforms.v2 import AutoAugmentPolicy

from ncscope.data.images import Images, Pictures
from ncscope.data.preprocessing import Preprocessing, Traits
from ncscope.errors import InputError
from ncscope.files import describe_fault

Split = Literal["train", "test", "validation"]

_NAMES: dict[Split, str] = {
    "train": "train",
    "test": "test or val",
    "validation": "val beside test",
}
"""Name of the subfolder of each split, for messages."""

_MOST_NAMED = 8

_SIZE = 224
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def list_splits(folder: Path) -> list[Split]:
    """Return the splits that have a subfolder; none if the folder itself holds the classes.

    Args:
        folder: Folder, as in `read_folder`.
    """
    return list(_find_subfolders(folder))


def list_classes(folder: Path) -> list[str]:
    """Return the names of the classes of all splits, in the order of their numbers.

    Args:
        folder: Folder, as in `read_folder`.
    """
    parts = _find_subfolders(folder).values() or [folder]
    return sorted({each.name for part in parts for each in part.iterdir() if each.is_dir()})


def read_folder(folder: Path, split: Split) -> Images:
    """Read the images of a split, resized and normalised like ImageNet's.

    Args:
        folder: Folder with subfolders ``train``, ``test`` and ``val``, each with a folder for each
            class; or with the class folders themselves, whose images then form every split. The
            images of ``val`` are the validation images if there is a ``test``, else the test
            images. Classes are numbered in the order of their names, over all splits.
        split: Split to read.

    Raises:
        InputError: If there is no such folder or split, or a class has no images.
    """
    if not folder.is_dir():
        raise InputError(expected="a folder", found=f"nothing at {folder}", fix="check the path")
    splits = _find_subfolders(folder)
    if splits and split not in splits:
        raise InputError(
            expected=f"a folder {_NAMES[split]} in {folder}",
            found=f"{', '.join(part.name for part in splits.values())} only",
            fix="add it, or choose another split",
        )
    within = splits.get(split, folder)
    try:
        files = ImageFolder(within)
    except FileNotFoundError as error:
        suffixes = tuple(IMG_EXTENSIONS)
        folders = sorted(each for each in within.iterdir() if each.is_dir())
        empty = [
            each.name
            for each in folders
            if not any(file.name.lower().endswith(suffixes) for file in each.rglob("*"))
        ]
        names = ", ".join(empty[:_MOST_NAMED])
        more = f" and {len(empty) - _MOST_NAMED:,} more" if len(empty) > _MOST_NAMED else ""
        raise InputError(
            expected=f"a folder of images for each class in {within}",
            found=f"no images in {names}{more}" if folders else "no folders in it",
            fix="arrange them as CLASS/*.png or *.jpg, and remove folders without images",
        ) from error

    numbers = {name: number for number, name in enumerate(list_classes(folder))}
    of_split = torch.tensor([numbers[name] for name in files.classes])
    labels = of_split[torch.as_tensor(files.targets, dtype=torch.int64)]
    traits = Traits(_SIZE, None, _MEAN, _DEVIATION, True, AutoAugmentPolicy.IMAGENET)
    return Images(Pictures(lambda index: load_picture(files, index), labels), Preprocessing(traits))


def load_picture(files: ImageFolder, index: int) -> Any:
    """Load one image.

    Args:
        files: Folder of images.
        index: Index of the image.

    Raises:
        InputError: If there is a pipe or a device under the image's name, or nothing any more.
    """
    path = files.samples[index][0]
    if fault := describe_fault(Path(path)):
        raise InputError(expected="an image", found=fault, fix="remove it from the folder")
    return files.loader(path)


def _find_subfolders(folder: Path) -> dict[Split, Path]:
    names: dict[Split, str] = {"train": "train", "test": "test", "validation": "val"}
    if not (folder / "test").is_dir():
        names = {"train": "train", "test": "val"}
    return {split: folder / name for split, name in names.items() if (folder / name).is_dir()}
