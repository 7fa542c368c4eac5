"""Scores that predict a label through the classes of another classifier: LEEP, NCE, NLEEP.

Each reads the empirical distribution of the target labels given a source class. LEEP and NCE need
the predictions of a source head on the downstream samples; NLEEP replaces the head by a mixture of
Gaussians in the space of the features.
"""

import warnings
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.arguments import Seed, check_arguments
from ncscope.errors import InputError, library_error
from ncscope.stats.batch import as_tensor
from ncscope.transfer.inputs import LabelledSamples
from ncscope.transfer.reduction import principal_scores, unit_power

COMPONENTS_PER_CLASS = 5
_ENERGY = 0.8
_OFF_ONE = 1e-2  # half precision rounds the sum of a thousand probabilities by less


@check_arguments
def leep(samples: LabelledSamples, probabilities: Any) -> Float[Tensor, ""]:
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
        >>> from ncscope.transfer.inputs import checked_labelled
        >>> samples = checked_labelled(torch.zeros(4, 1), [0, 0, 1, 1])
        >>> round(float(leep(samples, torch.full((4, 3), 1 / 3))), 4)
        -0.6931
    """
    return _expected_prediction(samples, checked_probabilities(probabilities, len(samples.labels)))


@check_arguments
def nce(samples: LabelledSamples, predictions: Any) -> Float[Tensor, ""]:
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
        >>> from ncscope.transfer.inputs import checked_labelled
        >>> float(nce(checked_labelled(torch.zeros(4, 1), [0, 0, 1, 1]), [7, 7, 2, 3]))
        0.0
    """
    predicted = checked_predictions(predictions, samples.labels)
    classes, source = predicted.unique(return_inverse=True)
    k = len(samples.classes)
    joint = torch.bincount(
        samples.class_indices * len(classes) + source, minlength=k * len(classes)
    )
    joint = joint.view(k, -1).double() / len(source)
    return (torch.xlogy(joint, joint) - torch.xlogy(joint, joint.sum(0))).sum()


@check_arguments
def nleep(samples: LabelledSamples, *, seed: Seed = 0) -> Float[Tensor, ""]:
    r"""Compute LEEP with the components of a mixture of Gaussians as source classes.

    $\frac1n\sum_i\log\sum_v\hat P(y_i\mid v)P(v\mid h_i)$ with the posterior $P(v\mid h)$ of a
    mixture of 5K Gaussians with full covariances, fitted to the features on the principal axes that
    explain 80 % of their variance. Source: Li, Jia, Sang, Zhu, Green, Wang, Gong 2021, section 4.
    Range as for `leep`. Invariant under rotation and shift up to the fit of the mixture. The
    features are divided by the root of their mean squared norm, because the mixture of scikit-learn
    adds $10^{-6}$ to each variance; the score therefore does not depend on their scale either.

    Known failures: the fit depends on the seed, and on the order of the samples, by more than the
    difference between good checkpoints if classes are small; with few samples for each component
    the mixture learns single samples and the score tends to 0. The authors' definition has the
    logarithm; the code published with SFDA returns the mean probability without it.

    Args:
        samples: Downstream samples, at least 5K of them.
        seed: Seed of the mixture's first guess.

    Raises:
        InputError: If there are fewer samples than components, features do not vary, or
            scikit-learn is not installed.

    Cost: for r kept axes, about $100\cdot5Knr^2$ operations: the dearest score of all.
    """
    components = COMPONENTS_PER_CLASS * len(samples.classes)
    if len(samples.labels) < components:
        raise InputError(
            expected=f"at least {components} samples, 5 for each class, for NLEEP",
            found=f"{len(samples.labels)}",
            fix="pass more samples, or leave NLEEP out",
        )
    rows = principal_scores(unit_power(samples.features), share=_ENERGY)
    if not rows.shape[1]:
        found = "the same features for all samples"
        fix = "check the layer that the features come from"
        raise InputError(expected="features that vary, for NLEEP", found=found, fix=fix)
    return _expected_prediction(samples, _mixture_posterior(rows, components, seed))


def _mixture_posterior(
    rows: Float[Tensor, "n r"], components: int, seed: int
) -> Float[Tensor, "n v"]:
    try:
        from sklearn.mixture import GaussianMixture
    except ImportError as error:
        raise library_error(name="sklearn") from error
    mixture = GaussianMixture(components, random_state=seed)
    values = rows.cpu().numpy()
    with warnings.catch_warnings():
        # The score is defined by the fit after at most 100 rounds, converged or not; and k-means,
        # the first guess, warns if samples coincide.
        warnings.simplefilter("ignore")
        posterior = mixture.fit(values).predict_proba(values)
    return torch.from_numpy(posterior).to(rows)


def _expected_prediction(
    samples: LabelledSamples, probabilities: Float[Tensor, "n z"]
) -> Float[Tensor, ""]:
    """Compute LEEP from checked probabilities."""
    joint = probabilities.new_zeros(len(samples.classes), probabilities.shape[1])
    joint.index_add_(0, samples.class_indices, probabilities)
    marginal = joint.sum(0)
    given_source = torch.where(marginal > 0, joint / marginal, 0.0)
    # A sample's likeliest source class has at least 1/Z, and the sample is itself counted among
    # those of the class: the sum is at least 1/(nZ^2), and its logarithm needs no epsilon.
    return (given_source[samples.class_indices] * probabilities).sum(1).log().mean()


def checked_probabilities(probabilities: Any, count: int) -> Float[Tensor, "n z"]:
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


def checked_predictions(predictions: Any, labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Check predicted source classes, and return them on the labels' device.

    Args:
        predictions: Source class of each sample: n integers.
        labels: Labels of the samples.

    Raises:
        InputError: If there is not one integer for each sample.
    """
    predicted = as_tensor(predictions, "source predictions")
    whole = not (predicted.is_floating_point() or predicted.is_complex())
    if predicted.shape != labels.shape or not whole:
        kind = str(predicted.dtype).removeprefix("torch.")
        raise InputError(
            expected="one integer source class for each sample",
            found=f"{kind} of shape {tuple(predicted.shape)}",
            fix="pass the index of the largest source probability of each sample",
        )
    return predicted.to(labels.device)
