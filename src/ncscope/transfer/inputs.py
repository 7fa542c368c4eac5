"""Labelled features for the probes, checked once at the public boundary."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.errors import InputError
from ncscope.stats.batch import as_tensor, check_features, check_labels, refuse_nonfinite


@check_arguments
class LabelledSamples(NamedTuple):
    """Features and labels of at least two classes.

    Attributes:
        features: Features in float64, on the device of the input.
        labels: Labels as given.
        classes: Labels that occur, ascending.
        class_indices: Index of each sample's label in `classes`.
    """

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    classes: Int[Tensor, " k"]
    class_indices: Int[Tensor, " n"]

    def subset(self, chosen: Tensor) -> "LabelledSamples":
        """Return some of the samples.

        Args:
            chosen: Mask or indices of samples, of at least two classes.
        """
        return _labelled(self.features[chosen], self.labels[chosen])

    def joined(self, other: "LabelledSamples") -> "LabelledSamples":
        """Return these samples and others of the same dimension.

        Args:
            other: Samples to append.
        """
        features = torch.cat([self.features, other.features])
        return _labelled(features, torch.cat([self.labels, other.labels]))


@check_arguments
def checked_labelled(features: Any, labels: Any) -> LabelledSamples:
    """Check features and labels, and return them as tensors.

    Raises:
        InputError: If features and labels do not fit each other, a feature is not finite, or all
            samples are of one class.
    """
    rows = as_tensor(features, "features")
    check_features(rows)
    refuse_nonfinite(rows)
    checked = check_labels(as_tensor(labels, "labels"), len(rows)).to(rows.device)
    if len(checked) and int(checked.min()) < 0:
        fix = "number the classes from 0"
        raise InputError(expected="labels from 0", found=f"label {int(checked.min())}", fix=fix)
    samples = _labelled(rows.double(), checked)
    if len(samples.classes) < 2:
        found = f"{len(samples.classes)} in {len(rows)} samples"
        fix = "pass samples of several classes"
        raise InputError(expected="at least two classes with samples", found=found, fix=fix)
    return samples


def _labelled(features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> LabelledSamples:
    classes, class_indices = torch.unique(labels, return_inverse=True)
    return LabelledSamples(features, labels, classes, class_indices)
