"""Log of a run's observations for TensorBoard, if TensorBoard is installed."""

import math
import shutil
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ncscope_lab.observations import Observation, Recorded, flatten
from ncscope_lab.runs.lock import name_write_errors


class EventLog:
    """Scalars by split, layer and key, as functions of the step.

    Each event is written immediately. TensorBoard's public `SummaryWriter` writes in a thread; when
    the disk is full, the thread prints a traceback of its own.

    Args:
        folder: Folder of the log file, which replaces an earlier log of the run. With None, or
            without TensorBoard, nothing is logged.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file: Path | None = None
        if folder is None or find_spec("tensorboard") is None:
            return
        shutil.rmtree(folder, ignore_errors=True)
        self._file = folder / f"events.out.tfevents.{time.time_ns()}"
        with name_write_errors(folder):
            folder.mkdir(parents=True)
        self._append([{"file_version": "brain.Event:2"}])

    def add(self, events: Iterable[Recorded]) -> None:
        """Log every number of the observations, and those of the measurements by layer.

        Raises:
            InputError: If the events cannot be written.
        """
        self._append(event for each in flatten(events) for event in _scalars(each))

    def _append(self, events: Iterable[dict[str, Any]]) -> None:
        if self._file is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        with name_write_errors(self._file), self._file.open("ab") as file:
            records = RecordWriter(file)
            for event in events:
                records.write(Event(wall_time=time.time(), **event).SerializeToString())


def _scalars(observation: Observation) -> Iterator[dict[str, Any]]:
    """Yield an event for each finite number; numbers that are not finite are left out."""
    prefix = "/".join(filter(None, (observation.split, observation.layer)))
    for key, value in observation.values.items():
        if isinstance(value, int | float) and math.isfinite(value):
            scalar = {"tag": f"{prefix}/{key}", "simple_value": float(value)}
            yield {"step": observation.step, "summary": {"value": [scalar]}}
