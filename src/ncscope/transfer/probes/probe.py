"""A linear classifier on frozen features, and how often it is right."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.errors import InputError

Measure: TypeAlias = Literal["top-1", "mean per class"]


@dataclass(frozen=True)
class LinearProbe:
    r"""$h\mapsto\arg\max_c\langle w_c,h\rangle+b_c$ over the classes that it was fitted on.

    Attributes:
        classes: Their labels, ascending.
        weight: A row for each.
        bias: A number for each.
    """

    classes: Int[Tensor, " k"]
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"]

    def scores(self, features: Shaped[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Each class's score of each row, in the weight's precision and on its device."""
        return features.to(self.weight) @ self.weight.mT + self.bias

    def predict(self, features: Shaped[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Return the label of the greatest score."""
        return self.classes[self.scores(features).argmax(1)]


def top1_accuracy(predicted: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> float:
    """Compute the share of samples that are predicted right.

    Example:
        >>> top1_accuracy(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]))
        0.75
    """
    return float((predicted == labels.to(predicted.device)).double().mean())


def mean_per_class_accuracy(predicted: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> float:
    """Compute the share of each class's samples predicted right, averaged over the classes.

    Example:
        >>> mean_per_class_accuracy(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 0, 0]))
        0.75
        >>> mean_per_class_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
        0.5
    """
    labels = labels.to(predicted.device)
    places, counts = labels.unique(return_inverse=True, return_counts=True)[1:]
    right = torch.bincount(places, weights=(predicted == labels).double())
    return float((right / counts).mean())


MEASURES: Mapping[Measure, Callable[[Tensor, Tensor], float]] = {
    "top-1": top1_accuracy,
    "mean per class": mean_per_class_accuracy,
}
"""The two accuracies that transfer is measured by, by name."""


def checked_measure(name: str) -> Measure:
    """Return the name of an accuracy, checked.

    Raises:
        InputError: If there is none of that name.
    """
    for known in get_args(Measure):
        if known == name:
            return known
    fix = f"pass one of {', '.join(map(repr, MEASURES))}"
    raise InputError(expected="an accuracy by name", found=repr(name), fix=fix)
