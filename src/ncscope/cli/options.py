"""Options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ncscope.errors import InputError

Workers = Annotated[int, typer.Option(min=0, help="Processes that read images ahead.")]
Fetch = Annotated[
    bool, typer.Option("--download", help="Fetch pretrained weights and data that are missing.")
]
DataFolder = Annotated[Path, typer.Option(help="Folder with the files of named data sets.")]
Preprocess = Annotated[
    Literal["model", "data"] | None,
    typer.Option(
        help="Prepare images as the model's library or as the data set says; default the "
        "model's, but for the catalogue's networks."
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Images a forward pass.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]


def refuse_given(context: Any, names: Sequence[str], without: str) -> None:
    """Refuse options that would do nothing, if they stand on the command line.

    Args:
        context: Context of the command.
        names: Names of the command's parameters.
        without: The option that they need, which is not there.

    Raises:
        InputError: If any of them was written.
    """
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    idle = [f"--{name.replace('_', '-')}" for name in given]
    if idle:
        fix = f"leave {', '.join(idle)} out, as no model is run for features in files"
        raise InputError(expected=f"{without} with {idle[0]}", found="none", fix=fix)
