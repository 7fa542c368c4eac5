"""Linear classifier on frozen features, and its accuracy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.array_checks import check_features, check_labels
from ncscope.errors import InputError

Measure: TypeAlias = Literal["top-1", "mean per class"]


@dataclass(frozen=True)
class LinearProbe:
    r"""$h\mapsto\arg\max_c\langle w_c,h\rangle+b_c$ over the classes that it was fitted on.

    Attributes:
        classes: Labels of the classes, ascending.
        weight: $w_c$, a row for each class.
        bias: $b_c$, a number for each class.
    """

    classes: Int[Tensor, " k"]
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"]

    @check_arguments
    def scores(self, features: Shaped[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Compute the score of each class for each row, in the weight's precision and device.

        Raises:
            InputError: If the features are no real matrix of the weight's dimension.
        """
        check_features(features)
        if features.shape[1] != self.weight.shape[1]:
            expected = f"features of dimension {self.weight.shape[1]}"
            found, fix = f"dimension {features.shape[1]}", "take them from the same layer"
            raise InputError(expected=expected, found=found, fix=fix)
        return features.to(self.weight) @ self.weight.mT + self.bias

    @check_arguments
    def predict(self, features: Shaped[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Return the label with the greatest score for each row."""
        return self.classes[self.scores(features).argmax(1)]


@check_arguments
def top1_accuracy(predictions: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> float:
    """Compute the share of samples whose prediction is correct.

    Raises:
        InputError: If predictions and labels are not one integer a sample, or there is no sample.

    Example:
        >>> top1_accuracy(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]))
        0.75
    """
    predictions, labels = _align(predictions, labels)
    return float((predictions == labels).double().mean())


@check_arguments
def mean_per_class_accuracy(predictions: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> float:
    """Compute the share of correct predictions in each class, averaged over the classes.

    Raises:
        InputError: As `top1_accuracy`.

    Example:
        >>> mean_per_class_accuracy(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 0, 0]))
        0.75
        >>> mean_per_class_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
        0.5
    """
    predictions, labels = _align(predictions, labels)
    indices, counts = labels.unique(return_inverse=True, return_counts=True)[1:]
    correct = torch.bincount(indices, weights=(predictions == labels).double())
    return float((correct / counts).mean())


def _align(
    predictions: Int[Tensor, " n"], labels: Int[Tensor, " n"]
) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Return predictions and labels as int64 on one device."""
    truth = check_labels(labels, labels.numel())
    classes = check_labels(predictions, len(truth))
    if not len(truth):
        fix = "pass the predictions of at least one sample"
        raise InputError(expected="samples", found="none", fix=fix)
    return classes, truth.to(classes.device)


MEASURES: Mapping[Measure, Callable[[Tensor, Tensor], float]] = {
    "top-1": top1_accuracy,
    "mean per class": mean_per_class_accuracy,
}
"""Kinds of accuracy by name."""


def check_measure(name: str) -> Measure:
    """Check that an accuracy of this name exists, and return the name.

    Raises:
        InputError: If the name is not in `MEASURES`.
    """
    for measure in get_args(Measure):
        if measure == name:
            return measure
    fix = f"pass one of {', '.join(map(repr, MEASURES))}"
    raise InputError(expected="an accuracy by name", found=repr(name), fix=fix)
