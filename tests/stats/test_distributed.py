"""Two real processes, each with half of the samples, know what one process would."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import ncscope
from ncscope.stats.distributed import merge_across_processes
from ncscope.stats.moments import ClassMoments

from ..closeness import assert_agree
from ..reference.instances import INSTANCES, Instance

PROGRAM = """
import json, sys
import torch, torch.distributed as dist
import ncscope
from ncscope.stats.distributed import merge_across_processes
from safetensors.torch import load_file, save_file

rank, folder, prior = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
data = load_file(f"{folder}/data.safetensors")
k = len(data["weight"])
moments = ncscope.ClassMoments(
    k, data["features"].shape[1], prior=prior, class_counts=data["class_counts"]
)
rows = slice(rank, None, 2)
moments.update(data["features"][rows], data["labels"][rows])
own = moments.state_dict()
merged = merge_across_processes(moments)
assert all(torch.equal(value, own[name]) for name, value in moments.state_dict().items())
save_file(merged.state_dict(), f"{folder}/state-{rank}.safetensors")
report = ncscope.measure_moments(merged, data["weight"], data["bias"])
print(json.dumps(dict(report)))
dist.destroy_process_group()
"""


def whole(instance: Instance) -> ClassMoments:
    labels = torch.as_tensor(instance.labels)
    k, d = instance.weight.shape
    counts = torch.bincount(labels, minlength=k)
    moments = ClassMoments(k, d, prior=instance.prior, class_counts=counts)
    moments.update(torch.as_tensor(instance.features), labels)
    return moments


def run_both(instance: Instance, folder: Path) -> list[dict[str, float]]:
    tensors = {
        name: torch.as_tensor(getattr(instance, name))
        for name in ("features", "labels", "weight", "bias")
    }
    tensors["class_counts"] = torch.bincount(tensors["labels"], minlength=len(instance.weight))
    save_file(tensors, folder / "data.safetensors")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(folder), instance.prior],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0], ended
    return [json.loads(output.splitlines()[-1]) for output, _ in ended]


def test_two_processes_know_what_one_would(tmp_path: Path) -> None:
    # one class has a single sample: the other process has none of it
    instance = replace(INSTANCES["single_sample_class"](), prior="uniform")
    reports = run_both(instance, tmp_path)
    alone = whole(instance)
    expected = ncscope.measure_moments(alone, instance.weight, instance.bias)
    for rank, report in enumerate(reports):
        assert_agree(report, dict(expected), rel=1e-10)
        state = load_file(tmp_path / f"state-{rank}.safetensors")
        for key, value in alone.state_dict().items():
            atol = 1e-10 * float(value.abs().max())
            torch.testing.assert_close(state[key], value, rtol=0, atol=atol)
    assert reports[0] == reports[1]


def test_alone_it_is_a_copy() -> None:
    moments = whole(INSTANCES["balanced"]())
    merged = merge_across_processes(moments)
    torch.testing.assert_close(merged.state_dict(), moments.state_dict(), rtol=0, atol=0)
    merged.update(torch.zeros(1, 8), torch.tensor([0]))
    assert int(merged.counts.sum()) == int(moments.counts.sum()) + 1
