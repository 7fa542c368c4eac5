"""Training in a study: the bar counts epochs, from where a run is taken up too."""

from functools import partial
from pathlib import Path

import pytest

from ncscope.lab.experiment import Trainings, train_runs
from ncscope.lab.runs.resources import Resources
from ncscope.lab.runs.run_folder import RunFolder
from ncscope.lab.runs.running import _keep, _results
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.measurement.provenance import Provenance
from tests.lab.papers.tiny_training import RECIPE

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

    parts = train_runs(Trainings(runs={"one": RUN, "two": RUN.model_copy(update={"seed": 1})}))
    run = RunFolder(folder)
    run.save_config({"settings": RUN.model_dump(mode="json")})
    results = _results(
        parts, run, Resources(), on_event, True, partial(_keep, RECIPE, Provenance())
    )
    measured = [(row.part, row.epoch, row.split) for row in results]
    assert measured == [
        (part.name, epoch, split)
        for part in parts
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
