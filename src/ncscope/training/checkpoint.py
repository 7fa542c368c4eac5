"""A run's place on disk: written whole, read without unpickling."""

import io
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from ncscope.errors import InputError
from ncscope.files import write_bytes


class Checkpoints:
    """The one checkpoint of a part of a run; a newer one takes the older one's place.

    Args:
        path: The file.
        seconds: How long to wait between two that are not asked for at the end of an epoch.
    """

    def __init__(self, path: Path, seconds: float = 60.0) -> None:
        self.path, self.seconds = path, seconds
        self._saved = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the last one is older than the wait."""
        return time.monotonic() - self._saved >= self.seconds

    def save(self, state: dict[str, Any]) -> None:
        """Write a state: a crash at any moment leaves the older one or this one, whole.

        Raises:
            OSError: If the disk is full; the older one stays.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(self.path, _packed(state))
        self._saved = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """The state, on the CPU; None if there is none.

        Raises:
            InputError: If the file is no checkpoint of tensors and plain values.
        """
        for stale in self.path.parent.glob(f"{self.path.name}*.part"):
            stale.unlink(missing_ok=True)  # of a save that was killed
        if not self.path.exists():
            return None
        try:
            return torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise InputError(
                expected="a checkpoint that ncscope wrote",
                found=f"{self.path}: {type(error).__name__}",
                fix="remove it to start this part of the run again",
            ) from error

    def check_space(self, state: dict[str, Any]) -> None:
        """Refuse to start where two checkpoints of this size do not fit on the disk.

        Raises:
            InputError: With the bytes needed and there.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        need, free = 2 * len(_packed(state)), shutil.disk_usage(self.path.parent).free
        if free < need:
            raise InputError(
                expected=f"{need:,} bytes free for checkpoints in {self.path.parent}",
                found=f"{free:,}",
                fix="free some, or pass another --out",
            )


def _packed(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
