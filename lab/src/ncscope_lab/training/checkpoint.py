"""Checkpoint of a run on disk: written atomically, read without unpickling."""

import io
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from ncscope.errors import InputError
from ncscope.files import write_bytes
from ncscope.tensor_files import TensorFile, load_tensors
from ncscope_lab.runs.lock import name_write_errors


class Checkpoints:
    """Checkpoint file of a part of a run; a newer checkpoint replaces the older one.

    Args:
        path: Path of the checkpoint file.
        interval: Least time in seconds between two checkpoints within an epoch.
    """

    def __init__(self, path: Path, interval: float = 60.0) -> None:
        self.path, self.interval = path, interval
        self._saved = time.monotonic()

    @property
    def due(self) -> bool:
        """Return whether the last checkpoint is older than ``interval``."""
        return time.monotonic() - self._saved >= self.interval

    def save(self, state: dict[str, Any]) -> None:
        """Write a state atomically: after a crash the file is the older or the newer checkpoint.

        Raises:
            InputError: If the file cannot be written, for example on a full disk; the older
                checkpoint then remains.
        """
        with name_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self.path, _pack(state))
        self._saved = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """Read the state onto the CPU; None without a checkpoint.

        Raises:
            InputError: If the file is not a checkpoint of tensors and plain values, or was changed.
        """
        if not self.path.exists():
            return None
        try:
            state = load_tensors(TensorFile.at(self.path), mapped=False)
        except InputError as error:
            raise self.refuse(reason=error.found) from error
        except Exception as error:
            raise self.refuse(reason=type(error).__name__) from error
        if not isinstance(state, dict):
            raise self.refuse(reason=type(state).__name__)
        return state

    def refuse(self, reason: str) -> InputError:
        """Return the error for a file that is not a usable checkpoint.

        Args:
            reason: Short reason for the refusal.
        """
        return InputError(
            expected="a checkpoint that ncscope wrote",
            found=f"{self.path}: {reason}",
            fix="remove it to start this part of the run again",
        )

    def clean(self) -> None:
        """Remove partial files of a killed save; no other process may be saving."""
        for stale in self.path.parent.glob(f"{self.path.name}*.part"):
            stale.unlink()

    def check_space(self, state: dict[str, Any], to_come: int = 0) -> None:
        """Check that the disk has space for two checkpoints, the older and the newer.

        Each checkpoint is counted with a tenth more, for the rows of later epochs.

        Args:
            state: Current state.
            to_come: Bytes by which the state will grow.

        Raises:
            InputError: If the space does not suffice. The message states the free bytes, and the
                bytes needed beyond an existing checkpoint.
        """
        with name_write_errors(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        present = self.path.stat().st_size if self.path.exists() else 0
        needed = 11 * (len(_pack(state)) + to_come) // 5 - present
        free = shutil.disk_usage(self.path.parent).free
        if free < needed:
            raise InputError(
                expected=f"{needed:,} bytes free for checkpoints in {self.path.parent}",
                found=f"{free:,}",
                fix="free some, or pass another --out",
            )


def _pack(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
