"""Downstream samples, whose features and labels are checked once, at the public boundary."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor, check_features, check_labels, refuse_nonfinite
from ncscope.errors import InputError


@check_arguments
class DownstreamSamples(NamedTuple):
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

    def select(self, rows: Tensor) -> "DownstreamSamples":
        """Return some of the samples.

        Args:
            rows: Mask or indices of samples, of at least two classes.
        """
        return _index_classes(self.features[rows], self.labels[rows])

    def join(self, other: "DownstreamSamples") -> "DownstreamSamples":
        """Return these samples and others of the same dimension.

        Args:
            other: Samples to append.
        """
        features = torch.cat([self.features, other.features])
        return _index_classes(features, torch.cat([self.labels, other.labels]))


@check_arguments
def check_downstream(features: Any, labels: Any) -> DownstreamSamples:
    """Check features and labels, and return them as tensors.

    Raises:
        InputError: If features and labels do not fit each other, a feature is not finite, or all
            samples are of one class.
    """
    rows = as_tensor(features, "features")
    check_features(rows)
    refuse_nonfinite(rows)
    classes = check_labels(as_tensor(labels, "labels"), len(rows)).to(rows.device)
    if len(classes) and int(classes.min()) < 0:
        fix = "number the classes from 0"
        raise InputError(expected="labels from 0", found=f"label {int(classes.min())}", fix=fix)
    samples = _index_classes(rows.double(), classes)
    if len(samples.classes) < 2:
        found = f"{len(samples.classes)} in {len(rows)} samples"
        fix = "pass samples of several classes"
        raise InputError(expected="at least two classes with samples", found=found, fix=fix)
    return samples


def _index_classes(features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> DownstreamSamples:
    classes, class_indices = torch.unique(labels, return_inverse=True)
    return DownstreamSamples(features, labels, classes, class_indices)
