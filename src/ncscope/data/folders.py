"""Photographs of the user, in a folder for each class."""

from pathlib import Path
from typing import Any, Literal

import torch
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2 import AutoAugmentPolicy

from ncscope.data.images import Images, Pictures, open_picture
from ncscope.data.preprocessing import Preprocessing, Traits
from ncscope.errors import InputError, list_names
from ncscope.files import describe_fault

Split = Literal["train", "test", "validation"]

_NAMES: dict[Split, str] = {
    "train": "train",
    "test": "test or val",
    "validation": "val",
}
"""Name of the subfolder of each split, for messages."""

_VALIDATION = ("val", "valid", "validation")


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
        folder: Folder with subfolders ``train``, ``test`` and ``val`` (or ``valid``,
            ``validation``), each with a folder for each class; or with the class folders
            themselves, whose images then form every split. Without a ``test`` the images of ``val``
            are the test images too. Classes are numbered in the order of their names, over all
            splits; a class may have no images.
        split: Split to read.

    Raises:
        InputError: If there is no such folder or split, or no images.
    """
    if not folder.is_dir():
        raise InputError(expected="a folder", found=f"nothing at {folder}", fix="check the path")
    splits = _find_subfolders(folder)
    if "test" in splits and splits["test"].name != "test":
        splits["validation"] = splits["test"]
    if splits and split not in splits:
        raise InputError(
            expected=f"a folder {_NAMES[split]} in {folder}",
            found=f"{', '.join(dict.fromkeys(part.name for part in splits.values()))} only",
            fix="add it, or choose another split",
        )
    within = splits.get(split, folder)
    has_folders = any(each.is_dir() for each in within.iterdir())
    files = ImageFolder(within, allow_empty=True) if has_folders else None
    present = set() if files is None else set(files.targets)
    # A folder that no training counted as a class would shift the numbers of the classes after it.
    hidden = [
        name
        for number, name in enumerate(() if files is None else files.classes)
        if number not in present and name.startswith((".", "@", "__"))
    ]
    if files is None or not present or hidden:
        empty = hidden or ([] if files is None else files.classes)
        raise InputError(
            expected=f"a folder of images for each class in {within}",
            found=f"no images in {list_names(empty)}" if empty else "no folders in it",
            fix="arrange them as CLASS/*.png or *.jpg, and remove folders that are no classes",
        )

    numbers = {name: number for number, name in enumerate(list_classes(folder))}
    of_split = torch.tensor([numbers[name] for name in files.classes], device="cpu")
    labels = of_split[torch.as_tensor(files.targets, dtype=torch.int64, device="cpu")]
    return prepare_photographs(Pictures(lambda index: load_picture(files, index), labels))


def prepare_photographs(pictures: Pictures) -> Images:
    """Return photographs of all sizes, resized and normalised like ImageNet's."""
    traits = Traits(_SIZE, None, _MEAN, _DEVIATION, True, AutoAugmentPolicy.IMAGENET)
    return Images(pictures, Preprocessing(traits))


def load_picture(files: ImageFolder, index: int) -> Any:
    """Load one image.

    Raises:
        InputError: If there is a pipe or a device under the image's name, or nothing any more.
    """
    path = Path(files.samples[index][0])
    if fault := describe_fault(path):
        raise InputError(expected="an image", found=fault, fix="remove it from the folder")
    return open_picture(path, path.name)


def _find_subfolders(folder: Path) -> dict[Split, Path]:
    names: tuple[Split, Split] = ("train", "test")
    splits: dict[Split, Path] = {name: folder / name for name in names if (folder / name).is_dir()}
    validation = next((name for name in _VALIDATION if (folder / name).is_dir()), None)
    if validation is not None:
        splits["validation" if "test" in splits else "test"] = folder / validation
    return splits
