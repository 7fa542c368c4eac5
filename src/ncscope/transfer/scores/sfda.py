"""SFDA: the log probability of labels after a self-challenging discriminant analysis."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.coordinates import centre, class_means
from ncscope.transfer.scores.discriminant_analysis import (
    gaussian_log_posterior,
    identity_share,
    within_covariance,
)

_DECAY = 5.0
_SMALLEST = 1e-300


@check_arguments
def sfda(samples: DownstreamSamples) -> Float[Tensor, ""]:
    r"""Compute the mean log probability of the labels in a self-challenging Fisher space.

    $\frac1n\sum_i\log p'(y_i\mid h_i')$ of a linear discriminant analysis of the features
    $h_i'=p_ih_i+(1-p_i)\bar\mu_i$: each sample is moved towards the mean $\bar\mu_i$ of the
    *other* classes' means, the more, the smaller the probability $p_i=p(y_i\mid h_i)$ that a first
    analysis gives to its label. Both analyses use $(1-\lambda)S_W+\lambda I$ of their features,
    with $\lambda=\max(e^{-5\sigma},10^{-10})$ and $\sigma$ the largest eigenvalue of the first
    $S_W$. Source: Shao, Zhao, Ge, Zhang, Yang, Wang, Shan, Luo 2022, equations (1) to (7). Range
    $(-\infty,0]$. Invariant under rotation and shift.

    The constants are those of the authors' code: 5, the least $\lambda$, and $S_W$ divided by n.
    For the rest the code differs from the equations, which are followed here. It takes the softmax
    of the probabilities a second time for $p_i$, adds $\lambda\frac{\operatorname{Tr}S_W}dI$,
    leaves out the logarithm ("in case of instability"; here the logarithm of the softmax is
    computed directly), takes $\sigma$ from six steps of the power method, and overwrites the
    features that it is given. Known failures: **saturates for n < d**, where a discriminant
    analysis separates any labels: the mean probability is 1.0 and the score 0 for every
    checkpoint, and only its rounding is left to rank by. Depends on the scale of the features
    through $\lambda$: features ten times as large are regularised $e^{-500\sigma}$ instead of
    $e^{-5\sigma}$, and small ones are compared by distances alone.

    Args:
        samples: Downstream samples.

    Cost: two factorisations of a d x d matrix, and two products of 2nd² operations.
    """
    rows, factor = centre(samples.features)
    within = within_covariance(rows, samples)
    largest = torch.linalg.eigvalsh(within)[-1].clamp(min=0)
    share = identity_share(_DECAY * largest, factor)
    # The identity has the units of the features as given, but the rows are features times the
    # factor, whose square may leave the range of float64 for features of extreme scale.
    unit = min(max(share * factor * factor, _SMALLEST), 1 / _SMALLEST)

    def log_posterior(
        rows: Float[Tensor, "n d"], within: Float[Tensor, "d d"]
    ) -> Float[Tensor, "n k"]:
        covariance = (1 - share) * within
        covariance.diagonal().add_(unit)
        return gaussian_log_posterior(rows, samples, covariance, share)

    first = log_posterior(rows, within).exp()
    sure = first.gather(1, samples.class_indices[:, None])
    means, _ = class_means(rows, samples)
    others = (means.sum(0) - means) / (len(means) - 1)
    mixed = sure * rows + (1 - sure) * others[samples.class_indices]
    second = log_posterior(mixed, within_covariance(mixed, samples))
    return second.gather(1, samples.class_indices[:, None]).mean()
