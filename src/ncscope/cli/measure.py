"""The command `ncscope measure`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from ncscope.cli.app import app
from ncscope.errors import InputError


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
