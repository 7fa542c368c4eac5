"""Names of the data sets, to judge what the user named before torch is imported."""

import os
import re
from glob import has_magic
from pathlib import Path

from ncscope.errors import InputError
from ncscope.files import is_folder

IMAGE_FILES = (".parquet", ".arrow", ".tar")
"""Suffixes of files of many images."""

NAMES = (
    "digits",
    "warped-digits",
    "warped-digits-6000",
    "warped-digits-0-4",
    "warped-digits-5-9",
    "mnist-5k",
    "patterns",
    "clear-patterns",
    "patterns-20",
    "patterns-40",
    "patterns-100",
    "transfer-source",
    "transfer-clear",
    "transfer-cluttered",
    "transfer-noisy",
    "transfer-both",
    "transfer-many",
    "gratings",
    "gratings-orientation",
    "gratings-frequency",
    "gratings-colour",
    "gratings-orientation-colour",
    "transfer-clear-32",
    "transfer-cluttered-32",
    "transfer-noisy-32",
    "transfer-both-32",
    "transfer-many-32",
    "gratings-32",
    "gratings-orientation-32",
    "gratings-frequency-32",
    "gratings-colour-32",
    "gratings-orientation-colour-32",
    "patterns-32",
    "patterns-32-100",
    "mnist",
    "fashion-mnist",
    "cifar10",
    "cifar100",
    "svhn",
    "stl10",
    "imagenet",
    "pets",
    "flowers",
    "aircraft",
    "cars",
    "dtd",
    "food101",
    "caltech101",
    "sun397",
)
"""Keys of `ncscope.data.catalogue.CATALOGUE`, in its order."""


def check_data(data: str) -> None:
    """Check that data are a set of the catalogue, a folder, or files of many images.

    Args:
        data: Name, path, or pattern of files of images; what a pattern matches is not looked up.

    Raises:
        InputError: If the data are none of these.
    """
    is_file = os.path.isfile(data)  # noqa: PTH113, unlike Path.is_file, never raises an error
    is_pattern = has_magic(data) or "{" in data
    if data in NAMES or is_folder(Path(data)):
        return
    if data.endswith(IMAGE_FILES) and (is_file or is_pattern):
        return
    fix = f"pass one of {', '.join(NAMES)}, or check the path"
    if is_file:
        fix = f"for features, ncscope measure {data}; images are in .parquet, .arrow or .tar"
    elif re.fullmatch(r"[\w-]+/[\w.-]+", data):
        fix = (
            "check the path; save a data set of the Hugging Face Hub with "
            f"datasets.load_dataset({data!r}).save_to_disk('images')"
        )
    raise InputError(
        expected="a data set of the catalogue, or a folder or files of images",
        found=repr(data),
        fix=fix,
    )
