"""Two processes that share batches: one run, whatever each of them normalises and averages."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ncscope.errors import InputError
from ncscope_lab.observations import Heartbeat
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training import resumable
from ncscope_lab.training.checkpoint import Checkpoints
from ncscope_lab.training.loop import normalise_together
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import bench_events, prepare_bench
from tests.ranks import in_two_processes

SETTINGS = Training(
    data="digits",
    network="small-resnet",
    optimisation=Optimisation(epochs=2, batch_size=40, accumulate=2, average=0.9),
    balanced=200,
    layers=(),
    groups=("nc1",),
)
"""Five batches an epoch: the last makes a step alone."""

WEIGHT, VARIANCE = "classifier.weight", "stages.0.entry.1.running_var"
load = partial(torch.load, weights_only=True)


def learn(folder: Path, rank: int, epochs: int) -> None:
    """Train so many epochs, from where the folder's checkpoint is; leave this rank's learner."""
    resources = Resources(checkpoints=folder, devices=2)
    bench = prepare_bench(SETTINGS, resources)
    signs = 0
    for event in bench_events(bench, resources):
        signs += isinstance(event, Heartbeat)
        if signs == epochs:
            break
    torch.save(bench.learner.state(), folder / f"rank-{rank}.pt")


def assert_same(found: Any, expected: Any) -> None:
    """Equal to the last bit, at any depth."""
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


@pytest.mark.slow
def test_processes_end_alike_and_resumed_where_they_would_have_ended(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    (tmp_path / "half").mkdir()

    def program(rank: int) -> None:
        learn(whole, rank, 2)
        learn(cut, rank, 1)
        (cut / f"rank-{rank}.pt").replace(tmp_path / "half" / f"rank-{rank}.pt")
        learn(cut, rank, 2)

    assert in_two_processes(program) == [0, 0]
    ends, half = (load(folder / "rank-0.pt") for folder in (whole, tmp_path / "half"))
    assert not torch.equal(half["model"][WEIGHT], ends["model"][WEIGHT])
    assert not torch.equal(ends["average"][f"module.{VARIANCE}"], ends["model"][VARIANCE])
    for other in (whole / "rank-1.pt", cut / "rank-0.pt", cut / "rank-1.pt"):
        assert_same(load(other), ends)
    kept = [load(folder / "checkpoint.pt") for folder in (cut, whole)]
    for checkpoint, folder in zip(kept, (cut, whole), strict=True):
        assert checkpoint.pop("part") == f"{tmp_path.name}/{folder.name}"
    assert_same(*kept)


def said_by_both(folder: Path, *acts: Callable[[int], object]) -> list[list[str]]:
    """What both processes say when they are refused; a process that waits is killed."""

    def program(rank: int) -> None:
        said = []
        for act in acts:
            with pytest.raises(InputError) as caught:
                act(rank)
            said.append(str(caught.value))
        (folder / str(rank)).write_text(json.dumps(said))

    assert in_two_processes(program, seconds=60) == [0, 0]
    return [json.loads((folder / str(rank)).read_text()) for rank in (0, 1)]


REFUSED: dict[str, dict[str, Any]] = {
    "expected at least 2 training images to measure, one a process, found 1;": {"measured": 1},
    "expected a batch of 1 to 200 samples": {"optimisation": Optimisation(batch_size=202)},
    "that 2 processes can share evenly": {"optimisation": Optimisation(batch_size=3)},
    "expected a subset of 1 to 200 samples": {"measured": 201},
}


@pytest.mark.slow
def test_samples_too_few_to_share_are_refused_by_all(tmp_path: Path) -> None:
    resources = Resources(checkpoints=tmp_path / "run", devices=2)

    def act(rank: int, update: dict[str, Any]) -> None:
        list(bench_events(prepare_bench(SETTINGS.model_copy(update=update), resources), resources))

    heard = said_by_both(tmp_path, *(partial(act, update=update) for update in REFUSED.values()))
    for own in heard:
        assert all(part in said for part, said in zip(REFUSED, own, strict=True)), own


@pytest.mark.slow
def test_what_stops_the_first_process_stops_all(tmp_path: Path) -> None:
    """A place that the first cannot write to."""
    place = tmp_path / "run"
    (place / "checkpoint.pt").mkdir(parents=True)

    def act(rank: int) -> None:
        resources = Resources(checkpoints=place, devices=2)
        resumable._Keeper(prepare_bench(SETTINGS, resources).learner, resources).save([])

    (first,), (second,) = said_by_both(tmp_path, act)
    assert "to write" in first
    assert second.startswith("expected the first process to keep checkpoints")


@pytest.mark.slow
def test_a_checkpoint_that_one_machine_does_not_see_stops_all(tmp_path: Path) -> None:
    def act(rank: int) -> None:
        resources = Resources(checkpoints=tmp_path / f"machine-{rank}", devices=2)
        list(bench_events(prepare_bench(SETTINGS, resources), resources))

    start = prepare_bench(SETTINGS, Resources()).learner
    owner = {"run": "", "part": f"{tmp_path.name}/machine-1"}
    Checkpoints(tmp_path / "machine-1" / "checkpoint.pt").save(
        {**owner, "learner": start.state(), "events": []}
    )
    for (said,) in said_by_both(tmp_path, act):
        assert said.startswith("expected the same checkpoint on every machine")


@pytest.mark.parametrize("content", [pytest.param(b"", marks=pytest.mark.slow), b"damaged"])
def test_a_checkpoint_that_is_damaged_on_one_machine_stops_all(
    content: bytes, tmp_path: Path
) -> None:
    def act(rank: int) -> None:
        resources = Resources(checkpoints=tmp_path / f"machine-{rank}", devices=2)
        list(bench_events(prepare_bench(SETTINGS, resources), resources))

    (tmp_path / "machine-1").mkdir()
    (tmp_path / "machine-1" / "checkpoint.pt").write_bytes(content)
    (first,), (second,) = said_by_both(tmp_path, act)
    assert first.startswith("expected the same checkpoint on every machine")
    assert second.startswith("expected a checkpoint that ncscope wrote, found ")


@pytest.mark.parametrize(("device", "processes"), [("cuda", 1), ("cpu", 2)])
def test_norms_of_one_process_or_of_the_cpu_stay(device: str, processes: int) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    assert normalise_together(model, torch.device(device), processes) is model
    assert type(model[1]) is nn.BatchNorm2d


def test_on_cuda_the_norms_of_several_processes_share_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.BatchNorm1d(2))
    before = dict(model.named_parameters()) | dict(model.named_buffers())
    made = normalise_together(model, torch.device("cuda"), 2)
    assert [type(made[place]) for place in (1, 2)] == [nn.SyncBatchNorm] * 2
    after = dict(made.named_parameters()) | dict(made.named_buffers())
    assert after.keys() == before.keys()
    assert all(after[name] is value for name, value in before.items())
