"""Downstream samples, whose features and labels are checked once, at the public boundary."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor, check_features, refuse_nonfinite
from ncscope.errors import InputError
from ncscope.labels import IgnoreIndex, check_pairing, read_labels


@check_arguments
class DownstreamSamples(NamedTuple):
    """Features and labels of at least two classes.

    Attributes:
        features: Features in float64, on the device of the input.
        labels: Labels as given; names are numbered.
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
def check_downstream(
    features: Any,
    labels: Any,
    *,
    ignore_index: IgnoreIndex = None,
    class_names: Sequence[str] | None = None,
) -> DownstreamSamples:
    """Check features and labels, and return them as tensors.

    Args:
        features: n x d array-like.
        labels: n integers from 0, or names, which are numbered as `ncscope.measure` numbers them.
        ignore_index: Label of samples to leave out, or several.
        class_names: Names of the classes, in the order of their numbers. Training and held-out
            samples whose labels are names need the same.

    Raises:
        InputError: If features and labels do not fit each other, a feature is not finite, or all
            samples are of one class.
    """
    check_pairing(features, labels)
    rows = as_tensor(features, "features")
    check_features(rows)
    read = read_labels(labels, len(rows), ignore_index=ignore_index, class_names=class_names)
    rows, classes = read.select(rows), read.labels.to(rows.device)
    refuse_nonfinite(rows)
    least = int(classes.min()) if len(classes) else 0
    if least < 0:
        fix = (
            f"leave these samples out, by ignore_index={least} of a ranking or keep = labels != "
            f"{least} before a probe; or number the classes from 0"
        )
        raise InputError(expected="labels from 0", found=f"label {least}", fix=fix)
    samples = _index_classes(rows.double(), classes)
    if len(samples.classes) < 2:
        found = f"{len(samples.classes)} in {len(rows)} samples"
        fix = "pass samples of several classes"
        raise InputError(expected="at least two classes with samples", found=found, fix=fix)
    return samples


def _index_classes(features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> DownstreamSamples:
    classes, class_indices = torch.unique(labels, return_inverse=True)
    return DownstreamSamples(features, labels, classes, class_indices)
