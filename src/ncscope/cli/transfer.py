"""The command `ncscope transfer`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from ncscope.cli.app import app
from ncscope.cli.options import (
    BatchSize,
    DataFolder,
    Device,
    Fetch,
    IgnoreIndex,
    Json,
    Preprocess,
    Workers,
    refuse_given,
)
from ncscope.cli.terminal import Terminal, row_bar
from ncscope.errors import InputError, printable

_FEATURE_FILES = (".npz", ".safetensors", ".pt", ".csv", ".parquet", ".h5")
_OF_IMAGES = (
    "pretraining",
    "weights_key",
    "download",
    "data_folder",
    "preprocess",
    "batch_size",
    "device",
    "workers",
)
"""Options that have no effect without --data."""


class _Transfer(TyperCommand):
    """Command that takes several values after --models, and refuses options without effect.

    The parser takes one value after an option, and the function of a command cannot tell given
    values from defaults.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_option(args, "--models"))

    def invoke(self, ctx: Any) -> Any:
        if ctx.params["data"] is None and all(map(_is_file_of_features, ctx.params["models"])):
            refuse_given(ctx, _OF_IMAGES, without="--data")
        return super().invoke(ctx)


def repeat_option(arguments: Sequence[str], option: str) -> list[str]:
    """Repeat an option before each of the values that follow it, up to the next option.

    Example:
        >>> repeat_option(["--models", "a", "b", "--json"], "--models")
        ['--models', 'a', '--models', 'b', '--json']
    """
    result: list[str] = []
    within = False
    for argument in arguments:
        if argument.startswith("-"):
            within = argument == option or argument.startswith(f"{option}=")
            result.append(argument)
        else:
            again = within and result[-1] != option
            result += [option, argument] if again else [argument]
    return result


@app.command(cls=_Transfer)
def transfer(
    models: Annotated[
        list[str],
        typer.Option(
            metavar="NAME...",
            help="Checkpoints, one or more: torchvision:NAME, timm:NAME, hf:NAME or hf:FOLDER with "
            "the weights of the library or folder; timm:NAME@FILE, torchvision:NAME@FILE or "
            "NETWORK@FILE with weights from a checkpoint, whatever its suffix; or, without --data, "
            "files with features and labels, as for ncscope measure.",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="Downstream data set by name, or a folder of images: CLASS/*.png, or the same in "
            "train, test and val; if val or test is missing, a fifth of the images is held out."
        ),
    ] = None,
    pretraining: Annotated[
        str | None,
        typer.Option(help="Data set that the checkpoints were trained on, to score on it too."),
    ] = None,
    measure: Annotated[
        Literal["top-1", "mean-per-class"] | None,
        typer.Option(help="Accuracy of the probe; default the customary one of the data set."),
    ] = None,
    weights_key: Annotated[
        str | None,
        typer.Option(
            help="Entry of every FILE that holds the weights, for example state_dict_ema; default: "
            "the entry is found, running averages apart."
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Accuracies of the checkpoints on other sets, with the columns model, set, "
            "accuracy, and if known parameters, source_accuracy: baselines to judge the scores by.",
        ),
    ] = None,
    results_without: Annotated[
        str | None,
        typer.Option(
            metavar="SET",
            help="Set of the results that is not counted; default the one named by --data.",
        ),
    ] = None,
    ignore_index: IgnoreIndex = None,
    expensive: Annotated[
        bool | None,
        typer.Option(
            "--expensive/--no-expensive",
            help="Compute NLEEP and PARC whatever they cost, or neither; default on small sets.",
        ),
    ] = None,
    save: Annotated[
        list[Path] | None,
        typer.Option(
            "--save",
            "-o",
            help="File to write: a page .html, all numbers .json, the ranking .csv, .tex, .png, "
            ".svg, .pdf; may be given several times.",
        ),
    ] = None,
    download: Fetch = False,
    data_folder: DataFolder = Path("data"),
    preprocess: Preprocess = None,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    workers: Workers = 0,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the validation and held-out images.")
    ] = 0,
    json: Json = False,
) -> None:
    """Rank checkpoints by how well their features transfer.

    Prints the accuracy of a linear probe on held-out images of the data set, with its interval and
    whether it is separable from the first. A page or JSON also has the scores that are said to
    predict it (VCI and its rivals, LogME, the H-score and the other scores of the field) and how
    well each score orders the checkpoints by accuracy.

    Example: ncscope transfer --models timm:vgg11@a.pt timm:vgg11@b.pt --data photos -o page.html

    Example: ncscope transfer --models timm:vgg11 timm:vgg13 --data dtd --download

    Example: ncscope transfer --models a.npz b.npz c.npz --json
    """
    from ncscope.api.writable import REPORTS, check_file

    if results_without is not None and results is None:
        fix = "leave --results-without out"
        raise InputError(expected="--results with --results-without", found="none", fix=fix)
    for file in save or ():
        check_file(file, REPORTS)
    common: dict[str, Any] = {
        "measure": measure and measure.replace("-per-", " per "),
        "expensive": expensive,
        "results": results,
        "left_out": results_without,
        "seed": seed,
    }
    with row_bar(pause=2) as on_step:
        common["on_step"] = on_step
        if data is None:
            from ncscope.api.readable import check_files

            others = [name for name in models if not _is_file_of_features(name)]
            if others:
                fix = (
                    "name a data set or a folder of images; or pass files with features and labels"
                )
                raise InputError(expected=f"--data with {others[0]}", found="none", fix=fix)
            check_files(models)  # before torch is loaded, which takes seconds
            from ncscope.api.transfer import rank_files

            common["measure"] = common["measure"] or "top-1"
            report = rank_files(models, ignore_index=ignore_index, **common)
        else:
            from ncscope.api.named_checkpoints import rank_models
            from ncscope.api.named_images import ImageOptions

            if ignore_index:
                found, fix = "--data", "leave --ignore-index out: every image has a class"
                raise InputError(
                    expected="files of features with --ignore-index", found=found, fix=fix
                )
            for name in filter(_is_file_of_features, models):
                expected = "the names of models with --data"
                fix = (
                    f"for a model with these weights pass MODEL@{name}; for features leave --data "
                    "out"
                )
                raise InputError(expected=expected, found=f"the file {name}", fix=fix)
            image_options = ImageOptions(
                data=data,
                data_folder=data_folder,
                download=download,
                preprocess=preprocess,
                batch_size=batch_size,
                device=device,
                workers=workers,
            )
            report = rank_models(
                models,
                image_options,
                pretraining=pretraining,
                weights_key=weights_key or "",
                **common,
            )
    for note in report.notes:
        print(printable(note), file=sys.stderr)
    for file in save or ():
        report.save(file)
    if json:
        print(report.to_json())
        return
    console = Terminal()
    console.print(report.table())
    for note in report.ranking.notes:
        console.print(f"note: {printable(note)}", style="dim", highlight=False)
    if not save:
        rest = "Strengths, all scores, correlations: --json, or a page by --save ranking.html."
        console.print(rest, style="dim", highlight=False)
    for file in save or ():
        console.print(f"Written: {file}", soft_wrap=True, highlight=False, markup=False)


def _is_file_of_features(name: str) -> bool:
    bare = "@" not in name and not name.startswith(("timm:", "torchvision:", "hf:"))
    return Path(name).is_file() or (bare and Path(name).suffix in _FEATURE_FILES)
