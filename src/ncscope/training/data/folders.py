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


def read_folder(folder: Path, split: Split) -> Images:
    """The images of a split, resized and normalised as ImageNet's are.

    Args:
        folder: It holds ``train`` and ``test`` (or ``val``) with a folder for each class, or these
            class folders themselves, which are then every split. Classes are numbered in the
            order of their names.
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

    labels = torch.as_tensor(files.targets, dtype=torch.int64)
    traits = Traits(_SIZE, None, _MEAN, _DEVIATION, True, AutoAugmentPolicy.IMAGENET)
    return Images(LabelledPictures(picture, labels), Preprocessing(traits))


def _part(folder: Path, split: Split) -> Path:
    if not folder.is_dir():
        raise InputError(expected="a folder", found=f"nothing at {folder}", fix="check the path")
    there = [name for names in PARTS.values() for name in names if (folder / name).is_dir()]
    if not there:
        return folder
    for name in PARTS[split]:
        if name in there:
            return folder / name
    raise InputError(
        expected=f"a folder {' or '.join(PARTS[split])} in {folder}",
        found=f"{', '.join(there)} only",
        fix="pass the other --split",
    )
