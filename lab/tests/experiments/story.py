"""A story: results made up as a paper tells them, and what turns which of its claims."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncscope_lab.experiment import Experiment
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Results

Turn = tuple[Mapping[str, Any], Sequence[str | int]]
"""Arguments of `Story.tell`, and the claims that then fail: parts of "verdict: text", or places."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """Results of an experiment of which every claim holds, and changes of which some do not.

    Attributes:
        experiment: The experiment.
        settings: Its settings.
        tell: Function that returns the results, with what its arguments change.
        count: Number of the claims.
        turns: Changes, each with the claims that no longer hold, in order.
        never: Texts of the claims that this story does not bear out.
        patches: Module, name and value of what makes the experiment smaller.
        slow: True if the results take seconds.
    """

    experiment: Experiment[Any]
    settings: Any
    tell: Callable[..., Results]
    count: int
    turns: Sequence[Turn] = field(default=())
    never: Sequence[str] = ()
    patches: Sequence[tuple[Any, str, Any]] = ()
    slow: bool = False

    def judge(self, results: Results) -> list[Finding]:
        """Judge the claims on results."""
        return self.experiment.judge(self.settings, results)
