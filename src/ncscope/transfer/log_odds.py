"""Transfer as log odds of accuracies, minus the log odds of the pretraining accuracy."""

import math
from collections.abc import Sequence

from ncscope.errors import InputError


def mean_log_odds(accuracies: Sequence[float]) -> float:
    r"""$\frac1T\sum_t\log\frac{p_t}{1-p_t}$ over downstream sets.

    Source: VCI table 1, "MLO"; Kornblith, Shlens, Le 2019. Infinite if an accuracy is 0 or 1, NaN
    if one is 0 and another 1.

    Args:
        accuracies: $p_t$ from 0 to 1, one for each downstream set.

    Raises:
        InputError: If there is no accuracy, or one is outside 0..1.

    Example:
        >>> round(mean_log_odds([0.5, 0.75]), 6) == round(math.log(3) / 2, 6)
        True
    """
    if not accuracies:
        fix = "pass the accuracy on each downstream set"
        raise InputError(expected="at least one accuracy", found="none", fix=fix)
    return sum(map(_log_odds, accuracies)) / len(accuracies)


def mean_log_odds_gain(accuracies: Sequence[float], pretraining_accuracy: float) -> float:
    r"""$\frac1T\sum_t\log\frac{p_t}{1-p_t}-\log\frac{p_{pre}}{1-p_{pre}}$, MLOG.

    Source: VCI (6). 0 means that the downstream accuracies are as good as the pretraining accuracy.
    NaN if both terms are infinite.

    Args:
        accuracies: Accuracies, as for `mean_log_odds`.
        pretraining_accuracy: $p_{pre}$, on held-out samples of the pretraining set.

    Raises:
        InputError: As `mean_log_odds`.

    Example:
        >>> mean_log_odds_gain([0.8, 0.8], 0.8)
        0.0
    """
    return mean_log_odds(accuracies) - _log_odds(pretraining_accuracy)


def _log_odds(share: float) -> float:
    if not 0 <= share <= 1:
        fix = "divide per cents by 100"
        raise InputError(expected="an accuracy from 0 to 1", found=str(share), fix=fix)
    if share in (0, 1):
        return math.copysign(math.inf, share - 0.5)
    return math.log(share) - math.log1p(-share)
