"""Control-C for a process that a test starts."""

import signal


def heeds_control_c() -> None:
    """Before a program starts: interrupts end it, also where a shell runs the suite behind itself.

    Such a shell has its jobs ignore them, and their children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
