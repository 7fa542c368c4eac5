"""The commands that run, show and list experiments: `reproduce`, `train`, `report`, `list`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from ncscope.cli.app import app
from ncscope.cli.progress import row_bar
from ncscope.cli.results import show
from ncscope.cli.resuming import resumable
from ncscope.errors import InputError


def _experiments(incomplete: str) -> list[tuple[str, str]]:
    """Names that begin so, with what each shows, for the shell to complete."""
    from ncscope.recipes.catalogue import EXPERIMENTS

    return [(name, shows) for name, shows in EXPERIMENTS.items() if name.startswith(incomplete)]


Experiment = Annotated[
    str,
    typer.Argument(help="For example pfc/training; see ncscope list.", autocompletion=_experiments),
]
Out = Annotated[Path | None, typer.Option(help="Folder of the run; default runs/EXPERIMENT-SCALE.")]
Scale = Annotated[
    Literal["paper", "small"], typer.Option(help="The paper's settings, or smaller ones.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that --out holds.")]
Data = Annotated[Path, typer.Option(help="Folder of the data sets.")]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch data sets that are missing there.")
]
Accelerator = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
Devices = Annotated[int, typer.Option(min=1, help="How many a machine, a process each.")]
Nodes = Annotated[int, typer.Option(min=1, help="How many machines.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes that read images ahead.")]


@app.command()
def reproduce(
    experiment: Experiment,
    out: Out = None,
    scale: Scale = "small",
    resume: Resume = False,
    data: Data = Path("data"),
    download: Download = False,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    nodes: Nodes = 1,
    workers: Workers = 0,
) -> None:
    """Re-run a paper's experiment, and test its claims.

    Example: ncscope reproduce xufm/ufm --scale paper --out ufm-run
    """
    means = (data, download, accelerator, devices, nodes, workers)
    _experiment(experiment, out, scale, resume, {}, *means)


@app.command()
def train(
    experiment: Experiment,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", help="FIELD=VALUE, as often as needed; see the run's config.yaml."),
    ] = None,
    out: Out = None,
    scale: Scale = "small",
    resume: Resume = False,
    data: Data = Path("data"),
    download: Download = False,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    nodes: Nodes = 1,
    workers: Workers = 0,
) -> None:
    """Run an experiment with any of its settings changed.

    Example: ncscope train pfc/training --set runs.digits.optimisation.epochs=20

    Example: ncscope train mse/collapse --scale paper --data ~/data --download --devices 4
    """
    means = (data, download, accelerator, devices, nodes, workers)
    _experiment(experiment, out, scale, resume, _overrides(override or []), *means)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Show one run, or several side by side, as one HTML page.

    Example: ncscope report runs/pfc-training-small runs/other --out both.html
    """
    from ncscope.api.studies import report_runs

    page = report_runs(runs, out)
    Console().print(f"Report: {page.resolve().as_uri()}", soft_wrap=True)


def _overrides(given: Sequence[str]) -> dict[str, Any]:
    """FIELD=VALUE pairs, the values read as YAML."""
    from yaml import YAMLError, safe_load

    pairs = [pair.partition("=") for pair in given]
    for name, sign, _ in pairs:
        if not sign:
            fix = "for example --set seed=1"
            raise InputError(expected="FIELD=VALUE after --set", found=repr(name), fix=fix)
    try:
        return {name: safe_load(value) for name, _, value in pairs}
    except YAMLError as error:
        fix = "for example 3, 0.1, true, [1, 2]"
        raise InputError(expected="a value after =", found=f"{given}", fix=fix) from error


def _experiment(
    name: str,
    out: Path | None,
    scale: Literal["paper", "small"],
    resume: bool,
    overrides: dict[str, Any],
    data: Path,
    download: bool,
    accelerator: str,
    devices: int,
    nodes: int,
    workers: int,
) -> None:
    from ncscope.api.studies import reproduce as run_experiment
    from ncscope.training.work import Work

    work = Work(
        data=data,
        download=download,
        accelerator=accelerator,
        devices=devices,
        nodes=nodes,
        workers=workers,
    )

    folder = out or Path("runs") / f"{name.replace('/', '-')}-{scale}"
    with resumable(folder), row_bar() as on_row:
        run = run_experiment(
            name,
            out=folder,
            scale=scale,
            resume=resume,
            overrides=overrides,
            work=work,
            on_row=on_row,
        )
    show(run)


@app.command(name="list")
def list_experiments() -> None:
    """List the papers' experiments and what they cost.

    Example: ncscope list
    """
    from ncscope.recipes.catalogue import EXPERIMENTS, experiment
    from ncscope.report.rows import recipes_table

    recipes = [(name, shows, experiment(name).cost) for name, shows in EXPERIMENTS.items()]
    Console().print(recipes_table(recipes))
