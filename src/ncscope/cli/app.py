"""The Typer app, to which every command adds itself."""

import importlib.metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup


class Interruption(Exception):  # noqa: N818, nothing went wrong
    """Interruption by Control-C; the message says how to continue, or is empty."""


class _Commands(TyperGroup):
    """Group of commands that reports an interruption; Typer would end the command silently."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Interruption(str(stop)) from stop


app = typer.Typer(
    cls=_Commands,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Add --debug to any command to see the traceback of an error. Exit codes: 0 done, 1 an "
    "error of the program or a statement that fails, 2 bad input, 130 interrupted, 143 terminated.",
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Measure neural collapse in any classifier.

    Example: ncscope demo

    Example: ncscope measure features.npz --save report.html
    """
    if version:
        print(importlib.metadata.version("ncscope"))
        raise typer.Exit
