"""Rows as the recipes of the MSE paper's networks see them, with the numbers that a test gives."""

from collections.abc import Mapping, Sequence

from ncscope.probing.records import Row
from ncscope.recipes.mse_training import MSETraining, small_runs

EPOCHS = (0, 4, 8, 12)
ACCURACY = (0.1, 0.9, 1.0, 1.0)  # zero error at epoch 8
Columns = Mapping[str, Sequence[float]]


def small(*losses: str, data: str = "digits") -> MSETraining:
    """The small scale's runs on one data set."""
    runs = small_runs(losses, ("nc1",))  # type: ignore[arg-type]
    return MSETraining(runs={name: one for name, one in runs.items() if one.data == data})


def history_of(name: str, train: Columns, test: Columns = {}, attacked: Columns = {}) -> list[Row]:
    """One run's rows: a value an epoch of every column."""
    splits = {"train": {"accuracy": ACCURACY} | dict(train), "test": test, "attacked": attacked}
    return [
        {"part": name, "epoch": epoch, "step": epoch, "split": split, "layer": "last"}
        | {key: float(values[place]) for key, values in columns.items()}
        for place, epoch in enumerate(EPOCHS)
        for split, columns in splits.items()
        if columns
    ]
