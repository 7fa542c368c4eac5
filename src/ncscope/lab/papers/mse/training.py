"""Settings of the MSE paper's networks: depths, optimisation, seeds, and scales.

Source: MSE A.1-A.5, which refers to Papyan, Han and Donoho 2020 for preprocessing, optimiser and
the networks under cross-entropy. The paper's scale trains VGG, ResNet and DenseNet on five data
sets; under cross-entropy some have another depth than under MSE. As in that predecessor, MNIST has
5000 images per class and SVHN 4600. Images of 28 pixels per side are padded to 32, and there is no
augmentation. The optimiser is SGD with momentum 0.9, weight decay 5e-4 and batches of 128 for 350
epochs; the learning rate is divided by 10 after 1/3 and 2/3 of the epochs. The paper selects every
network's learning rate in a sweep and does not print it; here all networks have the rate of the
authors' public notebook, unless ``rates`` asks for the sweep of `ncscope.lab.papers.mse.rates`.

The small scale has the same losses, batches and schedule, with a small network of each kind on
handwritten digits; the comparison of losses has two kinds, and one of them on warped digits too.
The medium scale has one network of each kind on 10,000 images. Every network has three
seeds at every scale.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training

Loss = Literal["mse", "cross-entropy"]
Result = TypeVar("Result")

BOTH: tuple[Loss, ...] = ("mse", "cross-entropy")
SEEDS = (1, 2, 3)
"""Seeds of every network of the paper."""

DEPTHS: Mapping[Loss, Mapping[str, tuple[str, ...]]] = {
    "mse": {
        "mnist": ("vgg11", "resnet18", "densenet40"),
        "fashion-mnist": ("vgg11", "resnet18", "densenet250"),
        "svhn": ("vgg13", "resnet34", "densenet40"),
        "cifar10": ("vgg11", "resnet50", "densenet100"),
        "stl10": ("vgg11", "resnet18", "densenet201"),
    },
    "cross-entropy": {
        "mnist": ("vgg11", "resnet18", "densenet40"),
        "fashion-mnist": ("vgg11", "resnet18", "densenet250"),
        "svhn": ("vgg11", "resnet18", "densenet40"),
        "cifar10": ("vgg13", "resnet18", "densenet40"),
        "stl10": ("vgg13", "resnet50", "densenet250"),
    },
}
"""The networks on each data set: under MSE the table of MSE A.2, under cross-entropy the networks
of Papyan, Han and Donoho 2020, from memory."""

EXCEPTIONS = ("stl10, ResNet", "stl10, DenseNet")
"""Networks that MSE A.7 describes as outliers: no claim about all networks includes them."""


class Small(NamedTuple):
    """A network of the small scale: data set, network and epochs."""

    data: str
    network: str
    epochs: int


SMALL_MSE = (
    Small("digits", "small-vgg", 150),
    Small("digits", "small-resnet", 150),
    Small("digits", "small-densenet", 150),
)
"""The networks of the small scale under MSE alone."""

SMALL_BOTH = (
    Small("digits", "small-vgg", 100),
    Small("digits", "small-resnet", 100),
    Small("warped-digits", "small-vgg", 50),
)
"""The networks of the small scale under both losses, one of them on a harder data set. The DenseNet
is left out, since it takes as long as the others together."""

SMALL_SEEDS = (4, 5, 6)
"""Seeds of every network of the small scale; others served to choose its settings."""

ARCHITECTURES = ("VGG", "ResNet", "DenseNet")
SIDES = {"mnist": 32, "fashion-mnist": 32}
BALANCED = {"mnist": 50_000, "svhn": 46_000}
"""Training images, equally many per class, of the sets whose classes differ in size."""
RATE = 0.0679
SMALL_RATE, SMALL_DECAY = 0.03, 5e-3
"""Learning rate and weight decay of the small scale. A run has about a hundredth of the paper's
steps, so ten times the paper's decay; with this decay and the paper's rate the running averages of
the batch norms lag so far behind that the ResNet errs until the rate falls."""

LOSSES: Mapping[Loss, str] = {"mse": "MSE", "cross-entropy": "cross-entropy"}


class MSETraining(BaseModel):
    """Settings of the recipes that train the MSE paper's networks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")
    rates: int = Field(
        1,
        ge=1,
        description="Learning rates, log-spaced from 1e-4 to 0.25, of which every network takes "
        "the best on held-out images; 1 for the rates of the runs. The paper has 25.",
    )


def paper_runs(losses: Sequence[Loss], groups: tuple[str, ...]) -> dict[str, Training]:
    """Return settings of every network of the paper under every loss, by name.

    Args:
        losses: Losses to train under.
        groups: Groups of metrics of the last layer.
    """
    optimisation = Optimisation(
        epochs=350, batch_size=128, learning_rate=RATE, weight_decay=5e-4, schedule="steps"
    )
    return _named(
        _training(data, network, loss, groups, optimisation, seed, measurements=40)
        for data in DEPTHS["mse"]
        for networks in zip(*(DEPTHS[loss][data] for loss in losses), strict=True)
        for seed in SEEDS
        for loss, network in zip(losses, networks, strict=True)
    )


def medium_runs(losses: Sequence[Loss], groups: tuple[str, ...]) -> dict[str, Training]:
    """Return settings of one network of each kind on 10,000 images, for one GPU.

    Args:
        losses: Losses to train under.
        groups: Groups of metrics of the last layer.
    """
    optimisation = Optimisation(
        epochs=100, batch_size=128, learning_rate=RATE, weight_decay=5e-4, schedule="steps"
    )
    runs = _named(
        _training("cifar10", network, loss, groups, optimisation, seed, measurements=24)
        for network in ("vgg11", "resnet18", "densenet40")
        for seed in SEEDS
        for loss in losses
    )
    return {name: run.model_copy(update={"balanced": 10_000}) for name, run in runs.items()}


def small_runs(losses: Sequence[Loss], groups: tuple[str, ...]) -> dict[str, Training]:
    """Return settings of small networks under every loss, by name.

    Args:
        losses: Losses to train under, one or both; the networks differ.
        groups: Groups of metrics of the last layer.
    """
    both = len(losses) > 1
    optimisation = Optimisation(
        batch_size=128, learning_rate=SMALL_RATE, weight_decay=SMALL_DECAY, schedule="steps"
    )
    return _named(
        _training(
            one.data,
            one.network,
            loss,
            groups,
            optimisation.model_copy(update={"epochs": one.epochs}),
            seed,
            measurements=12 if both else 24,
        )
        for one in (SMALL_BOTH if both else SMALL_MSE)
        for seed in SMALL_SEEDS
        for loss in losses
    )


def _named(trainings: Iterable[Training]) -> dict[str, Training]:
    return {f"{one.data}, {one.network}, {one.loss}, seed {one.seed}": one for one in trainings}


def _training(
    data: str,
    network: str,
    loss: Loss,
    groups: tuple[str, ...],
    optimisation: Optimisation,
    seed: int,
    measurements: int,
) -> Training:
    return Training(
        data=data,
        network=network,
        image_size=SIDES.get(data),
        balanced=BALANCED.get(data),
        loss=loss,
        optimisation=optimisation,
        seed=seed,
        measurements=measurements,
        layers=(),
        groups=groups,
    )


def kind_of(training: Training) -> str:
    """Return the kind of a run's network, the row of the paper's figures."""
    kinds = (kind for kind in ARCHITECTURES if kind.lower() in training.network)
    return next(kinds, training.network)


def network_of(training: Training) -> str:
    """Return data set and kind of a run's network, the cell of the paper's figures.

    Seeds and losses of a cell are compared with each other; depths may differ by loss.
    """
    return f"{training.data}, {kind_of(training)}"


def under(config: MSETraining, loss: Loss) -> list[str]:
    """Return the names of the runs under one loss."""
    return [name for name, training in config.runs.items() if training.loss == loss]


def typical(config: MSETraining, names: Iterable[str] | None = None) -> list[str]:
    """Return the names of the runs whose networks are not the paper's exceptions.

    Args:
        config: Settings of the recipe.
        names: Names to choose from; default all runs.
    """
    every = config.runs if names is None else names
    return [name for name in every if network_of(config.runs[name]) not in EXCEPTIONS]


def by_network(config: MSETraining, results: Mapping[str, Result]) -> dict[str, list[Result]]:
    """Group results of runs by data set and kind of network, in the order of the runs.

    Args:
        config: Settings of the recipe.
        results: Results of the runs of one loss, by name of the run.
    """
    networks: dict[str, list[Result]] = {}
    for name, one in results.items():
        networks.setdefault(network_of(config.runs[name]), []).append(one)
    return networks


def rivals(config: MSETraining) -> dict[str, tuple[str, str]]:
    """Return pairs of runs that differ in the loss, MSE and cross-entropy, by the former's name.

    The runs of a pair have one data set, kind of network and seed.
    """
    by_seed: dict[tuple[str, int], dict[str, str]] = {}
    for name, training in config.runs.items():
        by_seed.setdefault((network_of(training), training.seed), {})[training.loss] = name
    return {
        pair["mse"]: (pair["mse"], pair["cross-entropy"])
        for pair in by_seed.values()
        if len(pair) == len(BOTH)
    }
