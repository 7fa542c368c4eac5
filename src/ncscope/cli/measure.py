"""The command `ncscope measure`."""

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from ncscope.cli.app import app
from ncscope.cli.options import (
    BatchSize,
    DataFolder,
    Device,
    Fetch,
    Preprocess,
    Workers,
    refuse_given,
)
from ncscope.cli.terminal import Terminal
from ncscope.errors import InputError, printable

if TYPE_CHECKING:
    from ncscope.api.result import Report

_OF_MODELS = (
    "data_folder",
    "download",
    "split",
    "preprocess",
    "pool",
    "second_pass",
    "batch_size",
    "device",
    "workers",
)
"""Options that have no effect without --model."""


_COST = "Standard errors: 20 more measurements, in about 20 times the time of one."


class _Measure(TyperCommand):
    """Command that refuses options without effect; the function cannot tell given from default."""

    def invoke(self, ctx: Any) -> Any:
        named = ("model", "data", "weights", "weights_key", "layers", "head")
        if not any(ctx.params[name] for name in named):
            refuse_given(ctx, _OF_MODELS, without="--model")
        return super().invoke(ctx)


@app.command(cls=_Measure)
def measure(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="A file of numpy.savez, safetensors or torch.save with entries features and "
            "labels, and optionally weight and bias; - for standard input. Several files, quoted "
            "patterns ('features/*.parquet'), addresses (s3://...) and Parquet files are shards of "
            "one data set: they are read one by one. An .npy file holds features without labels: "
            "their spectra are measured.",
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            help="Instead of FILE: features, n x d (.npy); without --labels, the spectra."
        ),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels 0..K-1, n (.npy).")] = None,
    weight: Annotated[
        Path | None,
        typer.Option(
            help="Classifier weight, K x d (.npy), or a file with entries weight and bias (.npz, "
            ".safetensors, .pt), instead of FILE's; of several FILEs, the first one's. Without a "
            "weight, the metrics that need it are left out: NC3, accuracy, MSE parts, MIR."
        ),
    ] = None,
    bias: Annotated[
        Path | None, typer.Option(help="Classifier bias, K (.npy), instead of FILE's.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Instead of FILE, with --data: torchvision:NAME, timm:NAME, hf:NAME, hf:FOLDER, "
            "or a network of the catalogue."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Name of a data set, or a folder of images: CLASS/*.png, or train/CLASS/*.png and "
            "test/CLASS/*.png."
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Weights of the model: a checkpoint of torch.save or safetensors, whatever its "
            "suffix, or a folder with model.safetensors."
        ),
    ] = None,
    weights_key: Annotated[
        str | None,
        typer.Option(
            help="Entry of the checkpoint that holds the weights, for example state_dict_ema; "
            "dotted for nested entries; default: the entry is found, running averages apart."
        ),
    ] = None,
    download: Fetch = False,
    data_folder: DataFolder = Path("data"),
    split: Annotated[
        Literal["train", "test"],
        typer.Option(
            help="Split of the data set; in a folder without splits, all images are train."
        ),
    ] = "train",
    preprocess: Preprocess = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            help="Name or pattern of layers to measure besides the head's input; may be given "
            "several times; default the repeated blocks."
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="Name of the model's head; default: the head is detected.")
    ] = None,
    pool: Annotated[
        bool | None,
        typer.Option(
            "--pool/--flatten",
            help="Layers besides the head's input: average maps over space and sequences over "
            "tokens, or flatten both; default: flatten all but sequences with an attention mask.",
        ),
    ] = None,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    workers: Workers = 0,
    ood: Annotated[
        str | None,
        typer.Option(
            help="Samples from outside the distribution to compare with: a file of features (.npy, "
            "or with an entry features); with --model, a data set or a folder of images, of which "
            "--split is taken."
        ),
    ] = None,
    num_classes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="K; default the rows of the weight, else the largest label + 1; for a model with "
            "--weights, the number of classes of the data set.",
        ),
    ] = None,
    prior: Annotated[
        Literal["empirical", "uniform"],
        typer.Option(help="Weight of a class: its share of the samples, or equal for all classes."),
    ] = "empirical",
    groups: Annotated[
        str | None,
        typer.Option(
            help="Groups of metrics, comma-separated: nc1, nc2, nc3, nc4, pfc, mse, "
            "information, spectra, ood; or keys of single metrics (key:nc1 for the metric "
            "that has the name of a group); default all. per_class prints "
            "a table of the classes."
        ),
    ] = None,
    weight_decay: Annotated[
        float, typer.Option(min=0, help="Weight decay on the classifier, for the MSE parts.")
    ] = 0.0,
    baseline: Annotated[
        bool | None,
        typer.Option(
            "--baseline/--no-baseline",
            help="Chance level: the metrics of the same features with permuted labels; default: "
            "up to ten million samples x dimension.",
            show_default=False,
        ),
    ] = None,
    uncertainty: Annotated[
        bool,
        typer.Option(
            "--uncertainty",
            help="Standard errors and bias-corrected values, from 20 more measurements.",
        ),
    ] = False,
    random_sizes: Annotated[
        bool,
        typer.Option(
            "--random-sizes",
            help="Standard errors of samples drawn with their classes; --uncertainty alone holds "
            "the sizes of the classes.",
        ),
    ] = False,
    precision: Annotated[
        Literal["float64", "blocked"],
        typer.Option(
            help="blocked: products in float32 by blocks, totals in float64, for accelerators that "
            "are slow in float64."
        ),
    ] = "float64",
    second_pass: Annotated[
        str,
        typer.Option(
            help="Samples that the nearest-mean rule decides, with --model: store (keep all "
            "features), recompute (run the model again), or how many to draw at random."
        ),
    ] = "store",
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Read the files on a Ray cluster, each in a task: local for one on this machine, "
            "else its address (auto, HOST:PORT, ray://HOST:PORT)."
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder that keeps the statistics of finished files: an interrupted command goes "
            "on from there. Default with --cluster: ncscope-shards beside the report, removed at "
            "the end."
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Heading of the saved page; default: the file's name.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Also write a report: .html, .json, .csv, .tex, .png, .svg, .pdf."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Measure neural collapse in saved features, or in a model.

    "Interpret your numbers" (docs/interpret.md) says what the values mean and when they mislead.

    Example: ncscope measure features.npz --save report.html

    Example: ncscope measure "features/*.parquet" --weight head.npz --cluster local

    Example: ncscope measure features.npz --ood other.npy --groups ood

    Example: ncscope measure --features h.npy --labels y.npy --weight w.npy --json

    Example: ncscope measure --model timm:resnet18 --weights net.safetensors --data photos

    Example: ncscope measure --model hf:my-vit --data cifar10 --split test --layers "vit.layers.*"
    """
    common: dict[str, Any] = {
        "num_classes": num_classes,
        "prior": prior,
        "groups": None if groups is None else [name.strip() for name in groups.split(",")],
        "weight_decay": weight_decay,
        "baseline": baseline,
        "uncertainty": "random_sizes" if random_sizes else uncertainty,
        "precision": precision,
    }
    if uncertainty or random_sizes:
        print(_COST, file=sys.stderr)
    given = {"features": features, "labels": labels, "weight": weight, "bias": bias}
    arrays = {name: path for name, path in given.items() if path is not None}
    of_model = {
        "weights": weights,
        "weights_key": weights_key or "",
        "layers": layers,
        "head": head,
    }
    described = {"model": model, "data": data} | of_model
    asked = [f"--{name.replace('_', '-')}" for name, value in described.items() if value]
    if save is not None:
        from ncscope.api.result import writable_file

        writable_file(save)
    at_end = ExitStack()
    if not asked:
        shards = {"cluster": cluster, "work": work, "beside": save, "at_end": at_end}
        report = _of_features(files or [], arrays, common, shards, ood)
    elif model and data and not files and not arrays and cluster is None and work is None:
        image_options: dict[str, Any] = {
            "data": data,
            "split": split,
            "data_folder": data_folder,
            "download": download,
            "preprocess": preprocess,
            "batch_size": batch_size,
            "device": device,
            "workers": workers,
        }
        second: Any = int(second_pass) if second_pass.isdecimal() else second_pass
        options = of_model | common | {"pool": pool, "second_pass": second, "ood": ood}
        report = _of_model(model, image_options, options)
    else:
        saved = [*(files or []), *(f"--{name}" for name in arrays)]
        saved += [name for name, it in (("--cluster", cluster), ("--work", work)) if it is not None]
        raise _unclear(asked, saved)
    if save is not None:
        report.save(save, title)
    _print(report, save, json, by_class="per_class" in (common["groups"] or ()))
    at_end.close()


def _unclear(asked: list[str], saved: list[str]) -> InputError:
    """Return the error for saved features together with a model, or for an incomplete model."""
    if saved:
        expected = "either saved features, or --model and --data with their options"
        fix = f"leave out {saved[0]} or --model"
        if "--model" not in asked:
            fix = f"leave {', '.join(asked)} out: no model runs for features in files"
        return InputError(expected=expected, found=f"{saved[0]} with {asked[0]}", fix=fix)
    if "--model" in asked:
        lacking, fix = "--data", "name a data set or a folder of images"
    else:
        lacking, fix = "--model", "name one, for example timm:resnet18"
    return InputError(expected=f"{lacking} with {asked[0]}", found="none", fix=fix)


def _of_features(
    files: list[str],
    arrays: dict[str, Path],
    common: dict[str, Any],
    shards: dict[str, Any],
    ood: str | None,
) -> "Report":
    from ncscope.api.files import (
        load_array,
        load_classifier,
        load_features,
        load_samples,
        standard_input,
    )
    from ncscope.api.measure import measure as measure_features
    from ncscope.api.shard_files import expanded, is_address
    from ncscope.cli.shards import are_shards, measured_shards
    from ncscope.measurement.provenance import provenance

    if not files and not arrays:
        fix = "for example ncscope measure features.npz; see ncscope measure --help"
        raise InputError(expected="a file of features, or a model", found="neither", fix=fix)
    if len(files) == 1 and "features" not in arrays and Path(files[0]).suffix == ".npy":
        arrays, files = arrays | {"features": Path(files[0])}, []
    if bool(files) == ("features" in arrays) or (files and "labels" in arrays):
        expected = "either FILE, or both --features and --labels"
        fix = "see ncscope measure --help"
        raise InputError(expected=expected, found="another combination", fix=fix)
    head = arrays.pop("weight", None)
    classifier = {} if head is None else load_classifier(head)
    heads = [] if head is None else [head]
    in_parts = shards["cluster"] is not None or shards["work"] is not None
    if in_parts and not files:
        found, fix = "--features and --labels", "save both as entries of .npz files"
        raise InputError(expected="files for --cluster and --work", found=found, fix=fix)
    if files and (in_parts or are_shards(files)):
        if ood is not None:
            found, fix = "features in shards", "measure one file that fits into memory"
            raise InputError(expected="one file of features for --ood", found=found, fix=fix)
        classifier |= {name: load_array(path) for name, path in arrays.items()}
        report = measured_shards(files, classifier, common, **shards)
        on_disk = [file for file in expanded(files) if not is_address(file)]
        return _with_notes(report, [*heads, *on_disk])
    entries: dict[str, Any] = {}
    if files:
        sources: list[Any] = [standard_input() if files[0] == "-" else files[0]]
        entries |= load_samples(sources[0])
    entries |= classifier | {name: load_array(path) for name, path in arrays.items()}
    outside = None if ood is None else load_features(ood)
    report = measure_features(**entries, **common, ood=outside)
    outsiders = [] if ood is None else [ood]
    report = _with_notes(report, [*heads, *(sources if files else ()), *outsiders])
    source = files[0] if files else arrays["features"]
    origin = "standard input" if str(source) == "-" else f"./{source}"
    report.provenance = provenance(data=origin, caller="ncscope measure")
    return report


def _with_notes(report: "Report", files: list[Any]) -> "Report":
    """Return a report with a note on files without checksums, if there are any."""
    from ncscope.api.files import checksum_notes
    from ncscope.api.result import Report

    record = report.record
    record = replace(record, notes=(*record.notes, *checksum_notes(files)))
    return Report(record, report.statistics, report.provenance)


def _of_model(name: str, image_options: dict[str, Any], options: dict[str, Any]) -> "Report":
    from ncscope.api.named_images import ImageOptions
    from ncscope.api.named_model import measure_named_model

    measured = measure_named_model(name, ImageOptions(**image_options), **options)
    for note in measured.notes:
        print(printable(note), file=sys.stderr)
    return measured.report


def _print(report: "Report", save: Path | None, json: bool, by_class: bool) -> None:
    if json:
        print(report.to_json())
        return
    from ncscope.report.tables import build_probe_table
    from ncscope.report.wording import write_class_count

    console = Terminal()
    console.print(build_probe_table(report.probe))
    if by_class and report.per_class is not None:
        print(printable(f"{report.per_class}\n", keep="\n"))
    classes = write_class_count(report.num_classes, report.record.num_present)
    size = f"{report.num_samples:,} samples, {classes}, dimension {report.dim}"
    console.print(size, style="dim", highlight=False)
    for note in report.notes:
        console.print(f"note: {printable(note)}", style="dim", highlight=False)
    if save is not None:
        console.print(f"Written: {save}", soft_wrap=True, highlight=False, markup=False)
