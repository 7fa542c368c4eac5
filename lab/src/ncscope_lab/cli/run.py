"""The commands that run and list experiments: `run`, `list`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncscope.cli.app import app
from ncscope.cli.options import Workers
from ncscope.cli.report import sections_of_runs
from ncscope.cli.terminal import Terminal, row_bar
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
    parse_settings,
)
from ncscope_lab.cli.results import print_failures, resumable, run_bars, show
from ncscope_lab.runs.resources import Resources, first_process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ncscope_lab.experiment import Scale as ScaleName

ALL = "all"
"""Argument of ``ncscope run`` that stands for all of the papers' experiments."""


def _complete_name_or_all(incomplete: str) -> list[tuple[str, str]]:
    every = (ALL, "All of the papers' experiments, and one page of verdicts.")
    return ([every] if ALL.startswith(incomplete) else []) + complete_name(incomplete)


@app.command()
def run(
    experiment: Annotated[
        str,
        typer.Argument(
            help="For example pfc/training, see ncscope list; a file of yours, NAME.py; or all.",
            autocompletion=_complete_name_or_all,
        ),
    ],
    scale: Scale = "small",
    changes: Assignments = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; default runs/EXPERIMENT-SCALE.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in the folder --out.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="With all: an experiment to run; can be repeated. Default every one."),
    ] = None,
    cluster: Cluster = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object only, and write no files without --out."
        ),
    ] = False,
    data: Data = Path("data"),
    download: Download = False,
    accelerator: Accelerator = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Devices per machine, one process each.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Number of machines.")] = 1,
    workers: Workers = 0,
) -> None:
    """Run an experiment, or all of the papers'; judge claims.

    Example: ncscope run xufm/ufm --scale paper --out ufm-run

    Example: ncscope run pfc/demo --set epochs=20

    Example: ncscope run central-path --json

    Example: ncscope run my_experiment.py --set "runs.*.optimisation.epochs=20"

    Example: ncscope run all --resume
    """
    resources = Resources(
        data=data,
        download=download,
        accelerator=accelerator,
        devices=devices,
        nodes=nodes,
        workers=workers,
    )
    if experiment == ALL:
        _refuse_options(experiment, "one experiment", {"--set": changes, "--json": json})
        folder = out or Path("runs") / f"all-{scale}"
        _run_all(folder, scale, only or [], resume, cluster, resources)
        return
    _refuse_options(experiment, ALL, {"--only": only})
    refuse_unknown(experiment)  # before torch is imported
    settings = parse_settings(changes)
    if out is None and not (json and cluster is None and not resume):
        out = Path("runs") / f"{name_folder(experiment)}-{scale}"
    from ncscope_lab import execution

    if cluster is None:
        with resumable(out), row_bar(silent=not first_process()) as on_row:
            found = execution.run(
                experiment,
                out=out,
                scale=scale,
                settings=settings,
                resume=resume,
                resources=resources,
                on_row=on_row,
            )
    else:
        from ncscope_lab.sweeps.requests import run_on_cluster

        assert out is not None
        with resumable(out), run_bars() as on_change:
            failure = run_on_cluster(
                experiment,
                out=out,
                cluster=cluster,
                scale=scale,
                settings=settings,
                resume=resume,
                resources=resources,
                on_change=on_change,
            )
        if failure:
            print_failures({experiment: failure})
            raise typer.Exit(1)
        found = replace(execution.load_run(out), page=out / "report.html")
    if not first_process():
        return
    if json:
        print(found.to_json())
    else:
        show(found)


def _refuse_options(experiment: str, right: str, options: "Mapping[str, Any]") -> None:
    """Refuse options that are given, but belong to another argument than this experiment."""
    for option in (name for name, value in options.items() if value):
        fix = f"leave {option} out, or pass {right}"
        raise InputError(expected=f"{option} with {right}", found=repr(experiment), fix=fix)


def _run_all(
    folder: Path,
    scale: "ScaleName",
    only: "Sequence[str]",
    resume: bool,
    cluster: str | None,
    resources: Resources,
) -> None:
    """Run all experiments; print the number of claims of each verdict by paper."""
    from ncscope.report.tables import Summary, build_summary_table
    from ncscope_lab.report.verdicts import by_owner
    from ncscope_lab.sweeps.all_experiments import run_all

    with resumable(folder), run_bars() as on_change:
        found = run_all(
            out=folder,
            scale=scale,
            only=only,
            resume=resume,
            cluster=cluster,
            resources=resources,
            on_change=on_change,
        )
    lines = {
        each.owner: [str(n) for n in (each.tally.held, each.tally.not_held, each.tally.undecided)]
        for each in by_owner(found.experiments)
    }
    console = Terminal()
    caption = "Number of claims of each verdict, by owner of the claim."
    console.print(build_summary_table(Summary(caption, ["held", "not held", "undecided"], lines)))
    print_failures(found.failures, "has not ended")
    console.print(f"Report: {found.page.resolve().as_uri()}", soft_wrap=True)
    if found.failures:
        raise typer.Exit(1)


def _sections_of_runs(folders: "Mapping[str, Path]") -> "Mapping[str, Any]":
    from ncscope_lab.execution import page_sections

    return page_sections(folders)


# Claims and figures of runs on the pages of `ncscope report`.
sections_of_runs.append(_sections_of_runs)


@app.command(name="list")
def list_experiments(
    experiment: Annotated[
        str | None,
        typer.Argument(help="Experiment whose settings to list.", autocompletion=complete_name),
    ] = None,
) -> None:
    """List experiments with their costs, or the settings of one.

    Example: ncscope list

    Example: ncscope list central-path
    """
    from ncscope_lab.catalogue import EXPERIMENTS, REPRODUCTIONS, find_experiment
    from ncscope_lab.report.rows import costs_table, settings_table

    console = Terminal()
    if experiment is not None:
        known = find_experiment(experiment)
        console.print(f"{known.title}. {known.question} Source: {known.source}.")
        console.print(settings_table(known.scales))
        return
    kinds = {
        "The papers' experiments": REPRODUCTIONS,
        "Surrogate models": [name for name in EXPERIMENTS if "/" not in name],
        "Of our own, which repeat no paper": [
            name for name in EXPERIMENTS if "/" in name and name not in REPRODUCTIONS
        ],
    }
    for title, names in kinds.items():
        costs = [(name, EXPERIMENTS[name], find_experiment(name).cost) for name in names]
        console.print(costs_table(costs, title))
