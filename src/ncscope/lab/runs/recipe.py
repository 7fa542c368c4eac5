"""Structure of an experiment: parts that yield rows; claims and figures made from the rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypedDict, TypeVar

from pydantic import BaseModel

from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.resources import Resources
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
        yields: Number of rows, or epochs of training, for the progress bar.
        run: Yields rows, which do not depend on hardware; an empty row is a heartbeat. A long
            part keeps its place, and when it is run again yields what it had, and goes on.
        trains: Every empty row ends an epoch if True; the bar then counts epochs alone.
    """

    name: str
    yields: int
    run: Callable[[Resources], Iterator[Row]]
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
        claims: Function that tests each statement on the rows.
        drawings: The figures, in the paper's arrangement.
        columns: Keys of the rows that the table of the last measurements shows.
        tables: Function that summarises the result in the paper's arrangement.
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
