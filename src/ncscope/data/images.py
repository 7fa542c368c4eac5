"""Labelled images as a map-style data set whose keys choose the augmentation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import PIL.Image
import torch
from jaxtyping import Float, Int, UInt8
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from ncscope.data.draws import Draw, seed_global_generator
from ncscope.data.order import draw_balanced_subset
from ncscope.data.preprocessing import Picture, Preprocessing
from ncscope.errors import InputError, say_error

Sample: TypeAlias = tuple[Float[Tensor, "c h w"], int]
AccuracyMeasure = Literal["top-1", "mean per class"]


@dataclass(frozen=True)
class Pictures:
    """Images before preprocessing.

    Attributes:
        pictures: Tensor of all pictures, or function that reads the picture at an index.
        labels: Labels of all pictures, available without reading the pictures.
    """

    pictures: UInt8[Tensor, "n c h w"] | Callable[[int], Picture]
    labels: Int[Tensor, " n"]

    def picture(self, index: int) -> Picture:
        """Return the picture at an index."""
        source = self.pictures
        return source[index] if isinstance(source, Tensor) else source(index)

    def convert_channels(self, channels: int) -> "Pictures":
        """Convert the images to one channel (luma) or to three."""
        source = self.pictures
        if isinstance(source, Tensor):
            return replace(self, pictures=_convert_pixels(source, channels))

        def read(index: int) -> Picture:
            picture = source(index)
            if isinstance(picture, Tensor):
                return _convert_pixels(picture, channels)
            return picture.convert("L" if channels == 1 else "RGB")

        return replace(self, pictures=read)


def open_picture(source: Path | BytesIO, name: str) -> Image:
    """Open an image in colour.

    Args:
        source: Path of the image's file, or its content.
        name: Name for messages.

    Raises:
        InputError: If the file is no image, is damaged, or unpacks to so many pixels that it could
            fill the memory.
    """
    try:
        with PIL.Image.open(source) as image:
            return image.convert("RGB")
    # Parsers of images raise anything on a damaged file.
    except Exception as error:
        found = f"{type(error).__name__}: {say_error(error)}"
        fix = f"replace or remove {name}"
        raise InputError(expected=f"an image in {name}", found=found, fix=fix) from error


class PictureSplit(NamedTuple):
    """Training and held-out images before preprocessing, and validation images if any."""

    train: Pictures
    test: Pictures
    validation: Pictures | None = None


class Images(Dataset[Sample]):
    """Images and labels: ``images[i]`` without augmentation, ``images[Draw(...)]`` with it.

    An item depends on its key alone, not on the items read before, on their order or on the process
    that reads.

    Args:
        pictures: Images before preprocessing.
        preprocessing: Preprocessing of the pictures.
    """

    def __init__(self, pictures: Pictures, preprocessing: Preprocessing) -> None:
        self.labels = pictures.labels
        self._pictures, self.preprocessing = pictures, preprocessing
        self._positions: Int[Tensor, " n"] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, key: int | Draw) -> Sample:
        """Return the image, channels before rows before columns, and its label."""
        index = key.image if isinstance(key, Draw) else key
        picture, label = self.picture(index), int(self.labels[index])
        if not isinstance(key, Draw) or not self.preprocessing.random:
            return self.preprocessing.prepare_plain(picture), label
        with seed_global_generator(*key):
            return self.preprocessing.prepare_random(picture), label

    def picture(self, index: int) -> Picture:
        """Return the picture at an index, before preprocessing."""
        position = index if self._positions is None else int(self._positions[index])
        return self._pictures.picture(position)

    def __getitems__(self, keys: Sequence[int | Draw]) -> list[Sample]:
        """Return a batch of items; much faster for images in memory without augmentation."""
        pixels = self._pictures.pictures
        is_random = self.preprocessing.random and isinstance(keys[0], Draw)
        # A random change has its own seed for each image, so images are changed one by one.
        if is_random or not isinstance(pixels, Tensor):
            return [self[key] for key in keys]
        indices = torch.tensor(
            [key.image if isinstance(key, Draw) else key for key in keys], device="cpu"
        )
        positions = indices if self._positions is None else self._positions[indices]
        batch = self.preprocessing.prepare_plain(pixels[positions])
        return list(zip(batch, self.labels[indices].tolist(), strict=True))

    def subset(self, indices: Int[Tensor, " m"]) -> "Images":
        """Return the images at these indices, renumbered from 0."""
        part = Images(self._pictures, self.preprocessing)
        part.labels = self.labels[indices]
        part._positions = indices if self._positions is None else self._positions[indices]
        return part

    def draw_balanced(self, size: int, seed: int = 0) -> "Images":
        """Choose a subset with balanced classes; see `draw_balanced_subset`."""
        return self.subset(draw_balanced_subset(self.labels, size, seed))

    def through(self, preprocessing: Preprocessing) -> "Images":
        """Return the images with other preprocessing, and with the channels that it needs."""
        pictures = self._pictures.convert_channels(len(preprocessing.traits.mean))
        images = Images(pictures, preprocessing)
        images.labels, images._positions = self.labels, self._positions
        return images


def _convert_pixels(pixels: UInt8[Tensor, "*n c h w"], channels: int) -> UInt8[Tensor, "*n c2 h w"]:
    """Repeat grey images in every channel, or reduce coloured images to their luma."""
    if pixels.shape[-3] == channels:
        return pixels
    grey = pixels if channels > 1 else v2.functional.rgb_to_grayscale(pixels)
    return grey.expand(*grey.shape[:-3], channels, -1, -1)


@dataclass(frozen=True)
class ImageData:
    """A data set ready for training.

    Attributes:
        name: Name in the catalogue.
        train: Training images.
        test: Held-out images.
        num_classes: Number of classes.
        shape: Channels, height and width of the network's input.
        validation: Images for choosing settings, if the makers of the set define them.
        measure: Customary kind of accuracy on this set.
    """

    name: str
    train: Images
    test: Images
    num_classes: int
    shape: tuple[int, int, int]
    validation: Images | None = None
    measure: AccuracyMeasure = "top-1"

    def draw_balanced(self, size: int, seed: int) -> "ImageData":
        """Return the set with fewer training images, equally many of each class.

        The normalisation still uses the pixels of the whole training set.

        Args:
            size: Total number of training images.
            seed: Seed of the choice.

        Raises:
            InputError: If the size is no multiple of the number of classes, or the smallest
                class has too few images.

        Example:
            >>> from ncscope.data.catalogue import load
            >>> load("digits").draw_balanced(1_000, seed=0).train.labels.bincount().tolist()
            [100, 100, 100, 100, 100, 100, 100, 100, 100, 100]
        """
        classes = self.num_classes
        largest = classes * int(self.train.labels.bincount(minlength=classes).min())
        if size % classes or not classes <= size <= largest:
            expected = f"a multiple of {classes} up to {largest:,} of {self.name}'s training images"
            fix = "pass such a number, or leave balanced out"
            raise InputError(expected=expected, found=f"{size:,}", fix=fix)
        return replace(self, train=self.train.draw_balanced(size, seed))
