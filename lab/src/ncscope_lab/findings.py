"""Claims that were tested: verdict, evidence, interval and owner of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ncscope_lab.intervals import Interval

Verdict = Literal["held", "not held", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim that was tested on the results of a run.

    Attributes:
        text: One sentence that can be true or false.
        source: Owner of the claim: paper with section, figure or equation, such as
            ``"VCI, figure 2"``, or ``"ours"``.
        verdict: ``"held"``, ``"not held"`` or ``"undecided"``.
        evidence: Numbers on which the verdict rests, in words.
        interval: Interval on which the verdict rests; None for a deterministic claim, and for one
            that is judged group by group.
        groups: Interval of each group that has one, by name.
        detectable: For a claim about a mean that is not held: mean nearest to the claim's border
            that the runs would have shown, in 80 % of repetitions; else None.
        seeds_to_decide: For an undecided claim about a mean or a share: number of values that would
            decide, if these stay; of several groups the most; None if that is unknown, or above a
            thousand.
    """

    text: str
    source: str
    verdict: Verdict
    evidence: str
    interval: Interval | None = None
    groups: Mapping[str, Interval] = field(default_factory=dict)
    detectable: float | None = None
    seeds_to_decide: int | None = None

    @property
    def held(self) -> bool:
        """True if the verdict is ``"held"``."""
        return self.verdict == "held"

    def record(self) -> dict[str, Any]:
        """Return the finding in types of JSON: an entry of ``claims.json``."""
        return {
            "claim": self.text,
            "source": self.source,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "interval": None if self.interval is None else self.interval.record(),
            "groups": {name: interval.record() for name, interval in self.groups.items()},
            "detectable": self.detectable,
            "seeds_to_decide": self.seeds_to_decide,
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


def tally(findings: Iterable[Finding]) -> Tally:
    """Count the claims of each verdict.

    Example:
        >>> held = Finding(text="a", source="ours", verdict="held", evidence="")
        >>> str(tally([held, held])), str(tally([]))
        ('2/2', '0/0')
    """
    verdicts = [finding.verdict for finding in findings]
    return Tally(verdicts.count("held"), verdicts.count("not held"), verdicts.count("undecided"))
