"""The command `ncscope`: each command calls one function of the api."""

import importlib.metadata
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from typer.core import TyperGroup

from ncscope.errors import InputError

if TYPE_CHECKING:
    from ncscope.recipes.recipe import Study
    from ncscope.recipes.running import StudyRun
    from ncscope.training.loop import EpochEnd

# Typer carries its own copy of click in some versions and depends on it in others.
_UsageError: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Add --debug to any command to see the traceback of an error.",
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A scope for neural collapse: measure it in any classifier."""
    if version:
        print(importlib.metadata.version("ncscope"))
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and records.")] = Path(
        "ncscope-demo"
    ),
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs to train.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, data order and split.")] = 0,
) -> None:
    """Train a small residual network, measure every layer, and draw the result.

    Example: ncscope demo --out my-run
    """
    from ncscope.api.demo import configured, run_demo
    from ncscope.report.claims import claims_table
    from ncscope.report.tables import run_table

    config = configured(seed=seed, epochs=epochs)
    console = Console()
    with _epoch_bar(config.epochs) as advance:
        run = run_demo(out, config, advance)
    console.print(run_table(run.snapshots))
    console.print(claims_table(run.claims))
    console.print(f"Report: {run.page.resolve().as_uri()}", soft_wrap=True)


@app.command()
def measure(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="An .npz, .safetensors or .pt file with entries features and labels, and "
            "optionally weight and bias."
        ),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Instead of FILE, with --labels: features, n x d (.npy).")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels 0..K-1, n (.npy).")] = None,
    weight: Annotated[
        Path | None,
        typer.Option(
            help="Classifier weight, K x d (.npy), instead of FILE's. Without "
            "one, what needs it is left out: NC3, accuracy, MSE parts, MIR."
        ),
    ] = None,
    bias: Annotated[
        Path | None, typer.Option(help="Classifier bias, K (.npy), instead of FILE's.")
    ] = None,
    num_classes: Annotated[
        int | None, typer.Option(help="K; default the rows of the weight, else largest label + 1.")
    ] = None,
    prior: Annotated[
        Literal["empirical", "uniform"],
        typer.Option(help="Weight of each class: its share of the samples, or equal."),
    ] = "empirical",
    groups: Annotated[
        str | None,
        typer.Option(
            help="Groups, comma-separated: nc1, nc2, nc3, nc4, pfc, mse, "
            "information, spectra; default all."
        ),
    ] = None,
    weight_decay: Annotated[
        float, typer.Option(min=0, help="Decay on the classifier, for the MSE parts.")
    ] = 0.0,
    save: Annotated[
        Path | None, typer.Option(help="Also write a report: .html, .json, .png, .svg, .pdf.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Measure neural collapse in saved features.

    Example: ncscope measure features.npz --save report.html

    Example: ncscope measure --features h.npy --labels y.npy --weight w.npy --json
    """
    from ncscope.api.files import load_array, load_samples
    from ncscope.api.measure import measure as measure_features
    from ncscope.report.tables import probe_table

    if file is not None and features is None and labels is None:
        entries = load_samples(file)
    elif file is None and features is not None and labels is not None:
        entries = {"features": load_array(features), "labels": load_array(labels)}
    else:
        expected = "either FILE, or both --features and --labels"
        fix = "see ncscope measure --help"
        raise InputError(expected=expected, found="another combination", fix=fix)
    given = {"weight": weight, "bias": bias}
    entries |= {name: load_array(path) for name, path in given.items() if path is not None}
    report = measure_features(
        **entries,
        num_classes=num_classes,
        prior=prior,
        groups=None if groups is None else [name.strip() for name in groups.split(",")],
        weight_decay=weight_decay,
    )
    if save is not None:
        report.save(save)
    if json:
        print(report.to_json())
        return
    console = Console()
    console.print(probe_table(report.probe))
    for note in report.notes:
        console.print(f"note: {note}", style="dim", highlight=False)


@app.command()
def theory(
    seed: Annotated[
        int | None, typer.Option(help="Seed of the instances; default a fresh one, printed.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Id of the one statement to check.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON list only.")] = False,
) -> None:
    """Check the papers' statements on fresh random instances; exit 1 if one fails.

    Example: ncscope theory

    Example: ncscope theory --only info/theorem-4.2 --seed 1 --json
    """
    from ncscope.api.theory import check_theory, theory_json
    from ncscope.report.theory import theory_table

    with Console(stderr=True).status("Checking the theory"):
        results = check_theory(seed, only)
    if json:
        print(theory_json(results))
        print(f"seed {results[0].seed}", file=sys.stderr)
    else:
        Console().print(theory_table(results, results[0].seed))
    if any(result.verdict == "fails" for result in results):
        raise typer.Exit(1)


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
    experiment: Annotated[str, typer.Argument(help="For example xufm/ufm; see ncscope list.")],
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
    """Re-run a paper's experiment, draw its figures, and test its claims.

    Example: ncscope reproduce xufm/ufm --scale paper --out ufm-run
    """
    means = (data, download, accelerator, devices, nodes, workers)
    _experiment(experiment, out, scale, resume, {}, *means)


@app.command()
def train(
    experiment: Annotated[str, typer.Argument(help="For example pfc/training.")],
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
    with _row_bar() as on_row:
        run = run_experiment(
            name,
            out=folder,
            scale=scale,
            resume=resume,
            overrides=overrides,
            work=work,
            on_row=on_row,
        )
    _show(run)


@app.command(name="list")
def list_experiments() -> None:
    """List the papers' experiments and what they cost."""
    from ncscope.recipes.catalogue import EXPERIMENTS, experiment
    from ncscope.report.rows import recipes_table

    recipes = [(name, shows, experiment(name).cost) for name, shows in EXPERIMENTS.items()]
    Console().print(recipes_table(recipes))


class _Simulations(TyperGroup):
    """A command for each surrogate model, made when it is asked for: models take time to load."""

    def list_commands(self, ctx: Any) -> list[str]:
        from ncscope.recipes.catalogue import SIMULATIONS

        return list(SIMULATIONS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from ncscope.recipes.catalogue import SIMULATIONS, simulation

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
    """A function with an option for each of the study's settings, as Typer reads them."""

    def command(out: Path | None, resume: bool, json: bool, **given: Any) -> None:
        from ncscope.api.studies import simulate

        with _row_bar() as on_row:
            run = simulate(study.id, out=out, resume=resume, on_row=on_row, **given)
        if json:
            print(run.to_json())
        else:
            _show(run)

    folder = typer.Option(help="Folder for rows, claims, figures and report; default none.")
    go_on = typer.Option("--resume", help="Go on with the run that --out holds.")
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
    command.__doc__ = f"{summary}\n\n{study.lead} Source: {study.source}."
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


def _option(name: str, kind: Any, option: Any, default: Any) -> Parameter:
    annotation = Annotated[kind, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _typed(annotation: Any) -> Any:
    """The option's type; of a tuple of any length a list, each value an option of its own."""
    kinds = get_args(annotation)
    return list[kinds[0]] if get_origin(annotation) is tuple else annotation  # type: ignore[valid-type]


def _show(run: "StudyRun") -> None:
    from ncscope.training.work import first_process

    if not first_process():
        return
    from ncscope.report.claims import claims_table
    from ncscope.report.rows import rows_table

    console = Console()
    console.print(rows_table(run.rows, run.study.columns))
    if run.claims:
        console.print(claims_table(run.claims))
    if run.page is not None:
        console.print(f"Report: {run.page.resolve().as_uri()}", soft_wrap=True)


@contextmanager
def _row_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A live bar of the measurements; what it yields is called after each."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    from ncscope.training.work import first_process

    console = Console(stderr=True)
    hidden = not (console.is_terminal and first_process())
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("Starting", total=None)
        yield lambda part, done, total: progress.update(
            task, description=part, completed=done, total=total
        )


@contextmanager
def _epoch_bar(epochs: int) -> Iterator[Callable[["EpochEnd"], None]]:
    """A live bar of the epochs; what it yields is called after each."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("Training and measuring", total=epochs, loss=float("nan"))
        yield lambda end: progress.update(task, completed=end.epoch, loss=end.loss)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; exit 0 when done, 2 on bad input or usage, 1 on an error of our own."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    sys.exit(_run([word for word in words if word != "--debug"], debug))


def _run(words: list[str], debug: bool) -> int:
    try:
        code = app(args=words or ["--help"], prog_name="ncscope", standalone_mode=False)
    except _UsageError as error:
        message = error.format_message() or "no command given"
        return _fail(f"{message} See ncscope --help.", 2, debug)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130, debug)
    except InputError as error:
        return _fail(str(error), 2, debug)
    except OSError as error:
        return _fail(f"expected to read and write files, found {error}; check it", 2, debug)
    except Exception as error:  # the last resort of a command line: one line, not a page
        name = type(error).__name__
        return _fail(f"{name}: {error}; run again with --debug for the traceback", 1, debug)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return code
