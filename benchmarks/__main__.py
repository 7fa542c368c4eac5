"""Run the benchmarks: ``python -m benchmarks [--device cuda] [--only NAME ...]``."""

import argparse
import platform
import sys
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import grokking, information
from benchmarks.collapse import conv_layer, imagenet_512, imagenet_2048
from benchmarks.following import figures, following
from benchmarks.measure import Row, run_module
from benchmarks.merging import merging
from benchmarks.probes import digits_path, features_path


def many_classes(device: str) -> list[Row]:
    """K=50,000: at most 2 x the unavoidable products and 3 GB, on the CPU whatever the device."""
    seconds, least, peak = run_module("benchmarks.many_classes")
    ratio = seconds / least
    name = f"200,000 x 1024 streamed, K=50,000 ({peak:.2f} GB)"
    met = ratio <= 2 and peak < 3
    return [Row(name, f"{seconds:.0f} s", f"{least:.0f} s", ratio, "<= 2 x, < 3 GB", met)]


def shards(device: str) -> list[Row]:
    """Eight shards by two workers of Ray, on the CPU whatever the device."""
    of_workers, of_one, difference = run_module("benchmarks.shards")
    faster, equal = of_one / of_workers, difference <= 1e-10
    name = f"8 shards by 2 workers of Ray, against 1 process (values differ by {difference:.0e})"
    times = f"{of_workers:.2f} s", f"{of_one:.2f} s"
    return [Row(name, *times, 1 / faster, ">= 1.7 x faster, <= 1e-10", faster >= 1.7 and equal)]


def vocabulary(device: str) -> list[Row]:
    """Measure a vocabulary as classes under 3 class states, on the CPU whatever the device."""
    seconds, peak = run_module("benchmarks.vocabulary")
    name = f"K=32,000, d=1024 streamed, NC4 by recomputing ({seconds:.0f} s)"
    return [Row(name, f"{peak:.2f} class states", "-", None, "< 3", peak < 3)]


BENCHMARKS: dict[str, Callable[[str], list[Row]]] = {
    "imagenet-512": imagenet_512,
    "imagenet-2048": imagenet_2048,
    "conv-layer": conv_layer,
    "following": following,
    "figures": figures,
    "grokking": grokking.step,
    "information-floor": information.against_floor,
    "information-brute-force": information.against_brute_force,
    "information-quadrature": information.by_quadrature,
    "many-classes": many_classes,
    "merging": merging,
    "vocabulary": vocabulary,
    "probe-digits": digits_path,
    "probe-512": features_path,
    "shards": shards,
}


def main() -> None:
    """Print the table; the exit code tells of errors, not of targets, since machines differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=sorted(BENCHMARKS), nargs="*")
    arguments = parser.parse_args()
    table = Table("work", "measured", "baseline", "ratio", "target", "met")
    console = Console()
    failures = []
    for name in arguments.only or BENCHMARKS:
        try:
            with console.status(f"{name} ..."):
                rows = BENCHMARKS[name](arguments.device)
        except Exception:  # the others' numbers took minutes
            console.print_exception()
            failures.append(name)
            continue
        for row in rows:
            ratio = "-" if row.ratio is None else f"{row.ratio:.2f} x"
            ended = f"{name} has ended: {row.work}: {row.measured}, {ratio}"
            console.print(ended, style="dim", markup=False)
            met = "yes" if row.met else "no"
            table.add_row(row.work, row.measured, row.baseline, ratio, row.target, met)
    device = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else "CPU"
    cores = torch.get_num_threads()
    console.print(f"{platform.machine()}, {cores} threads, {device}, torch {torch.__version__}")
    console.print(table)
    if failures:
        sys.exit(f"error in {', '.join(failures)}")


if __name__ == "__main__":
    main()
