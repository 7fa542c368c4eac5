"""A run's place on disk: written whole, read without unpickling."""

import io
import shutil
import time
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from ncscope.errors import InputError
from ncscope.files import write_bytes
from ncscope.lab.runs.disk import writing
from ncscope.tensor_files import load_tensors


class Checkpoints:
    """The one checkpoint of a part of a run; a newer one takes the older one's place.

    Args:
        path: The file.
        interval: Least time in seconds between two checkpoints within an epoch.
    """

    def __init__(self, path: Path, interval: float = 60.0) -> None:
        self.path, self.interval = path, interval
        self._saved = time.monotonic()

    @property
    def due(self) -> bool:
        """Return whether the last checkpoint is older than the wait."""
        return time.monotonic() - self._saved >= self.interval

    def save(self, state: dict[str, Any]) -> None:
        """Write a state: a crash at any moment leaves the older one or this one, whole.

        Raises:
            InputError: If it cannot be written, on a full disk for one; the older one stays.
        """
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self.path, _packed(state))
        self._saved = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """Read the state onto the CPU; None without a checkpoint.

        Raises:
            InputError: If the file is no checkpoint of tensors and plain values, or was changed.
        """
        if not self.path.exists():
            return None
        try:
            # The sizes first, so that a bomb is refused before it is unpacked; then the checksums,
            # which torch does not check: it would read numbers that the disk has changed.
            state = load_tensors(self.path, mapped=False)
            with ZipFile(self.path) as archive:
                changed = archive.testzip()
        except Exception as error:
            raise self.refused(reason=type(error).__name__) from error
        if changed is not None:
            raise self.refused(reason=changed + " was changed")
        if not isinstance(state, dict):
            raise self.refused(reason=type(state).__name__)
        return state

    def refused(self, reason: str) -> InputError:
        """Return the error that says why the file is no checkpoint.

        Args:
            reason: A few words.
        """
        return InputError(
            expected="a checkpoint that ncscope wrote",
            found=f"{self.path}: {reason}",
            fix="remove it to start this part of the run again",
        )

    def clean(self) -> None:
        """Remove what a save that was killed left behind; nobody else may be saving."""
        for stale in self.path.parent.glob(f"{self.path.name}*.part"):
            stale.unlink()

    def check_space(self, state: dict[str, Any], to_come: int = 0) -> None:
        """Refuse to start where two checkpoints, an older and a newer, do not fit on the disk.

        Each with a tenth more for the rows that are to come.

        Args:
            state: State as it is now.
            to_come: Bytes by which it will grow.

        Raises:
            InputError: With the bytes needed, beside what is there already, and free.
        """
        with writing(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        there = self.path.stat().st_size if self.path.exists() else 0
        needed = 11 * (len(_packed(state)) + to_come) // 5 - there
        free = shutil.disk_usage(self.path.parent).free
        if free < needed:
            raise InputError(
                expected=f"{needed:,} bytes free for checkpoints in {self.path.parent}",
                found=f"{free:,}",
                fix="free some, or pass another --out",
            )


def _packed(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
