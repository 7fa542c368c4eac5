"""Options that several commands have, each said once."""

import functools
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ncscope.errors import InputError

if TYPE_CHECKING:
    from ncscope.training.work import Work


def _experiments(incomplete: str) -> list[tuple[str, str]]:
    """Names that begin so, with what each shows, for the shell to complete."""
    from ncscope.recipes.catalogue import EXPERIMENTS

    return [(name, shows) for name, shows in EXPERIMENTS.items() if name.startswith(incomplete)]


Experiment = Annotated[
    str,
    typer.Argument(help="For example pfc/training; see ncscope list.", autocompletion=_experiments),
]
Scale = Annotated[
    Literal["paper", "small"], typer.Option(help="The paper's settings, or smaller ones.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="FIELD=VALUE, as often as needed; see the run's config.yaml."),
]
Data = Annotated[Path, typer.Option(help="Folder of the data sets.")]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch data sets that are missing there.")
]
Accelerator = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
Devices = Annotated[int, typer.Option(min=1, help="How many a machine, a process each.")]
Nodes = Annotated[int, typer.Option(min=1, help="How many machines.")]
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


def on_one_device(
    data: Data = Path("data"),
    download: Download = False,
    accelerator: Accelerator = "auto",
    workers: Workers = 0,
) -> "Work":
    """The means of a run in one process."""
    from ncscope.training.work import Work

    return Work(data=data, download=download, accelerator=accelerator, workers=workers)


def on_devices(
    data: Data = Path("data"),
    download: Download = False,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    nodes: Nodes = 1,
    workers: Workers = 0,
) -> "Work":
    """The means of a run in one process or several."""
    from ncscope.training.work import Work

    return Work(
        data=data,
        download=download,
        accelerator=accelerator,
        devices=devices,
        nodes=nodes,
        workers=workers,
    )


def with_work(means: Callable[..., "Work"]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, in place of its parameter ``work``, the options that the means are made of.

    Args:
        means: `on_one_device` or `on_devices`.
    """
    made_of = signature(means).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            own = {name: given.pop(name) for name in made_of}
            command(**given, work=means(**own))

        kept = [each for each in signature(command).parameters.values() if each.name != "work"]
        options = [_by_name(each) for each in (*kept, *made_of.values())]
        with_options.__signature__ = Signature(options)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in options}
        return with_options

    return decorate


def _by_name(parameter: Parameter) -> Parameter:
    return parameter.replace(kind=Parameter.KEYWORD_ONLY)


def refuse_given(context: Any, names: Sequence[str], without: str) -> None:
    """Refuse options that would do nothing, if they stand on the command line.

    Args:
        context: Of the command, as its class is handed it.
        names: Of its parameters.
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


def assignments(given: Sequence[str] | None, option: str, example: str) -> dict[str, str]:
    """FIELD=VALUE pairs, the values as they were written.

    Args:
        given: The pairs.
        option: That they were given with.
        example: Of a pair.

    Raises:
        InputError: If one has no ``=``, or a field comes twice.
    """
    found: dict[str, str] = {}
    for pair in given or []:
        name, sign, value = pair.partition("=")
        if not sign:
            fix = f"for example {option} {example}"
            raise InputError(expected=f"FIELD=VALUE after {option}", found=repr(name), fix=fix)
        if name in found:
            fix = "leave one of them out"
            raise InputError(expected=f"{name} after {option} once", found="it twice", fix=fix)
        found[name] = value
    return found


def as_yaml(value: str) -> Any:
    """Parse a value as YAML.

    Raises:
        InputError: If it is no YAML.
    """
    from ncscope.files import parse_yaml

    try:
        return parse_yaml(value)
    except ValueError as error:
        fix = "for example 3, 0.1, true, [1, 2]"
        raise InputError(expected="a value after =", found=repr(value), fix=fix) from error
