"""Structure of an experiment: parts that yield events, and the claims and figures about them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from ncscope.lab.findings import Finding
from ncscope.lab.observations import Results
from ncscope.lab.report.drawing import Drawing
from ncscope.report.tables import Summary

Config = TypeVar("Config", bound=BaseModel)


def no_tables(config: Any, results: Results) -> list[Summary]:
    """Return no tables: most studies show their results as figures."""
    return []


@dataclass(frozen=True, kw_only=True)
class Study(Generic[Config]):
    """A numerical study. Its claims and figures are computed from the results of its parts.

    Attributes:
        id: Name of the study, for example ``"ufm"`` or ``"xufm/ufm"``.
        title: Heading of the report.
        lead: One or two sentences on the content of the report.
        source: Paper, section, figures.
        config: Class of the settings: a frozen model that forbids extra fields, with a description,
            a default and bounds for every field.
        parts: Function that returns the parts for given settings, in order.
        claims: Function that tests each statement on the results.
        drawings: Function that draws the figures, in the paper's arrangement.
        columns: Keys that the table of the last measurements shows.
        tables: Function that summarises the result in the paper's arrangement.
        unit: Unit of the measurements' steps.
    """

    id: str
    title: str
    lead: str
    source: str
    config: type[Config]
    parts: Callable[[Config], Sequence[Any]]
    claims: Callable[[Config, Results], list[Finding]]
    drawings: Callable[[Config, Results], list[Drawing]]
    columns: Sequence[str]
    tables: Callable[[Config, Results], list[Summary]] = no_tables
    unit: str = "epoch"

    @property
    def question(self) -> str:
        """Question that the study answers."""
        return self.lead

    def judge(self, config: Config, results: Results) -> list[Finding]:
        """Judge the claims on results."""
        return self.claims(config, results)

    def draw(self, config: Config, results: Results) -> list[Drawing]:
        """Draw the figures of results."""
        return self.drawings(config, results)

    def summarise(self, config: Config, results: Results) -> list[Summary]:
        """Summarise results in tables."""
        return self.tables(config, results)


@dataclass(frozen=True, kw_only=True)
class Recipe(Study[Config]):
    """A paper's experiment: a study with the paper's settings and with smaller settings.

    Attributes:
        scales: Settings of each scale.
        cost: Measured cost of each scale, with the machine on which it was measured.
    """

    scales: Mapping[Any, Config]
    cost: Mapping[Any, str]
