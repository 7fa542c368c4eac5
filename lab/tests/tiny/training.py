"""An experiment of two short training runs, for tests of what stops and goes on."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pydantic import BaseModel, ConfigDict, Field

from ncscope_lab.experiment import Experiment, Part, Trainings, train_runs
from ncscope_lab.observations import Event
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import training_events


class Tiny(BaseModel):
    """Its settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int = Field(3, ge=1, description="Of each run.")


def parts(config: Tiny) -> list[Part]:
    plain = Optimisation(epochs=config.epochs, learning_rate=0.05, batch_size=256)
    averaged = plain.model_copy(update={"average": 0.9, "schedule": "cosine", "accumulate": 2})
    settings = {
        "plain": Training(data="digits", network="small-resnet-no-norm", optimisation=plain),
        "averaged": Training(
            data="digits",
            network="small-resnet",
            augmentation="crop",
            optimisation=averaged,
            seed=1,
        ),
    }

    def run(training: Training, resources: Resources) -> Iterator[Event]:
        return training_events(training.model_copy(update={"measured": 200}), resources)

    return [Part(name, config.epochs, partial(run, one)) for name, one in settings.items()]


def heavy(config: Tiny) -> list[Part]:
    """One run of so large a network that its checkpoint, 86 MB, takes long to write."""
    training = Training(
        data="digits",
        network="pfc-mnist",
        optimisation=Optimisation(epochs=config.epochs, learning_rate=0.01, batch_size=50),
        balanced=200,
        measured=20,
        layers=(),
        groups=("pfc",),
    )
    return train_runs(Trainings(runs={"heavy": training}))


EXPERIMENT = Experiment(
    id="tiny/training",
    title="Two short runs",
    question="They train.",
    source="None",
    parts=parts,
    claims=(),
    figures=lambda config, runs: [],
    columns=("epoch", "nc1", "accuracy"),
    scales={"paper": Tiny(), "small": Tiny()},
    cost={"paper": "seconds", "small": "seconds"},
)

HEAVY = replace(EXPERIMENT, parts=heavy, scales={"small": Tiny(epochs=2)})
