"""Networks of the MSE paper: data sets, depths, optimisation, seeds, scales, learning rates.

Source: MSE A.1-A.5, which refers to Papyan, Han and Donoho 2020 for preprocessing, optimiser and
the networks under cross-entropy. The paper's scale trains VGG, ResNet and DenseNet on five data
sets; under cross-entropy some have another depth than under MSE. As in that predecessor, MNIST has
5000 images per class and SVHN 4600. Images of 28 pixels per side are padded to 32, and there is no
augmentation. The paper selects every network's learning rate in a sweep and does not print it: of
25 rates, evenly spaced on a logarithmic scale from 1e-4 to 0.25, the one with the best held-out
accuracy at the last epoch. Here all networks have the rate of the authors' public notebook, 0.0679,
one of the 25, unless ``rates`` asks for the sweep.

The small scale has the paper's losses, batches and schedule, with a small network of each kind on
handwritten digits. How far a network collapses depends on the decay times that its weights live:
the sum of the rate times the decay, over one less the momentum. In the paper they live about 17.
Under MSE alone the networks have the paper's rate and decay, and one of them trains on 5,000 digits
of MNIST. There they live about two decay times, one in the DenseNet and on MNIST. The comparison of
losses has two kinds of network, one of them on warped digits too. It is shorter, so it has four
times the decay, or little would fall past zero error; and a lower rate, or the running averages of
the batch norms lag behind until the rate falls.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from ncscope.report.tables import Summary
from ncscope_lab.experiment import Part, Trainings, train_runs
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Quantity, Run, Runs, average, last, replace_fields
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Extra

Loss = Literal["mse", "cross-entropy"]
LOSSES: Mapping[Loss, str] = {"mse": "MSE", "cross-entropy": "cross-entropy"}
BOTH: tuple[Loss, ...] = ("mse", "cross-entropy")
KINDS = ("VGG", "ResNet", "DenseNet")

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
"""The networks on each data set: under MSE the table of MSE A.2, under cross-entropy a choice of
ours. The paper takes the depths of Papyan, Han and Donoho 2020, of which we have found no copy."""

EXCEPTIONS = ("stl10, ResNet", "stl10, DenseNet")
"""Networks that MSE A.7 describes as outliers: no claim about all networks includes them."""

PAPER = Training(
    data="cifar10",
    network="vgg11",
    optimisation=Optimisation(
        epochs=350,
        batch_size=128,
        learning_rate=0.0679,
        weight_decay=5e-4,
        schedule="steps",  # divided by 10 after 1/3 and 2/3 of the epochs
    ),
    measurements=40,
    layers=(),
)
PAPER_SEEDS = (1, 2, 3)
SIDES = {"mnist": 32, "fashion-mnist": 32}
BALANCED = {"mnist": 50_000, "svhn": 46_000}  # equally many of every class

SMALL_SEEDS = tuple(range(11, 19))  # other seeds served to choose the settings
SMALL_MSE = {  # a DenseNet takes as long as the others together
    ("digits", "small-vgg"): 1500,
    ("digits", "small-resnet"): 1500,
    ("digits", "small-densenet"): 750,
    ("mnist-5k", "small-vgg"): 300,
}
SMALL_BOTH = {
    ("digits", "small-vgg"): 300,
    ("digits", "small-resnet"): 300,
    ("warped-digits", "small-vgg"): 300,
}
"""Epochs of the networks of the small scale, under MSE alone and under both losses."""
SHORT = {"learning_rate": 0.03, "weight_decay": 2e-3}
"""Optimisation of the comparison of losses at the small scale, where it differs from the paper's:
with more decay the warped digits have errors until the rate falls.
"""
LOWEST, HIGHEST = 1e-4, 0.25  # learning rates of the sweep


class MSETrainings(Trainings):
    """Settings of an experiment that trains the MSE paper's networks."""

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
    return name_runs(
        replace_fields(
            PAPER,
            data=data,
            network=network,
            image_size=SIDES.get(data),
            balanced=BALANCED.get(data),
            loss=loss,
            seed=seed,
            groups=groups,
        )
        for data in DEPTHS["mse"]
        for networks in zip(*(DEPTHS[loss][data] for loss in losses), strict=True)
        for seed in PAPER_SEEDS
        for loss, network in zip(losses, networks, strict=True)
    )


def small_runs(losses: Sequence[Loss], groups: tuple[str, ...]) -> dict[str, Training]:
    """Return settings of small networks under every loss, by name.

    Args:
        losses: Losses to train under, one or both; the networks differ.
        groups: Groups of metrics of the last layer.
    """
    is_comparison = len(losses) > 1
    own = {"measurements": 16, **SHORT} if is_comparison else {"measurements": 24}
    networks = SMALL_BOTH if is_comparison else SMALL_MSE
    return name_runs(
        replace_fields(
            PAPER,
            data=data,
            network=network,
            epochs=epochs,
            loss=loss,
            seed=seed,
            groups=groups,
            **own,
        )
        for (data, network), epochs in networks.items()
        for seed in SMALL_SEEDS
        for loss in losses
    )


def name_runs(trainings: Iterable[Training]) -> dict[str, Training]:
    """Name settings by data, network, loss and seed."""
    return {f"{one.data}, {one.network}, {one.loss}, seed {one.seed}": one for one in trainings}


def name_kind(run: Run) -> str:
    """Return the kind of a run's network, the row of the paper's figures."""
    kinds = (kind for kind in KINDS if kind.lower() in run.settings.network)
    return next(kinds, run.settings.network)


def name_network(run: Run) -> str:
    """Return data set and kind of a run's network, the cell of the paper's figures.

    Seeds and losses of a cell are compared with each other; depths may differ by loss.
    """
    return f"{run.settings.data}, {name_kind(run)}"


def select_typical(runs: Runs, **fields: object) -> Runs:
    """Select the runs whose networks are not the paper's exceptions.

    Args:
        runs: Runs to select from.
        fields: Values of the settings.
    """
    return Runs(run for run in runs.where(**fields) if name_network(run) not in EXCEPTIONS)


def find_rival(run: Run) -> Run | None:
    """Return the run of the same kind of network, data set and seed under the other loss."""
    others = run.experiment.where(seed=run.settings.seed)
    return next(
        (
            other
            for other in others
            if other.settings.loss != run.settings.loss and name_network(other) == name_network(run)
        ),
        None,
    )


def select_pairs(runs: Runs) -> Runs:
    """Select the typical runs under MSE that have a rival under cross-entropy."""
    return Runs(run for run in select_typical(runs, loss="mse") if find_rival(run))


def of_rival(quantity: Quantity) -> Quantity:
    """Return the quantity of the run's rival, of those that `select_pairs` selects."""
    return quantity.of(find_rival, f"{quantity.name} under cross-entropy")


def list_rates(count: int) -> list[float]:
    """Return learning rates of a sweep, ascending.

    Args:
        count: Number of rates, at least 2.

    Example:
        >>> rates = list_rates(25)
        >>> rates[0], f"{rates[20]:.4f}", rates[24]
        (0.0001, '0.0679', 0.25)
    """
    return [float(f"{rate:.6g}") for rate in np.geomspace(LOWEST, HIGHEST, count)]


def name_run(name: str, rate: float) -> str:
    """Name a run of the sweep."""
    return f"{name}, rate {rate:.4g}"


def sweep_runs(settings: MSETrainings) -> dict[str, Training]:
    """Return every run with every rate of the sweep, by name; the runs themselves without one."""
    if settings.rates == 1:
        return dict(settings.runs)
    return {
        name_run(name, rate): replace_fields(training, learning_rate=rate)
        for name, training in settings.runs.items()
        for rate in list_rates(settings.rates)
    }


def train_sweep(settings: MSETrainings, extra: Extra = lambda bench, end: []) -> list[Part]:
    """Return a part for each network, loss and seed, and for each rate of the sweep.

    Args:
        settings: Settings of the experiment.
        extra: Function that measures more at the epochs that are due.
    """
    return train_runs(Trainings(runs=sweep_runs(settings)), extra)


def select_best_rates(settings: MSETrainings, runs: Runs) -> Runs:
    """Return every run of the settings with the results of its best rate.

    Runs of a network and a loss share a rate: that with the best held-out accuracy at the end, in
    the mean over the seeds. Rates without a measurement are left out. `Run.experiment` of each run
    holds the whole sweep too.

    Args:
        settings: Settings of the experiment.
        runs: Runs of the sweep.
    """
    if settings.rates == 1:
        return runs
    results = [row for run in runs for row in run.rows]
    runs = Runs.of(settings.runs, Results(results))
    names: dict[str, str] = {}
    for seeds in Runs(runs[: len(settings.runs)]).group(name_network_and_loss).values():
        accuracies = measure_rates(settings, seeds)
        if accuracies:
            best = max(accuracies, key=lambda rate: accuracies[rate])
            names |= {name_run(run.name, best): run.name for run in seeds}
    chosen = [replace(row, part=names[row.part]) for row in results if row.part in names]
    return Runs(Runs.of(settings.runs, Results([*chosen, *results]))[: len(settings.runs)])


def name_network_and_loss(run: Run) -> str:
    """Return what runs have in common that differ in the seed."""
    return f"{name_network(run)}, {run.settings.loss}"


def measure_rates(settings: MSETrainings, seeds: Runs) -> dict[float, float]:
    """Return the mean held-out accuracy at the last epoch, for every rate with all seeds."""
    accuracy = last("accuracy", "test")
    means = {
        rate: average([accuracy(run.experiment.find(name_run(run.name, rate))) for run in seeds])
        for rate in list_rates(settings.rates)
    }
    return {rate: mean for rate, mean in means.items() if math.isfinite(mean)}


def tabulate_rates(settings: MSETrainings, runs: Runs) -> list[Summary]:
    """Return a table of held-out accuracy at the last epoch by rate; none without a sweep.

    Args:
        settings: Settings of the experiment.
        runs: Runs at their best rates.
    """
    if settings.rates == 1:
        return []
    networks = runs.group(name_network_and_loss)
    accuracies = [measure_rates(settings, seeds) for seeds in networks.values()]
    lines = {
        f"{rate:.4g}": [f"{of[rate]:.2%}" if rate in of else "" for of in accuracies]
        for rate in list_rates(settings.rates)
    }
    caption = (
        "Held-out accuracy at the last epoch by learning rate, mean over the seeds; claims and "
        "figures are of each network's best rate (MSE A.3)"
    )
    return [Summary(caption, list(networks), lines, title="Sweep of learning rates")]
