"""The sweep of learning rates, in which every network takes its best rate.

Source: MSE A.3, which refers to Papyan, Han and Donoho 2020: 25 rates, evenly spaced on a
logarithmic scale from 1e-4 to 0.25, of which a network takes the one with the best held-out
accuracy at the last epoch. The rate of the authors' public notebook, 0.0679, is one of the 25.
"""

import math
from dataclasses import replace

import numpy as np

from ncscope.report.tables import Summary
from ncscope_lab.experiment import Part, Trainings, train_runs
from ncscope_lab.experiments.mse.networks import MSETrainings, name_network
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Run, Runs, average, last, replace_fields
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Extra

LOWEST, HIGHEST = 1e-4, 0.25


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


def train_sweep(settings: MSETrainings, extra: Extra | None = None) -> list[Part]:
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
        rate: average([accuracy(run.experiment.named(name_run(run.name, rate))) for run in seeds])
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
