"""Photographs of one's own: a folder of images for each class."""

from pathlib import Path
from typing import Any, Literal

import torch
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2 import AutoAugmentPolicy

from ncscope.data.images import Images, LabelledPictures
from ncscope.data.preprocessing import Preprocessing, Traits
from ncscope.errors import InputError

Split = Literal["train", "test", "validation"]

_NAMES: dict[Split, str] = {
    "train": "train",
    "test": "test or val",
    "validation": "val beside test",
}
"""What the subfolder of a split is called."""

_SIZE = 224
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def splits_of(folder: Path) -> list[Split]:
    """Return the splits with a subfolder of their own; none where the classes lie in the folder.

    Args:
        folder: Folder, as in `read_folder`.
    """
    return list(_subfolders(folder))


def class_names(folder: Path) -> list[str]:
    """Names of the classes of all splits, in the order of their numbers.

    Args:
        folder: Folder, as in `read_folder`.
    """
    parts = _subfolders(folder).values() or [folder]
    return sorted({each.name for part in parts for each in part.iterdir() if each.is_dir()})


def read_folder(folder: Path, split: Split) -> Images:
    """Read the images of a split, resized and normalised as ImageNet's are.

    Args:
        folder: It holds ``train``, ``test`` and ``val`` with a folder for each class, or these
            class folders themselves, which are then every split. Without ``test``, what is in
            ``val`` are the test images, else the validation images. Classes are numbered in the
            order of their names, those that only another split has among them.
        split: Split to read.

    Raises:
        InputError: There is no such folder, no split of that name, or a class without images.
    """
    within = _part(folder, split)
    try:
        files = ImageFolder(within)
    except FileNotFoundError as error:
        raise InputError(
            expected=f"a folder of images for each class in {within}",
            found=" ".join(str(error).split()),
            fix="arrange them as CLASS/*.png or *.jpg, and remove folders without images",
        ) from error

    def picture(index: int) -> Any:
        return files.loader(files.samples[index][0])

    numbers = {name: number for number, name in enumerate(class_names(folder))}
    of_split = torch.tensor([numbers[name] for name in files.classes])
    labels = of_split[torch.as_tensor(files.targets, dtype=torch.int64)]
    traits = Traits(_SIZE, None, _MEAN, _DEVIATION, True, AutoAugmentPolicy.IMAGENET)
    return Images(LabelledPictures(picture, labels), Preprocessing(traits))


def _subfolders(folder: Path) -> dict[Split, Path]:
    named: dict[Split, str] = {"train": "train", "test": "test", "validation": "val"}
    if not (folder / "test").is_dir():
        named = {"train": "train", "test": "val"}
    return {split: folder / name for split, name in named.items() if (folder / name).is_dir()}


def _part(folder: Path, split: Split) -> Path:
    if not folder.is_dir():
        raise InputError(expected="a folder", found=f"nothing at {folder}", fix="check the path")
    there = _subfolders(folder)
    if not there:
        return folder
    if split not in there:
        raise InputError(
            expected=f"a folder {_NAMES[split]} in {folder}",
            found=f"{', '.join(part.name for part in there.values())} only",
            fix="add it, or choose another split",
        )
    return there[split]
