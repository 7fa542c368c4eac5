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
        groups: Finding on each group that has an interval, by name.
        detectable: For a claim about a mean that is not held: mean nearest to the claim's border
            that the runs would have shown, in 80 % of repetitions; None if no possible mean would
            have, and for any other claim.
        seeds_to_decide: For an undecided claim about a mean or a share: number of values that would
            decide, if these stay; of several groups the most; None if that is unknown, or above a
            thousand.
        of: Plural noun for the values of the interval.
        uncounted: Findings that stand beside the verdict and are not counted, by what they are of.
    """

    text: str
    source: str
    verdict: Verdict
    evidence: str
    interval: Interval | None = None
    groups: Mapping[str, "Finding"] = field(default_factory=dict)
    detectable: float | None = None
    seeds_to_decide: int | None = None
    of: str = "seeds"
    uncounted: Mapping[str, "Finding"] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """True if the verdict is ``"held"``."""
        return self.verdict == "held"

    def record(self) -> dict[str, Any]:
        """Return the finding in types of JSON: an entry of ``claims.json``."""
        parts = {
            key: {
                name: {**each.interval.record(), "verdict": each.verdict, **each._record_power()}
                for name, each in findings.items()
                if each.interval is not None
            }
            for key, findings in (("groups", self.groups), ("uncounted", self.uncounted))
        }
        return {
            "claim": self.text,
            "source": self.source,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "interval": None if self.interval is None else self.interval.record(),
            **parts,
            **self._record_power(),
        }

    def _record_power(self) -> dict[str, Any]:
        keys = ("detectable", "seeds_to_decide", "of")
        return {key: getattr(self, key) for key in keys}

    def write_power(self) -> str:
        """Return what would have shown or would decide; nothing if the claim is held or certain."""
        if self.interval is None or self.verdict == "held":
            return ""
        if self.verdict == "undecided":
            return f"about {self.seeds_to_decide or 'a thousand or more'} {self.of} would decide"
        if self.detectable is not None:
            return f"a mean of {self.detectable:.3g} would have shown"
        is_mean = self.interval.method != "binomial"
        return f"no mean would have shown with {self.interval.count} {self.of}" * is_mean


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

    def in_words(self) -> str:
        """Write the number of claims of each verdict that there is.

        Example:
            >>> Tally(5, 1, 0).in_words()
            '5 held, 1 not held'
        """
        parts = [(self.held, "held"), (self.not_held, "not held"), (self.undecided, "undecided")]
        return ", ".join(f"{count} {verdict}" for count, verdict in parts if count)


def tally(findings: Iterable[Finding]) -> Tally:
    """Count the claims of each verdict.

    Example:
        >>> held = Finding(text="a", source="ours", verdict="held", evidence="")
        >>> str(tally([held, held])), str(tally([]))
        ('2/2', '0/0')
    """
    verdicts = [finding.verdict for finding in findings]
    return Tally(verdicts.count("held"), verdicts.count("not held"), verdicts.count("undecided"))
