"""The command `ncscope zoo`."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ncscope.cli.app import app
from ncscope.cli.terminal import Terminal, row_bar
from ncscope.errors import InputError

if TYPE_CHECKING:
    from ncscope.lab.transfer_zoo import ScoreFunction


@app.command()
def zoo(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs of transfer/zoo, such as its shards; or one file of cells."
        ),
    ],
    score: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Function of a network's features on a target that returns a number, the greater "
            "the better; can be repeated. The file is run.",
        ),
    ] = None,
    half: Annotated[
        Literal["report", "design"], typer.Option(help="Half of the zoo to judge on.")
    ] = "report",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap over networks.")] = 0,
    costs: Annotated[bool, typer.Option("--costs", help="Measure the time of each score.")] = False,
    out: Annotated[Path, typer.Option(help="File for the page.")] = Path("zoo.html"),
    cells: Annotated[
        Path | None,
        typer.Option(help="File .json.gz for the table of all cells, without features."),
    ] = None,
) -> None:
    """Judge transfer scores, and your own, on a zoo of networks.

    Train the zoo with ncscope reproduce transfer/zoo. Its features are kept, so that a new score
    takes a minute.

    Example: ncscope zoo runs/transfer-zoo-small --score mine.py:spread --out mine.html

    Example: ncscope zoo runs/transfer-zoo-small --seed 1
    """
    from ncscope.lab.report.rows import claims_table
    from ncscope.lab.transfer_zoo import Zoo
    from ncscope.lab.zoo.cells import ALL
    from ncscope.lab.zoo.tables import quality_table
    from ncscope.lab.zoo.verdicts import claims_on
    from ncscope.report.summary import summary_table

    functions = dict(map(_function, score or []))
    if out.suffix != ".html":
        fix = "for example --out zoo.html"
        raise InputError(expected="a file .html for the page", found=str(out), fix=fix)
    whole = Zoo.read(*runs)
    with row_bar() as on_row:
        if functions:
            whole = whole.with_scores(
                functions, on_cell=lambda done, total: on_row("scores", done, total)
            )
    times = whole.costs() if costs else None
    if cells is not None:
        whole.save_cells(cells)
    page = whole.save(out, half=half, seed=seed, costs=times)
    console, verdicts = Terminal(), whole.verdicts(half, seed)
    console.print(summary_table(quality_table(verdicts, ALL)))
    if half == "report":
        console.print(claims_table(claims_on(verdicts)))
    console.print(f"Page: {page.resolve().as_uri()}", soft_wrap=True)


def _function(given: str) -> "tuple[str, ScoreFunction]":
    """Return the name of a score and its function, from FILE.py:NAME."""
    file, _, name = given.rpartition(":")
    path = Path(file)
    if not path.is_file():
        fix = "for example --score mine.py:spread"
        raise InputError(expected="--score FILE.py:NAME with a file", found=given, fix=fix)
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        fix = f"define def {name}(sample) in it"
        raise InputError(expected=f"the function {name} in {file}", found="none", fix=fix)
    return name, found
