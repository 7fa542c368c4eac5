"""Processes measure one model: other weights are refused, other buffers are those of the first."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ncscope
from ncscope.errors import InputError
from ncscope.integrations.torchmetrics import NeuralCollapse
from ncscope.models.replicas import digest_tensors

from ..ranks import joined_ranks

N, K = 80, 4
LABELS = torch.arange(N) % K
INPUTS = torch.randn(N, 6, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(6)[LABELS]
SETTINGS = {"groups": ["nc1", "nc3", "accuracy"], "progress": False}


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, K))


def share(rank: int, world: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    return INPUTS[rank::world], LABELS[rank::world]


def numbers(report: Any) -> dict[str, float]:
    return {key: report[key] for key in ("nc1", "nc3_self_duality", "accuracy")}


def trained(rank: int) -> nn.Module:
    """A network that data-parallel training has left with batch statistics of each rank."""
    torch.set_num_threads(1)
    wrapped = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    inputs, labels = share(rank)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(inputs), labels).backward()
        optimizer.step()
    return wrapped


def measured_after_training(rank: int) -> list[Any]:
    model = trained(rank)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = ncscope.measure_model(model, [share(rank)], **SETTINGS)
    kept = all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    means = before["module.1.running_mean"].tolist()
    state = {name: value.tolist() for name, value in before.items()}
    training = all(module.training for module in model.modules())
    return [numbers(report), list(report.notes), kept and training, means, state]


@pytest.mark.slow
def test_batch_norm_after_parallel_training_is_that_of_the_first_process(tmp_path: Path) -> None:
    (first, notes, kept, means, state), (second, _, also, other, _) = joined_ranks(
        2, tmp_path, measured_after_training
    )
    assert means != other
    assert first == second
    assert kept
    assert also
    assert any(
        note.startswith("buffers differ between processes (1.running_mean, 1.running_var)")
        and note.endswith("measured with those of the first process")
        for note in notes
    )
    alone = network()
    alone.load_state_dict(
        {name.removeprefix("module."): torch.tensor(value) for name, value in state.items()}
    )
    wanted = ncscope.measure_model(alone, [(INPUTS, LABELS)], **SETTINGS)
    assert first == pytest.approx(numbers(wanted), rel=1e-6)


def watched_after_training(rank: int) -> list[Any]:
    model = trained(rank).eval()
    inputs, labels = share(rank)
    with torch.no_grad(), ncscope.watch(model, groups=SETTINGS["groups"]) as seen:
        model.module(inputs)  # the wrapper would send the buffers of rank 0
        seen.labels(labels)
    return [numbers(report := seen.report()), list(report.notes)]


@pytest.mark.slow
def test_a_watch_says_that_each_process_ran_with_buffers_of_its_own(tmp_path: Path) -> None:
    (first, notes), (second, _) = joined_ranks(2, tmp_path, watched_after_training)
    assert first == second
    assert any(note.endswith("each process ran with its own") for note in notes)


def of_other_weights(rank: int) -> list[str]:
    model, (inputs, labels) = network(seed=rank), share(rank)
    said = []
    try:
        ncscope.measure_model(model, [(inputs, labels)], **SETTINGS)
    except InputError as error:
        said.append(str(error))
    try:
        with torch.no_grad(), ncscope.watch(model.eval(), groups=["nc1"]) as seen:
            model(inputs)
            seen.labels(labels)
            seen.report()
    except InputError as error:
        said.append(str(error))
    for parameter in [*model.parameters(), *model.buffers()]:  # as the advice says
        dist.broadcast(parameter.data, 0)
    report = ncscope.measure_model(model, [(inputs, labels)], **SETTINGS)
    return [*said, numbers(report)]


@pytest.mark.slow
def test_other_weights_are_refused_and_the_advice_gives_the_numbers(tmp_path: Path) -> None:
    found = joined_ranks(2, tmp_path, of_other_weights)
    wanted = numbers(ncscope.measure_model(network(), [(INPUTS, LABELS)], **SETTINGS))
    for *said, report in found:
        assert len(said) == 2
        for text in said:
            assert text.startswith("expected the same weights in every process, found another '0.")
        assert report == pytest.approx(wanted, rel=1e-6)


def head_of_each(rank: int) -> list[Any]:
    metric = NeuralCollapse(num_classes=K, dim=6, groups=["nc3"])
    inputs, labels = share(rank)
    metric.update(inputs, labels, torch.ones(K, 6) * (rank + 1))
    try:
        metric.compute()
    except InputError as error:
        return [str(error)]
    return []


def test_a_metric_of_torchmetrics_refuses_heads_that_differ(tmp_path: Path) -> None:
    for said in joined_ranks(2, tmp_path, head_of_each):
        assert said
        assert said[0].startswith("expected the same weight and bias in every process, found 2")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_digests_tell_tensors_apart(dtype: torch.dtype) -> None:
    rows = torch.arange(12).remainder(2).reshape(3, 4).to(dtype)
    turned = rows.T.contiguous().T
    assert digest_tensors({"a": rows}) == digest_tensors({"a": turned})
    other = rows.clone()
    other[1, 2] = other[1, 2].logical_not()
    for changed in (other, rows[:, [1, 0, 2, 3]], rows.reshape(4, 3), rows.to(torch.float32)):
        assert digest_tensors({"a": rows}) != digest_tensors({"a": changed})
