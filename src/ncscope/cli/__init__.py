"""The command `ncscope`: each of its commands calls one function of the api.

A command of the instrument is a module of this package; `running` lists these modules. A command of
another package is a module that adds itself to `ncscope.cli.app.app`; the metadata of that package
names the module as an entry point of the group ``ncscope.commands``.
"""

# `_signal` is built into Python. Importing `signal` would load a dozen modules first, and Control-C
# during the import would print a traceback.
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
        arguments: Arguments of the command. By default, the arguments of this process; SIGTERM then
            ends the process after clean-up, as Control-C does, with exit code 143.
    """
    is_process = arguments is None
    if is_process:
        # While modules load there is nothing to clean up, and an exception would show as a
        # traceback from the middle of an import.
        _replace(signal.SIGINT, signal.default_int_handler, _leave)
        _replace(signal.SIGTERM, signal.SIG_DFL, _leave)
    from ncscope.cli.running import main as run

    if is_process:
        _replace(signal.SIGINT, _leave, _interrupt)
        _replace(signal.SIGTERM, _leave, _stop)
        sys.unraisablehook = _deliver_again
    run(arguments)


def _replace(number: int, before: object, handler: object) -> None:
    """Replace the handler of a signal if it is `before`; a signal that is ignored stays ignored."""
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


def _deliver_again(lost: "sys.UnraisableHookArgs") -> None:
    """Send a signal again whose exception was raised where Python prints and ignores exceptions.

    Such places are destructors and the callbacks at the end of every import. A moment later the
    program is out of them, as it is not in this function.
    """
    if lost.exc_type not in (KeyboardInterrupt, SystemExit) or not hasattr(signal, "setitimer"):
        sys.__unraisablehook__(lost)
        return
    number = signal.SIGINT if lost.exc_type is KeyboardInterrupt else signal.SIGTERM
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
    signal.setitimer(signal.ITIMER_REAL, 0.01)


def _torch_loads() -> bool:
    """Return whether torch is being imported.

    An exception that a signal raises then may come out of its C++ code, which aborts the process
    with a core dump. No command has anything to clean up before torch is there.
    """
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
