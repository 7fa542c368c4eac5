"""The command `ncscope`: each command calls one function of the api.

A command of the instrument is a module here, named in `running`. A command of another package is a
module that adds itself to `ncscope.cli.app.app`, named in that package's metadata as an entry point
of the group ``ncscope.commands``.
"""

from ncscope.cli.running import main

__all__ = ["main"]
