"""Resources of a run (folders, accelerator, processes), as opposed to its settings."""

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
        accelerator: Accelerator to train on: ``cpu``, ``cuda``, or ``auto``, which is cuda if
            available and cpu otherwise.
        devices: Number of devices on each machine; each device has one process.
        nodes: Number of machines; the launcher of Fabric or of the cluster must run on each.
        workers: Processes per device that read images ahead; the batches do not depend on them.
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
        """Launch the processes, if there are several, and wait until all have started."""
        if self.devices * self.nodes > 1:
            self.fabric.barrier()

    @property
    def fabric(self) -> "Fabric":
        """Fabric that connects the run's processes; the first access launches them."""
        return _launch(self.accelerator, self.devices, self.nodes)


def first_process() -> bool:
    """Return whether this is the first process, the only one that prints and writes files.

    The answer is available before Fabric launches processes: its launcher starts the others with
    the same command and their rank in the environment.
    """
    return all(os.environ.get(name, "0") == "0" for name in _NUMBERS)


_NUMBERS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


@cache
def _launch(accelerator: str, devices: int, nodes: int) -> "Fabric":
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
