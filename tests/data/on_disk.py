"""Tiny files in the data sets' own formats, and what must be read from them."""

import gzip
import hashlib
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision import datasets

Pixels = np.ndarray  # n x c x h x w, 8 bits
Labels = np.ndarray


@dataclass(frozen=True)
class Written:
    """What is on disk."""

    train: tuple[Pixels, Labels]
    test: tuple[Pixels, Labels]


def random_half(count: int, shape: tuple[int, int, int], classes: int, seed: int):
    draws = np.random.default_rng(seed)
    labels = draws.permutation(np.arange(count) % classes)
    return draws.integers(0, 256, (count, *shape), dtype=np.uint8), labels


def random_halves(shape: tuple[int, int, int], classes: int = 10) -> Written:
    return Written(random_half(20, shape, classes, 0), random_half(10, shape, classes, 1))


def md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx(kind: type, root: Path, packed: bool) -> Written:
    written = random_halves((1, 28, 28))
    raw = root / kind.__name__ / "raw"
    raw.mkdir(parents=True)
    for part, (pixels, labels) in (("train", written.train), ("t10k", written.test)):
        for name, array in (("images-idx3", pixels[:, 0]), ("labels-idx1", labels)):
            file = raw / f"{part}-{name}-ubyte"
            if packed:
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(idx(array)))
            else:
                file.write_bytes(idx(array))
    return written


def write_cifar(kind: type, root: Path, patch: pytest.MonkeyPatch) -> Written:
    """The pickles as published; their checksums stand in for the published ones."""
    fine = kind is datasets.CIFAR100
    written = random_halves((3, 32, 32), 100 if fine else 10)
    folder = root / kind.base_folder
    folder.mkdir(parents=True)
    key = "fine_labels" if fine else "labels"

    def write(names: list[str], half: tuple[Pixels, Labels]) -> list[list[str]]:
        sums = []
        parts = [np.array_split(array, len(names)) for array in half]
        for name, pixels, labels in zip(names, *parts, strict=True):
            entry = {"data": pixels.reshape(len(pixels), -1), key: labels.tolist()}
            (folder / name).write_bytes(pickle.dumps(entry))
            sums.append([name, md5(folder / name)])
        return sums

    names = [[name for name, _ in part] for part in (kind.train_list, kind.test_list)]
    patch.setattr(kind, "train_list", write(names[0], written.train))
    patch.setattr(kind, "test_list", write(names[1], written.test))
    meta = folder / kind.meta["filename"]
    meta.write_bytes(pickle.dumps({kind.meta["key"]: [str(k) for k in range(100)]}))
    patch.setattr(kind, "meta", {**kind.meta, "md5": md5(meta)})
    return written


def write_svhn(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Rows before columns before channels before samples; the digit 0 has the label 10."""
    written = random_halves((3, 32, 32))
    sums = {}
    for part, (pixels, labels) in (("train", written.train), ("test", written.test)):
        url, name, _ = datasets.SVHN.split_list[part]
        coded = np.where(labels == 0, 10, labels).astype(np.uint8)
        savemat(root / name, {"X": pixels.transpose(2, 3, 1, 0), "y": coded[:, None]})
        sums[part] = [url, name, md5(root / name)]
    patch.setattr(datasets.SVHN, "split_list", sums)
    return written


def write_stl10(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Columns before rows, labels from 1."""
    kind = datasets.STL10
    written = random_halves((3, 96, 96))
    folder = root / kind.base_folder
    folder.mkdir(parents=True)
    for part, (pixels, labels) in (("train", written.train), ("test", written.test)):
        (folder / f"{part}_X.bin").write_bytes(pixels.transpose(0, 1, 3, 2).tobytes())
        (folder / f"{part}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())
    (folder / "unlabeled_X.bin").write_bytes(bytes(3 * 96 * 96))
    for attribute in ("train_list", "test_list"):
        sums = [[name, md5(folder / name)] for name, _ in getattr(kind, attribute)]
        patch.setattr(kind, attribute, sums)
    return written


def write_imagenet(root: Path) -> Written:
    """Photographs of a size that measuring neither scales nor crops, for an input of 224."""
    halves = []
    for part, count in (("train", 4), ("val", 2)):
        pixels, _ = random_half(count, (3, 256, 256), 2, len(part))
        labels = np.arange(count) * 2 // count
        for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            folder = root / "imagenet" / part / ("n01440764", "n02102040")[label]
            folder.mkdir(parents=True, exist_ok=True)
            # Named JPEG as ImageNet's are; PNG inside loses nothing.
            with (folder / f"{number}.JPEG").open("wb") as file:
                Image.fromarray(image.transpose(1, 2, 0)).save(file, "PNG")
        halves.append((pixels[:, :, 16:240, 16:240], labels))
    return Written(*halves)


WRITERS: dict[str, Callable[[Path, pytest.MonkeyPatch], Written]] = {
    "mnist": lambda root, patch: write_idx(datasets.MNIST, root, packed=False),
    "fashion-mnist": lambda root, patch: write_idx(datasets.FashionMNIST, root, packed=False),
    "cifar10": lambda root, patch: write_cifar(datasets.CIFAR10, root, patch),
    "cifar100": lambda root, patch: write_cifar(datasets.CIFAR100, root, patch),
    "svhn": write_svhn,
    "stl10": write_stl10,
    "imagenet": lambda root, patch: write_imagenet(root),
}
