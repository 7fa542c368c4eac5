"""Two real processes, each with half of the samples, know what one process would."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

import ncscope
from ncscope.stats.merging import merge_across_processes
from ncscope.stats.moments import ClassMoments

from ..closeness import assert_agree
from ..ranks import in_two_processes
from ..reference.instances import INSTANCES, Instance
from .states import with_means


def of_samples(instance: Instance, rows: slice) -> ClassMoments:
    labels = torch.as_tensor(instance.labels)
    k, d = instance.weight.shape
    counts = torch.bincount(labels, minlength=k)
    moments = ClassMoments(k, d, prior=instance.prior, class_counts=counts)
    moments.update(torch.as_tensor(instance.features[rows]), labels[rows])
    return moments


def merge_a_half(instance: Instance, folder: Path, rank: int) -> None:
    """Leave the merged state and the report of a process that saw every other sample."""
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    moments = of_samples(instance, slice(rank, None, 2))
    own = moments.state_dict()
    merged = merge_across_processes(moments)
    assert all(torch.equal(value, own[name]) for name, value in moments.state_dict().items())
    save_file(merged.state_dict(), folder / f"state-{rank}.safetensors")
    report = ncscope.measure_moments(merged, instance.weight, instance.bias)
    (folder / f"report-{rank}.json").write_text(json.dumps(dict(report)))
    dist.destroy_process_group()


def test_two_processes_know_what_one_would(tmp_path: Path) -> None:
    # one class has a single sample: the other process has none of it
    instance = replace(INSTANCES["single_sample_class"](), prior="uniform")
    assert in_two_processes(partial(merge_a_half, instance, tmp_path)) == [0, 0]
    reports = [json.loads((tmp_path / f"report-{rank}.json").read_text()) for rank in range(2)]
    alone = of_samples(instance, slice(None))
    expected = ncscope.measure_moments(alone, instance.weight, instance.bias)
    for rank, report in enumerate(reports):
        assert_agree(report, dict(expected), rel=1e-10)
        state = with_means(load_file(tmp_path / f"state-{rank}.safetensors"))
        for key, value in with_means(alone.state_dict()).items():
            atol = 1e-10 * float(value.abs().max())
            torch.testing.assert_close(state[key], value, rtol=0, atol=atol)
    assert reports[0] == reports[1]


def test_alone_it_is_a_copy() -> None:
    moments = of_samples(INSTANCES["balanced"](), slice(None))
    merged = merge_across_processes(moments)
    torch.testing.assert_close(merged.state_dict(), moments.state_dict(), rtol=0, atol=0)
    merged.update(torch.zeros(1, 8), torch.tensor([0]))
    assert int(merged.counts.sum()) == int(moments.counts.sum()) + 1
