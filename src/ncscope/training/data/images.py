"""Labelled images as a map-style data set, with or without augmentation by the key."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from ncscope.training.data.draws import Draw, seeded
from ncscope.training.data.order import balanced_subset
from ncscope.training.data.preprocessing import Picture, Preprocessing

Sample: TypeAlias = tuple[Float[Tensor, "c h w"], int]


@dataclass(frozen=True)
class LabelledPictures:
    """Images before preprocessing.

    Attributes:
        pictures: All in memory, or what reads the one at an index.
        labels: Of all, known without reading any picture.
    """

    pictures: UInt8[Tensor, "n c h w"] | Callable[[int], Picture]
    labels: Int[Tensor, " n"]

    def picture(self, index: int) -> Picture:
        """The one at an index."""
        source = self.pictures
        return source[index] if isinstance(source, Tensor) else source(index)


class Images(Dataset[Sample]):
    """Images and labels: ``images[i]`` as it is measured, ``images[Draw(...)]`` as trained on.

    What an item is depends on its key alone, not on what was read before, by which process or
    in which order.

    Args:
        pictures: Before preprocessing.
        preprocessing: Of the pictures.
    """

    def __init__(self, pictures: LabelledPictures, preprocessing: Preprocessing) -> None:
        self.labels = pictures.labels
        self._pictures, self._preprocessing = pictures, preprocessing
        self._positions: Int[Tensor, " n"] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, key: int | Draw) -> Sample:
        """The image, channels before rows before columns, and its label."""
        index = key.image if isinstance(key, Draw) else key
        place = index if self._positions is None else int(self._positions[index])
        picture, label = self._pictures.picture(place), int(self.labels[index])
        if not isinstance(key, Draw) or not self._preprocessing.random:
            return self._preprocessing.measured(picture), label
        with seeded(*key):
            return self._preprocessing.trained(picture), label

    def __getitems__(self, keys: Sequence[int | Draw]) -> list[Sample]:
        """A batch of items, many times faster where all is in memory and nothing is random."""
        pixels = self._pictures.pictures
        drawn = self._preprocessing.random and isinstance(keys[0], Draw)
        if drawn or not isinstance(pixels, Tensor):
            return [self[key] for key in keys]
        indices = torch.tensor([key.image if isinstance(key, Draw) else key for key in keys])
        places = indices if self._positions is None else self._positions[indices]
        batch = self._preprocessing.measured(pixels[places])
        return list(zip(batch, self.labels[indices].tolist(), strict=True))

    def subset(self, indices: Int[Tensor, " m"]) -> "Images":
        """The images at these indices, numbered anew."""
        chosen = Images(self._pictures, self._preprocessing)
        chosen.labels = self.labels[indices]
        chosen._positions = indices if self._positions is None else self._positions[indices]
        return chosen

    def balanced(self, size: int, seed: int = 0) -> "Images":
        """As many images of each class as far as possible: see `balanced_subset`."""
        return self.subset(balanced_subset(self.labels, size, seed))


@dataclass(frozen=True)
class ImageData:
    """A data set ready for training.

    Attributes:
        name: As in the catalogue.
        train: Training images.
        test: Held-out images.
        num_classes: Number of classes.
        shape: Channels, height and width of the network's input.
    """

    name: str
    train: Images
    test: Images
    num_classes: int
    shape: tuple[int, int, int]
