r"""Matrix information between the features of a batch and the heads of their classes.

The heads of a batch are $V_i=W_{y_i}$. INFO 6.2 adds $-\lambda_{mi}\operatorname{MI}(G(f),G(V))$ or
$+\lambda_{id}|H(G(f))-H(G(V))|$ to a classification loss: ``loss -= strength *
head_mutual_information(...)`` or ``loss += strength * head_entropy_difference(...)``.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.losses.entropy import entropy_of_unit_rows, matrix_entropy
from ncscope.losses.inputs import (
    check_batch,
    check_matrix,
    find_selected,
    loss_dtype,
    make_zero_loss,
    normalise_rows,
    refuse_out_of_range,
)

_Measure = Callable[[Float[Tensor, "n d"], Float[Tensor, "n p"]], Float[Tensor, ""]]


@check_arguments
def mutual_information(
    features: Shaped[Tensor, "n d"], vectors: Shaped[Tensor, "n p"]
) -> Float[Tensor, ""]:
    r"""$MI=H(G(f))+H(G(V))-H(G(f)\odot G(V))$, $G$ the Gram matrix of the unit rows.

    Source: INFO definition 3.2. Range $[0,\min\{H(G(f)),H(G(V))\}]$: $\frac1n(G(f)\odot G(V))$ has
    the spectrum of the density matrix
    $\frac1n\sum_i\hat f_i\hat f_i^\top\otimes\hat v_i\hat v_i^\top$, whose marginals have the
    spectra of $\frac1nG(f)$ and $\frac1nG(V)$. It is separable, so its entropy is at most the sum
    of the marginal entropies (subadditivity) and at least each of them. 0 if one set of rows lies
    on one line. Invariant under rotation of either set, nonzero scaling of each row, and the order
    of samples. Cost: three eigen-decompositions, of size $\min(n,d)$, $\min(n,p)$ and $n$, in
    float64.

    Args:
        features: $f$, one sample a row, any real dtype.
        vectors: $V$, one vector for each sample, of any dimension.

    Returns:
        The information in nats; the wider of the two dtypes, at least float32. Exactly 0, with
        zero gradients, for fewer than two samples.

    Raises:
        InputError: If rows are zero or not finite, or their numbers differ.

    Example:
        >>> basis = torch.eye(3)
        >>> round(float(mutual_information(basis, basis)), 6)  # log 3
        1.098612
    """
    return _measure_pairs(_mutual_information, features, vectors)


@check_arguments
def entropy_difference(
    features: Shaped[Tensor, "n d"], vectors: Shaped[Tensor, "n p"]
) -> Float[Tensor, ""]:
    r"""$|H(G(f))-H(G(V))|$, $G$ the Gram matrix of the unit rows.

    Source: INFO 6.2, the numerator of definition 3.4. Range $[0,\log n]$; 0: equal entropies
    (the gradient there is 0). Invariant as `mutual_information`. Cost: two eigen-decompositions,
    of size $\min(n,d)$ and $\min(n,p)$, in float64.

    Args:
        features: $f$, one sample a row, any real dtype.
        vectors: $V$, one vector for each sample, of any dimension.

    Returns:
        The difference in nats; the wider of the two dtypes, at least float32. Exactly 0, with
        zero gradients, for fewer than two samples.

    Raises:
        InputError: If rows are zero or not finite, or their numbers differ.

    Example:
        >>> round(float(entropy_difference(torch.eye(3), torch.ones(3, 2))), 6)  # log 3 - 0
        1.098612
    """
    return _measure_pairs(_entropy_difference, features, vectors)


@check_arguments
def head_mutual_information(
    features: Shaped[Tensor, "n d"],
    labels: Shaped[Tensor, " n"],
    weight: Shaped[Tensor, "k p"],
    selected: Bool[Tensor, " n"] | None = None,
) -> Float[Tensor, ""]:
    r"""`mutual_information` of the features and the heads $V_i=W_{y_i}$ of their labels.

    Source: INFO 6.2. At collapse to a simplex, balanced batch: $\log(C-1)\cdot MIR$ with
    $MIR=\frac1{C-1}+\frac{(C-2)\log(C-2)}{(C-1)\log(C-1)}$.

    Args:
        features: One sample a row.
        labels: Class or pseudo-label of each sample; only those of selected samples are read.
        weight: One head a row. Detach the weight to train the features alone.
        selected: Mask of the samples to use, such as ``confidence > threshold``; all by default.

    Returns:
        The information in nats; the wider of the two dtypes, at least float32. Exactly 0, with
        zero gradients, for fewer than two samples.

    Raises:
        InputError: If a used row of features or weight is zero or not finite, a used label has no
            head, or shapes do not fit.

    Example:
        >>> labels, sure = torch.tensor([0, 1, -1]), torch.tensor([True, True, False])
        >>> head_mutual_information(torch.eye(3), labels, torch.eye(2), sure)
        tensor(0.6931)
    """
    return _measure_batch(_mutual_information, features, labels, weight, selected)


@check_arguments
def head_entropy_difference(
    features: Shaped[Tensor, "n d"],
    labels: Shaped[Tensor, " n"],
    weight: Shaped[Tensor, "k p"],
    selected: Bool[Tensor, " n"] | None = None,
) -> Float[Tensor, ""]:
    r"""`entropy_difference` of the features and the heads $V_i=W_{y_i}$ of their labels.

    Source: INFO 6.2. 0 at collapse to a simplex; $H(G(f))$ if the batch holds one class.

    Args:
        features: One sample a row.
        labels: Class or pseudo-label of each sample; only those of selected samples are read.
        weight: One head a row. Detach the weight to train the features alone.
        selected: Mask of the samples to use, such as ``confidence > threshold``; all by default.

    Returns:
        The difference in nats; the wider of the two dtypes, at least float32. Exactly 0, with
        zero gradients, for fewer than two samples.

    Raises:
        InputError: If a used row of features or weight is zero or not finite, a used label has no
            head, or shapes do not fit.

    Example:
        >>> head_entropy_difference(torch.eye(2), torch.tensor([0, 0]), torch.eye(2))
        tensor(0.6931)
    """
    return _measure_batch(_entropy_difference, features, labels, weight, selected)


def _mutual_information(
    features: Float[Tensor, "n d"], vectors: Float[Tensor, "n p"]
) -> Float[Tensor, ""]:
    joint = (features @ features.mT) * (vectors @ vectors.mT)
    alone = entropy_of_unit_rows(features) + entropy_of_unit_rows(vectors)
    return alone - matrix_entropy(joint, len(joint))


def _entropy_difference(
    features: Float[Tensor, "n d"], vectors: Float[Tensor, "n p"]
) -> Float[Tensor, ""]:
    return (entropy_of_unit_rows(features) - entropy_of_unit_rows(vectors)).abs()


def _measure_pairs(
    measure: _Measure, features: Shaped[Tensor, "n d"], vectors: Shaped[Tensor, "n p"]
) -> Float[Tensor, ""]:
    check_matrix(features, "features")
    check_matrix(vectors, "vectors", len(features))
    if len(features) < 2:
        return make_zero_loss(features, vectors)
    value = measure(normalise_rows(features, "features"), normalise_rows(vectors, "vectors"))
    return value.to(loss_dtype(features, vectors))


def _measure_batch(
    measure: _Measure,
    features: Shaped[Tensor, "n d"],
    labels: Shaped[Tensor, " n"],
    weight: Shaped[Tensor, "k p"],
    selected: Bool[Tensor, " n"] | None,
) -> Float[Tensor, ""]:
    classes = check_batch(features, labels)
    indices = find_selected(selected, len(features))
    numbers = torch.arange(len(features), device=features.device)
    classes = classes[indices]
    check_matrix(weight, "weight")
    refuse_out_of_range(classes, len(weight))
    if len(classes) < 2:
        return make_zero_loss(features, weight)
    rows = normalise_rows(features[indices], "features", numbers[indices])
    # Only the heads of classes that are present: an absent class may have a head of zeros.
    present, position = torch.unique(classes, return_inverse=True)
    heads = normalise_rows(weight[present], "weight", present)[position]
    value = measure(rows, heads)
    return value.to(loss_dtype(features, weight))
