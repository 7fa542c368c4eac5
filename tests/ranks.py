"""Two processes that Fabric takes for those of one launch, forked: no start of Python is paid."""

import os
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Callable


def in_two_processes(program: Callable[[int], None], seconds: float = 60.0) -> list[int]:
    """Run a function of the rank in both, killing what has not ended in time.

    Returns:
        The exit codes: 0, 1 for an exception, which is printed, or -9 for what was killed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [_forked(program, rank, port) for rank in (0, 1)]
    end = time.monotonic() + seconds
    return [_code(child, end) for child in children]


def _forked(program: Callable[[int], None], rank: int, port: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any fork
        child = os.fork()
    if child:
        return child
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    try:
        program(rank)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _code(child: int, end: float) -> int:
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
