"""Models that are sharded over real processes measure what the plain model does in one."""

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from ncscope.errors import InputError
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.measurement.watching import Watch
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.heads import find_head
from ncscope.models.replicas import data_group
from ncscope.models.sharding import gather_shards, is_sharded, predict_classes

from .test_ranks import assert_same, on_ranks, plain

K, D, N, T = 8, 12, 48, 4
GROUPS = ("nc1", "nc2", "nc3", "nc4", "mse")
OPTIONS = Options(groups=GROUPS, layer_groups=("nc1", "pfc"))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.down(self.up(h).tanh())


class Model(nn.Module):
    """A classifier of vectors, or of every token of a sequence of vectors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Linear(6, D)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, K)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


LABELS = torch.arange(N) % K
INPUTS = torch.randn(N, 6, generator=torch.Generator().manual_seed(0)).double()
INPUTS = INPUTS + 2 * torch.eye(K)[LABELS, :6]
TOKENS = torch.stack([INPUTS.roll(shift, 0) for shift in range(T)], dim=1)
TOKEN_LABELS = torch.stack([LABELS.roll(shift, 0) for shift in range(T)], dim=1)
DATA = {"samples": (INPUTS, LABELS), "tokens": (TOKENS, TOKEN_LABELS)}


def batches(kind: str, part: int = 0, parts: int = 1) -> list[tuple[Tensor, Tensor]]:
    """As many batches for each part: processes whose forward passes communicate need that."""
    inputs, labels = (tensor.chunk(parts)[part] for tensor in DATA[kind])
    return list(zip(inputs.split(12), labels.split(12), strict=True))


def ddp(_: DeviceMesh) -> nn.Module:
    return nn.parallel.DistributedDataParallel(Model())


def fsdp1(_: DeviceMesh | None, use_orig_params: bool, apart: bool) -> nn.Module:
    wrap = partial(
        FullyShardedDataParallel, use_orig_params=use_orig_params, device_id=torch.device("cpu")
    )
    model = Model()
    for index, block in enumerate(model.blocks):
        model.blocks[index] = wrap(block)
    if apart:
        model.head = wrap(model.head)
    return wrap(model)


def fsdp2(mesh: DeviceMesh, model: nn.Module | None = None) -> nn.Module:
    model = model or Model()
    for part in (*model.blocks, model.head):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


HEADS = {
    "replicated": ColwiseParallel(output_layouts=Replicate()),
    "replicated DTensor": ColwiseParallel(output_layouts=Replicate(), use_local_output=False),
    "vocabulary": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    "row-wise": RowwiseParallel(input_layouts=Replicate()),
}


def tensor_parallel(mesh: DeviceMesh, head: str) -> nn.Module:
    plan = {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel()}
    return parallelize_module(Model(), mesh, {**plan, "head": HEADS[head]})


def sequence_parallel(mesh: DeviceMesh, head: str) -> nn.Module:
    """Between the layers, each process has a part of every sequence."""
    parts = {"output_layouts": Shard(1), "use_local_output": False}
    layouts = {"vocabulary": Shard(-1), "replicated": Replicate()}[head]
    plan = {
        "stem": RowwiseParallel(input_layouts=Replicate(), **parts),
        "blocks.*.up": ColwiseParallel(input_layouts=Shard(1)),
        "blocks.*.down": RowwiseParallel(**parts),
        "norm": SequenceParallel(use_local_output=False),
        "head": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=layouts, use_local_output=False
        ),
    }
    return parallelize_module(Model(), mesh, plan)


Make = Callable[[DeviceMesh], nn.Module]
BY_DATA: dict[str, Make] = {
    "DDP": ddp,
    "FSDP1": partial(fsdp1, use_orig_params=False, apart=False),
    "FSDP1, head apart": partial(fsdp1, use_orig_params=False, apart=True),
    "FSDP1, original": partial(fsdp1, use_orig_params=True, apart=False),
    "FSDP1, original, head apart": partial(fsdp1, use_orig_params=True, apart=True),
    "FSDP2": fsdp2,
}
BY_TENSOR: dict[str, Make] = {
    **{name: partial(tensor_parallel, head=name) for name in HEADS},
    "sequence, vocabulary": partial(sequence_parallel, head="vocabulary"),
    "sequence, replicated": partial(sequence_parallel, head="replicated"),
}


def watched(model: nn.Module, loader: list[tuple[Tensor, Tensor]]) -> Any:
    """Watch the module inside a wrapper, as the callbacks do; the loop calls the wrapper.

    The weight of a head in FSDP's outermost unit is only there for who has the wrapper.
    """
    model.eval()
    inside = getattr(model, "module", model)
    if isinstance(model, FullyShardedDataParallel):
        inside = inside if isinstance(inside.head, FullyShardedDataParallel) else model
    with torch.no_grad(), Watch(inside, OPTIONS) as seen:
        for inputs, labels in loader:
            model(inputs)
            seen.labels(labels)
        return seen.measure().record


def measured(model: nn.Module, loader: list[tuple[Tensor, Tensor]]) -> list[dict[str, float]]:
    names = [name for name, _ in model.named_parameters()]
    records = [measure_layers(model, loader, OPTIONS).record, watched(model, loader)]
    assert [name for name, _ in model.named_parameters()] == names
    return [plain(record) for record in records]


def expected(kind: str) -> dict[str, float]:
    return plain(measure_layers(Model(), batches(kind), OPTIONS).record)


def assert_all_same(found: list[dict[str, Any]]) -> None:
    """Each rank returns, for each way of sharding, what it measures and what it watches."""
    for ways in found:
        for name, records in ways.items():
            try:
                assert_same(records, expected("samples" if name in BY_DATA else "tokens"))
            except AssertionError as error:
                raise AssertionError(name) from error


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Load, before processes are forked, what each of them would load for seconds."""
    importlib.import_module("torch._dynamo")


def along_one_axis(rank: int) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    own = batches("samples", rank, 2)
    return {
        name: measured(make(mesh), own if name in BY_DATA else batches("tokens"))
        for name, make in (BY_DATA | BY_TENSOR).items()
    }


def without_the_wrapper(rank: int) -> list[str]:
    loader, said = batches("samples", rank, 2), []
    for use_orig_params in (True, False):
        model = fsdp1(None, use_orig_params=use_orig_params, apart=False).eval()
        with pytest.raises(InputError) as error:
            measure_layers(model.module, loader, OPTIONS)
        said.append(str(error.value))
    model = fsdp1(None, use_orig_params=True, apart=False).eval()
    with torch.no_grad(), Watch(model.module, OPTIONS) as seen:
        model(loader[0][0])
        seen.labels(loader[0][1])
        with pytest.raises(InputError) as error:
            seen.measure()
    return [*said, str(error.value)]


@pytest.mark.slow
def test_the_module_inside_of_fsdp_does_not_have_its_weights(tmp_path: Path) -> None:
    for called, other, watched in on_ranks(2, tmp_path, without_the_wrapper):
        assert "sharded by an FSDP wrapper around the model; pass the model as FSDP" in called
        assert "sharded by an FSDP wrapper around the model; pass the model as FSDP" in other
        assert watched.endswith("pass the model as FSDP wrapped it, not the module inside")


@pytest.mark.slow
def test_sharded_models_measure_what_the_plain_one_does(tmp_path: Path) -> None:
    """Data-parallel processes measure together; tensor-parallel ones count a sample once."""
    found = on_ranks(2, tmp_path, along_one_axis)
    assert_all_same(found)
    assert [len(ways) for ways in found] == [12, 12]


def along_two_axes(rank: int) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    own = batches("tokens", mesh["dp"].get_local_rank(), 2)
    return {
        "both": measured(fsdp2(mesh["dp"], tensor_parallel(mesh["tp"], "vocabulary")), own),
        "row-wise": measured(fsdp2(mesh["dp"], tensor_parallel(mesh["tp"], "row-wise")), own),
        "replicas of tensor-parallel pairs": measured(tensor_parallel(mesh["tp"], "row-wise"), own),
        "hybrid": measured(fsdp2(mesh), batches("tokens", rank, 4)),
    }


@pytest.mark.slow
def test_data_and_tensor_parallel_at_once(tmp_path: Path) -> None:
    assert_all_same(on_ranks(4, tmp_path, along_two_axes))


def sharded_vocabulary(rank: int) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (2,))
    model = tensor_parallel(mesh, "vocabulary").eval()
    first, *rest = batches("tokens")
    sizes = []

    def counted(tensor: Tensor) -> Tensor:
        whole = gather_shards(tensor)
        sizes.append(whole.numel() if is_sharded(tensor) else 0)
        return whole

    with evaluation_mode(model), patch("ncscope.models.sharding.gather_shards", counted):
        head = find_head(model, TOKENS)
        logits = model(TOKENS)
        assert logits.to_local().shape[-1] == K // 2
        classes = predict_classes(logits)
        tied = predict_classes(torch.zeros_like(logits))
    plan = {"head": ColwiseParallel(output_layouts=Shard(-1))}
    with pytest.raises(InputError) as error:
        find_head(parallelize_module(Model(), mesh, plan), TOKENS)
    return {
        "error": str(error.value),
        "head": [head.name, head.rows, head.weight.tolist()],
        "classes": [classes.tolist(), tied.unique().tolist()],
        "group": dist.get_process_group_ranks(data_group(model)),
        "most gathered": max(sizes),
        "other batches": refusal(model, [first, *((x, y.roll(rank, 0)) for x, y in rest)]),
    }


def refusal(model: nn.Module, loader: list[tuple[Tensor, Tensor]]) -> str:
    with pytest.raises(InputError) as error:
        measure_layers(model, loader, OPTIONS)
    return str(error.value)


@pytest.mark.slow
def test_a_head_of_a_sharded_vocabulary_without_its_logits(tmp_path: Path) -> None:
    """Neither the head nor the predicted classes need a process with all logits."""
    model = Model().eval()
    head, classes = find_head(model, TOKENS), model(TOKENS).argmax(-1)
    for rank, found in enumerate(on_ranks(2, tmp_path, sharded_vocabulary)):
        assert found["head"] == ["head", "token", head.weight.tolist()]
        assert found["classes"] == [classes.tolist(), [0]]
        assert found["group"] == [rank]
        assert "found plain ones of 4 of the 8 classes of 'head'; pass use" in found["error"]
        assert "the same batches in the tensor-parallel processes 0, 1" in found["other batches"]
        assert found["most gathered"] == 2 * N * T  # a best score of each process, not K logits
