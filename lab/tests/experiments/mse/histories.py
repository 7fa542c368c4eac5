"""Runs of the MSE paper's networks, with the numbers that a test gives."""

from collections.abc import Mapping, Sequence

from lab.tests.observed import nudged

from ncscope_lab.experiments.mse.decomposition import TRAINING_MODE
from ncscope_lab.experiments.mse.networks import SMALL_SEEDS, Loss, MSETrainings, small_runs
from ncscope_lab.observations import Observation, Results
from ncscope_lab.quantities import Run, Runs, replace_fields

EPOCHS = (0, 4, 8, 12)
ACCURACY = (0.1, 0.9, 1.0, 1.0)  # zero error at epoch 8
Columns = Mapping[str, Sequence[float]]


def small(*losses: Loss) -> MSETrainings:
    """The small scale's runs with three seeds: of four networks, under two losses of three."""
    runs = small_runs(losses, ("nc1", "nc4"))
    return MSETrainings(runs={n: run for n, run in runs.items() if run.seed in SMALL_SEEDS[:3]})


def history_of(
    name: str,
    train: Columns,
    test: Columns | None = None,
    attacked: Columns | None = None,
    training_mode: Columns | None = None,
) -> list[Observation]:
    """One run's observations: a value an epoch of every column."""
    splits = {
        "train": {"accuracy": ACCURACY} | dict(train),
        "test": dict(test or {}),
        "attacked": dict(attacked or {}),
        TRAINING_MODE: dict(training_mode or {}),
    }
    return [
        nudged(
            Observation(
                step=epoch,
                epoch=epoch,
                split=split,
                layer="last",
                part=name,
                values={key: float(values[index]) for key, values in columns.items()},
            )
        )
        for index, epoch in enumerate(EPOCHS)
        for split, columns in splits.items()
        if columns
    ]


def run_of(rows: Sequence[Observation]) -> Run:
    """The run of these rows."""
    (run,) = Runs.of({}, Results(rows))
    return run


def tiny(config: MSETrainings) -> MSETrainings:
    """One epoch of the VGG on a few digits, measured before and after."""
    runs = {
        name: replace_fields(one, epochs=1, measurements=2, balanced=300)
        for name, one in config.runs.items()
        if (one.data, one.network, one.seed) == ("digits", "small-vgg", SMALL_SEEDS[0])
    }
    return config.model_copy(update={"runs": runs})
