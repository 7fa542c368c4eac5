"""The ingredients of our index, each left out or replaced, and what else was tried."""

from collections.abc import Mapping

from ncscope.transfer.records import Score
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.explained_entropy import STRENGTHS, RidgeRegressions, entropy_share

INDEX = "explained_entropy"
"""Key of our index."""

PREFIX = "index_"

VARIANTS: Mapping[str, Score] = {
    f"{PREFIX}fitted": Score("without leaving out", 1),
    f"{PREFIX}permuted": Score("chance by permuted labels, not left out", 1),
    f"{PREFIX}no_penalty": Score("without penalty", 1),
    f"{PREFIX}one_penalty": Score("one strength for all", 1),
    f"{PREFIX}variance": Score("variance, not entropy", 1),
    f"{PREFIX}accuracy": Score("accuracy, not entropy", 1),
}
"""Our index with one ingredient left out or replaced."""

ADDED: Mapping[str, Score] = {
    "pretraining_vci": Score("with the source's VCI", 1),
    "pretraining_nc1_quotient": Score("with the source's NC1", -1),
    "mir": Score("with the source's MIR", 1),
    "within_off_signal": Score("with the source's off-signal variability", 1),
    "source_accuracy": Score("with source accuracy", 1),
}
"""Facts that were tried beside our index, by key, each with the better sign on the design half."""

ADDED_SHARE = 0.15
"""Weight of an added fact, where index and fact each have standard deviation 1 over networks."""

_ONE_STRENGTH = 10.0**-2.5


def variants(samples: DownstreamSamples) -> dict[str, float]:
    r"""Return the values of `VARIANTS`.

    *Chance by permuted labels* is the share $R^2$ of the variance of the one-hot labels that the
    fit itself explains, with its mean over random labels, $E=\frac1{n-1}\sum_ja_j(2-a_j)$ for the
    factors $a_j$ of `RidgeRegressions`, taken off: $\frac{R^2-E}{1-E}$.

    Args:
        samples: Downstream samples.
    """
    ridge = RidgeRegressions(samples)
    strength = ridge.choose_strength()
    whole, others = ridge.predict(strength)
    total = float((ridge.labels - ridge.shares).square().sum())
    factors = ridge.variances / (ridge.variances + strength)
    chance = float((factors * (2 - factors)).sum()) / (len(samples.labels) - 1)
    explained = 1 - ridge.squared_error(whole) / total

    def share(strength: float) -> float:
        return entropy_share(ridge.predict(strength)[1], samples.class_indices)[0]

    right = others.argmax(1) == samples.class_indices
    values = (
        entropy_share(whole, samples.class_indices)[0],
        (explained - chance) / (1 - chance) if chance < 1 else 0.0,
        share(STRENGTHS[0]),
        share(_ONE_STRENGTH),
        1 - ridge.squared_error(others) / total,
        float(right.double().mean()),
    )
    return dict(zip(VARIANTS, values, strict=True))
