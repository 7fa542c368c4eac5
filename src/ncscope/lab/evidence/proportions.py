"""Claims that something happens in most of several independent trials."""

from collections.abc import Sequence

from scipy import stats

from ncscope.lab.evidence.judging import CONFIDENCE, above, decided
from ncscope.report.claims import Claim, Interval

MOST = 0.5
"""Share of the trials that "most" must exceed."""


def in_most(
    text: str, *, source: str, hits: Sequence[bool], of: str = "starts", evidence: str = ""
) -> Claim:
    """Judge a claim about most trials by the exact binomial interval of their share.

    Values of 0 and 1 are far from normal, so the intervals of `judged` do not apply to them.

    Args:
        text: Text of the claim.
        source: Owner of the claim, see `Claim`.
        hits: Outcome of each independent trial.
        of: Plural noun for the trials.
        evidence: Further numbers, appended to the interval.

    Example:
        >>> in_most("it arrives", source="ours", hits=[True] * 10).verdict
        'held'
        >>> in_most("it arrives", source="ours", hits=[True] * 3 + [False] * 7).verdict
        'undecided'
    """
    if not hits:
        return decided(text, source=source, held=None, evidence=f"no {of} measured")
    share = stats.binomtest(sum(hits), len(hits)).proportion_ci(CONFIDENCE)
    told = (
        f"{sum(hits)} of {len(hits)} {of}, 95 % interval of the share {share.low:.2f} to "
        f"{share.high:.2f} (binomial)"
    )
    return Claim(
        text=text,
        source=source,
        verdict=above(MOST).verdict(share.low, share.high),
        evidence="; ".join(filter(None, (told, evidence))),
        interval=Interval(
            estimate=sum(hits) / len(hits),
            low=float(share.low),
            high=float(share.high),
            count=len(hits),
            method="binomial",
        ),
    )
