"""An experiment of two linear classifiers that train in milliseconds, with claims and a figure."""

from collections.abc import Container, Iterable, Iterator
from functools import partial

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from ncscope.report import panels
from ncscope_lab.claims import Claim, above, below
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.observations import Event, Observation
from ncscope_lab.quantities import Run, Runs
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.loop import EpochEnd, supervised, train
from ncscope_lab.training.optimisation import Optimisation, learner
from ncscope_lab.training.resumable import AfterStep, resumable_events


class Linear(BaseModel):
    """Its settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int = Field(4, ge=1, description="Epochs of each classifier.")
    rates: tuple[float, ...] = Field((0.1, 0.3), description="Learning rate of each classifier.")


def parts(config: Linear) -> list[Part]:
    return [
        Part(f"rate {rate}", config.epochs, partial(_events, config.epochs, rate), trains=True)
        for rate in config.rates
    ]


def _events(epochs: int, rate: float, resources: Resources) -> Iterator[Event]:
    drawn = torch.Generator().manual_seed(0)
    samples = torch.randn(32, 3, generator=drawn), torch.arange(32) % 2
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    learns = learner(model, Optimisation(epochs=epochs, learning_rate=rate))

    def batches(epoch: int, first: int) -> Iterable[tuple[Tensor, ...]]:
        return list(zip(*(part.split(8) for part in samples), strict=True))[first:]

    def measured(end: EpochEnd) -> list[Observation]:
        norms = {name: weight.detach().double().norm() for name, weight in model.named_parameters()}
        return [
            Observation(end.step, end.epoch, layer=name, values={"norm": float(norm)})
            for name, norm in norms.items()
        ]

    def ends(after_step: AfterStep) -> Iterator[EpochEnd]:
        loss = supervised(nn.functional.cross_entropy)
        return train(resources.fabric, learns, batches, loss, epochs, after_step=after_step)

    return resumable_events(learns, ends, measured, epochs, resources)


def claims(config: Linear) -> list[Claim]:
    """Claims whose evidence shows every observation, its rank, and the settings."""

    def norms(run: Run, epochs: Container[int]) -> list[float]:
        rows = [row for each in run.experiment for row in each.rows]
        return [float(row["norm"]) for row in rows if row.epoch in epochs]

    def total(run: Run) -> float:
        known = norms(run, range(config.epochs + 1))
        return sum(index * norm for index, norm in enumerate(known))

    def ends(run: Run) -> list[float]:
        return norms(run, [config.epochs])

    of_first = partial(Claim, source="ours", rule="all", where=f"rate {config.rates[0]}")
    return [
        of_first(
            text="The results have a sum.",
            quantity=total,
            region=above(0),
            tell=lambda runs: f"{total(runs[0])!r}",
        ),
        of_first(
            text="The weights end small.",
            quantity=lambda run: max(ends(run)),
            region=below(1),
            tell=lambda runs: f"{ends(runs[0])}",
        ),
    ]


def figures(config: Linear, runs: Runs) -> list[Drawing]:
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(2, 1))
        axes = figure.subplots()
        axes.plot([float(row["norm"]) for run in runs for row in run.rows])
        axes.set_axis_off()
    return [Drawing("norms", f"Norms at rates {config.rates}.", figure)]


EXPERIMENT = Experiment(
    id="tiny/linear",
    title="Two linear classifiers",
    question="They train.",
    source="None",
    parts=parts,
    claims=claims,
    figures=figures,
    columns=("epoch", "norm"),
    scales={"paper": Linear(), "small": Linear()},
    cost={"paper": "milliseconds", "small": "milliseconds"},
)
