"""An experiment: a question, its parts, the settings of each scale, a claim table, figures."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from ncscope.errors import InputError
from ncscope.report.tables import Summary
from ncscope_lab.claims import Claim, judge
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Event, Results
from ncscope_lab.quantities import Runs
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.resources import Resources
from ncscope_lab.runs.settings import Config, change_settings
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Extra, training_events

Settings = TypeVar("Settings", bound=BaseModel)
AnyTraining = TypeVar("AnyTraining", bound=Training)
Scale = Literal["paper", "small"]


@dataclass(frozen=True)
class Part:
    """A part of an experiment; its results are saved as finished when it has ended.

    Attributes:
        name: Value of ``part`` in every observation of the part; unique within an experiment.
        yields: Number of events, or of training epochs, for the progress bar.
        run: Function that yields events, whose values do not depend on the hardware. A long part
            saves checkpoints; when it is resumed, it first yields its earlier events again.
        trains: Every heartbeat ends an epoch if True; the progress bar then counts only epochs.
    """

    name: str
    yields: int
    run: Callable[[Resources], Iterator[Event]]
    trains: bool = False


class Trainings(Config):
    """Settings of an experiment that trains networks."""

    runs: dict[str, Training] = Field(description="Training runs by name.")


def repeat_with_seeds(
    settings: Mapping[str, Training], seeds: Iterable[int]
) -> dict[str, Training]:
    """Return a run of each setting with each seed, named "SETTING, seed SEED"."""
    seeds = list(seeds)
    return {
        f"{name}, seed {seed}": training.model_copy(update={"seed": seed})
        for name, training in settings.items()
        for seed in seeds
    }


def train_runs(settings: Any, extra: Extra = lambda bench, end: []) -> list[Part]:
    """Return a part for each training run.

    Args:
        settings: Settings with ``runs``.
        extra: Function that measures more at the epochs that are due.
    """
    return train_each(settings.runs, partial(training_events, extra=extra))


def train_each(
    runs: Mapping[str, AnyTraining],
    events: Callable[[AnyTraining, Resources], Iterator[Event]],
    more: int = 0,
) -> list[Part]:
    """Return a part for each training run, whose events a function yields.

    Args:
        runs: Settings of the runs, by name.
        events: Function of a run's settings and of the resources.
        more: Heartbeats of a run beside those of its epochs.
    """
    return [
        Part(name, run.optimisation.epochs + more, partial(events, run), trains=True)
        for name, run in runs.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Experiment(Generic[Settings]):
    """An experiment of a paper, of a surrogate model, or of our own.

    Attributes:
        id: Name, for example ``"info/training"``; that of an experiment in a file of yours is the
            file's path, which `ncscope_lab.catalogue.find_experiment` sets.
        title: Heading of its page.
        question: Question that it answers, in one or two sentences.
        source: Paper, section and figures.
        scales: Settings of each scale; all of one class.
        cost: Cost of each scale and the machine, for the list of experiments.
        claims: The claim table, or a function that makes it for given settings.
        figures: Function that draws the figures of the runs, in the paper's arrangement.
        tables: Function that summarises the runs in the paper's arrangement.
        parts: Function that returns the parts for given settings, in order.
        select: Function that selects the runs of claims, figures and tables from those collected.
        columns: Keys that the table of the last measurements shows.
        unit: Unit of the measurements' steps.
    """

    id: str = ""
    title: str
    question: str
    source: str
    scales: Mapping[Scale, Settings]
    cost: Mapping[Scale, str] = field(default_factory=dict)
    claims: Sequence[Claim] | Callable[[Settings], Sequence[Claim]]
    figures: Callable[[Settings, Runs], list[Drawing]]
    tables: Callable[[Settings, Runs], list[Summary]] = lambda settings, runs: []
    parts: Callable[[Settings], Sequence[Part]] = train_runs
    select: Callable[[Settings, Runs], Runs] = lambda settings, runs: runs
    columns: Sequence[str] = ()
    unit: str = "epoch"

    @property
    def config(self) -> type[Settings]:
        """Class of the settings."""
        return type(next(iter(self.scales.values())))

    def configure(self, scale: Scale = "small", changes: Mapping[str, Any] = {}) -> Settings:
        """Return the settings of a scale with changes.

        Args:
            scale: Scale whose settings to start from.
            changes: Values by dotted field.

        Raises:
            InputError: If the scale or a field does not exist, or a value is out of bounds.
        """
        if scale not in self.scales:
            expected = f"a scale of {self.id}, which has {' and '.join(self.scales)} only"
            fix = "choose one that it has; --set changes its settings"
            raise InputError(expected=expected, found=repr(scale), fix=fix)
        return change_settings(self.scales[scale], changes)

    def judge(self, settings: Settings, results: Results) -> list[Finding]:
        """Judge the claim table on results."""
        claims = self.claims(settings) if callable(self.claims) else self.claims
        return judge(claims, self.collect(settings, results))

    def draw(self, settings: Settings, results: Results) -> list[Drawing]:
        """Draw the figures of results."""
        return self.figures(settings, self.collect(settings, results))

    def summarise(self, settings: Settings, results: Results) -> list[Summary]:
        """Summarise results in tables."""
        return self.tables(settings, self.collect(settings, results))

    def collect(self, settings: Settings, results: Results) -> Runs:
        """Return a run for each part, with its results and, if it trains, its settings."""
        runs: dict[str, Any] = dict(getattr(settings, "runs", {}))
        for part in self.parts(settings):
            runs.setdefault(part.name, None)
        return self.select(settings, Runs.of(runs, results))
