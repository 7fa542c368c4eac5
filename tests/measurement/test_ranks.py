"""Several real processes measure what one does, however the samples are shared out, or all end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import ncscope
from ncscope.errors import InputError
from ncscope.integrations.recording import Recorder
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.measurement.watching import Watch
from ncscope.models.networks.residual import ResidualNet

from ..ranks import in_processes
from ..ranks import joined_ranks as on_ranks

LABELS = torch.arange(60) % 4
INPUTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0)).double()
INPUTS = INPUTS + 2 * torch.eye(6)[LABELS]
GROUPS = ("nc1", "nc2", "nc3", "nc4", "pfc", "mse", "information")
OPTIONS = Options(
    layers=["stem", "blocks.*"], groups=GROUPS, layer_groups=("nc1", "pfc"), information_batch=20
)
LIGHT = Options(layers=["stem", "blocks.0"], groups=("nc1", "nc4"), layer_groups=("nc4",))
Batches = list[tuple[Tensor, Tensor]]


def network(width: int = 8, depth: int = 3) -> nn.Module:
    torch.manual_seed(1)
    return ResidualNet(6, width, depth, 4).double()


def batches(rows: slice, size: int = 16) -> Batches:
    inputs, labels = INPUTS[rows], LABELS[rows]
    return list(zip(inputs.split(size), labels.split(size), strict=True)) if len(labels) else []


def flat(value: Any, name: str = "") -> dict[str, float]:
    """The numbers in a record, by their path."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {key: number for at, v in items for key, number in flat(v, f"{name}/{at}").items()}
    return {name: value} if isinstance(value, int | float) else {}


def plain(record: Any) -> dict[str, float]:
    return flat(json.loads(json.dumps(asdict(record))))


def assert_same(found: list[dict[str, float]], expected: dict[str, float]) -> None:
    assert len(expected) > 10
    for own in found:
        assert own == pytest.approx(expected, rel=1e-10, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    "shares",
    [
        (slice(60),),
        (slice(60), slice(0)),
        (slice(0), slice(60)),
        pytest.param((slice(7), slice(7, 60), slice(0)), marks=pytest.mark.slow),
        pytest.param((slice(0), slice(1), slice(0), slice(1, 60)), marks=pytest.mark.slow),
    ],
    ids=["one", "last empty", "first empty", "three", "four, two empty"],
)
def test_samples_may_be_shared_out_in_any_way(shares: tuple[slice, ...], tmp_path: Path) -> None:
    def program(rank: int) -> Any:
        return plain(measure_layers(network(), batches(shares[rank], 5 + rank), OPTIONS).record)

    expected = measure_layers(network(), batches(slice(60)), OPTIONS).record
    assert_same(on_ranks(len(shares), tmp_path, program), plain(expected))


@pytest.mark.slow
def test_a_process_without_samples_spills_and_has_the_reference(tmp_path: Path) -> None:
    training = ncscope.measure_model(network(), batches(slice(40)), progress=False)

    def measured(loader: Batches) -> dict[str, float]:
        report = ncscope.measure_model(
            network(),
            loader,
            layer_groups=None,
            prior="uniform",
            class_counts=torch.bincount(LABELS[40:55]),
            reference=training,
            memory=0,
            progress=False,
        )
        return {f"{name} {key}": v for name, at in report.layers.items() for key, v in at.items()}

    found = on_ranks(2, tmp_path, lambda rank: measured(batches(slice(40, 40 + 15 * rank))))
    assert_same(found, measured(batches(slice(40, 55))))


class Tokens(nn.Module):
    """A language model of two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(5, 6).double(), nn.Linear(6, 5).double()

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.embed(input_ids))


def test_a_process_may_have_tokens_none_of_which_is_measured(tmp_path: Path) -> None:
    ids = torch.randint(5, (8, 7), generator=torch.Generator().manual_seed(3))
    options = Options(layers=["embed"], next_token=True, memory=0, groups=("nc4", "nc1"))

    def program(rank: int) -> Any:
        labels = ids if rank == 1 else torch.full_like(ids, -100)
        batch = {"input_ids": ids, "labels": labels}
        return plain(measure_layers(Tokens(), [batch], options).record)

    expected = measure_layers(Tokens(), [{"input_ids": ids, "labels": ids}], options).record
    assert_same(on_ranks(2, tmp_path, program), plain(expected))


@pytest.mark.slow
def test_a_watch_that_has_seen_nothing_joins_in_with_the_head_as_it_is_by_now(
    tmp_path: Path,
) -> None:
    def watched(shares: list[Batches], moved: float) -> list[dict[str, float]]:
        model, found = network(), []
        with Watch(model, LIGHT) as seen:
            for loader in shares:
                for inputs, labels in loader:
                    model(inputs)
                    seen.labels(labels)
                model.classifier.weight.data += moved
                found.append(plain(seen.measure().record))
            with pytest.raises(InputError, match="expected forward passes"):
                seen.measure()
        return found

    def program(rank: int) -> Any:
        none = batches(slice(0))
        mine, theirs = batches(slice(60)), batches(slice(30, 60))
        return watched([none, batches(slice(30)), none] if rank else [mine, none, theirs], 0.1)

    shares = [slice(60), slice(30), slice(30, 60)]
    expected = watched([batches(rows) for rows in shares], 0.1)
    for found in on_ranks(2, tmp_path, program):
        for own, one in zip(found, expected, strict=True):
            assert_same([own], one)


def measured_in_a_group(rank: int) -> Any:
    """What ranks 0 and 2 measure, watch and record in a group, and what rank 1 is told."""
    group, own = dist.new_group([0, 2]), batches(slice(rank // 2 * 20, rank // 2 * 40 + 20))
    options = {"layers": ["stem"], "groups": ["nc1", "nc4"], "process_group": group}
    if rank == 1:
        said = [said_of(network(), own, Options(process_group=group))]
        for refused in (
            ncscope.watch,
            lambda _, process_group: Recorder(**PLAIN, process_group=process_group),
        ):
            with pytest.raises(InputError, match="found a group without rank 1") as error:
                refused(network(), process_group=group)
            said.append(f"InputError: {error.value}")
        return said
    report = ncscope.measure_model(network(), own, progress=False, **options)
    model = network().eval()
    with ncscope.watch(model, **options) as seen:
        for inputs, labels in own:
            model(inputs)
            seen.labels(labels)
        watched = seen.report()
    recorder = Recorder(**PLAIN, **options)
    recorder.run_in_all(
        lambda: recorder.add(measure_layers(model, own, recorder.options), 1, "val")
    )
    wrong = said_of(
        network(), mislabelled(own) if rank else own, replace(LIGHT, process_group=group)
    )
    records = [
        plain(each) for each in (report.model_record, watched.model_record, recorder.latest["val"])
    ]
    try:
        recorder.run_in_all(lambda: 1 // 0 if rank else recorder.leave_out(["a name"]))
        apart = ""
    except Exception as error:
        apart = str(error)
    return [*records, recorder.processes.index, wrong, apart]


PLAIN: dict[str, Any] = {
    "prefix": "nc",
    "log": "headline",
    "reference": None,
    "on_error": "raise",
    "save": None,
}


@pytest.mark.slow
def test_a_group_measures_without_the_other_processes(tmp_path: Path) -> None:
    first, outside, second = on_ranks(3, tmp_path, measured_in_a_group)
    options = Options(layers=["stem"], groups=["nc1", "nc4"])
    expected = plain(measure_layers(network(), batches(slice(60)), options).record)
    assert_same([*first[:3], *second[:3]], expected)
    assert (first[3], second[3]) == (0, 1)
    assert "2 processes, found on rank 2: expected labels in 0..3" in first[4]
    assert second[4].startswith("InputError: expected labels in 0..3")
    assert "found on rank 2: ZeroDivisionError" in first[5]
    assert second[5].startswith("integer division")
    for said in outside:
        assert said.startswith("InputError: expected a process group of which this process is")


def faulty() -> nn.Module:
    """A classifier whose fifth pass, the first that is measured, goes wrong."""
    passes = []

    def count(*_: Any) -> None:
        passes.append(1)
        if len(passes) == 5:
            msg = "out of\nluck"
            raise RuntimeError(msg)

    model = network()
    model.register_forward_pre_hook(count)
    return model


def interrupted(whole: Batches) -> Iterator[Any]:
    yield whole[0]
    os.kill(os.getpid(), signal.SIGINT)
    yield from whole[1:]


def breaking(whole: Batches) -> Iterator[Any]:
    yield from whole[:2]
    raise OSError(5, "broken disk")


def mislabelled(whole: Batches) -> Batches:
    return [(inputs, labels + 2) for inputs, labels in whole]


def said_of(model: nn.Module, loader: Iterable[Any], options: Options = LIGHT, **more: Any) -> str:
    """What a measurement says when it fails; nothing if it does not."""
    try:
        measure_layers(model, loader, options, **more)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def scenarios(rank: int) -> list[str]:
    """What goes wrong on rank 1 alone, or everywhere, one after another in one process group."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    own = batches(slice(rank * 20, rank * 20 + 20), 6)
    one, empty = rank == 1, batches(slice(0))
    known = measure_layers(network(), own, LIGHT).statistics
    less = {name: found for name, found in known.items() if name != "stem"}
    fewer = Options(layers=LIGHT.layers, groups=("nc1",))
    only = Options(layers=["stem"], groups=LIGHT.groups)
    return [
        said_of(network(), breaking(own) if one else own),
        said_of(network(), mislabelled(own) if one else own),
        said_of(faulty() if one else network(), own),
        said_of(network(), interrupted(own) if one else own),
        said_of(network(), empty),
        said_of(network(width=16 if one else 8), own),
        said_of(network(), own, only if one else LIGHT),
        said_of(network(), empty if one else own, fewer if one else LIGHT),
        said_of(nn.Linear(6, 4) if one else network(), empty if one else own),
        said_of(network(), empty if one else own, reference=less if one else known),
        said_of(network(), [(i, torch.zeros_like(y)) for i, y in own]),
        said_of(network(), mislabelled(own) if rank != 1 else own),
        said_of(network(), own, replace(LIGHT, baseline=True) if one else LIGHT),
        said_of(network(), own, replace(LIGHT, uncertainty=True) if one else LIGHT),
        said_of(network(), own, reference=known if one else None),
        said_of(nn.Identity() if one else network(), own),
        said_of(network().to("meta") if one else network(), own),
        said_of(network(), own, replace(LIGHT, precision="blocked") if one else LIGHT),
        said_of(network(), own),
    ]


ELSEWHERE = "InputError: expected no error in any of 3 processes, found on rank 1: {}"
FAILURES = [
    ("OSError: [Errno 5] broken disk", ELSEWHERE.format("OSError: [Errno 5] broken disk")),
    (
        "InputError: expected labels in 0..3, found",
        ELSEWHERE.format("expected labels in 0..3"),
    ),
    ("RuntimeError: out of\nluck", ELSEWHERE.format("RuntimeError: out of luck")),
    ("KeyboardInterrupt: ", ELSEWHERE.format("KeyboardInterrupt")),
    *[("InputError: expected batches to measure, found none in any process",) * 2],
    *[("InputError: expected the same weights in every process, found another 'stem.weight'",) * 2],
    *[("InputError: expected the same layers in every process, found",) * 2],
    *[("InputError: expected the same needs in every process, found",) * 2],
    *[("InputError: expected the same weights in every process, found another 'stem.weight'",) * 2],
    (
        "InputError: expected a reference of dimension 8 for layer 'stem'",
        ELSEWHERE.format("expected a reference of dimension 8"),
    ),
    *[("InputError: expected at least two classes with samples, found 1 in 60 samples",) * 2],
    (
        "InputError: expected no error in any of 3 processes, found on rank 0: expected labels in",
        "InputError: expected labels in 0..3, found",
    ),
    *[("InputError: expected the same baseline in every process, found False on rank 0 and",) * 2],
    *[("InputError: expected the same uncertainty in every process, found False on rank 0",) * 2],
    *[("InputError: expected the same reference in every process, found False on rank 0",) * 2],
    *[("InputError: expected the same weights in every process, found another 'stem.weight'",) * 2],
    (
        "InputError: expected parameters with values",
        ELSEWHERE.format("expected parameters with values"),
    ),
    *[("InputError: expected the same precision in every process, found float64 on rank 0",) * 2],
    ("", ""),
]


@pytest.mark.slow
def test_an_error_in_one_process_ends_all_of_them_with_a_line_each(tmp_path: Path) -> None:
    found = on_ranks(3, tmp_path, scenarios)
    for failure, *said in zip(FAILURES, *found, strict=True):
        for rank, text in enumerate(said):
            expected = failure[0] if rank == 1 else failure[1]
            assert text.startswith(expected), (rank, text)
            assert bool(text) == bool(expected)
            assert rank == 1 or "\n" not in text


STEPS = (
    "sample_stores.FeatureStore.__iter__",
    "layer_gatherer.nearest_hits_on_line",
    "evaluation.dataset_information",
    "evaluation.add_batch_estimate",
    "evaluation.layer_record",
    "evaluation.geodesic",
    "resampling.evaluate",
    "evaluation.Decider",
    "evaluation.relative_position",
    "evaluation._geodesic_record",
    "layer_gatherer.finish",
    "model.LayerwiseMeasurement._join",
    "model.unwrap",
    "model.plan_from_layout",
)
AGAIN = ("_check_size", "estimate_errors", "leave_one_out", "no_better_than_chance")
"""Steps of measuring the same samples again."""


def broken_steps(rank: int) -> list[str]:
    """What a measurement says where a step after the pass over the loader fails on rank 1."""
    options = replace(LIGHT, groups=("nc4", "information"), information_batch=6, baseline=True)
    light = replace(LIGHT, layers=[], groups=("nc1",), baseline=True, uncertainty=True)
    shares = {"model.plan_from_layout": 0} if rank == 1 else {}
    steps = [(step, options, shares.get(step, 20)) for step in STEPS]
    steps += [(f"resampling.{step}", light, 60) for step in AGAIN]
    said = []
    for step, chosen, samples in steps:
        broken = patch(f"ncscope.measurement.{step}", side_effect=MemoryError("full"))
        with broken if rank == 1 else nullcontext():
            said.append(said_of(network(), batches(slice(samples)), chosen))
    return said


@pytest.mark.slow
def test_a_step_that_fails_in_one_process_ends_all_of_them(tmp_path: Path) -> None:
    own = "MemoryError: full"
    for rank, said in enumerate(on_ranks(2, tmp_path, broken_steps)):
        expected = own if rank else "InputError: expected no error in any of 2 processes, found on"
        assert [text.startswith(expected) for text in said] == [True] * len(STEPS + AGAIN), said


def vanishing(whole: Batches) -> Iterator[Any]:
    yield whole[0]
    os.kill(os.getpid(), signal.SIGKILL)


def measure_beside_the_dead(folder: Path, rank: int) -> None:
    dist.init_process_group("gloo", f"file://{folder}/meeting", world_size=3, rank=rank)
    own = batches(slice(20 * rank, 20 * rank + 20))
    text = said_of(network(), vanishing(own) if rank == 1 else own)
    (folder / f"{rank}.txt").write_text(text)


@pytest.mark.slow
def test_processes_do_not_wait_for_one_that_is_killed(tmp_path: Path) -> None:
    codes = in_processes(3, partial(measure_beside_the_dead, tmp_path), seconds=20)
    assert codes == [0, -signal.SIGKILL, 0]
    for rank in (0, 2):
        said = (tmp_path / f"{rank}.txt").read_text()
        assert said.startswith("InputError: expected an answer of all 3 processes within 0:30:00")
        assert "read what the others printed" in said


def measure_beside_the_absent(folder: Path, how: str, rank: int) -> None:
    patience = timedelta(seconds=3)
    dist.init_process_group("gloo", f"file://{folder}/meeting", patience, world_size=3, rank=rank)
    if rank == 1:
        if how == "hangs":
            time.sleep(8)
        return
    start = time.monotonic()
    text = said_of(network(), batches(slice(20 * rank, 20 * rank + 20)))
    (folder / f"{rank}.txt").write_text(f"{time.monotonic() - start} {text}")


@pytest.mark.parametrize("how", ["is missing", pytest.param("hangs", marks=pytest.mark.slow)])
def test_processes_wait_for_one_that_does_not_come_as_long_as_the_group_does(
    how: str, tmp_path: Path
) -> None:
    in_processes(3, partial(measure_beside_the_absent, tmp_path, how), seconds=30)
    for rank in (0, 2):
        seconds, said = (tmp_path / f"{rank}.txt").read_text().split(" ", 1)
        assert float(seconds) < 7  # once, not once for each step that ends
        assert said.startswith("InputError: expected an answer of all 3 processes within 0:00:03")


@pytest.mark.slow
def test_processes_of_torchs_own_launcher_measure_what_one_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--local-addr=127.0.0.1", "--standalone", "--module"]
    command += ["tests.measurement.launched", str(tmp_path)]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert_same(found, plain(measure_layers(network(), batches(slice(60)), OPTIONS).record))
