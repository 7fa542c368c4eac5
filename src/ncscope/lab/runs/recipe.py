"""What an experiment is: parts that yield rows, and what is claimed and drawn from the rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypedDict, TypeVar

from pydantic import BaseModel

from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.resources import Work
from ncscope.probing.records import Row
from ncscope.report.summary import Summary

Scale = Literal["paper", "small"]
Config = TypeVar("Config", bound=BaseModel)


class Claim(TypedDict):
    """A statement put to the test: a line of ``claims.json``."""

    claim: str
    held: bool
    evidence: str


@dataclass(frozen=True)
class Part:
    """A piece of an experiment that is run, and kept, as a whole.

    Attributes:
        name: Stands in every row as ``part``; unique within a recipe.
        yields: How many times it yields, for the progress bar; of training, how many epochs.
        run: Yields rows, the same ones whatever the means; an empty row is a sign of life. A long
            part keeps its place, and when it is run again yields what it had, and goes on.
        trains: Whether every empty row ends an epoch; the bar then counts these alone.
    """

    name: str
    yields: int
    run: Callable[[Work], Iterator[Row]]
    trains: bool = False


def no_tables(config: Any, rows: Sequence[Row]) -> list[Summary]:
    """None: most studies are seen in their figures."""
    return []


@dataclass(frozen=True, kw_only=True)
class Study(Generic[Config]):
    """Something to run and look at. Everything but the parts' rows follows from the rows.

    Attributes:
        id: Its name, for example ``"ufm"`` or ``"xufm/ufm"``.
        title: Heading of its report.
        lead: A sentence or two on what is shown.
        source: Paper, section, figures.
        config: Its settings: a frozen model that allows no further field, every field with a
            description, a default and its bounds.
        parts: The pieces of work that settings ask for, in order.
        claims: What should be true of the result, each statement tested on the rows.
        drawings: The figures, in the paper's arrangement.
        columns: Keys of the rows that the table of the last measurements shows.
        tables: What it came to, in the paper's arrangement.
    """

    id: str
    title: str
    lead: str
    source: str
    config: type[Config]
    parts: Callable[[Config], Sequence[Part]]
    claims: Callable[[Config, Sequence[Row]], list[Claim]]
    drawings: Callable[[Config, Sequence[Row]], list[Drawing]]
    columns: Sequence[str]
    tables: Callable[[Config, Sequence[Row]], list[Summary]] = no_tables


@dataclass(frozen=True, kw_only=True)
class Recipe(Study[Config]):
    """A paper's experiment: a study with the paper's settings, and smaller ones.

    Attributes:
        scales: By scale, the settings.
        cost: By scale, what it takes, with the machine it was measured on.
    """

    scales: Mapping[Scale, Config]
    cost: Mapping[Scale, str]
