"""The commands that run and list experiments: `reproduce`, `train`, `list`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ncscope.cli.app import app
from ncscope.cli.report import sections_of_runs
from ncscope.cli.terminal import Terminal, row_bar
from ncscope.lab.cli.options import (
    Assignments,
    Experiment,
    Scale,
    as_yaml,
    assignments,
    on_devices,
    with_resources,
)
from ncscope.lab.cli.results import resumable, show
from ncscope.lab.runs.resources import first_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ncscope.lab.runs.resources import Resources

Out = Annotated[Path | None, typer.Option(help="Folder of the run; default runs/EXPERIMENT-SCALE.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in the folder --out.")]


@app.command()
@with_resources(on_devices)
def reproduce(
    experiment: Experiment,
    resources: "Resources",
    out: Out = None,
    scale: Scale = "small",
    resume: Resume = False,
) -> None:
    """Repeat a paper's experiment and test its claims.

    Example: ncscope reproduce xufm/ufm --scale paper --out ufm-run
    """
    _experiment(experiment, out, scale, resume, {}, resources)


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

    Example: ncscope train pfc/training --set runs.digits.optimisation.epochs=20

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
    scale: Literal["paper", "small"],
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
    """List the papers' experiments and their costs.

    Example: ncscope list
    """
    from ncscope.lab.catalogue import EXPERIMENTS, experiment
    from ncscope.lab.report.rows import recipes_table

    recipes = [(name, shows, experiment(name).cost) for name, shows in EXPERIMENTS.items()]
    Terminal().print(recipes_table(recipes))
