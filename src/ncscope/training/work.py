"""Where and with what a part of an experiment is run: nothing here changes its result."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class Work:
    """The means of a part.

    Attributes:
        place: A folder of the part's own, to be made if it is needed, where a long part keeps
            what it needs to go on if it is stopped; None keeps nothing.
        data: Folder of the data sets.
        download: Whether data sets that are missing there may be downloaded.
        accelerator: What to train on, as Fabric knows it.
        devices: How many of them, each with a process of its own.
        seconds: How long a part may work without saving its place.
    """

    place: Path | None = None
    data: Path = Path("data")
    download: bool = False
    accelerator: str = "cpu"
    devices: int = 1
    seconds: float = 60.0

    def meet(self) -> None:
        """Launch the processes, if there are to be several, and wait for all of them."""
        if self.devices > 1:
            self.fabric.barrier()

    @property
    def fabric(self) -> "Fabric":
        """The processes, launched at the first call."""
        return _launched(self.accelerator, self.devices)


def first_process() -> bool:
    """Whether this process speaks and writes; whoever launches several numbers them.

    Known before any process is launched: Fabric's launcher runs the same command again for the
    others, with their numbers in the environment.
    """
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))


@cache
def _launched(accelerator: str, devices: int) -> "Fabric":
    from lightning.fabric import Fabric

    strategy = "ddp" if devices > 1 else "auto"
    fabric = Fabric(accelerator=accelerator, devices=devices, strategy=strategy)
    fabric.launch()
    return fabric
