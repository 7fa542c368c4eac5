"""Processes that work together as those of one launch, forked: no start of Python is paid."""

import json
import os
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist


def joined_ranks(count: int, folder: Path, program: Callable[[int], Any]) -> list[Any]:
    """What a function of the rank returns on each rank of a group, in types of JSON."""

    def joined(rank: int) -> None:
        meeting, patience = f"file://{folder}/meeting", timedelta(seconds=60)
        dist.init_process_group("gloo", meeting, patience, world_size=count, rank=rank)
        dist.barrier()  # a process that ends at once would break the connections of a slower one
        (folder / f"{rank}.json").write_text(json.dumps(program(rank)))
        dist.destroy_process_group()

    assert in_processes(count, joined) == [0] * count
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


def in_two_processes(program: Callable[[int], None], seconds: float = 60.0) -> list[int]:
    """Run a function of the rank in two processes: see `in_processes`."""
    return in_processes(2, program, seconds)


def in_processes(count: int, program: Callable[[int], None], seconds: float = 60.0) -> list[int]:
    """Run a function of the rank in each process, killing what has not ended in time.

    Returns:
        The exit codes: 0, 1 for an exception, which is printed, or -9 for what was killed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def launched(rank: int) -> None:
        # What Fabric reads.
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
        os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
        program(rank)

    children = [forked(lambda rank=rank: launched(rank)) for rank in range(count)]
    end = time.monotonic() + seconds
    return [code_of(child, end) for child in children]


def forked(program: Callable[[], None]) -> int:
    """Start a copy of this process that runs a function and ends.

    Returns:
        The number of the process.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any fork
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        program()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # never into the suite, whatever happens


def code_of(child: int, end: float | None = None) -> int:
    """Wait for a forked process, and kill it at the end of the time, if there is one.

    Returns:
        The exit code; minus the number of the signal that ended it.
    """
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
