"""Data sets by name: those of the papers, and sets that need no download."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torchvision.datasets import CIFAR10, CIFAR100, MNIST, FashionMNIST
from torchvision.transforms.v2 import AutoAugmentPolicy as Policy

from ncscope.data import downstream_sets as downstream
from ncscope.data import torchvision_sets as stored
from ncscope.data.digits import read_digit_pixels, read_mnist_5k
from ncscope.data.draws import stream_seed
from ncscope.data.generated import (
    FACTORS,
    IMAGE_SIZE,
    make_gratings,
    make_patterns,
    make_warped_digits,
)
from ncscope.data.images import AccuracyMeasure, ImageData, Images, Pictures, PictureSplit
from ncscope.data.preprocessing import (
    Augmentation,
    Preprocessing,
    Traits,
)
from ncscope.errors import InputError

_PHOTOGRAPH_SIZE = 224
_LARGE = 32  # pixels per side of generated images of the larger zoo

Reader = Callable[[Path, bool, int], PictureSplit]
Statistics = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Entry:
    """A data set and its properties.

    Attributes:
        read: Function of a folder, the permission to download into it, and a seed.
        native: Height and width of its images; None for photographs of all sizes.
        mirrored: A mirrored image keeps its label if True.
        policy: AutoAugment's policy for the most similar kind of images.
        statistics: Mean and deviation by channel of the training pixels from 0 to 1; None if they
            depend on the seed, or are not published.
        measure: Customary kind of accuracy on this set.
    """

    read: Reader
    native: int | None
    mirrored: bool
    policy: Policy
    statistics: Statistics | None = None
    measure: AccuracyMeasure = "top-1"


def _wrap_read(read: Callable[[Path, bool], PictureSplit]) -> Reader:
    return lambda folder, download, seed: read(folder, download)


def _wrap_make(make: Callable[[int], tuple[Pictures, Pictures]]) -> Reader:
    return lambda folder, download, seed: PictureSplit(*make(seed))


def _make_photograph_entry(
    read: Callable[[Path, bool], PictureSplit], measure: AccuracyMeasure = "top-1"
) -> Entry:
    """Return the entry of photographs for transfer, normalised like ImageNet's."""
    return Entry(_wrap_read(read), None, True, Policy.IMAGENET, _IMAGENET, measure)


def _make_transfer_entry(
    number: int, num_classes: int, clutter: float, noise: float, size: int = IMAGE_SIZE
) -> Entry:
    """Return patterns whose classes differ from those of other numbers, 3,000 held out.

    The noise is for images of 16 pixels; it is scaled so that larger images are as hard.
    """
    scaled = noise * size / IMAGE_SIZE

    def make(seed: int) -> tuple[Pictures, Pictures]:
        stream, held_out = stream_seed(seed, number), 3000 // num_classes
        return make_patterns(
            num_classes, 1000 // num_classes, held_out, clutter, scaled, stream, size
        )

    return Entry(_wrap_make(make), size, True, Policy.CIFAR10)


def _make_digits_entry(**options: Any) -> Entry:
    """Return warped digits with options of `make_warped_digits`."""
    make = partial(make_warped_digits, **options)
    return Entry(_wrap_make(lambda seed: make(seed=seed)), IMAGE_SIZE, False, Policy.SVHN)


def _make_patterns_entry(size: int = IMAGE_SIZE, **options: Any) -> Entry:
    """Return patterns with options of `make_patterns`."""
    make = partial(make_patterns, size=size, **options)
    return Entry(_wrap_make(lambda seed: make(seed=seed)), size, True, Policy.CIFAR10)


_OTHER_PATTERNS = {
    "transfer-clear": (1, 10, 0.25, 0.25),
    "transfer-cluttered": (2, 10, 1.0, 0.25),
    "transfer-noisy": (3, 10, 0.25, 1.0),
    "transfer-both": (4, 10, 1.0, 0.5),
    "transfer-many": (5, 20, 0.5, 0.5),
}
TRANSFER_TARGETS = {name: _make_transfer_entry(*values) for name, values in _OTHER_PATTERNS.items()}
"""Sets for linear probes, which share no classes with `patterns` or with each other."""


def _make_gratings_entry(
    number: int, factors: Sequence[str], train: int, size: int = IMAGE_SIZE
) -> Entry:
    """Return gratings whose class is the level of the factors, about 1,500 of them held out.

    The noise grows with the size, so that larger images are as hard.
    """
    count = math.prod(FACTORS[name] for name in factors)
    noise = 0.5 * size / IMAGE_SIZE

    def make(seed: int) -> tuple[Pictures, Pictures]:
        stream = stream_seed(seed, number)
        return make_gratings(
            factors, train // count, 1500 // count, noise=noise, seed=stream, size=size
        )

    return Entry(_wrap_make(make), size, False, Policy.CIFAR10)


_FACTORS_OF: Mapping[str, tuple[int, tuple[str, ...], int]] = {
    "gratings": (11, ("orientation", "frequency"), 2000),
    "gratings-orientation": (12, ("orientation",), 1000),
    "gratings-frequency": (13, ("frequency",), 1000),
    "gratings-colour": (14, ("colour",), 1000),
    "gratings-orientation-colour": (15, ("orientation", "colour"), 1000),
}
GRATINGS = {name: _make_gratings_entry(*values) for name, values in _FACTORS_OF.items()}
"""Waves of known orientation, frequency and colour: one or two factors make the class."""

LARGE_TARGETS = {
    **{
        f"{name}-32": _make_transfer_entry(*values, _LARGE)
        for name, values in _OTHER_PATTERNS.items()
    },
    **{
        f"{name}-32": _make_gratings_entry(*values, size=_LARGE)
        for name, values in _FACTORS_OF.items()
    },
}
"""The same sets with images of 32 pixels a side."""

_MNIST, _FASHION = ((0.1307,), (0.3081,)), ((0.2860,), (0.3530,))
_CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_CIFAR100 = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
_SVHN = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)
_STL10 = (0.4467, 0.4398, 0.4066), (0.2603, 0.2566, 0.2713)
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

CATALOGUE = {
    "digits": Entry(_wrap_make(lambda seed: read_digit_pixels(seed=seed)), 8, False, Policy.SVHN),
    "warped-digits": _make_digits_entry(),
    "warped-digits-6000": _make_digits_entry(test_per_class=600),
    "warped-digits-0-4": _make_digits_entry(digits=range(5)),
    "warped-digits-5-9": _make_digits_entry(digits=range(5, 10)),
    "mnist-5k": Entry(_wrap_make(lambda seed: read_mnist_5k()), 28, False, Policy.SVHN),
    "patterns": _make_patterns_entry(),
    "clear-patterns": _make_patterns_entry(clutter=0.25, noise=0.25),
    "patterns-20": _make_patterns_entry(num_classes=20, train_per_class=100, test_per_class=50),
    "patterns-40": _make_patterns_entry(num_classes=40, train_per_class=100, test_per_class=50),
    "patterns-100": _make_patterns_entry(num_classes=100, train_per_class=20, test_per_class=20),
    "transfer-source": _make_patterns_entry(train_per_class=800, test_per_class=300),
    **TRANSFER_TARGETS,
    **GRATINGS,
    **LARGE_TARGETS,
    # The noise makes large patterns as hard as the small.
    "patterns-32": _make_patterns_entry(
        size=_LARGE, noise=1.0, num_classes=10, train_per_class=1000, test_per_class=300
    ),
    "patterns-32-100": _make_patterns_entry(
        size=_LARGE, noise=1.0, num_classes=100, train_per_class=100, test_per_class=30
    ),
    "mnist": Entry(_wrap_read(partial(stored.read_idx, MNIST)), 28, False, Policy.SVHN, _MNIST),
    "fashion-mnist": Entry(
        _wrap_read(partial(stored.read_idx, FashionMNIST)), 28, True, Policy.CIFAR10, _FASHION
    ),
    "cifar10": Entry(
        _wrap_read(partial(stored.read_cifar, CIFAR10)), 32, True, Policy.CIFAR10, _CIFAR10
    ),
    "cifar100": Entry(
        _wrap_read(partial(stored.read_cifar, CIFAR100)), 32, True, Policy.CIFAR10, _CIFAR100
    ),
    "svhn": Entry(_wrap_read(stored.read_svhn), 32, False, Policy.SVHN, _SVHN),
    "stl10": Entry(_wrap_read(stored.read_stl10), 96, True, Policy.CIFAR10, _STL10),
    "imagenet": Entry(_wrap_read(stored.read_imagenet), None, True, Policy.IMAGENET, _IMAGENET),
    "pets": _make_photograph_entry(downstream.read_pets, "mean per class"),
    "flowers": _make_photograph_entry(downstream.read_flowers, "mean per class"),
    "aircraft": _make_photograph_entry(downstream.read_aircraft, "mean per class"),
    "cars": _make_photograph_entry(downstream.read_cars),
    "dtd": _make_photograph_entry(downstream.read_dtd),
    "food101": _make_photograph_entry(downstream.read_food101),
    "caltech101": _make_photograph_entry(downstream.read_caltech101, "mean per class"),
    "sun397": _make_photograph_entry(downstream.read_sun397),
}


def load(
    name: str,
    folder: Path = Path("data"),
    *,
    download: bool = False,
    augmentation: Augmentation = "none",
    size: int | None = None,
    normalisation: Literal["own", "imagenet"] = "own",
    seed: int = 0,
) -> ImageData:
    """Load a data set by name, with its preprocessing.

    Args:
        name: Key of ``CATALOGUE``.
        folder: Folder of the files of stored sets.
        download: Fetch missing files from the internet if True.
        augmentation: Augmentation of the training images in training; see `Preprocessing`.
        size: Height and width of the network's input. Smaller images are padded, photographs
            cropped. By default, images keep their size, and photographs are cropped to 224.
        normalisation: ``"own"`` for the channel statistics of the set's training images, or
            ``"imagenet"`` for those of ImageNet, which VCI uses for all its sets.
        seed: Seed of generated sets, and of the split of ``digits``; stored sets need none.

    Raises:
        InputError: If the name is unknown, files are missing or broken (the message says what to
            do), the size is below that of the images, or the augmentation does not fit them.

    Example:
        >>> data = load("patterns")
        >>> data.num_classes, data.shape, len(data.train), len(data.test)
        (10, (3, 16, 16), 2000, 1000)
    """
    if name not in CATALOGUE:
        fix = f"pass one of {', '.join(CATALOGUE)}"
        raise InputError(expected="the name of a data set", found=repr(name), fix=fix)
    entry = CATALOGUE[name]
    least = entry.native or 1
    if size is not None and size < least:
        expected = f"an input of at least {least} pixels a side for {name}"
        raise InputError(expected=expected, found=str(size), fix="pass a larger size, or none")
    side = size or entry.native or _PHOTOGRAPH_SIZE
    split = entry.read(Path(folder), download, seed)
    statistics = entry.statistics
    if statistics is None:  # a set without published statistics
        assert isinstance(split.train.pictures, Tensor)
        by_channel = (split.train.pictures.double() / 255).transpose(0, 1).flatten(1)
        statistics = by_channel.mean(1).tolist(), by_channel.std(1).tolist()
    if normalisation == "imagenet":
        channels = len(statistics[0])
        if channels != len(_IMAGENET[0]):
            expected = "coloured images for ImageNet's normalisation"
            found = f"{name} of {channels} channel"
            raise InputError(expected=expected, found=found, fix="pass normalisation own")
        statistics = _IMAGENET
    mean, deviation = statistics
    traits = Traits(side, entry.native, mean, deviation, entry.mirrored, entry.policy)
    train = Images(split.train, Preprocessing(traits, augmentation))
    plain = Preprocessing(traits)
    test = Images(split.test, plain)
    validation = None if split.validation is None else Images(split.validation, plain)
    num_classes = int(torch.cat([train.labels, test.labels]).max()) + 1
    shape = len(mean), side, side
    return ImageData(name, train, test, num_classes, shape, validation, entry.measure)
