"""The commands `ncscope measure`, of saved features, and `ncscope measure-model`."""

import sys
import zlib
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ncscope.api.readable import check_files, is_address, is_plain
from ncscope.cli.app import app
from ncscope.cli.options import (
    Baseline,
    BatchSize,
    DataFolder,
    Device,
    Fetch,
    Groups,
    IgnoreIndex,
    Json,
    Precision,
    Preprocess,
    Prior,
    RandomSizes,
    Save,
    Title,
    Uncertainty,
    WeightDecay,
    Workers,
    split_groups,
)
from ncscope.cli.terminal import Terminal, row_bar
from ncscope.errors import InputError, printable
from ncscope.files import check_input, is_folder
from ncscope.memory import available_memory
from ncscope.network import is_on_disk

if TYPE_CHECKING:
    from ncscope.api.result import Report


@app.command()
def measure(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="A table (CSV, Parquet) with columns of numbers and a column of labels, or a file "
            "of numpy.savez, safetensors, torch.save or HDF5 with entries features and labels, and "
            "optionally weight and bias; - for standard input. Several files, quoted "
            "patterns ('features/*.parquet') and addresses (s3://...) are shards of "
            "one data set: they are read one by one. An .npy file holds features without labels: "
            "their spectra are measured.",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            "--features-key",
            help="Features in FILE: name of an entry, or names and patterns of columns "
            "('feat_*,width'; '!id' leaves one out). Default: features, embeddings or X; of a "
            "table, its column of lists, or all columns but the labels. Without FILE: files of "
            "features, n x d (.npy, or a pattern 'X_*.npy'); without --labels, the spectra.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--label",
            "--labels-key",
            help="Labels in FILE: name of an entry or column, of numbers 0..K-1 or of names. "
            "Default: labels, label, targets, target or y. Without FILE: files of labels (.npy, or "
            "a pattern).",
        ),
    ] = None,
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
    ood: Annotated[
        str | None,
        typer.Option(
            help="Features of samples from outside the distribution to compare with: a file (.npy, "
            "or with an entry features)."
        ),
    ] = None,
    num_classes: Annotated[
        int | None,
        typer.Option(min=1, help="K; default the rows of the weight, else the largest label + 1."),
    ] = None,
    ignore_index: IgnoreIndex = None,
    prior: Prior = "empirical",
    groups: Groups = None,
    weight_decay: WeightDecay = 0.0,
    baseline: Baseline = None,
    uncertainty: Uncertainty = False,
    random_sizes: RandomSizes = False,
    precision: Precision = "float64",
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
    title: Title = None,
    save: Save = None,
    json: Json = False,
) -> None:
    """Measure neural collapse in saved features.

    "Interpret your numbers" (docs/interpret.md) says what the values mean and when they mislead.
    The command ncscope measure-model measures a model on a data set.

    Example: ncscope measure features.npz --save report.html

    Example: ncscope measure flowers.csv --label species --save report.html

    Example: ncscope measure "features/*.parquet" --weight head.npz --cluster local

    Example: ncscope measure features.npz --ood other.npy --groups ood

    Example: ncscope measure --features h.npy --labels y.npy --weight w.npy --json
    """
    options: dict[str, Any] = {
        "num_classes": num_classes,
        "ignore_index": ignore_index or None,
        "prior": prior,
        "groups": split_groups(groups),
        "weight_decay": weight_decay,
        "baseline": baseline,
        "uncertainty": "random_sizes" if random_sizes else uncertainty,
        "precision": precision,
    }
    announce(save, slow=uncertainty or random_sizes)
    heads = {"weight": weight, "bias": bias}
    arrays: dict[str, Any] = {name: path for name, path in heads.items() if path is not None}
    sources: list[Any] = list(files or [])
    paths: str | list[Any] | None = features
    if not sources and not arrays and features is None and labels is None:
        fix = (
            "for example ncscope measure features.npz; for a model, ncscope measure-model MODEL "
            "DATA; see ncscope measure --help"
        )
        raise InputError(expected="a file of features", found="none", fix=fix)
    if sources and features is None and all(file.endswith(".npy") for file in sources):
        sources, paths = [], sources  # with labels in other files, or none
    columns = {"features": features, "labels": labels}
    check_files(map(str, [*(files or []), *filter(None, [weight, bias, ood])]))
    if not sources:
        check_files(filter(None, [features, labels]))
        if paths is None:
            expected, fix = "either FILE, or both --features and --labels", "pass FILE too"
            raise InputError(expected=expected, found="another combination", fix=fix)
        sources, columns = pair_arrays(paths, labels), {}
        if len(sources) == 1:
            names = ("features",) if labels is None else ("features", "labels")
            arrays |= zip(names, sources.pop(), strict=True)
    at_end = ExitStack()  # not as a context: after an error the states of finished files stay
    if cluster is not None or work is not None or (sources and are_shards(sources, columns)):
        report = measure_shard_files(
            sources,
            arrays,
            options | columns,
            ood,
            cluster=cluster,
            work=work,
            save=save,
            at_end=at_end,
        )
    else:
        report = measure_arrays(sources, arrays, options, ood, columns)
    for file in save or ():
        report.save(file, title)
    print_report(report, save, json, by_class="per_class" in (options["groups"] or ()))
    at_end.close()


def announce(save: Sequence[Path] | None, *, slow: bool) -> None:
    """Say before a measurement that it takes long; refuse a report that could not be written."""
    if slow:
        cost = "Standard errors: 20 more measurements, in about 20 times the time of one."
        print(cost, file=sys.stderr)
    if save:
        from ncscope.api.writable import REPORTS, check_file

        for file in save:
            check_file(file, REPORTS)


def pair_arrays(features: Any, labels: str | None) -> list[Any]:
    """Return the .npy files that options name: pairs of features and labels, or features alone.

    Args:
        features: Path or pattern of features, or several.
        labels: Path or pattern of labels; None for features without labels.

    Raises:
        InputError: If there is not a file of labels for each file of features.
    """
    from ncscope.api.shard_files import expand_patterns, pair_files

    patterns = [features] if isinstance(features, str) else features
    if labels is not None:
        return pair_files(patterns, [labels])
    files = expand_patterns(patterns)
    if len(files) > 1:
        raise InputError(
            expected=f"files of labels for {len(files)} files of features",
            found="none",
            fix="pass the features with --features, their labels with --labels 'y_*.npy'",
        )
    return [(file,) for file in files]


def measure_arrays(
    files: Sequence[str],
    arrays: dict[str, Any],
    options: dict[str, Any],
    ood: str | None,
    columns: dict[str, Any],
) -> "Report":
    """Measure the arrays of one file, or of one file each.

    Args:
        files: One file with all arrays, or none.
        arrays: Files of single arrays, by the name of the array.
        options: Options of `ncscope.measure`.
        ood: File of features from outside the distribution.
        columns: Names of features and labels in the file.
    """
    from ncscope.api.files import load_array, load_classifier, read_standard_input
    from ncscope.api.measure import measure as measure_features
    from ncscope.api.samples import load_features, load_with_notes
    from ncscope.api.shard_files import Columns, find_order
    from ncscope.measurement.provenance import record_provenance

    head = arrays.pop("weight", None)
    classifier = {} if head is None else load_classifier(head)
    sources: list[Any] = [read_standard_input() if file == "-" else file for file in files]
    entries: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    if sources:
        entries, notes = load_with_notes(sources[0], **columns)
    entries |= classifier | {name: load_array(path) for name, path in arrays.items()}
    outside = None
    if ood is not None:
        order = find_order([file for file in files if file != "-"], Columns(**columns))
        outside = load_features(ood, **columns, order=order)
    report = measure_features(**entries, **options, ood=outside)
    report = with_notes(report, [head, *sources, ood], notes)
    source = files[0] if files else arrays["features"]
    origin = "standard input" if str(source) == "-" else f"./{source}"
    report.provenance = record_provenance(
        data=origin, caller="ncscope measure", class_names=report.class_names
    )
    return report


def are_shards(patterns: Sequence[Any], columns: dict[str, str | None]) -> bool:
    """Return whether files are shards: several, a pattern, an address, or too large to read whole.

    Args:
        patterns: Files, patterns, addresses, or pairs of files.
        columns: Names of features and labels in the files.
    """
    if len(patterns) > 1 or not is_plain(patterns[0]):
        return True
    if patterns[0] == "-":
        return False
    from ncscope.api.samples import find_size

    available = available_memory()
    most = _LARGE if available is None else min(_LARGE, available // 4)
    return find_size(patterns[0], **columns) > most


_LARGE = 2**30
"""Bytes of features in float64 above which a table is read by parts, and not as a whole."""


def measure_shard_files(
    patterns: Sequence[Any],
    arrays: dict[str, Any],
    options: dict[str, Any],
    ood: str | None,
    *,
    cluster: str | None,
    work: Path | None,
    save: Sequence[Path] | None,
    at_end: ExitStack,
) -> "Report":
    """Measure the files that patterns name, one by one, with a progress bar.

    Args:
        patterns: Paths, addresses, and patterns of both; or pairs of paths of .npy files.
        arrays: Files of weight and bias; without a weight, those in the first file are taken, if
            any.
        options: Options of the command; chance level and standard errors are refused.
        ood: File of features from outside the distribution, which is refused.
        cluster: ``"local"`` or the address of a Ray cluster.
        work: Folder for the states of finished shards.
        save: Files that the report is saved as.
        at_end: Calls once the report is written: the states of finished shards are then removed,
            unless the user has named their folder.

    Raises:
        InputError: If the files or the options do not fit.
        KeyboardInterrupt: If the user interrupts; the message says how to continue.
    """
    from ncscope.api.files import load_array, load_classifier
    from ncscope.api.measure_files import measure_files, remove_states
    from ncscope.api.shard_files import (
        expand_patterns,
        load_shard_classifier,
        shard_name,
    )
    from ncscope.measurement.provenance import record_provenance

    if not patterns:
        found, fix = "--features and --labels", "save both as entries of .npz files"
        raise InputError(expected="files for --cluster and --work", found=found, fix=fix)
    if ood is not None:
        found, fix = "features in shards", "measure one file that fits into memory"
        raise InputError(expected="one file of features for --ood", found=found, fix=fix)
    for name in ("baseline", "uncertainty"):
        if options.pop(name):
            fix = "leave it out, or measure one file that fits into memory"
            found = "features in shards"
            raise InputError(expected=f"all samples at once for --{name}", found=found, fix=fix)
    head = arrays.pop("weight", None)
    classifier = {} if head is None else load_classifier(head)
    classifier |= {name: load_array(path) for name, path in arrays.items()}
    paired = isinstance(patterns[0], tuple)
    files = list(patterns) if paired else expand_patterns(patterns)
    if "weight" not in classifier and not paired:
        classifier = load_shard_classifier(files[0]) | classifier
    folder = work
    if cluster is not None and work is None:
        # Commands on other files, in the same folder, must not go on from these states.
        parts = [part for file in files for part in (file if paired else [file])]
        paths = "\n".join(str(Path(part).absolute()) for part in parts)
        checksum = zlib.crc32(paths.encode(errors="surrogateescape"))
        folder = (save[0].parent if save else Path()) / f"ncscope-shards-{checksum:08x}"
        at_end.callback(remove_states, folder)
    progress = ("first pass", 0, len(files))

    def on_shard(*now: Any) -> None:
        nonlocal progress
        progress = now
        show(*now)

    try:
        with row_bar() as show:
            report = measure_files(
                files, cluster=cluster, work=folder, on_shard=on_shard, **classifier, **options
            )
    except KeyboardInterrupt:
        at_end.pop_all()  # the states stay
        msg = "pass --work FOLDER to keep the files that are done"
        if folder is not None:
            part, done, total = progress
            msg = f"the same command goes on after {done} of {total} files of the {part}"
        raise KeyboardInterrupt(msg) from None
    named = shard_name(files[0])
    if len(files) > 1:
        named = f"{len(files)} files, {named} to {shard_name(files[-1])}"
    report.provenance = record_provenance(
        data=named, caller="ncscope measure", class_names=report.class_names
    )
    on_disk = [file for file in files if not paired and not is_address(file)]
    return with_notes(report, [head, *on_disk])


def with_notes(report: "Report", files: Sequence[Any], notes: Sequence[str] = ()) -> "Report":
    """Return a report with notes on the files that were read, such as those without checksums.

    Args:
        report: Report of these files.
        files: Paths and files that were read; None for one that was not given.
        notes: Notes on what was read in them.
    """
    from ncscope.api.files import checksum_notes
    from ncscope.api.result import Report

    lacking = checksum_notes([file for file in files if file is not None])
    record = replace(report.record, notes=(*notes, *report.record.notes, *lacking))
    return Report(record, report.statistics, report.provenance)


@app.command("measure-model")
def measure_model(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="torchvision:NAME, timm:NAME, hf:NAME, hf:FOLDER, a network of the catalogue, or "
            "your own code, which is run: FILE.py:NAME or package.module:NAME of a class, a "
            "function that makes the model, or a model.",
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Name of a data set; a folder of images: CLASS/*.png, or train/CLASS/*.png and "
            "test/CLASS/*.png; a folder that datasets' save_to_disk wrote; Parquet files or "
            "WebDataset's tars (a file, a folder, or a quoted pattern); or FILE.py:NAME of a "
            "loader, a data set, or a function that makes one, in your own code, which is run.",
        ),
    ],
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
    model_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Argument of the class or function in your own code; may be given several times. "
            "Values are literals of Python, else text.",
        ),
    ] = None,
    download: Fetch = False,
    data_folder: DataFolder = Path("data"),
    split: Annotated[
        Literal["train", "test", "val", "validation"],
        typer.Option(
            help="Split of the data set; in a folder without splits, all images are train."
        ),
    ] = "train",
    image_key: Annotated[
        str | None,
        typer.Option(
            help="Column of the images in files, or suffix in tars; default the only one."
        ),
    ] = None,
    label_key: Annotated[
        str | None,
        typer.Option(
            help="Column of the labels in files, or suffix or entry of the JSON in tars; default "
            "the only one."
        ),
    ] = None,
    preprocess: Preprocess = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Height and width of the images for your own code and the catalogue's networks; "
            "default 224 for photographs, and for your own code their own size if they have one.",
        ),
    ] = None,
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
            help="Samples from outside the distribution to compare with: a data set or a folder of "
            "images, of which --split is taken."
        ),
    ] = None,
    num_classes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Outputs of a model with --weights; default the classes of the data set.",
        ),
    ] = None,
    ignore_index: Annotated[
        list[int] | None,
        typer.Option(
            help="Label of images to leave out, the number of their class; may be given several "
            "times."
        ),
    ] = None,
    prior: Prior = "empirical",
    groups: Groups = None,
    weight_decay: WeightDecay = 0.0,
    baseline: Baseline = None,
    uncertainty: Uncertainty = False,
    random_sizes: RandomSizes = False,
    precision: Precision = "float64",
    second_pass: Annotated[
        str,
        typer.Option(
            help="Samples that the nearest-mean rule decides: store (keep all features), recompute "
            "(run the model again), or how many to draw at random."
        ),
    ] = "store",
    title: Title = None,
    save: Save = None,
    json: Json = False,
) -> None:
    """Measure the layers of an image classifier.

    "Measure any model" (docs/tutorials/any-model.md) says which models and checkpoints. A file or
    module of your own that is named as MODEL, DATA or --preprocess is imported, which runs its
    code; no other is, unless that code imports it.

    Example: ncscope measure-model timm:resnet18 photos --weights net.safetensors

    Example: ncscope measure-model net.py:Net photos --model-arg width=64 --weights net.pt

    Example: ncscope measure-model hf:my-vit cifar10 --split test --layers "vit.layers.*"
    """
    announce(save, slow=uncertainty or random_sizes)
    check_words(model, [data, *filter(None, [ood])], weights, preprocess, download=download)
    from ncscope.api.named_images import ImageOptions
    from ncscope.api.named_model import measure_named_model
    from ncscope.measurement.options import Options

    passes: Any = int(second_pass) if second_pass.isdecimal() else second_pass
    # What the user's code prints would spoil the JSON.
    with redirect_stdout(sys.stderr):
        report, notes = measure_named_model(
            model,
            ImageOptions(
                data=data,
                split=split,
                data_folder=data_folder,
                download=download,
                preprocess=preprocess,
                batch_size=batch_size,
                device=device,
                workers=workers,
                image_size=image_size,
                image_key=image_key or "",
                label_key=label_key or "",
            ),
            Options(
                layers=layers,
                head=head,
                ignore_index=ignore_index or None,
                groups=split_groups(groups),
                prior=prior,
                weight_decay=weight_decay,
                pool=pool,
                baseline=baseline,
                uncertainty="random_sizes" if random_sizes else uncertainty,
                precision=precision,
                second_pass=passes,
            ),
            weights=weights,
            weights_key=weights_key or "",
            num_classes=num_classes,
            ood=ood,
            model_arguments=model_arg or (),
        )
    for note in notes:
        print(printable(note), file=sys.stderr)
    for file in save or ():
        report.save(file, title)
    by_class = "per_class" in (split_groups(groups) or ())
    print_report(report, save, json, by_class=by_class, said=notes)


def check_words(
    model: str,
    data: Sequence[str],
    weights: Path | None,
    preprocess: str | None,
    *,
    download: bool,
) -> None:
    """Check, before torch is imported, that what the command line names is there.

    Args:
        model: Name of the model, or code of the user.
        data: Data sets, paths, or code of the user.
        weights: File of weights, or folder; None without one.
        preprocess: Code of the user, or another word.
        download: The hub of Hugging Face may be asked for the model.

    Raises:
        InputError: If there is no file, folder, data set or model of a name.
    """
    from ncscope.data.names import NAMES, check_data
    from ncscope.models.own_code import check_own_file, is_own_code

    for name in (model, *data, preprocess or ""):
        check_own_file(name)
    if weights is not None and not is_folder(weights):
        check_input(weights)
    if is_folder(Path(model)) or model in NAMES:
        return  # the data come first: a later check says so
    for name in data:
        if not is_own_code(name):
            check_data(name)
    if model.startswith("hf:") and weights is None:
        with suppress(ModuleNotFoundError):  # without its library, a later error says so
            is_on_disk(model.removeprefix("hf:"), download=download)


def print_report(
    report: "Report",
    save: Sequence[Path] | None,
    json: bool,
    by_class: bool,
    said: Sequence[str] = (),
) -> None:
    """Print a report as a table, or as JSON; the table without the notes that were said before."""
    if json:
        print(report.to_json())
        return
    from ncscope.report.overview import merge_undefined
    from ncscope.report.tables import build_model_table
    from ncscope.report.wording import format_class_count

    console = Terminal()
    console.print(build_model_table(report.model_record))
    if by_class and report.per_class is not None:
        print(printable(f"{report.per_class}\n", keep="\n"))
    classes = format_class_count(report.num_classes, report.record.num_present)
    size = f"{report.num_samples:,} samples, {classes}, dimension {report.dim}"
    console.print(size, style="dim", highlight=False)
    for note in merge_undefined([note for note in report.notes if note not in said]):
        console.print(f"note: {printable(note)}", style="dim", highlight=False)
    for file in save or ():
        console.print(f"Written: {file}", soft_wrap=True, highlight=False, markup=False)
