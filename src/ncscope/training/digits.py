"""scikit-learn's handwritten digits: real images that need no download."""

from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import TensorDataset


class Split(NamedTuple):
    """Training and held-out samples."""

    train: TensorDataset
    test: TensorDataset


def digits(test_share: float = 0.2, seed: int = 0, deviation: float = 1.0) -> Split:
    """The 1,797 images of 8 x 8 pixels, centred and scaled as the training set's pixels ask.

    All pixels share one mean and one deviation, so that an image stays an image.

    Args:
        test_share: Share of each class held out.
        seed: Which samples those are.
        deviation: Standard deviation of the training pixels after scaling.

    Returns:
        Data sets of (image as 64 floats, label 0..9).

    Example:
        >>> train, test = digits()
        >>> len(train), len(test)
        (1437, 360)
    """
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images, labels, test_size=test_share, stratify=labels, random_state=seed
    )
    train, test = (torch.as_tensor(part, dtype=torch.float32) for part in parts[:2])
    y_train, y_test = (torch.as_tensor(part, dtype=torch.int64) for part in parts[2:])
    mean, scale = train.mean(), deviation / train.std()
    return Split(
        TensorDataset((train - mean) * scale, y_train),
        TensorDataset((test - mean) * scale, y_test),
    )
