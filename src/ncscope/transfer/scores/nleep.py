"""NLEEP: LEEP with the components of a Gaussian mixture in place of a source head's classes."""

import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import Seed, check_arguments
from ncscope.errors import InputError, import_library
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.coordinates import principal_coordinates, unit_power
from ncscope.transfer.scores.leep import expected_prediction

COMPONENTS_PER_CLASS = 5
_VARIANCE_SHARE = 0.8


@check_arguments
def nleep(samples: DownstreamSamples, *, seed: Seed = 0) -> Float[Tensor, ""]:
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
    rows = principal_coordinates(unit_power(samples.features), share=_VARIANCE_SHARE)
    if not rows.shape[1]:
        found = "the same features for all samples"
        fix = "check the layer that the features come from"
        raise InputError(expected="features that vary, for NLEEP", found=found, fix=fix)
    mixture = import_library("sklearn.mixture").GaussianMixture(components, random_state=seed)
    values = rows.cpu().numpy()
    with warnings.catch_warnings():
        # The score is defined by the fit after at most 100 rounds, converged or not; and k-means,
        # the first guess, warns if samples coincide.
        warnings.simplefilter("ignore")
        posterior = mixture.fit(values).predict_proba(values)
    return expected_prediction(samples, torch.from_numpy(posterior).to(rows))
