"""Resources of a run: folders, accelerator, processes. The run's settings say what to compute."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ncscope.errors import InputError

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class Resources:
    """Paths, devices, workers and checkpoint interval of a run.

    Attributes:
        checkpoints: Folder, made when needed, in which a long part saves the checkpoint that it
            resumes from; None saves none. No other part uses this folder.
        data: Folder of the data sets.
        download: Fetch missing data sets if True.
        accelerator: Accelerator to train on: ``cpu``, ``cuda``, or ``auto`` for cuda if there is
            one.
        devices: Number of devices on each machine, each with a process of its own.
        nodes: Number of machines; Fabric's launcher, or a cluster's, is run on each.
        workers: Processes that read images ahead, for each device; batches are the same for any.
        checkpoint_interval: Longest time in seconds between two checkpoints of a part.
        run: Hash of the settings of the run; a checkpoint under other settings is refused.
    """

    checkpoints: Path | None = None
    data: Path = Path("data")
    download: bool = False
    accelerator: str = "cpu"
    devices: int = 1
    nodes: int = 1
    workers: int = 0
    checkpoint_interval: float = 60.0
    run: str = ""

    def wait_for_all(self) -> None:
        """Launch the processes, if there are to be several, and wait for all of them."""
        if self.devices * self.nodes > 1:
            self.fabric.barrier()

    @property
    def fabric(self) -> "Fabric":
        """The processes, launched at the first call."""
        return _launched(self.accelerator, self.devices, self.nodes)


def first_process() -> bool:
    """Return whether this process prints and writes files: the first one that was launched.

    Known before any process is launched: Fabric's launcher runs the same command again for the
    others, with their numbers in the environment.
    """
    return all(os.environ.get(name, "0") == "0" for name in _NUMBERS)


_NUMBERS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


@cache
def _launched(accelerator: str, devices: int, nodes: int) -> "Fabric":
    import torch
    from lightning.fabric import Fabric

    if accelerator not in ("cpu", "cuda", "auto"):
        fix = "other accelerators have no float64, in which everything is measured"
        raise InputError(expected="accelerator cpu, cuda or auto", found=repr(accelerator), fix=fix)
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    strategy = "ddp" if devices * nodes > 1 else "auto"
    fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, strategy=strategy)
    fabric.launch()
    return fabric
