"""Options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ncscope.errors import InputError
from ncscope.metrics.names import GROUPS, TITLES, refuse_unknown

Prior = Annotated[
    Literal["empirical", "uniform"],
    typer.Option(help="Weight of a class: its share of the samples, or equal for all classes."),
]


def complete_groups(incomplete: str) -> list[tuple[str, str]]:
    """Complete the last of the comma-separated groups and keys of metrics.

    Args:
        incomplete: Words before the cursor.

    Returns:
        Completions of the whole option with a description each: groups first, then single metrics
        once a letter is typed, none that is there already.

    Example:
        >>> complete_groups("nc1,inf")
        [('nc1,information', 'group: Matrix information')]
        >>> complete_groups("accu")
        [('accuracy', 'accuracy')]
    """
    before, comma, word = incomplete.rpartition(",")
    taken = before.split(",")
    choices = {name: f"group: {title}" for name, title in GROUPS.items()}
    if word:
        # Of a group and a metric of one name, the name is the group's.
        choices |= {f"key:{key}" if key in GROUPS else key: text for key, text in TITLES.items()}
    return [
        (f"{before}{comma}{name}", text)
        for name, text in choices.items()
        if name.startswith(word) and name not in taken
    ]


def split_groups(groups: str | None) -> list[str] | None:
    """Return groups that a comma separates on the command line."""
    return None if groups is None else [name.strip() for name in groups.split(",")]


def _check_groups(groups: str | None) -> str | None:
    """Refuse unknown groups while the command line is read: the command imports torch."""
    refuse_unknown(split_groups(groups) or ())
    return groups


Groups = Annotated[
    str | None,
    typer.Option(
        autocompletion=complete_groups,
        callback=_check_groups,
        help="Groups of metrics, comma-separated: nc1, nc2, nc3, nc4, pfc, mse, "
        "information, spectra, ood; or keys of single metrics (key:nc1 for the metric "
        "that has the name of a group); default all. per_class prints "
        "a table of the classes.",
    ),
]
WeightDecay = Annotated[
    float, typer.Option(min=0, help="Weight decay on the classifier, for the MSE parts.")
]
Baseline = Annotated[
    bool | None,
    typer.Option(
        "--baseline/--no-baseline",
        help="Chance level: the metrics of the same features with permuted labels; default: "
        "up to ten million samples x dimension.",
        show_default=False,
    ),
]
Uncertainty = Annotated[
    bool,
    typer.Option(
        "--uncertainty",
        help="Standard errors and bias-corrected values, from 20 more measurements.",
    ),
]
RandomSizes = Annotated[
    bool,
    typer.Option(
        "--random-sizes",
        help="Standard errors of samples drawn with their classes; --uncertainty alone holds "
        "the sizes of the classes.",
    ),
]
IgnoreIndex = Annotated[
    list[int] | None,
    typer.Option(
        help="Label of samples to leave out, such as -1 or 255; may be given several times.",
        show_default=False,
    ),
]
Precision = Annotated[
    Literal["float64", "blocked"],
    typer.Option(
        help="blocked: products in float32 by blocks, totals in float64, for accelerators that "
        "are slow in float64."
    ),
]
Title = Annotated[
    str | None, typer.Option(help="Heading of the saved page; default: the file's name.")
]
Save = Annotated[
    list[Path] | None,
    typer.Option(
        "--save",
        "-o",
        help="Also write a report: .html, .json, .csv, .tex, .png, .svg, .pdf; may be "
        "given several times.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object only.")]

Workers = Annotated[int, typer.Option(min=0, help="Number of processes that read images ahead.")]
Fetch = Annotated[
    bool, typer.Option("--download", help="Fetch pretrained weights and data that are missing.")
]
DataFolder = Annotated[Path, typer.Option(help="Folder with the files of named data sets.")]
Preprocess = Annotated[
    str | None,
    typer.Option(
        metavar="[model|data|FILE.py:FUNCTION]",
        help="Preprocessing of images: by the model's library, by the data set, or by a function "
        "of yours that makes a tensor of a PIL image; default the model's, and the data set's for "
        "the catalogue's networks and your own code.",
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
