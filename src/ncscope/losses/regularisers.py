"""Regularisers of features and classifier, to be added to a classification loss."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.errors import InputError
from ncscope.losses.inputs import (
    check_batch,
    check_matrix,
    loss_dtype,
    make_zero_loss,
    normalise_rows,
    refuse_unreal,
)


@check_arguments
def within_class_cosine(
    features: Shaped[Tensor, "n d"], labels: Shaped[Tensor, " n"]
) -> Float[Tensor, ""]:
    r"""Compute the average within-class cosine similarity, divided by the class's batch size.

    $R=\frac1{|\mathcal C|}\sum_{c\in\mathcal C}\frac1{n_c}
    \Bigl[\frac1{n_c^2}\sum_{y_i=y_j=c}\cos(h_i,h_j)\Bigr]$, where
    $\mathcal C$ are the classes present in the batch and $n_c$ their numbers of samples; the pairs
    are ordered and include $i=j$, as in VCI's $\bar d_{within}$. Source: VCI 6.3, in words only:
    "the average within-class cosine similarity divided by the number of data points of each class
    in the batch"; the average over the classes is our interpretation. In a loss $+\lambda R$, a
    positive $\lambda$ spreads the directions of a class and works against collapse; a negative
    $\lambda$ favours collapse.

    Range $[0,1]$; $1/m$ if every class has $m$ samples in one direction, 0 if the directions of
    every class average to zero; a class of one sample adds the constant $1/|\mathcal C|$.
    Invariant under rotation and positive scaling of each sample. Cost: one pass; no pair is
    formed, since the mean cosine is $\lVert\frac1{n_c}\sum_{y_i=c}\hat h_i\rVert^2$.

    Args:
        features: One sample a row.
        labels: Class of each sample, any integers.

    Returns:
        The term; dtype of the features, at least float32. Exactly 0 for an empty batch.

    Raises:
        InputError: If rows are zero or not finite, or shapes do not fit.

    Example:
        >>> within_class_cosine(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([7, 7]))
        tensor(0.2500)
    """
    classes = check_batch(features, labels)
    if len(classes) == 0:
        return make_zero_loss(features)
    _, position, counts = torch.unique(classes, return_inverse=True, return_counts=True)
    rows = normalise_rows(features, "features")
    sums = rows.new_zeros(len(counts), rows.shape[1]).index_add(0, position, rows)
    return (sums.square().sum(1) / counts**3).mean().to(loss_dtype(features))


@check_arguments
def feature_and_classifier_decay(
    features: Shaped[Tensor, "n d"],
    weight: Shaped[Tensor, "k d"],
    bias: Shaped[Tensor, " k"] | None = None,
    *,
    feature_decay: float,
    weight_decay: float,
) -> Float[Tensor, ""]:
    r"""Compute weight decay on the features and the classifier only.

    $\frac{\lambda_H}2\cdot\frac1n\sum_i\lVert h_i\rVert^2
    +\frac{\lambda_W}2(\lVert W\rVert_F^2+\lVert b\rVert^2)$: the penalty of the unconstrained
    features model, applied to a network instead of weight decay. Source: XUFM (3), PFC (2).

    The term of the features is a mean over the batch and does not depend on the batch size. The
    models' $\frac{\lambda_H}2\lVert H\rVert_F^2$ over a training set of $N$ samples equals this
    term with ``feature_decay`` $=N\lambda_H$. Range $[0,\infty)$; 0: features and classifier are
    zero. Invariant under rotation.

    Args:
        features: One sample a row.
        weight: Weight of the classifier, one head a row.
        bias: Bias of the classifier; leave it out for the free bias of XUFM theorem 3.2.
        feature_decay: $\lambda_H$.
        weight_decay: $\lambda_W$, of the classifier and, if given, its bias.

    Returns:
        The term; the wider of the dtypes, at least float32. The features' part of an empty batch
        is 0.

    Raises:
        InputError: If features or weight are no matrices, or the bias has another length.

    Example:
        >>> rows, head = torch.ones(4, 2), torch.eye(2)
        >>> feature_and_classifier_decay(rows, head, feature_decay=0.1, weight_decay=0.01)
        tensor(0.1100)
    """
    check_matrix(features, "features")
    check_matrix(weight, "weight")
    if bias is not None:
        refuse_unreal(bias, "bias")
    if bias is not None and bias.shape != weight.shape[:1]:
        found, fix = f"shape {tuple(bias.shape)}", "pass a number for each row of the weight"
        raise InputError(expected=f"a bias of shape ({len(weight)},)", found=found, fix=fix)
    heads = weight if bias is None else torch.cat([weight, bias[:, None]], dim=1)
    dtype = loss_dtype(features, weight)
    size = features.to(dtype).square().sum() / max(1, len(features))
    return (feature_decay * size + weight_decay * heads.to(dtype).square().sum()) / 2
