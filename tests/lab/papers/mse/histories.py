"""Observations of the MSE paper's networks, with the numbers that a test gives."""

from collections.abc import Mapping, Sequence

from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.training import MSETraining, small_runs

EPOCHS = (0, 4, 8, 12)
ACCURACY = (0.1, 0.9, 1.0, 1.0)  # zero error at epoch 8
Columns = Mapping[str, Sequence[float]]


def small(*losses: str, data: str = "digits") -> MSETraining:
    """The small scale's runs on one data set, with one seed."""
    runs = small_runs(losses, ("nc1", "nc4"))  # type: ignore[arg-type]
    chosen = {name: one for name, one in runs.items() if (one.data, one.seed) == (data, 0)}
    return MSETraining(runs=chosen)


def history_of(
    name: str, train: Columns, test: Columns | None = None, attacked: Columns | None = None
) -> list[Observation]:
    """One run's observations: a value an epoch of every column."""
    splits = {
        "train": {"accuracy": ACCURACY} | dict(train),
        "test": dict(test or {}),
        "attacked": dict(attacked or {}),
    }
    return [
        Observation(
            step=epoch,
            epoch=epoch,
            split=split,
            layer="last",
            part=name,
            values={key: float(values[index]) for key, values in columns.items()},
        )
        for index, epoch in enumerate(EPOCHS)
        for split, columns in splits.items()
        if columns
    ]


def tiny(config: MSETraining) -> MSETraining:
    """One epoch of the VGG on a few digits, measured before and after."""
    runs = {
        name: one.model_copy(
            update={
                "optimisation": one.optimisation.model_copy(update={"epochs": 1}),
                "measurements": 2,
                "balanced": 300,
            }
        )
        for name, one in config.runs.items()
        if (one.data, one.network, one.seed) == ("digits", "small-vgg", 0)
    }
    return config.model_copy(update={"runs": runs})
