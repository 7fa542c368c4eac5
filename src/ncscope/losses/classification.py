"""Losses of logits and labels: squared error and cross-entropy, plain and modified."""

import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from ncscope.arguments import Positive, Share, check_arguments
from ncscope.array_checks import check_features
from ncscope.errors import InputError
from ncscope.labels import read_label_sets
from ncscope.losses.inputs import check_batch, loss_dtype, refuse_out_of_range


@check_arguments
def squared_error(logits: Shaped[Tensor, "n k"], labels: Shaped[Tensor, " n"]) -> Float[Tensor, ""]:
    r"""$\frac1{2n}\sum_i\lVert z_i-e_{y_i}\rVert^2$: summed over classes, averaged over samples.

    Source: MSE (2), XUFM (3). The MSE decomposition among the metrics splits this loss.
    `torch.nn.MSELoss` averages over classes too, and equals $2/K$ times this loss. Range
    $[0,\infty)$; 0: the logits are the one-hot labels.

    Args:
        logits: One sample a row.
        labels: Class of each sample.

    Returns:
        The loss; dtype of the logits, at least float32.

    Raises:
        InputError: If shapes do not fit, a label is out of range, or the batch is empty.

    Example:
        >>> import torch
        >>> squared_error(torch.zeros(4, 10), torch.tensor([0, 3, 3, 9]))
        tensor(0.5000)
    """
    scores, targets = _scores_and_targets(logits, labels)
    return F.mse_loss(scores, targets, reduction="sum") / (2 * len(scores))


@check_arguments
def rescaled_squared_error(
    logits: Shaped[Tensor, "n k"],
    labels: Shaped[Tensor, " n"],
    factor: Positive,
    target: Positive,
) -> Float[Tensor, ""]:
    r"""$\frac1{2n}\sum_i\bigl[k(z_{iy_i}-M)^2+\sum_{j\ne y_i}z_{ij}^2\bigr]$ for many classes.

    With many classes the true logit has little weight in the plain squared error; a factor $k$ on
    its term and a target $M$ above 1 increase the weight. Source: Hui & Belkin 2021, section 5
    (with $k=15$, $M=30$ on ImageNet), with the prefactor $1/K$ for a sample instead of $1/2$ here.
    $k=M=1$ is `squared_error`. Range $[0,\infty)$; 0: every true logit is $M$, every other 0.

    Args:
        logits: One sample a row.
        labels: Class of each sample.
        factor: $k$, on the true class's term, above 0.
        target: $M$, the true class's target, above 0.

    Returns:
        The loss; dtype of the logits, at least float32.

    Raises:
        InputError: If shapes do not fit, a label is out of range, the batch is empty, or a
            parameter is not positive.

    Example:
        >>> import torch
        >>> rescaled_squared_error(torch.zeros(1, 10), torch.tensor([3]), factor=2.0, target=3.0)
        tensor(9.)
    """
    scores, targets = _scores_and_targets(logits, labels)
    error = (scores - target * targets).square() * (1 + (factor - 1) * targets)
    return error.sum() / (2 * len(scores))


@check_arguments
def temperature_cross_entropy(
    logits: Shaped[Tensor, "n k"],
    labels: Shaped[Tensor, " n"],
    temperature: Positive,
) -> Float[Tensor, ""]:
    r"""$-\frac1n\sum_i\log\operatorname{softmax}(z_i/\tau)_{y_i}$.

    Source: VCI 6.3, after Kornblith et al. 2021. Range $[0,\infty)$; tends to 0 as the true logits
    exceed the others more and more. With a small $\tau$, small differences of logits give a small
    loss. The loss is not multiplied by $\tau$.

    Args:
        logits: One sample a row.
        labels: Class of each sample.
        temperature: $\tau$, above 0; 1 is plain cross-entropy.

    Returns:
        The loss in nats; dtype of the logits, at least float32.

    Raises:
        InputError: If shapes do not fit, a label is out of range, the batch is empty, or the
            temperature is not positive.

    Example:
        >>> import torch
        >>> temperature_cross_entropy(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), 2.0)
        tensor(0.3133)
    """
    return F.cross_entropy(_scores(logits) / temperature, _classes(logits, labels))


@check_arguments
def smoothed_cross_entropy(
    logits: Shaped[Tensor, "n k"], labels: Shaped[Tensor, " n"], smoothing: Share
) -> Float[Tensor, ""]:
    r"""Cross-entropy against the targets $(1-\epsilon)e_{y_i}+\frac\epsilon K\mathbf 1$.

    Source: Szegedy et al. 2016; INFO figure 5 varies the smoothing. Range: from the entropy of the
    target, reached if the softmax equals the target, to $\infty$.

    Args:
        logits: One sample a row.
        labels: Class of each sample.
        smoothing: $\epsilon$ in $[0,1]$; 0 is plain cross-entropy.

    Returns:
        The loss in nats; dtype of the logits, at least float32.

    Raises:
        InputError: If shapes do not fit, a label is out of range, the batch is empty, or the
            smoothing is outside $[0,1]$.

    Example:
        >>> import torch
        >>> smoothed_cross_entropy(torch.zeros(1, 4), torch.tensor([2]), 0.1)  # log 4
        tensor(1.3863)
    """
    classes = _classes(logits, labels)
    return F.cross_entropy(_scores(logits), classes, label_smoothing=smoothing)


@check_arguments
def pick_all_label(
    logits: Shaped[Tensor, "n k"], targets: Shaped[Tensor, "n k"]
) -> Float[Tensor, ""]:
    r"""$-\frac1n\sum_i\sum_{c\in S_i}\log\operatorname{softmax}(z_i)_c$, $S_i$ the sample's labels.

    The pick-all-label cross-entropy for several labels a sample: the cross-entropies of all labels
    are added. Source: Reddi et al. 2019; Li, Li, Wang and Qu 2024, whose theorem says what
    `measure_multilabel` measures. Range $[\frac1n\sum_i|S_i|\log|S_i|,\infty)$: the labels of a
    sample share its probability. A sample without labels counts as 0.

    Args:
        logits: One sample a row.
        targets: 1 where a sample has the class, 0 elsewhere.

    Returns:
        The loss in nats; dtype of the logits, at least float32.

    Raises:
        InputError: If shapes do not fit, a target is neither 0 nor 1, or the batch is empty.

    Example:
        >>> import torch
        >>> pick_all_label(torch.zeros(1, 4), torch.tensor([[1, 0, 1, 0]]))  # 2 log 4
        tensor(2.7726)
    """
    check_features(logits)
    present = read_label_sets(targets, len(logits))
    if present.shape != logits.shape:
        expected, fix = f"targets of shape {tuple(logits.shape)}", "pass one column a logit"
        raise InputError(expected=expected, found=f"shape {tuple(present.shape)}", fix=fix)
    if not len(logits):
        raise InputError(expected="at least one sample", found="none", fix="skip empty batches")
    scores = _scores(logits)
    return F.cross_entropy(scores, present.to(scores))


def _scores_and_targets(
    logits: Shaped[Tensor, "n k"], labels: Shaped[Tensor, " n"]
) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
    scores = _scores(logits)
    return scores, F.one_hot(_classes(logits, labels), logits.shape[1]).to(scores)


def _scores(logits: Shaped[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    return logits.to(loss_dtype(logits))


def _classes(logits: Shaped[Tensor, "n k"], labels: Shaped[Tensor, " n"]) -> Tensor:
    classes = check_batch(logits, labels)
    if len(classes) == 0:
        raise InputError(expected="at least one sample", found="none", fix="skip empty batches")
    refuse_out_of_range(classes, logits.shape[1])
    return classes
