r"""Pseudo-labels of unlabelled samples: selection of trusted ones, and losses on them.

A network reads a weakly and a strongly augmented view of each unlabelled sample. With $q_i$ the
softmax output on the weak view and $Q_i$ on the strong one, the pseudo-label is
$\hat q_i=\arg\max_cq_{ic}$ and the confidence $\max_cq_{ic}$. FixMatch (Sohn et al. 2020) trusts
confidences above a constant. FreeMatch (Wang et al. 2023) computes a threshold for each class from
moving averages of the network's outputs.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ncscope.losses.inputs import make_zero_loss


def class_thresholds(
    confidence: Float[Tensor, ""], probabilities: Float[Tensor, " k"]
) -> Float[Tensor, " k"]:
    r"""Return $\tau(c)=\frac{\tilde p(c)}{\max_j\tilde p(j)}\tau$, lower for rarer classes.

    Source: FreeMatch (7).

    Args:
        confidence: $\tau$, moving average of the confidence.
        probabilities: $\tilde p$, moving average of the softmax outputs.

    Example:
        >>> import torch
        >>> class_thresholds(torch.tensor(0.8), torch.tensor([0.5, 0.25, 0.25]))
        tensor([0.8000, 0.4000, 0.4000])
    """
    return probabilities / probabilities.max() * confidence


def mark_trusted(
    probabilities: Float[Tensor, "n k"], thresholds: Float[Tensor, " k"]
) -> Bool[Tensor, " n"]:
    r"""Mark the samples with $\max_cq_{ic}\ge\tau(\hat q_i)$.

    Source: FreeMatch (8), which has $>$, while (9) and public code have $\ge$.

    Args:
        probabilities: $q$, one softmax output a row.
        thresholds: $\tau(c)$ of each class.

    Example:
        >>> import torch
        >>> mark_trusted(torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([0.8, 0.6]))
        tensor([False,  True])
    """
    confidence, labels = probabilities.max(dim=1)
    return confidence >= thresholds[labels]


def consistency_loss(
    logits: Float[Tensor, "n k"], pseudo_labels: Int[Tensor, " n"], mask: Bool[Tensor, " n"]
) -> Float[Tensor, ""]:
    r"""$-\frac1n\sum_{i\text{ trusted}}\log Q_{i\hat q_i}$, where $n$ counts all samples.

    Source: FixMatch (4), FreeMatch (8), INFO 6.1. Range $[0,\infty)$; 0 if no sample is trusted.

    Args:
        logits: Logits on the strong views.
        pseudo_labels: Pseudo-labels from the weak views.
        mask: True for trusted samples.

    Example:
        >>> import torch
        >>> labels, mask = torch.tensor([0, 1]), torch.tensor([True, False])
        >>> consistency_loss(torch.zeros(2, 4), labels, mask)  # log 4 / 2
        tensor(0.6931)
    """
    if len(logits) == 0:
        return make_zero_loss(logits)
    return (F.cross_entropy(logits, pseudo_labels, reduction="none") * mask).mean()


def fairness_loss(
    probabilities: Float[Tensor, " k"],
    histogram: Float[Tensor, " k"],
    strong: Float[Tensor, "n k"],
    mask: Bool[Tensor, " n"],
) -> Float[Tensor, ""]:
    r"""$-H(a,b)=\sum_ca_c\log b_c$, $a\propto\tilde p/\tilde h$, $b\propto\bar p/\bar h$, sums 1.

    $\bar p$ is the mean softmax output on the trusted strong views, $\bar h$ the histogram of their
    largest entries. Source: FreeMatch (9)-(11), INFO 6.1.

    A class that is predicted for no trusted view has $\bar h(c)=0$. Its term is left out. Public
    code sets $b_c=0$ for it and adds $a_c\log10^{-12}$, which changes the value but not the
    gradients.

    The $\tilde h(c)$ of a class that is never a pseudo-label decays to 0, while $\tilde p(c)$ stays
    positive: $a_c$ tends to 1, and is 1 once $\tilde p(c)/\tilde h(c)$ is out of range. Several
    classes with $\tilde h=0$ share $a$ in proportion to $\tilde p$; a class with $\tilde p=0$ has
    no share. Public code sets $a_c=0$ if $1/\tilde h(c)$ is infinite, and the gradient for this
    class then changes its sign.

    In the paper and in public code, the cross-entropy is maximised, not minimised: with constant
    $\bar h$, the gradient for $\log\bar p_c$ is $a_c-b_c$. Descent therefore raises the classes
    whose mean output is large relative to the number of views for which they are predicted; these
    classes are predicted too rarely. There is no lower bound: $b_c\to0$ with $a_c>0$.

    Args:
        probabilities: $\tilde p$, moving average of the softmax outputs on weak views.
        histogram: $\tilde h$, moving average of the pseudo-labels' histogram.
        strong: Softmax outputs on the strong views.
        mask: True for trusted samples.

    Returns:
        The loss; exactly 0, with zero gradients, if no sample is trusted.

    Example:
        >>> import torch
        >>> flat, mask = torch.full((2,), 0.5), torch.tensor([True, True])
        >>> fairness_loss(flat, flat, torch.tensor([[0.8, 0.2], [0.2, 0.8]]), mask)  # -log 2
        tensor(-0.6931)
    """
    views = strong[mask]
    if len(views) == 0:
        return make_zero_loss(strong)
    shares = F.one_hot(views.argmax(dim=1), strong.shape[1]).to(strong).mean(dim=0)
    present = shares > 0
    # A quotient up to a factor, since it is divided by its sum below. The factor is the least
    # histogram entry: least / histogram is in [0, 1], where 1 / histogram would overflow long
    # before histogram is 0.
    least = histogram.where(probabilities > 0, torch.inf).min()
    running = probabilities * torch.where(histogram > least, least / histogram, 1.0)
    batch = views.mean(dim=0)[present] / shares[present]
    return ((running / running.sum())[present] * (batch / batch.sum()).log()).sum()
