"""Merge of the class moments of 4 processes, K=20,000, d=1024, against one that gathers all states.

Run as a module, it prints the seconds of both merges and the states of 164 MB that each had in
memory at its peak, of every process the largest.
"""

import copy
import multiprocessing
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.measure import Row, own_peak_gigabytes, run_module
from ncscope.stats.merging import merge_in_place
from ncscope.stats.moments import ClassMoments
from ncscope.stats.processes import ALL

RANKS, K, D, ROUNDS = 4, 20_000, 1024, 1
TARGET_STATES = 3.0


def merging(device: str) -> list[Row]:
    """Merge of 4 gloo processes on the CPU, whatever the device."""
    seconds, before, states, states_before = run_module("benchmarks.merging")
    ratio, name = seconds / before, f"merge of {RANKS} ranks, K={K:,}, d={D}"
    times = Row(name, f"{seconds:.2f} s", f"{before:.2f} s", ratio, "< 1 x", ratio < 1)
    peak, most = f"{states:.2f} states", f"{states_before:.2f} states"
    ratio, target = states / states_before, f"<= {TARGET_STATES:g} states"
    return [times, Row(f"{name}, memory", peak, most, ratio, target, states <= TARGET_STATES)]


def merge_by_gathering(moments: ClassMoments) -> ClassMoments:
    """Gather the state of every rank, and merge the states in order of rank."""
    states: list[dict[str, torch.Tensor]] = [{} for _ in range(RANKS)]
    for name, value in moments.state_dict().items():
        copies = [torch.empty_like(value) for _ in states]
        dist.all_gather(copies, value)
        for state, copied in zip(states, copies, strict=True):
            state[name] = copied
    merged = moments.like()
    for state in states:
        share = moments.like()
        share.load_state_dict(state)
        merged.merge(share)
    return merged


def drawn(rank: int) -> ClassMoments:
    """Return moments as of 40 samples a class, of which each rank has another number."""
    draws = torch.Generator().manual_seed(rank)
    moments = ClassMoments(K, D, statistics=())
    moments.counts = torch.randint(1, 20, (K,), generator=draws)
    moments.offsets = torch.randn(K, D, generator=draws, dtype=torch.float64)
    moments.traces = torch.rand(K, generator=draws, dtype=torch.float64)
    return moments


def main() -> None:
    """Print seconds and peaks of the slowest process."""
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("fork")
        ranks = [context.Process(target=_measure, args=(rank, folder)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


def _measure(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    moments, best = drawn(rank), [float("inf")] * 2
    gigabytes = moments.offsets.nbytes / 2**30
    states, found = [0.0] * 2, [moments] * 2
    for _ in range(ROUNDS):
        own = copy.deepcopy(moments)
        for index, merge in enumerate((_in_place, merge_by_gathering)):
            dist.barrier()
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            before, start = own_peak_gigabytes(), time.perf_counter()
            found[index] = merge(own)
            dist.barrier()
            best[index] = min(best[index], time.perf_counter() - start)
            states[index] = max(states[index], 1 + (own_peak_gigabytes() - before) / gigabytes)
            own = copy.deepcopy(moments)
        digest = zlib.crc32(found[0].offsets.numpy())
        assert ALL.gather(digest) == [digest] * RANKS
        torch.testing.assert_close(found[0].offsets, found[1].offsets, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found[0].traces, found[1].traces, rtol=1e-12, atol=0)
    worst = torch.tensor([*best, *states], dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if rank == 0:
        print(*worst.tolist())
    dist.destroy_process_group()


def _in_place(moments: ClassMoments) -> ClassMoments:
    merge_in_place(moments, ALL)
    return moments


if __name__ == "__main__":
    main()
