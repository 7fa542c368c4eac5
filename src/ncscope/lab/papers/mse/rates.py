"""The sweep of learning rates, in which every network takes its best rate.

Source: MSE A.3, which refers to Papyan, Han and Donoho 2020: 25 rates, evenly spaced on a
logarithmic scale from 1e-4 to 0.25, of which a network takes the one with the best held-out
accuracy at the last epoch. The rate of the authors' public notebook, 0.0679, is one of the 25.

Command: ``ncscope train mse/collapse --scale paper --set rates=25``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.terminal import last
from ncscope.lab.papers.mse.training import MSETraining, network_of
from ncscope.lab.papers.trained import average
from ncscope.lab.training.settings import Training
from ncscope.report.tables import Summary

LOWEST, HIGHEST = 1e-4, 0.25


def swept_rates(count: int) -> list[float]:
    """Return learning rates of a sweep, ascending.

    Args:
        count: Number of rates, at least 2.

    Example:
        >>> rates = swept_rates(25)
        >>> rates[0], f"{rates[20]:.4f}", rates[24]
        (0.0001, '0.0679', 0.25)
    """
    return [float(f"{rate:.6g}") for rate in np.geomspace(LOWEST, HIGHEST, count)]


def swept_runs(config: MSETraining) -> dict[str, Training]:
    """Return every run with every rate of the sweep, by name; the runs themselves without one."""
    if config.rates == 1:
        return dict(config.runs)
    return {
        _named(name, rate): with_rate(training, rate)
        for name, training in config.runs.items()
        for rate in swept_rates(config.rates)
    }


def with_rate(training: Training, rate: float) -> Training:
    """Return the settings of a run with another learning rate."""
    optimisation = training.optimisation.model_copy(update={"learning_rate": rate})
    return training.model_copy(update={"optimisation": optimisation})


def best_rates(config: MSETraining, rows: Sequence[Observation]) -> dict[str, float]:
    """Return the rate with the best held-out accuracy at the end, for every run.

    Runs of a network and a loss share a rate: the accuracy is the mean over the seeds. Rates
    without a measurement are left out, and runs without any rate.

    Args:
        config: Settings of the recipe, with a sweep.
        rows: Rows of the study.
    """
    best = {}
    for runs in _by_network_and_loss(config).values():
        accuracies = _accuracies(config, rows, runs)
        if accuracies:
            rate = max(accuracies, key=lambda one: accuracies[one])
            best.update(dict.fromkeys(runs, rate))
    return best


def at_best_rates(config: MSETraining, rows: Sequence[Observation]) -> Sequence[Observation]:
    """Return the rows of the best rates, under the names of the runs; all rows without a sweep.

    Args:
        config: Settings of the recipe.
        rows: Rows of the study.
    """
    if config.rates == 1:
        return rows
    names = {_named(name, rate): name for name, rate in best_rates(config, rows).items()}
    return [replace(row, part=names[row.part]) for row in rows if row.part in names]


def rate_tables(config: MSETraining, rows: Sequence[Observation]) -> list[Summary]:
    """Return a table of held-out accuracy at the last epoch by rate; none without a sweep.

    Args:
        config: Settings of the recipe.
        rows: Rows of the study.
    """
    if config.rates == 1:
        return []
    networks = _by_network_and_loss(config)
    by_network = {name: _accuracies(config, rows, runs) for name, runs in networks.items()}
    lines = {
        f"{rate:.4g}": [
            f"{accuracies[rate]:.2%}" if rate in accuracies else ""
            for accuracies in by_network.values()
        ]
        for rate in swept_rates(config.rates)
    }
    caption = (
        "Held-out accuracy at the last epoch by learning rate, mean over the seeds; claims and "
        "figures are of each network's best rate (MSE A.3)"
    )
    return [Summary(caption, list(by_network), lines, title="Sweep of learning rates")]


def _named(name: str, rate: float) -> str:
    return f"{name}, rate {rate:.4g}"


def _by_network_and_loss(config: MSETraining) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, training in config.runs.items():
        found.setdefault(f"{network_of(training)}, {training.loss}", []).append(name)
    return found


def _accuracies(
    config: MSETraining, rows: Sequence[Observation], runs: Sequence[str]
) -> Mapping[float, float]:
    """Return the mean held-out accuracy at the last epoch, for every rate with all runs."""
    means = {
        rate: average(
            list(last(rows, [_named(run, rate) for run in runs], "accuracy", "test").values())
        )
        for rate in swept_rates(config.rates)
    }
    return {rate: mean for rate, mean in means.items() if mean == mean}
