"""Eight shards by two single-threaded workers of Ray, against one single-threaded process.

Run as a module, it prints the seconds of the workers, the seconds of one process, and the largest
difference of a metric. The start of Ray and of its workers is not timed. Each worker reads its
shards from the disk, as the single process does.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ncscope.api.measure_files import RayTasks
from ncscope.api.result import Report
from ncscope.api.shards import measure_shards

SHARDS, N, D, K, ROUNDS = 8, 25_000, 768, 100, 3


def write_shards(folder: Path) -> tuple[list[str], Tensor]:
    """Write the shards; return their paths and the classifier's weight."""
    draws = torch.Generator().manual_seed(0)
    weight = torch.randn(K, D, generator=draws)
    files = []
    for index in range(SHARDS):
        labels = torch.randint(K, (N,), generator=draws)
        features = weight[labels] + torch.randn(N, D, generator=draws)
        files.append(str(folder / f"{index}.safetensors"))
        save_file({"features": features, "labels": labels}, files[-1])
    return files, weight


def timed(measured: Callable[[], Report]) -> tuple[float, Report]:
    """Return the least seconds of several rounds, and the report."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        report = measured()
        best = min(best, time.perf_counter() - start)
    return best, report


def main() -> None:
    """Measure by both, and print the seconds and the difference."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder, RayTasks("local") as tasks:
        files, weight = write_shards(Path(folder))

        def by_ray(function: Any, shards: Sequence[str]) -> Iterable[Any]:
            results = dict(tasks(function, dict(enumerate(shards))))
            return [results[index] for index in range(len(shards))]

        measure_shards(files, weight=weight, map=by_ray)  # starts the workers
        of_workers, parallel = timed(lambda: measure_shards(files, weight=weight, map=by_ray))
        of_one, alone = timed(lambda: measure_shards(files, weight=weight))
    difference = max(abs(parallel[key] - alone[key]) / max(1, abs(alone[key])) for key in alone)
    print(of_workers, of_one, difference)


if __name__ == "__main__":
    main()
