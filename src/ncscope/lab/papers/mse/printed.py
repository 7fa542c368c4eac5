"""Values that the MSE paper prints: table 1."""

from collections.abc import Mapping
from typing import NamedTuple


class Accuracy(NamedTuple):
    """Accuracies on held-out images in per cent.

    Attributes:
        zero: Accuracy at the first epoch of zero training error.
        final: Accuracy at the last epoch.
    """

    zero: float
    final: float

    @property
    def gain(self) -> float:
        """Gain of training past zero error, in points."""
        return self.final - self.zero


ACCURACIES: Mapping[str, Accuracy] = {
    "mnist, VGG": Accuracy(99.23, 99.59),
    "mnist, ResNet": Accuracy(99.16, 99.70),
    "mnist, DenseNet": Accuracy(99.62, 99.70),
    "fashion-mnist, VGG": Accuracy(92.76, 92.95),
    "fashion-mnist, ResNet": Accuracy(93.55, 93.76),
    "fashion-mnist, DenseNet": Accuracy(90.56, 92.95),
    "svhn, VGG": Accuracy(89.35, 93.91),
    "svhn, ResNet": Accuracy(85.18, 92.65),
    "svhn, DenseNet": Accuracy(95.61, 95.23),
    "cifar10, VGG": Accuracy(83.13, 84.54),
    "cifar10, ResNet": Accuracy(75.43, 76.39),
    "cifar10, DenseNet": Accuracy(91.77, 91.78),
    "stl10, VGG": Accuracy(60.43, 67.24),
    "stl10, ResNet": Accuracy(59.35, 60.56),
    "stl10, DenseNet": Accuracy(58.74, 60.41),
}
"""MSE table 1 by data set and kind of network."""

MEDIAN_GAIN, MEAN_GAIN = 0.962, 1.833
"""Improvements that the caption of table 1 states, in points; more digits than the cells have."""
