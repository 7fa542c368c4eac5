"""Photographs of one's own: a folder of images for each class."""

from pathlib import Path
from typing import Any, Literal

import torch
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2 import AutoAugmentPolicy

from ncscope.errors import InputError
from ncscope.training.data.images import Images, LabelledPictures
from ncscope.training.data.preprocessing import Preprocessing, Traits

Split = Literal["train", "test"]

PARTS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("test", "val")}
"""What the subfolder of a split may be called."""

_SIZE = 224
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def splits_of(folder: Path) -> list[Split]:
    """The splits that have a subfolder of their own; none where the classes lie in the folder.

    Args:
        folder: As of `read_folder`.
    """
    return [split for split, names in PARTS.items() if _subfolder(folder, names) is not None]


def class_names(folder: Path) -> list[str]:
    """Names of the classes of all splits, in the order of their numbers.

    Args:
        folder: As of `read_folder`.
    """
    parts = [_subfolder(folder, PARTS[split]) for split in splits_of(folder)] or [folder]
    return sorted({each.name for part in parts if part for each in part.iterdir() if each.is_dir()})


def read_folder(folder: Path, split: Split) -> Images:
    """The images of a split, resized and normalised as ImageNet's are.

    Args:
        folder: It holds ``train`` and ``test`` (or ``val``) with a folder for each class, or these
            class folders themselves, which are then every split. Classes are numbered in the
            order of their names, those that only another split has among them.
        split: Which of them.

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


def _subfolder(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def _part(folder: Path, split: Split) -> Path:
    if not folder.is_dir():
        raise InputError(expected="a folder", found=f"nothing at {folder}", fix="check the path")
    there = splits_of(folder)
    if not there:
        return folder
    part = _subfolder(folder, PARTS[split])
    if part is None:
        raise InputError(
            expected=f"a folder {' or '.join(PARTS[split])} in {folder}",
            found=f"{', '.join(there)} only",
            fix="add it, or choose the other split",
        )
    return part
