"""Where and with what a part of an experiment is run: nothing here changes its result."""

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

    @property
    def fabric(self) -> "Fabric":
        """The processes, launched at the first call."""
        return _launched(self.accelerator, self.devices)


@cache
def _launched(accelerator: str, devices: int) -> "Fabric":
    from lightning.fabric import Fabric

    strategy = "ddp" if devices > 1 else "auto"
    fabric = Fabric(accelerator=accelerator, devices=devices, strategy=strategy)
    fabric.launch()
    return fabric
