"""Training in a run: the bar counts epochs, from where a run is taken up too."""

from dataclasses import replace
from pathlib import Path

import pytest
from lab.tests.tiny.halving import list_alone
from lab.tests.tiny.training import EXPERIMENT

from ncscope_lab import execution
from ncscope_lab.experiment import Trainings, train_runs
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training

EPOCHS = 3
RUN = Training(
    data="digits",
    network="small-resnet-no-norm",
    optimisation=Optimisation(epochs=EPOCHS, batch_size=100),
    balanced=200,
    every=2,
    layers=(),
    groups=("spectra",),
)


def seen(folder: Path, stop: int | None = None) -> list[tuple[str, int, int]]:
    """What a bar is told of two runs, until it is told of so many epochs."""
    calls = []

    def on_event(part: str, done: int, total: int) -> None:
        calls.append((part, done, total))
        if done == stop:
            raise KeyboardInterrupt

    runs = Trainings(runs={"one": RUN, "two": RUN.model_copy(update={"seed": 1})})
    experiment = replace(EXPERIMENT, parts=train_runs, scales={"small": runs})
    with pytest.MonkeyPatch.context() as patch:
        list_alone(patch, experiment)
        resume = (folder / "config.yaml").exists()
        results = execution.run("tiny", out=folder, resume=resume, on_row=on_event).rows
    measured = [(row.part, row.epoch, row.split) for row in results]
    assert measured == [
        (part, epoch, split)
        for part in runs.runs
        for epoch in (0, 2, 3)
        for split in ("train", "test")
    ]
    return calls


@pytest.mark.slow
def test_the_bar_counts_epochs_and_ends_full_also_when_resumed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        seen(tmp_path / "stopped", stop=EPOCHS + 2)
    for calls in (seen(tmp_path / "whole"), seen(tmp_path / "stopped")):
        assert {total for _, _, total in calls} == {2 * EPOCHS}
        done = [done for _, done, _ in calls]
        assert done == sorted(done)
        assert done[-1] == 2 * EPOCHS
    assert calls[0] == ("one", EPOCHS, 2 * EPOCHS)
    assert calls[1] == ("two, epoch 0 of 3", EPOCHS, 2 * EPOCHS)
    assert calls[-1] == ("two, epoch 3 of 3", 2 * EPOCHS, 2 * EPOCHS)
