"""Report of an installation: versions, devices, threads, folders."""

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from ncscope.errors import TARGETS, distribution, how_to_install

_WITHOUT_EXTRA = ("torch", "numpy", "scipy", "matplotlib", "plotly")
LIBRARIES: Mapping[str, str] = {
    **dict.fromkeys(_WITHOUT_EXTRA, ""),
    **{distribution(library): target for library, target in TARGETS.items()},
}
"""Extra that installs each library; empty for libraries that ncscope requires."""

DATA_FOLDERS: Mapping[str, str] = {
    "mnist": "MNIST/raw",
    "fashion-mnist": "FashionMNIST/raw",
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
    "svhn": "train_32x32.mat",
    "stl10": "stl10_binary",
    "imagenet": "imagenet/train",
    "pets": "oxford-iiit-pet",
    "flowers": "flowers-102",
    "aircraft": "fgvc-aircraft-2013b",
    "cars": "stanford_cars",
    "dtd": "dtd",
    "food101": "food-101",
    "caltech101": "caltech101",
    "sun397": "SUN397",
}
"""Path of each stored data set, below the folder of the data sets."""

_BY_HAND = {"imagenet": "unpack its archives", "cars": "put a copy there"}


@dataclass(frozen=True)
class CheckResult:
    """State of one item that a run depends on.

    Attributes:
        part: ``versions``, ``devices``, ``threads``, ``folders`` or ``data sets``.
        name: Name of the item.
        state: State of the item.
        fix: Remedy if the item is missing; empty otherwise.
    """

    part: str
    name: str
    state: str
    fix: str = ""


def check_installation(data: Path = Path("data")) -> list[CheckResult]:
    """Check everything that a run depends on.

    Args:
        data: Folder of the data sets.

    Returns:
        Results, part by part. Data sets are located but not opened.

    Example:
        >>> results = check_installation()
        >>> list(dict.fromkeys(result.part for result in results))
        ['versions', 'devices', 'threads', 'folders', 'data sets']
    """
    results = [
        CheckResult("versions", "ncscope", version("ncscope")),
        CheckResult("versions", "python", platform.python_version()),
        CheckResult("versions", "system", f"{platform.system()} {platform.release()}"),
    ]
    for name, target in LIBRARIES.items():
        try:
            result = CheckResult("versions", name, version(name))
        except PackageNotFoundError:
            result = CheckResult("versions", name, "missing", how_to_install(target))
        results.append(result)

    # A container or batch job may allow fewer cores than the machine has.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    results.append(CheckResult("devices", "cpu", f"{cores} cores of {platform.machine()}"))
    for index in range(torch.cuda.device_count()):
        traits = torch.cuda.get_device_properties(index)
        state = f"{traits.name}, {traits.total_memory / 2**30:.0f} GiB"
        results.append(CheckResult("devices", f"cuda:{index}", state))
    if not torch.cuda.device_count():
        built = torch.version.cuda
        why = f"none seen by torch built for CUDA {built}" if built else "torch built without CUDA"
        results.append(CheckResult("devices", "cuda", why))

    limit = os.environ.get("OMP_NUM_THREADS")
    results.append(CheckResult("threads", "of torch", str(torch.get_num_threads())))
    results.append(CheckResult("threads", "OMP_NUM_THREADS", limit or "not set"))

    scratch = Path(tempfile.gettempdir())
    free = shutil.disk_usage(scratch).free / 2**30
    results.append(CheckResult("folders", "scratch", f"{scratch}, {free:.0f} GiB free"))
    here = Path.cwd()
    writable = os.access(here, os.W_OK)
    state = f"{here}, {'' if writable else 'not '}writable"
    fix = "" if writable else "pass --out, or change to a folder that you may write to"
    results.append(CheckResult("folders", "results", state, fix))

    for name, path in DATA_FOLDERS.items():
        exists = (data / path).exists()
        fix = "" if exists else _BY_HAND.get(name, "--download")
        state = f"{'' if exists else 'no '}{data / path}"
        results.append(CheckResult("data sets", name, state, fix))
    return results


def results_json(results: list[CheckResult]) -> str:
    """Write the results as one JSON list."""
    return json.dumps([asdict(result) for result in results])
