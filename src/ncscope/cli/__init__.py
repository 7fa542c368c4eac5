"""The command `ncscope`: each command calls one function of the api.

A new command is a module here that adds itself to the app, and its name in `running.GROUPS`.
"""

from ncscope.cli.running import main

__all__ = ["main"]
