"""Writing of a history's numbers as a log that TensorBoard shows."""

import math
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from ncscope.errors import InputError


def check_tensorboard(steps: Iterable[float]) -> None:
    """Check that TensorBoard is installed, and that it can show the steps.

    Args:
        steps: Steps of the measurements.

    Raises:
        InputError: If TensorBoard is not installed, or a step is no whole number.
    """
    if find_spec("tensorboard") is None:
        fix = "pip install tensorboard, or save the history as .html"
        found = "that it is not installed"
        raise InputError(expected="the library tensorboard", found=found, fix=fix)
    for step in steps:
        if not float(step).is_integer():
            fix = "count iterations; TensorBoard has no other steps"
            raise InputError(expected="whole steps", found=f"step {step:g}", fix=fix)


def write_events(folder: Path, run: str, logs: Iterable[tuple[float, Mapping[str, float]]]) -> None:
    """Write the numbers of one run; numbers that are not finite are left out.

    Args:
        folder: Folder of the log, which is made if needed.
        run: Name of the run, which gets a folder inside; empty for none.
        logs: Step of every measurement, and its numbers by name.

    Raises:
        InputError: If the folder cannot be written.
    """
    from torch.utils.tensorboard import SummaryWriter

    part = folder / re.sub(r"[^\w.=-]+", "-", run).strip(".") if run else folder
    try:
        part.mkdir(parents=True, exist_ok=True)
        with SummaryWriter(str(part)) as writer:
            for step, numbers in logs:
                for name, value in numbers.items():
                    if math.isfinite(value):
                        writer.add_scalar(name, value, int(step))
    except OSError as error:
        found, fix = error.strerror or str(error), "choose another folder"
        raise InputError(expected=f"a folder {part} to write", found=found, fix=fix) from error
