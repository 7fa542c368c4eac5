"""Our own transfer score: the share of the labels' entropy that a left-out classifier explains."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.coordinates import principal_coordinates, unit_power

STRENGTHS = tuple(10.0 ** (half / 2) for half in range(-12, 5))
"""Strengths of the penalty that are tried, relative to the total variance of the features."""

_SHARPEST, _STEPS = 1e6, 40


class ExplainedEntropy(NamedTuple):
    """The score, with its standard error and what it rests on.

    Attributes:
        value: Share of the labels' entropy that is explained, from 0 (chance) to 1.
        standard_error: Standard error of the value by the jackknife over samples.
        strength: Strength of the penalty, relative to the total variance of the features.
    """

    value: float
    standard_error: float
    strength: float


class RidgeRegressions:
    r"""Ridge regressions of one-hot labels on the features, with an intercept without penalty.

    With the centred features' left singular vectors $u_j$, their variances $v_j$ as shares of the
    total, and $a_j=\frac{v_j}{v_j+\lambda}$, the fit is $\hat Y=\bar Y+\sum_ja_ju_ju_j^\top Y$, the
    leverage is $h_i=\frac1n+\sum_ja_ju_{ij}^2$, and the prediction of a sample by the fit to all
    others is exactly $y_i-\frac{y_i-\hat y_i}{1-h_i}$. Without penalty,
    the share of the variance of $Y$ (with the columns divided by the roots of the class shares)
    that $\hat Y$ explains is $1-\mathrm{VCI}$, for $d\ge K-1$ features.

    Args:
        samples: Labelled samples.

    Cost: as `principal_coordinates`, and 2nrK operations for each strength, for r axes.
    """

    def __init__(self, samples: DownstreamSamples) -> None:
        rows = principal_coordinates(unit_power(samples.features))
        n = len(rows)
        self.variances = rows.square().sum(0) / n
        self.axes = rows / (n * self.variances).sqrt()
        labels = torch.nn.functional.one_hot(samples.class_indices, len(samples.classes))
        self.labels = labels.to(rows)
        self.shares = self.labels.mean(0)
        self._along = self.axes.mT @ (self.labels - self.shares)
        self._squares = self.axes.square()

    def predict(self, strength: float) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
        """Predict the one-hot labels at a strength of the penalty, one row a sample.

        Args:
            strength: Strength, relative to the total variance of the features.

        Returns:
            Predictions of the fit to all samples; and the prediction of each sample by the fit to
            all others.
        """
        shrinkage = self.variances / (self.variances + strength)
        whole = self.shares + self.axes @ (shrinkage[:, None] * self._along)
        leverage = 1 / len(self.axes) + self._squares @ shrinkage
        others = self.labels - (self.labels - whole) / (1 - leverage)[:, None]
        return whole, others

    def squared_error(self, predictions: Float[Tensor, "n k"]) -> float:
        """Compute the summed squared error of predictions.

        Args:
            predictions: Predictions of the one-hot labels.
        """
        return float((self.labels - predictions).square().sum())

    def choose_strength(self) -> float:
        """Return the strength of `STRENGTHS` with the least error on samples left out."""
        return min(STRENGTHS, key=lambda strength: self.squared_error(self.predict(strength)[1]))


@check_arguments
def explained_entropy(samples: DownstreamSamples) -> ExplainedEntropy:
    r"""Compute the share of the labels' entropy that features explain on samples left out.

    Each sample is predicted by a ridge regression fitted to all others (`RidgeRegressions`, in
    closed form). The strength of the penalty is the one with the least left-out squared error. With
    $z_i$ the prediction less the class shares $p$, and
    $q_i=\operatorname{softmax}(\log p+t z_i)$, the score is
    $$\rho=\max_{t\ge0}\;1-\frac{-\frac1n\sum_i\log q_{i,y_i}}{-\sum_cp_c\log p_c}.$$
    Our own; compared with the published scores by ``transfer/zoo``. Range [0, 1]: 0 is chance
    ($t=0$), 1 is certainty. It is McFadden's pseudo-$R^2$ of left-out predictions, and
    about a lower bound of the mutual information of features and labels, as a share of the labels'
    entropy (about, as $t$ is fitted to the same predictions). Invariant under rotation, shift
    and scale of the features.

    With explained variance in place of entropy, with the fit itself in place of left-out
    predictions, and without a penalty, it is $1-\mathrm{VCI}$: each of the three steps is taken
    because it orders networks better on the zoo's design half.

    The standard error is that of the jackknife over samples at the fitted $t$ and strength,
    $\frac{s}{\sqrt nH(p)}$ with the standard deviation $s$ of
    $\log q_{i,y_i}-(1-\rho)\log p_{y_i}$. At a value of 0, where $q$ is $p$, it is 0 and says
    nothing.

    Known failures: with about one sample a class nothing can be left out and the score is 0; once
    every left-out sample has its greatest prediction at its own class, the score is 1 and orders no
    further; it sees only what is linear; as for every score of frozen features, it says less of
    fine-tuning than of a probe.

    Args:
        samples: Downstream samples.

    Cost: as `RidgeRegressions` for 17 strengths, and about 160nK operations for $t$.

    Example:
        >>> from ncscope.transfer.samples import check_downstream
        >>> labels = torch.arange(60) % 3
        >>> draws = torch.Generator().manual_seed(0)
        >>> noise = torch.randn(60, 3, generator=draws)
        >>> far = explained_entropy(check_downstream(torch.eye(3)[labels] + 0.2 * noise, labels))
        >>> near = explained_entropy(check_downstream(torch.eye(3)[labels] + 2.0 * noise, labels))
        >>> far.value > 0.9, near.value < 0.1
        (True, True)
    """
    ridge = RidgeRegressions(samples)
    strength = ridge.choose_strength()
    _, predictions = ridge.predict(strength)
    return ExplainedEntropy(*entropy_share(predictions, samples.class_indices), strength)


def entropy_share(
    predictions: Float[Tensor, "n k"], class_indices: Int[Tensor, " n"]
) -> tuple[float, float]:
    """Return the share of the labels' entropy that predictions explain, and its standard error.

    Args:
        predictions: Predictions of one-hot labels, one a row.
        class_indices: Classes of the samples.
    """
    n, k = predictions.shape
    shares = torch.bincount(class_indices, minlength=k).to(predictions) / n
    entropy = -float(torch.xlogy(shares, shares).sum())
    above = predictions - shares
    right = above.gather(1, class_indices[:, None])[:, 0]

    def slope(sharpness: float) -> float:
        weights = torch.softmax(sharpness * above + shares.log(), 1)
        return float((right - (weights * above).sum(1)).mean())

    # The log-likelihood is concave in the sharpness, so that its slope falls and is 0 at the
    # maximum. The bisection is in logarithms: the sharpness may be anything from 1e-6 to 1e6.
    if slope(0.0) <= 0:
        return 0.0, 0.0
    low, high = -math.log(_SHARPEST), math.log(_SHARPEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(math.exp(middle)) > 0 else (low, middle)
    sharpness = math.exp((low + high) / 2)
    logs = torch.log_softmax(sharpness * above + shares.log(), 1)
    log_likelihoods = logs.gather(1, class_indices[:, None])[:, 0]
    # Where the maximum is below the least sharpness that is searched, the value can be -1e-13.
    value = max(1 + float(log_likelihoods.mean()) / entropy, 0.0)
    chance = shares.log()[class_indices]
    deviation = float((log_likelihoods - (1 - value) * chance).std())
    return value, deviation / math.sqrt(n) / entropy
