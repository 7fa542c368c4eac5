"""The command `ncscope report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncscope.cli.app import app
from ncscope.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ncscope.api.comparison import RunSections

sections_of_runs: "list[RunSections]" = []
"""Functions of other packages that know more about the folders of runs, such as claims and figures.

A module of the entry-point group ``ncscope.commands`` appends to this list.
"""


@app.command()
def report(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Reports and histories (.json), and folders of runs, in any mixture; or a ranking."
        ),
    ],
    title: Annotated[
        str | None, typer.Option(help="Heading of the page; default the names of the files.")
    ] = None,
    save: Annotated[
        list[Path] | None,
        typer.Option(
            "--save",
            "-o",
            help="File to write: .html, .csv, .tex; of histories also .png, .svg, .pdf; may be "
            "given several times. Default comparison.html.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Keys of metrics, comma-separated, or nc for NC1 to NC4: the columns of a .csv or "
            ".tex, which then has layers or measurements as rows, or the panels of a figure; "
            "a page has all. Default all."
        ),
    ] = None,
) -> None:
    """Show reports, histories, runs or a ranking; side by side.

    Histories are compared at equal epochs.

    Example: ncscope report before.json after.json --title "Weight decay" --save both.html

    Example: ncscope report runs/pfc-training-small history.json

    Example: ncscope report a.json b.json -o table.tex --metrics nc1,accuracy

    Example: ncscope report ranking.json -o ranking.csv
    """
    from ncscope.api.readable import check_reports, holds_ranking
    from ncscope.api.writable import COMPARISONS, check_file, refuse_choice
    from ncscope.errors import InputError

    targets = save or [Path("comparison.html")]
    # A name alone may be "nc", which stands for four metrics.
    chosen = metrics.split(",") if metrics and "," in metrics else metrics
    chosen_in = {file: chosen for file in targets if file.suffix != ".html"}
    for file in targets:
        check_file(file, COMPARISONS)
        refuse_choice(file, chosen_in.get(file) if chosen_in else chosen)
    check_reports(sources)
    console = Terminal()
    table: RenderableType | None
    if len(sources) == 1 and sources[0].is_file() and holds_ranking(sources[0].read_bytes()):
        from ncscope.api.transfer import TransferReport

        if chosen is not None:
            fix = "leave --metrics out: the .csv has every score"
            raise InputError(expected="reports for --metrics", found="a ranking", fix=fix)
        ranking = TransferReport.from_json(sources[0])
        table, write = ranking.table(), ranking.save
    else:
        from ncscope.api.comparison import read_sources

        contents = read_sources(sources, sections_of_runs)
        table = contents.table()

        def write(path: str | Path) -> Path:
            return contents.save(path, title, metrics=chosen_in.get(Path(path)))

    paths: list[Path] = []
    try:
        paths.extend(map(write, targets))
    finally:  # also of files that were written before one that is refused
        if table is not None:
            console.print(table)
        for path in paths:  # many terminals open the link of a page
            is_page = path.suffix == ".html"
            line = f"Report: {path.resolve().as_uri()}" if is_page else f"Written: {path}"
            console.print(line, soft_wrap=True)
