"""The command `ncscope theory`."""

import sys
from typing import Annotated

import typer

from ncscope.cli.app import app
from ncscope.cli.terminal import Terminal


@app.command()
def theory(
    seed: Annotated[
        int | None, typer.Option(help="Seed of the instances; default a random seed, printed.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Id of the one statement to check.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON list only.")] = False,
) -> None:
    """Check the papers' statements; exit 1 if one fails.

    Each statement is checked on new random instances. An error, unlike a statement that fails,
    prints a line on standard error. The last line counts the statements that hold and those that
    do not, by how wrong they are; definitions, which no input can violate, are counted apart.

    Example: ncscope theory

    Example: ncscope theory --only info/theorem-4.2 --seed 1 --json
    """
    from ncscope_lab.report.theory import headline, theory_table
    from ncscope_lab.theory.table import check_theory, theory_json

    with Terminal(stderr=True).status("Checking the theory"):
        results = check_theory(seed, only)
    if json:
        print(theory_json(results))
        print(f"seed {results[0].seed}", file=sys.stderr)
    else:
        Terminal().print(theory_table(results, results[0].seed))
        Terminal().print(headline(results))
    if any(result.verdict == "fails" for result in results):
        raise typer.Exit(1)
