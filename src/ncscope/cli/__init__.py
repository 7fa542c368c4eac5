"""The command `ncscope`: each command calls one function of the api.

A command of the instrument is a module here, named in `running`. A command of another package is a
module that adds itself to `ncscope.cli.app.app`, named in that package's metadata as an entry point
of the group ``ncscope.commands``.
"""

# Python's own part of `signal`, which is there from the start: `signal` loads a dozen modules
# first, and Control-C meanwhile would print a traceback.
import _signal as signal  # type: ignore[import-not-found]
import os
import sys

TYPE_CHECKING = False  # as in ncscope
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["main"]


def main(arguments: "Sequence[str] | None" = None) -> None:
    """Run the command, and exit: see `ncscope.cli.running.main`.

    Args:
        arguments: Words of the command line. By default those that started this process; then the
            process also ends by SIGTERM as by Control-C, after clean-up, with exit code 143.
    """
    own, control_c = arguments is None, signal.getsignal(signal.SIGINT)
    if own:
        # While modules load there is nothing to clean up, and an exception would come out of the
        # middle of any of them as a traceback.
        _replace(signal.SIGINT, signal.default_int_handler, _leave)
        _replace(signal.SIGTERM, signal.SIG_DFL, _leave)
    from ncscope.cli.running import main as run

    if own:
        raised = control_c == signal.default_int_handler
        _replace(signal.SIGINT, _leave, _interrupt if raised else control_c)
        _replace(signal.SIGTERM, _leave, _stop)
    run(arguments)


def _replace(number: int, before: object, handler: object) -> None:
    """Replace one handler of a signal by another; a signal that is ignored stays so."""
    if signal.getsignal(number) == before:
        signal.signal(number, handler)


def _leave(number: int, frame: "FrameType | None") -> None:
    os._exit(128 + number)


def _interrupt(number: int, frame: "FrameType | None") -> None:
    if _torch_loads():
        os.write(2, b"error: interrupted\n")
        _leave(number, frame)
    raise KeyboardInterrupt


def _stop(number: int, frame: "FrameType | None") -> None:
    if _torch_loads():
        _leave(number, frame)
    sys.exit(128 + number)


def _torch_loads() -> bool:
    """Return whether torch is being imported.

    An exception that a signal raises then may come out of its C++ code, which aborts the process
    with a core dump. No command has anything to clean up before torch is there.
    """
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
