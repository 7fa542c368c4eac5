"""The command `ncscope sweep`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ncscope.cli.app import app
from ncscope.cli.options import Workers
from ncscope.cli.terminal import Terminal
from ncscope.errors import InputError
from ncscope_lab.catalogue import refuse_unknown
from ncscope_lab.cli.options import (
    Accelerator,
    Assignments,
    Cluster,
    Data,
    Download,
    Scale,
    complete_name,
    name_folder,
    parse_assignments,
    parse_settings,
    parse_value,
)
from ncscope_lab.cli.results import print_failures, resumable, run_bars
from ncscope_lab.runs.resources import Resources


@app.command()
def sweep(
    experiment: Annotated[
        str,
        typer.Argument(
            help="For example pfc/training, see ncscope list; or a file of yours, NAME.py.",
            autocompletion=complete_name,
        ),
    ],
    over: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=VALUE,VALUE,...; several options make a grid."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--list", help="YAML file with the settings of each run, by field."),
    ] = None,
    changes: Assignments = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the sweep; default runs/EXPERIMENT-SCALE-sweep."),
    ] = None,
    scale: Scale = "small",
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the sweep in the folder --out.")
    ] = False,
    cluster: Cluster = None,
    data: Data = Path("data"),
    download: Download = False,
    accelerator: Accelerator = "auto",
    workers: Workers = 0,
) -> None:
    """Run an experiment over a grid or a list of settings.

    Example: ncscope sweep xufm/ufm --over seed=0,1,2 --over first_steps=500,1000 --out seeds

    Example: ncscope sweep mse/collapse --list settings.yaml --cluster local
    """
    refuse_unknown(experiment)  # before torch is imported
    from ncscope_lab.sweeps import sweep as sweeps

    settings = parse_settings(changes)
    folder = out or Path("runs") / f"{name_folder(experiment)}-{scale}-sweep"
    with resumable(folder), run_bars() as on_change:
        found = sweeps.sweep(
            experiment,
            _list_points(over, file),
            out=folder,
            scale=scale,
            settings=settings,
            resume=resume,
            cluster=cluster,
            resources=Resources(
                data=data, download=download, accelerator=accelerator, workers=workers
            ),
            on_change=on_change,
        )
    from ncscope.report.tables import build_summary_table
    from ncscope_lab.report.sweep import build_sweep_table

    console = Terminal()
    console.print(build_sweep_table(found.table))
    if found.table.spread is not None:
        console.print(build_summary_table(found.table.spread))
    print_failures(found.failures)
    console.print(f"Report: {found.page.resolve().as_uri()}", soft_wrap=True)
    if found.failures:
        raise typer.Exit(1)


def _list_points(over: list[str] | None, file: Path | None) -> list[dict[str, Any]]:
    """Return the settings of each run: each entry of the list, with each point of the grid."""
    from ncscope_lab.sweeps.sweep import grid

    values = parse_assignments(over, "--over", "seed=0,1,2")
    points = grid({name: _parse_values(text) for name, text in values.items()})
    entries = _read_entries(file)
    for name in values:
        if any(name in entry for entry in entries):
            expected, found = f"{name} after --over or in {file}", "both"
            raise InputError(expected=expected, found=found, fix="leave one of them out")
    return [entry | point for entry in entries for point in points]


def _parse_values(text: str) -> list[Any]:
    """Parse values separated by commas: a YAML list whose brackets may be left out.

    Example:
        >>> _parse_values("0,1"), _parse_values("[0, 1]"), _parse_values("[a, b], [c]")
        ([0, 1], [0, 1], [['a', 'b'], ['c']])
    """
    values = parse_value(f"[{text}]")
    if len(values) == 1 and isinstance(values[0], list):
        return list(values[0])
    return list(values)


def _read_entries(file: Path | None) -> list[dict[str, Any]]:
    """Read the entries of a list of settings; without a list, return one empty entry."""
    if file is None:
        return [{}]
    from ncscope.files import parse_yaml, read_file

    expected = f"a list of settings in {file}"
    fix = "write a line such as - {seed: 0, steps: 100} for each run"
    try:
        entries = parse_yaml(read_file(file, expected=expected, fix=fix).decode())
    except InputError:
        raise
    except ValueError as error:
        said = " ".join(str(error).split())
        raise InputError(expected=expected, found=said, fix=fix) from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(expected=expected, found="something else", fix=fix)
    return [{str(name): value for name, value in entry.items()} for entry in entries]
