"""Run functions in several threads that take turns where it hurts most."""

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

TraceFunction = Callable[[FrameType, str, Any], Any]
PATIENCE = 60.0  # seconds after which threads that wait for each other are given up

SHARED = {"update", "merge", "_merge_rows", "_note_zeros"}
SHARED |= {"append", "_write", "_keep", "_class_moments", "moments"}
"""Functions that write what all threads see."""


def give_way(frame: FrameType, event: str, _: object) -> TraceFunction | None:
    """Let the other threads run before every bytecode that may write what they see."""
    code = frame.f_code
    if "ncscope/" not in code.co_filename or code.co_name not in SHARED:
        return None
    frame.f_trace_lines, frame.f_trace_opcodes = False, True
    if event == "opcode":
        time.sleep(1e-5)
    return give_way


def at_once(*works: Callable[[], None]) -> None:
    """Run each in a thread of its own, all from one moment on; raise what the first raised."""
    start, errors = threading.Barrier(len(works)), []

    def run(work: Callable[[], None]) -> None:
        start.wait()
        sys.settrace(give_way)
        try:
            work()
        except BaseException as error:  # raised below, in the thread of the test
            errors.append(error)
        finally:
            sys.settrace(None)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    for error in errors:
        raise error
