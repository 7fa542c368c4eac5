"""The rows of a run as TensorBoard shows them, where TensorBoard is installed."""

import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ncscope.probing.records import Row

_WHEN = ("step", "epoch")


class EventLog:
    """Scalars by split, layer and key, against the step.

    Args:
        folder: Where the files go; what an earlier start of the run logged there is replaced.
            None, or an environment without TensorBoard, logs nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._writer: Any = None
        if folder is not None and find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            shutil.rmtree(folder, ignore_errors=True)
            self._writer = SummaryWriter(str(folder))

    def add(self, rows: Iterable[Row]) -> None:
        """Log the rows' numbers."""
        if self._writer is None:
            return
        for row in rows:
            where = "/".join(str(row[name]) for name in ("split", "layer") if name in row)
            for key, value in row.items():
                if isinstance(value, int | float) and key not in _WHEN:
                    self._writer.add_scalar(f"{where}/{key}", value, int(row["step"]))
        self._writer.flush()
