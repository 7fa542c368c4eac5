"""Shares of all samples, estimated from a random sample, and their standard errors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 5
"""Least number of samples of either kind at which the error of a share is about normal."""


@dataclass(frozen=True)
class Stratum:
    """Samples of one process, some of which were drawn at random without replacement.

    Attributes:
        whole: Number of samples.
        drawn: Number of samples drawn.
        hits: Number of hits among the samples drawn.
    """

    whole: int
    drawn: int
    hits: float


@dataclass(frozen=True)
class ShareEstimate:
    """Estimated share of all samples.

    Attributes:
        value: Estimate, without bias.
        standard_error: Its standard error; None if fewer than `FEWEST` of the samples drawn are of
            either kind.
    """

    value: float
    standard_error: float | None


def estimate_share(strata: Sequence[Stratum]) -> ShareEstimate:
    r"""Estimate a share of the samples of all strata from those drawn.

    $\hat p=\sum_r\frac{N_r}Np_r$, of variance $\sum_r\bigl(\frac{N_r}N\bigr)^2
    \frac{p_r(1-p_r)}{n_r-1}\bigl(1-\frac{n_r}{N_r}\bigr)$. Source: Cochran, Sampling Techniques
    (1977), sections 3.2 and 5.6. The last factor is the finite-population correction: a sample of
    all $N_r$ has no error.

    Args:
        strata: Samples of each process; a process may have none.

    Example:
        >>> share = estimate_share([Stratum(whole=1000, drawn=100, hits=50)])
        >>> share.value, round(share.standard_error, 4)
        (0.5, 0.0477)
    """
    strata = [each for each in strata if each.whole]
    whole, drawn = sum(each.whole for each in strata), sum(each.drawn for each in strata)
    value = variance = 0.0
    for each in strata:
        weight, share = each.whole / whole, each.hits / each.drawn
        value += weight * share
        left = 1 - each.drawn / each.whole
        if left:
            # One sample says nothing of the spread of those that were not drawn.
            spread = share * (1 - share) / (each.drawn - 1) if each.drawn > 1 else math.inf
            variance += weight**2 * left * spread
    fewest = min(hits := sum(each.hits for each in strata), drawn - hits)
    known = fewest >= FEWEST and variance < math.inf
    return ShareEstimate(value, variance**0.5 if known else None)
