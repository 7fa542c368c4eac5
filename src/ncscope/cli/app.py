"""The app that every command adds itself to."""

import importlib.metadata
from typing import Annotated

import typer

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Add --debug to any command to see the traceback of an error.",
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A scope for neural collapse: measure it in any classifier."""
    if version:
        print(importlib.metadata.version("ncscope"))
        raise typer.Exit
