"""Structure of an experiment: parts that yield events; claims and figures made from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypedDict, TypeVar

from pydantic import BaseModel

from ncscope.lab.observations import Event, Results
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.resources import Resources
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
        name: Name in every observation as ``part``; unique within a recipe.
        yields: Number of events, or epochs of training, for the progress bar.
        run: Function that yields events, whose values do not depend on the hardware. A long part
            keeps a checkpoint, and when it is run again yields what it had yielded, and goes on.
        trains: Every heartbeat ends an epoch if True; the bar then counts epochs alone.
    """

    name: str
    yields: int
    run: Callable[[Resources], Iterator[Event]]
    trains: bool = False


def no_tables(config: Any, results: Results) -> list[Summary]:
    """None: most studies are seen in their figures."""
    return []


@dataclass(frozen=True, kw_only=True)
class Study(Generic[Config]):
    """Something to run and look at. Claims and figures follow from what the parts yield.

    Attributes:
        id: Its name, for example ``"ufm"`` or ``"xufm/ufm"``.
        title: Heading of its report.
        lead: A sentence or two on what is shown.
        source: Paper, section, figures.
        config: Its settings: a frozen model that allows no further field, every field with a
            description, a default and its bounds.
        parts: The pieces of work that settings ask for, in order.
        claims: Function that tests each statement on the results.
        drawings: The figures, in the paper's arrangement.
        columns: Keys that the table of the last measurements shows.
        tables: Function that summarises the result in the paper's arrangement.
        unit: Unit of the measurements' steps.
    """

    id: str
    title: str
    lead: str
    source: str
    config: type[Config]
    parts: Callable[[Config], Sequence[Part]]
    claims: Callable[[Config, Results], list[Claim]]
    drawings: Callable[[Config, Results], list[Drawing]]
    columns: Sequence[str]
    tables: Callable[[Config, Results], list[Summary]] = no_tables
    unit: str = "epoch"


@dataclass(frozen=True, kw_only=True)
class Recipe(Study[Config]):
    """A paper's experiment: a study with the paper's settings, and smaller ones.

    Attributes:
        scales: By scale, the settings.
        cost: By scale, what it takes, with the machine it was measured on.
    """

    scales: Mapping[Scale, Config]
    cost: Mapping[Scale, str]
