"""The command `ncscope zoo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ncscope.cli.app import app
from ncscope.cli.terminal import Terminal, row_bar
from ncscope.errors import InputError
from ncscope.models.own_code import is_own_code, open_own

if TYPE_CHECKING:
    from ncscope_lab.transfer_zoo import ScoreFunction


@app.command()
def zoo(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs of transfer/zoo, such as its shards; or one file of cells, as "
            "--cells writes it."
        ),
    ],
    score: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Function of a network's features on a target that returns a number, the greater "
            "the better; can be repeated. The file is run. Needs the features, in the folders.",
        ),
    ] = None,
    half: Annotated[
        Literal["report", "design"], typer.Option(help="Half of the zoo to judge on.")
    ] = "report",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap over networks.")] = 0,
    costs: Annotated[
        bool, typer.Option("--costs", help="Measure the time of each score; needs the features.")
    ] = False,
    save: Annotated[Path, typer.Option("--save", "-o", help="File for the page, .html.")] = Path(
        "zoo.html"
    ),
    cells: Annotated[
        Path | None,
        typer.Option(help="File .json.gz for the table of all cells, without features."),
    ] = None,
) -> None:
    """Judge transfer scores, and your own, on a zoo of networks.

    Train the zoo with ncscope run transfer/zoo. Its features are kept, so that a new score
    takes a minute.

    Example: ncscope zoo runs/transfer-zoo-small --score mine.py:spread --save mine.html

    Example: ncscope zoo runs/transfer-zoo-small --seed 1
    """
    from ncscope.report.tables import build_summary_table
    from ncscope_lab.experiments.transfer.tables import brief_table
    from ncscope_lab.report.rows import claims_table
    from ncscope_lab.transfer_zoo import Zoo

    functions = dict(map(_load_function, score or []))
    if len(functions) < len(score or []):
        fix = "give each function a name of its own"
        raise InputError(
            expected="scores of different names", found=", ".join(score or []), fix=fix
        )
    if save.suffix != ".html":
        fix = "for example --save zoo.html"
        raise InputError(expected="a file .html for the page", found=str(save), fix=fix)
    whole = Zoo.read(*runs)
    with row_bar() as on_row:
        if functions:
            whole = whole.with_scores(
                functions, on_cell=lambda done, total: on_row("scores", done, total)
            )
    times = whole.costs() if costs else None
    if cells is not None:
        whole.save_cells(cells)
    verdicts = whole.verdicts(half, seed)
    page = whole.save(save, verdicts=verdicts, costs=times)
    console = Terminal()
    console.print(build_summary_table(brief_table(verdicts)))
    if verdicts.claims:
        console.print(claims_table(verdicts.claims))
    console.print(f"Page: {page.resolve().as_uri()}", soft_wrap=True)


def _load_function(given: str) -> "tuple[str, ScoreFunction]":
    """Return the name of a score and its function, from FILE.py:NAME."""
    function = open_own(given) if is_own_code(given) else None
    if not callable(function):
        found = given if function is None else f"{given}, of the type {type(function).__name__}"
        fix = "for example --score mine.py:spread, with def spread(sample) in the file"
        raise InputError(expected="--score FILE.py:NAME with a function", found=found, fix=fix)
    return given.rpartition(":")[2], function
