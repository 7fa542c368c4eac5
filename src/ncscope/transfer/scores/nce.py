"""NCE: the negative conditional entropy of labels given the classes that a source head predicts."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor
from ncscope.errors import InputError
from ncscope.transfer.samples import DownstreamSamples


@check_arguments
def nce(samples: DownstreamSamples, predictions: Any) -> Float[Tensor, ""]:
    r"""Compute the negative conditional entropy of the labels given predicted source classes.

    $-H(Y\mid Z)=\sum_{y,z}\hat P(y,z)\log\frac{\hat P(y,z)}{\hat P(z)}$. Source: Tran, Nguyen,
    Hassner 2019, section 3. Range $[\sum_y p_y\log p_y,0]$, as for `leep`; equal to
    LEEP if the source probabilities are 0 and 1. Does not depend on the numbers of the source
    classes. The code of PARC's authors adds $10^{-5}$ to every cell, which lowers the score by an
    amount that grows with the number of cells. Known failures:
    as `leep`; the confidence of the source head is not read.

    Args:
        samples: Downstream samples; only their labels are read.
        predictions: Predicted source class of each sample: n integers.

    Raises:
        InputError: If there is not one integer for each sample.

    Cost: n additions.

    Example:
        >>> from ncscope.transfer.samples import check_downstream
        >>> float(nce(check_downstream(torch.zeros(4, 1), [0, 0, 1, 1]), [7, 7, 2, 3]))
        0.0
    """
    outputs = check_predictions(predictions, samples.labels)
    classes, source = outputs.unique(return_inverse=True)
    k = len(samples.classes)
    joint = torch.bincount(
        samples.class_indices * len(classes) + source, minlength=k * len(classes)
    )
    joint = joint.view(k, -1).double() / len(source)
    return (torch.xlogy(joint, joint) - torch.xlogy(joint, joint.sum(0))).sum()


def check_predictions(predictions: Any, labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Check predicted source classes, and return them on the labels' device.

    Args:
        predictions: Source class of each sample: n integers.
        labels: Labels of the samples.

    Raises:
        InputError: If there is not one integer for each sample.
    """
    outputs = as_tensor(predictions, "source predictions")
    is_integer = not (outputs.is_floating_point() or outputs.is_complex())
    if outputs.shape != labels.shape or not is_integer:
        kind = str(outputs.dtype).removeprefix("torch.")
        raise InputError(
            expected="one integer source class for each sample",
            found=f"{kind} of shape {tuple(outputs.shape)}",
            fix="pass the index of the largest source probability of each sample",
        )
    return outputs.to(labels.device)
