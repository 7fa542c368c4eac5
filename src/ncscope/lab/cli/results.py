"""Tables that the terminal shows after a run of a study."""

from typing import TYPE_CHECKING

from ncscope.cli.terminal import Terminal

if TYPE_CHECKING:
    from ncscope.lab.runs.running import StudyRun


def show(run: "StudyRun") -> None:
    """Print a run's rows, its claims and the path of its report, on the first process only."""
    from ncscope.lab.runs.resources import first_process

    if not first_process():
        return
    from ncscope.lab.report.claims import claims_table
    from ncscope.lab.report.rows import rows_table
    from ncscope.report.summary import summary_table

    console = Terminal()
    console.print(rows_table(run.rows, run.study.columns))
    for summary in run.tables():
        console.print(summary_table(summary))
    if run.claims:
        console.print(claims_table(run.claims))
    if run.page is not None:
        console.print(f"Report: {run.page.resolve().as_uri()}", soft_wrap=True)
