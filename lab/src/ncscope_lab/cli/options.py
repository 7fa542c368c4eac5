"""Options that several commands of the laboratory share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ncscope.errors import InputError


def complete_name(incomplete: str) -> list[tuple[str, str]]:
    """Return experiments whose names begin with the input, for the completion.

    Args:
        incomplete: Beginning of a name.
    """
    from ncscope_lab.catalogue import EXPERIMENTS

    return [(name, shows) for name, shows in EXPERIMENTS.items() if name.startswith(incomplete)]


Scale = Annotated[
    Literal["paper", "small"],
    typer.Option(help="The paper's settings, or those for two CPU cores."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="FIELD=VALUE; can be repeated. Fields: ncscope list EXPERIMENT; * is any text.",
    ),
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


def name_folder(experiment: str) -> str:
    """Return the name of an experiment for folders: that of a file without its path and ``.py``.

    Example:
        >>> name_folder("pfc/training"), name_folder("mine/depth.py")
        ('pfc-training', 'depth')
    """
    return Path(experiment).stem if experiment.endswith(".py") else experiment.replace("/", "-")


def parse_assignments(pairs: Sequence[str] | None, option: str, example: str) -> dict[str, str]:
    """Return the values of FIELD=VALUE pairs by field, as unparsed text.

    Raises:
        InputError: If a pair has no ``=``, or a field occurs twice.
    """
    values: dict[str, str] = {}
    for pair in pairs or []:
        name, sign, value = pair.partition("=")
        if not sign:
            fix = f"for example {option} {example}"
            raise InputError(expected=f"FIELD=VALUE after {option}", found=repr(name), fix=fix)
        if name in values:
            fix = "leave one of them out"
            raise InputError(expected=f"{name} after {option} once", found="it twice", fix=fix)
        values[name] = value
    return values


def parse_settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Return the values of ``--set`` by field.

    Raises:
        InputError: If a pair has no ``=``, a field occurs twice, or a value is no YAML.
    """
    values = parse_assignments(pairs, "--set", "seed=1")
    return {name: parse_value(value) for name, value in values.items()}


def parse_value(value: str) -> Any:
    """Parse a value as YAML; one that begins with ``*``, YAML's mark of an alias, is text.

    Raises:
        InputError: If the value is not valid YAML.
    """
    from ncscope.files import parse_yaml

    if value.startswith("*"):
        return value
    try:
        return parse_yaml(value)
    except ValueError as error:
        fix = "for example 3, 0.1, true, [1, 2]"
        raise InputError(expected="a value after =", found=repr(value), fix=fix) from error
