"""LEEP: the log expected empirical prediction of labels from a source head's probabilities."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor
from ncscope.errors import InputError
from ncscope.transfer.samples import DownstreamSamples

_OFF_ONE = 1e-2  # half precision rounds the sum of a thousand probabilities by less


@check_arguments
def leep(samples: DownstreamSamples, probabilities: Any) -> Float[Tensor, ""]:
    r"""Compute the log expected empirical prediction of the labels from source probabilities.

    $\frac1n\sum_i\log\sum_z\hat P(y_i\mid z)\,\theta_{iz}$ with
    $\hat P(y\mid z)=\sum_{i:y_i=y}\theta_{iz}/\sum_i\theta_{iz}$. Source: Nguyen, Hassner, Seeger,
    Archambeau 2020, equation (2). Range $[\sum_y p_y\log p_y,0]$ with the class shares $p_y$: at
    the lower end the source classes say nothing of the labels, at 0 they determine them. Does not
    depend on the order of the source classes.

    The roles must not be swapped: the classes in the sum over $z$ are those of the *source*. The
    LEEP and NCE columns of You et al. 2021 (LogME) are reproduced only with source and target
    exchanged (issue 14 of their repository); their code itself takes the arguments in the right
    order. Known failures: with many more source classes than samples of a class, each sample finds
    its own source class and the score tends to 0; source heads with different numbers of classes
    are not comparable; nothing can be said of a network without a head.

    Args:
        samples: Downstream samples; only their labels are read.
        probabilities: Probabilities of the source classes for each sample, n x Z; rows sum to one.

    Raises:
        InputError: If the probabilities do not fit the samples, are negative or do not sum to one.

    Cost: 2nZ additions for the table of classes, and nZ products.

    Example:
        >>> from ncscope.transfer.samples import check_downstream
        >>> samples = check_downstream(torch.zeros(4, 1), [0, 0, 1, 1])
        >>> round(float(leep(samples, torch.full((4, 3), 1 / 3))), 4)
        -0.6931
    """
    return expected_prediction(samples, check_probabilities(probabilities, len(samples.labels)))


def expected_prediction(
    samples: DownstreamSamples, probabilities: Float[Tensor, "n z"]
) -> Float[Tensor, ""]:
    """Compute LEEP from checked probabilities."""
    joint = probabilities.new_zeros(len(samples.classes), probabilities.shape[1])
    joint.index_add_(0, samples.class_indices, probabilities)
    marginal = joint.sum(0)
    given_source = torch.where(marginal > 0, joint / marginal, 0.0)
    # A sample's likeliest source class has at least 1/Z, and the sample is itself counted among
    # those of the class: the sum is at least 1/(nZ^2), and its logarithm needs no epsilon.
    return (given_source[samples.class_indices] * probabilities).sum(1).log().mean()


def check_probabilities(probabilities: Any, count: int) -> Float[Tensor, "n z"]:
    """Check source probabilities, and return them in float64 with rows that sum to one.

    Args:
        probabilities: Array-like of n x Z.
        count: Number of samples.

    Raises:
        InputError: If the shape does not fit, a number is negative or not finite, or the sum of a
            row differs from one by more than a hundredth.
    """
    rows = as_tensor(probabilities, "source probabilities")
    if rows.is_complex():
        found, fix = f"dtype {rows.dtype}", "pass the softmax of the logits"
        raise InputError(expected="real source probabilities", found=found, fix=fix)
    rows = rows.double()
    expected = "source probabilities of shape (samples, source classes)"
    if rows.ndim != 2 or len(rows) != count or not rows.shape[1]:
        found = f"shape {tuple(rows.shape)} for {count} samples"
        raise InputError(expected=expected, found=found, fix="pass one row for each sample")
    sums = rows.sum(1)
    off = ~((sums - 1).abs() <= _OFF_ONE) | (rows < 0).any(1)
    if bool(off.any()):
        row = int(torch.nonzero(off)[0])
        found = (
            f"row {row}, which sums to {float(sums[row]):.4g}, least {float(rows[row].min()):.4g}"
        )
        fix = "apply the softmax to the logits of the source head"
        raise InputError(expected="rows of probabilities that sum to one", found=found, fix=fix)
    return rows / sums[:, None]
