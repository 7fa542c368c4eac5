"""Data sets of the papers, read from disk by torchvision.

CIFAR's files are pickles; torchvision compares their checksums before it opens them.
"""

import gzip
import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from scipy.io.matlab import MatReadError
from torchvision import datasets

from ncscope.data.folders import load_picture
from ncscope.data.images import Pictures, PictureSplit
from ncscope.errors import InputError, say_error
from ncscope.network import limit_stalls

_BROKEN = (
    RuntimeError,
    AssertionError,
    ValueError,
    LookupError,
    EOFError,
    OSError,
    zlib.error,
    MatReadError,
)


def _hold_in_memory(pixels: Any, labels: Any) -> Pictures:
    """Return pictures from an array n x c x h x w of 8-bit pixels."""
    images = torch.as_tensor(np.ascontiguousarray(pixels), dtype=torch.uint8, device="cpu")
    return Pictures(images, torch.as_tensor(labels, dtype=torch.int64, device="cpu"))


def read_cifar(kind: Any, folder: Path, download: bool) -> PictureSplit:
    """Read CIFAR-10 from ``cifar-10-batches-py``, or CIFAR-100 from ``cifar-100-python``.

    Args:
        kind: Class of torchvision.
        folder: Folder of the data sets.
        download: Downloading is allowed if True.
    """
    name = kind.__name__
    files = [file for file, _ in kind.train_list + kind.test_list] + [kind.meta["filename"]]
    require(name, [folder / kind.base_folder / file for file in files], folder, download)
    with explain_broken_set(name, folder, download):
        parts = [kind(folder, train=train, download=download) for train in (True, False)]
    return PictureSplit(
        *(_hold_in_memory(part.data.transpose(0, 3, 1, 2), part.targets) for part in parts)
    )


def read_idx(kind: Any, folder: Path, download: bool) -> PictureSplit:
    """Read MNIST from ``MNIST/raw``, or Fashion-MNIST from ``FashionMNIST/raw``.

    Args:
        kind: Class of torchvision.
        folder: Folder of the data sets.
        download: Downloading is allowed if True.
    """
    name = kind.__name__
    packed = [folder / name / "raw" / file for file, _ in kind.resources]
    plain = [file.with_suffix("") for file in packed]
    files = [a if a.exists() else b for a, b in zip(plain, packed, strict=True)]
    require(name, files, folder, download)
    with explain_broken_set(name, folder, download), _unpack(files, folder, name) as root:
        parts = [kind(root, train=train, download=download) for train in (True, False)]
    return PictureSplit(*(_hold_in_memory(part.data[:, None], part.targets) for part in parts))


def read_svhn(folder: Path, download: bool) -> PictureSplit:
    """Read SVHN's cropped digits, without the extra set, from ``{train,test}_32x32.mat``."""
    files = [folder / datasets.SVHN.split_list[part][1] for part in ("train", "test")]
    require("SVHN", files, folder, download)
    with explain_broken_set("SVHN", folder, download):
        parts = [datasets.SVHN(folder, split=part, download=download) for part in ("train", "test")]
    return PictureSplit(*(_hold_in_memory(part.data, part.labels) for part in parts))


def read_stl10(folder: Path, download: bool) -> PictureSplit:
    """Read STL-10's labelled images from ``stl10_binary``."""
    kind = datasets.STL10
    names = [name for name, _ in kind.train_list + kind.test_list]
    require("STL-10", [folder / kind.base_folder / name for name in names], folder, download)
    with explain_broken_set("STL-10", folder, download):
        parts = [kind(folder, split=part, download=download) for part in ("train", "test")]
    return PictureSplit(*(_hold_in_memory(part.data, part.labels) for part in parts))


def read_stl10_unlabelled(folder: Path, download: bool) -> torch.Tensor:
    """Read STL-10's 100,000 images without labels, n x 3 x 96 x 96 pixels of 8 bits."""
    kind = datasets.STL10
    require("STL-10", [folder / kind.base_folder / kind.train_list[-1][0]], folder, download)
    with explain_broken_set("STL-10", folder, download):
        part = kind(folder, split="unlabeled", download=download)
    return torch.as_tensor(part.data, device="cpu")


def read_imagenet(folder: Path, download: bool) -> PictureSplit:
    """Read ImageNet, or other photographs, from ``imagenet/{train,val}/CLASS``."""
    fix = (
        f"unpack the archives from image-net.org to {folder / 'imagenet'}/train/CLASS/*.JPEG and "
        "val/CLASS/*.JPEG (they cannot be downloaded without an account)"
    )
    halves = [folder / "imagenet" / part for part in ("train", "val")]
    for half in halves:
        if not half.is_dir():
            expected, found = "the images of ImageNet", f"no folder {half}"
            raise InputError(expected=expected, found=found, fix=fix)
    try:
        train, test = (datasets.ImageFolder(half) for half in halves)
    except FileNotFoundError as error:
        expected, found = "images in every class folder of ImageNet", str(error).strip()
        raise InputError(expected=expected, found=found, fix=fix) from error
    odd = sorted(set(train.classes) ^ set(test.classes))
    if odd:
        expected = "the same class folders in train and val"
        found = f"{len(odd)} in one only, {odd[0]} the first"
        raise InputError(expected=expected, found=found, fix="move or remove them")
    return PictureSplit(_open_photographs(train), _open_photographs(test))


def _open_photographs(files: datasets.ImageFolder) -> Pictures:
    return Pictures(
        lambda index: load_picture(files, index),
        torch.as_tensor(files.targets, dtype=torch.int64, device="cpu"),
    )


_LARGEST = 2**26
"""Most bytes of an unpacked file of digits, above the 47 MB of the largest."""


@contextmanager
def _unpack(files: list[Path], folder: Path, name: str) -> Iterator[Path]:
    """Yield a root with the files unpacked: the folder itself, or a temporary copy."""
    if not all(file.exists() for file in files) or all(file.suffix != ".gz" for file in files):
        yield folder
        return
    with tempfile.TemporaryDirectory() as root:
        raw = Path(root) / name / "raw"
        raw.mkdir(parents=True)
        for file in files:
            opener = gzip.open if file.suffix == ".gz" else open
            with (
                opener(file, "rb") as packed,
                (raw / file.name.removesuffix(".gz")).open("wb") as to,
            ):
                content = packed.read(_LARGEST + 1)
                if len(content) > _LARGEST:
                    found, fix = f"more than {_LARGEST:,} bytes in {file.name}", "download it again"
                    raise InputError(expected=f"a file of {name}", found=found, fix=fix)
                to.write(content)
        yield Path(root)


def require(name: str, files: Sequence[Path], folder: Path, download: bool) -> None:
    """Check that all files of a set exist, unless the set may be downloaded.

    Args:
        name: Name of the set.
        files: Required files of the set.
        folder: Folder of the data sets.
        download: Downloading is allowed if True.

    Raises:
        InputError: If a file is missing and downloading is not allowed.
    """
    missing = [file for file in files if not file.exists()]
    if missing and not download:
        found = f"no {missing[0].relative_to(folder)} in {folder.absolute()}"
        fix = (
            f"pass --download, or put the files of {name} into {missing[0].absolute().parent}, "
            "or name the folder that has them"
        )
        raise InputError(expected=f"the data set {name}", found=found, fix=fix)


_LOCK = ".download.lock"


@contextmanager
def explain_broken_set(name: str, folder: Path, download: bool) -> Iterator[None]:
    """Re-raise torchvision's errors about broken files or a download as InputError.

    One process at a time downloads into a folder; a process that has waited finds the files there.

    Args:
        name: Name of the set.
        folder: Folder of the data sets.
        download: Downloading is allowed if True.
    """
    lock: AbstractContextManager[Any] = nullcontext()
    if download:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / _LOCK
        # Without permission to write, no lock: the folder may be complete, and reading is enough.
        # The system releases the lock if the process dies.
        if os.access(file if file.exists() else folder, os.W_OK):
            lock = FileLock(file)
    try:
        with lock, limit_stalls() if download else nullcontext():
            yield
    except _BROKEN as error:
        expected = (
            f"to download {name}" if download else f"the files of {name}, whole and unchanged"
        )
        fix = "put its files there by hand" if download else "delete them and pass --download"
        found = f"{type(error).__name__} in {folder.absolute()}: {say_error(error)}"
        # Some sets have mirrors, whose errors torchvision joins in the text of one.
        if no_answer := re.search(r"<urlopen error (?:\[Errno -?\d+\] )?([^>]*)>", str(error)):
            found = f"no answer from its server ({no_answer[1]})"
            fix = (
                "connect, or set HTTPS_PROXY if there is a proxy; without a network, put its files "
                f"into {folder.absolute()} by hand"
            )
        raise InputError(expected=expected, found=found, fix=fix) from error
