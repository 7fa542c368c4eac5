"""Options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ncscope.errors import InputError

Workers = Annotated[int, typer.Option(min=0, help="Number of processes that read images ahead.")]
Fetch = Annotated[
    bool, typer.Option("--download", help="Fetch pretrained weights and data that are missing.")
]
DataFolder = Annotated[Path, typer.Option(help="Folder with the files of named data sets.")]
Preprocess = Annotated[
    Literal["model", "data"] | None,
    typer.Option(
        help="Preprocessing of images: by the model's library or by the data set; default the "
        "model's, and the data set's for the catalogue's networks."
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Number of images in a forward pass.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]


def refuse_given(context: Any, names: Sequence[str], without: str) -> None:
    """Refuse options that would have no effect, if they are on the command line.

    Args:
        context: Context of the command.
        names: Names of the command's parameters.
        without: Missing option, without which these have no effect.

    Raises:
        InputError: If any of the options is on the command line.
    """
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    idle = [f"--{name.replace('_', '-')}" for name in given]
    if idle:
        fix = f"leave {', '.join(idle)} out: no model runs for features in files"
        raise InputError(expected=f"{without} with {idle[0]}", found="none", fix=fix)
