"""Options that several commands of the laboratory share."""

import functools
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ncscope.cli.options import Workers
from ncscope.errors import InputError

if TYPE_CHECKING:
    from ncscope.lab.runs.resources import Resources


def _experiments(incomplete: str) -> list[tuple[str, str]]:
    """Return experiments and benchmarks whose names begin with the input, for the completion."""
    from ncscope.lab.catalogue import BENCHMARKS, EXPERIMENTS

    known = {**EXPERIMENTS, **BENCHMARKS}
    return [(name, shows) for name, shows in known.items() if name.startswith(incomplete)]


def experiments_and_all(incomplete: str) -> list[tuple[str, str]]:
    """Return the experiments, the benchmarks, and ``all``, whose names begin with the input.

    Args:
        incomplete: Beginning of a name.
    """
    every = [("all", "All of the papers' experiments, and one page of verdicts.")]
    return [each for each in every if each[0].startswith(incomplete)] + _experiments(incomplete)


Experiment = Annotated[
    str,
    typer.Argument(help="For example pfc/training; see ncscope list.", autocompletion=_experiments),
]
Scale = Annotated[
    Literal["paper", "medium", "small"],
    typer.Option(help="The paper's settings, those for one GPU, or those for two CPU cores."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="FIELD=VALUE; can be repeated. Fields: the run's config.yaml."),
]
Data = Annotated[Path, typer.Option(help="Folder of the data sets.")]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch data sets that are missing there.")
]
Accelerator = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on a Ray cluster: local starts one here, auto, HOST:PORT or ray://HOST:PORT "
        "join one; without it, one run after another.",
    ),
]
Devices = Annotated[int, typer.Option(min=1, help="Devices per machine, one process each.")]
Nodes = Annotated[int, typer.Option(min=1, help="Number of machines.")]


def on_one_device(
    data: Data = Path("data"),
    download: Download = False,
    accelerator: Accelerator = "auto",
    workers: Workers = 0,
) -> "Resources":
    """Return the resources of a run in one process."""
    from ncscope.lab.runs.resources import Resources

    return Resources(data=data, download=download, accelerator=accelerator, workers=workers)


def on_devices(
    data: Data = Path("data"),
    download: Download = False,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    nodes: Nodes = 1,
    workers: Workers = 0,
) -> "Resources":
    """Return the resources of a run in one process or several."""
    from ncscope.lab.runs.resources import Resources

    return Resources(
        data=data,
        download=download,
        accelerator=accelerator,
        devices=devices,
        nodes=nodes,
        workers=workers,
    )


def with_resources(
    options_of: Callable[..., "Resources"],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the command's parameter ``resources`` by the options that it is built from.

    Args:
        options_of: `on_one_device` or `on_devices`.
    """
    made_of = signature(options_of).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            own = {name: given.pop(name) for name in made_of}
            command(**given, resources=options_of(**own))

        kept = [each for each in signature(command).parameters.values() if each.name != "resources"]
        options = [_by_name(each) for each in (*kept, *made_of.values())]
        with_options.__signature__ = Signature(options)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in options}
        return with_options

    return decorate


def _by_name(parameter: Parameter) -> Parameter:
    return parameter.replace(kind=Parameter.KEYWORD_ONLY)


def assignments(given: Sequence[str] | None, option: str, example: str) -> dict[str, str]:
    """Return the values of FIELD=VALUE pairs by field, as unparsed text.

    Args:
        given: FIELD=VALUE pairs.
        option: Name of the option.
        example: Example of a pair.

    Raises:
        InputError: If a pair has no ``=``, or a field occurs twice.
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
        InputError: If the value is not valid YAML.
    """
    from ncscope.files import parse_yaml

    try:
        return parse_yaml(value)
    except ValueError as error:
        fix = "for example 3, 0.1, true, [1, 2]"
        raise InputError(expected="a value after =", found=repr(value), fix=fix) from error
