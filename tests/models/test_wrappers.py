"""Models are refused with one line if this process cannot run them; wrappers leave names alone."""

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import ncscope
from ncscope.errors import InputError
from ncscope.models.layers import find_layer, find_repeated_blocks, match_layers
from ncscope.models.networks.residual import ResidualNet
from ncscope.models.replicas import data_group
from ncscope.models.wrappers import (
    check_measurable,
    parameter_shapes,
    unwrap_fully,
    walk_modules,
)


class ScheduleOfPipeline:
    """Stands for a pipeline's stage, which is no module."""


class PipelineModule(nn.Linear):
    """Stands for DeepSpeed's class of this name."""

    __module__ = "deepspeed.runtime.pipe.module"


def partitioned() -> nn.Module:
    """ZeRO-3 leaves parameters without entries, which know their number."""
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].weight = nn.Parameter(torch.empty(0))
    model[0].weight.ds_id = 0
    return model


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (PipelineModule(3, 2), r"whole forward pass, found PipelineModule; of a pipeline"),
        (partitioned(), r"'0\.weight' partitioned by DeepSpeed ZeRO-3; measure inside deepspeed"),
        (nn.Linear(3, 2, device="meta"), r"'weight' on the meta device; call model\.to_empty"),
    ],
    ids=["pipeline", "ZeRO-3", "meta"],
)
def test_what_no_process_can_run_is_refused(model: nn.Module, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ncscope.measure_model(model, [(torch.randn(4, 3), torch.arange(4) % 2)], progress=False)
    with pytest.raises(InputError, match=said):
        ncscope.watch(model)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(InputError, match="found ScheduleOfPipeline; of a pipeline, put the stages"):
        check_measurable(ScheduleOfPipeline())


def checkpointed() -> nn.Module:
    torch.manual_seed(0)
    model = ResidualNet(6, 8, 3, 4)
    for index in (0, 2):
        model.blocks[index] = checkpoint_wrapper(model.blocks[index])
    return model


def test_names_are_those_without_wrappers() -> None:
    torch.manual_seed(0)
    plain, wrapped = ResidualNet(6, 8, 3, 4), checkpointed()
    assert [n for n, _ in walk_modules(wrapped)] == [n for n, _ in plain.named_modules()]
    assert match_layers(wrapped, ["blocks.*"]) == match_layers(plain, ["blocks.*"])
    assert (
        find_repeated_blocks(wrapped)
        == find_repeated_blocks(plain)
        == ["blocks.0", "blocks.1", "blocks.2"]
    )
    assert (
        find_layer(wrapped, "blocks.2") is unwrap_fully(wrapped.blocks[2]) is not wrapped.blocks[2]
    )


def batches() -> list[tuple[Tensor, Tensor]]:
    inputs = torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
    return [(inputs, torch.arange(24) % 4)]


def test_a_wrapped_model_is_measured_under_the_same_names() -> None:
    torch.manual_seed(0)
    expected = ncscope.measure_model(ResidualNet(6, 8, 3, 4), batches(), progress=False)
    found = ncscope.measure_model(checkpointed(), batches(), progress=False)
    assert {name: dict(layer) for name, layer in found.layers.items()} == {
        name: dict(layer) for name, layer in expected.layers.items()
    }


def test_a_shared_parameter_counts_once() -> None:
    model = nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)])
    model[1].weight = model[0].weight
    own = parameter_shapes(model)
    assert len({key for shapes in own.values() for key in shapes}) == 3


def test_a_model_without_shards_is_measured_by_all_processes() -> None:
    assert data_group(ResidualNet(6, 8, 3, 4)) is None
