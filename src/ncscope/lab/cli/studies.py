"""The commands that run and list experiments: `reproduce`, `train`, `list`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncscope.cli.app import app
from ncscope.cli.report import sections_of_runs
from ncscope.cli.terminal import Terminal, row_bar
from ncscope.errors import InputError
from ncscope.lab.cli.options import (
    Assignments,
    Cluster,
    Experiment,
    Scale,
    as_yaml,
    assignments,
    experiments_and_all,
    on_devices,
    with_resources,
)
from ncscope.lab.cli.results import print_failures, resumable, run_bars, show
from ncscope.lab.runs.resources import first_process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ncscope.lab.experiment import Scale as RecipeScale
    from ncscope.lab.runs.resources import Resources

Out = Annotated[Path | None, typer.Option(help="Folder of the run; default runs/EXPERIMENT-SCALE.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in the folder --out.")]


ALL = "all"
"""Argument of ``ncscope reproduce`` that stands for all of the papers' experiments."""


@app.command()
@with_resources(on_devices)
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="For example pfc/training, see ncscope list; or all.",
            autocompletion=experiments_and_all,
        ),
    ],
    resources: "Resources",
    out: Out = None,
    scale: Scale = "small",
    resume: Resume = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="With all: an experiment to run; can be repeated. Default every one."),
    ] = None,
    cluster: Cluster = None,
) -> None:
    """Repeat a paper's experiment, or all, and test its claims.

    Benchmarks of our own run in the same way; all does not include them.

    Example: ncscope reproduce xufm/ufm --scale paper --out ufm-run

    Example: ncscope reproduce all --resume
    """
    if experiment == ALL:
        _all_experiments(out, scale, only or [], resume, cluster, resources)
        return
    for option, given in (("--only", only), ("--cluster", cluster)):
        if given:
            fix = f"leave {option} out, or pass all; ncscope sweep has --cluster too"
            raise InputError(expected=f"{option} with all", found=repr(experiment), fix=fix)
    _experiment(experiment, out, scale, resume, {}, resources)


def _all_experiments(
    out: Path | None,
    scale: "RecipeScale",
    only: "Sequence[str]",
    resume: bool,
    cluster: str | None,
    resources: "Resources",
) -> None:
    """Run all experiments; print the number of claims of each verdict by paper."""
    from ncscope.lab.report.verdicts import by_owner
    from ncscope.lab.sweeps import reproduce_all
    from ncscope.report.tables import Summary, build_summary_table

    folder = out or Path("runs") / f"all-{scale}"
    with resumable(folder), run_bars() as on_change:
        found = reproduce_all(
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


@app.command()
@with_resources(on_devices)
def train(
    experiment: Experiment,
    resources: "Resources",
    override: Assignments = None,
    out: Out = None,
    scale: Scale = "small",
    resume: Resume = False,
) -> None:
    """Run an experiment with changed settings.

    Example: ncscope train pfc/demo --set epochs=20

    Example: ncscope train mse/collapse --scale paper --data ~/data --download --devices 4
    """
    given = assignments(override, "--set", "seed=1")
    overrides = {name: as_yaml(value) for name, value in given.items()}
    _experiment(experiment, out, scale, resume, overrides, resources)


def _sections_of_runs(folders: "Mapping[str, Path]") -> "Mapping[str, Any]":
    from ncscope.lab.studies import page_sections

    return page_sections(folders)


# Claims and figures of runs on the pages of `ncscope report`.
sections_of_runs.append(_sections_of_runs)


def _experiment(
    name: str,
    out: Path | None,
    scale: "RecipeScale",
    resume: bool,
    overrides: dict[str, Any],
    resources: "Resources",
) -> None:
    from ncscope.lab.studies import reproduce as run_experiment

    folder = out or Path("runs") / f"{name.replace('/', '-')}-{scale}"
    with resumable(folder), row_bar(silent=not first_process()) as on_row:
        run = run_experiment(
            name,
            out=folder,
            scale=scale,
            resume=resume,
            overrides=overrides,
            resources=resources,
            on_row=on_row,
        )
    show(run)


@app.command(name="list")
def list_experiments() -> None:
    """List experiments and our own benchmarks, with their costs.

    Example: ncscope list
    """
    from ncscope.lab.catalogue import BENCHMARKS, EXPERIMENTS, experiment
    from ncscope.lab.report.rows import recipes_table

    console = Terminal()
    for title, kind, names in (
        ("The papers' experiments", "experiment", EXPERIMENTS),
        ("Benchmarks of our own, which belong to no paper", "benchmark", BENCHMARKS),
    ):
        recipes = [(name, shows, experiment(name).cost) for name, shows in names.items()]
        console.print(recipes_table(recipes, title, kind))
