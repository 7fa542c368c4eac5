"""Claims that were tested: verdict, evidence, interval and owner of each."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

ClaimVerdict = Literal["held", "not held", "undecided"]
Scale = Literal["plain", "ratio", "correlation"]
"""Scale of the values of an interval."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A 95 % confidence interval of a mean, or of a share of trials.

    Attributes:
        estimate: Mean of the values on their scale, or the share.
        low: Lower end.
        high: Upper end.
        count: Number of values, one per seed, network or pair.
        method: ``"t"`` (Student's t, below ten values), ``"bootstrap"`` (studentised, from ten
            values on) or ``"binomial"`` (exact, of a share).
        scale: ``"ratio"`` if the interval is symmetric in the logarithms of the values,
            ``"correlation"`` if it is symmetric in Fisher's z, else ``"plain"``.
    """

    estimate: float
    low: float
    high: float
    count: int
    method: Literal["t", "bootstrap", "binomial"]
    scale: Scale = "plain"

    def record(self) -> dict[str, Any]:
        """Return the interval in types of JSON, with infinities and NaN as null."""
        return {
            key: None if isinstance(value, float) and not isfinite(value) else value
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim that was tested on the results of a run.

    Attributes:
        text: One sentence that can be true or false.
        source: Owner of the claim: paper with section, figure or equation, such as
            ``"VCI, figure 2"``, or ``"ours"``.
        verdict: ``"held"``, ``"not held"`` or ``"undecided"``.
        evidence: Numbers on which the verdict rests, in words.
        interval: Interval on which the verdict rests; None for a deterministic claim.
    """

    text: str
    source: str
    verdict: ClaimVerdict
    evidence: str
    interval: Interval | None = None

    @property
    def held(self) -> bool:
        """True if the verdict is ``"held"``."""
        return self.verdict == "held"

    def record(self) -> dict[str, Any]:
        """Return the claim in types of JSON: an entry of ``claims.json``."""
        return {
            "claim": self.text,
            "source": self.source,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "interval": None if self.interval is None else self.interval.record(),
        }


@dataclass(frozen=True)
class Tally:
    """Number of claims of each verdict."""

    held: int
    not_held: int
    undecided: int

    @property
    def total(self) -> int:
        """Number of claims."""
        return self.held + self.not_held + self.undecided

    def __str__(self) -> str:
        """Write the number of held claims out of all, and of undecided claims if there are any."""
        undecided = f", {self.undecided} undecided" if self.undecided else ""
        return f"{self.held}/{self.total}{undecided}"


def tally(claims: Iterable[Claim]) -> Tally:
    """Count the claims of each verdict.

    Example:
        >>> held = Claim(text="a", source="ours", verdict="held", evidence="")
        >>> str(tally([held, held])), str(tally([]))
        ('2/2', '0/0')
    """
    verdicts = [claim.verdict for claim in claims]
    return Tally(verdicts.count("held"), verdicts.count("not held"), verdicts.count("undecided"))
