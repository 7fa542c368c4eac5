"""The command `ncscope simulate`, with one subcommand for each surrogate model."""

from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperGroup

from ncscope.cli.app import app
from ncscope.cli.terminal import row_bar
from ncscope.lab.cli.results import resumable, show
from ncscope.lab.runs.resources import first_process

if TYPE_CHECKING:
    from ncscope.lab.runs.recipe import Study


class _Simulations(TyperGroup):
    """Group of one command per surrogate model, created on demand: models take time to load."""

    def list_commands(self, ctx: Any) -> list[str]:
        from ncscope.lab.catalogue import SIMULATIONS

        return list(SIMULATIONS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from ncscope.lab.catalogue import SIMULATIONS, simulation

        single = typer.Typer(rich_markup_mode=None, add_completion=False)
        single.command(name=cmd_name)(
            _simulation_command(simulation(cmd_name), SIMULATIONS[cmd_name])
        )
        return typer.main.get_command(single)


simulations = typer.Typer(cls=_Simulations, rich_markup_mode=None)
app.add_typer(simulations, name="simulate")


@simulations.callback()
def simulate() -> None:
    """Run a surrogate model with any parameters.

    Example: ncscope simulate ufm --num-classes 10 --bias free --out my-ufm

    Example: ncscope simulate central-path --json
    """


def _simulation_command(study: "Study[Any]", summary: str) -> Callable[..., None]:
    """Return a function whose signature gives Typer one option for each of the study's settings."""

    def command(out: Path | None, resume: bool, json: bool, **given: Any) -> None:
        from ncscope.lab.studies import simulate

        with resumable(out), row_bar(silent=not first_process()) as on_row:
            run = simulate(study.id, out=out, resume=resume, on_row=on_row, **given)
        if json:
            print(run.to_json())
        else:
            show(run)

    folder = typer.Option(help="Folder for rows, claims, figures and report; default: no files.")
    go_on = typer.Option("--resume", help="Resume the run in the folder --out.")
    as_json = typer.Option("--json", help="Print one JSON object only.")
    options = [
        _option(name, _typed(field.annotation), typer.Option(help=field.description), field.default)
        for name, field in study.config.model_fields.items()
    ]
    options += [
        _option("out", Path | None, folder, None),
        _option("resume", bool, go_on, False),
        _option("json", bool, as_json, False),
    ]
    example = f"Example: ncscope simulate {study.id} --seed 1 --json"
    command.__doc__ = f"{summary}\n\n{study.question} Source: {study.source}.\n\n{example}"
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


def _option(name: str, kind: Any, option: Any, default: Any) -> Parameter:
    annotation = Annotated[kind, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _typed(annotation: Any) -> Any:
    """Return the option's type: for a tuple of any length a list, so the option can be repeated."""
    kinds = get_args(annotation)
    return list[kinds[0]] if get_origin(annotation) is tuple else annotation  # type: ignore[valid-type]
