"""Table of all runs of a sweep, for the page, the terminal, and as CSV."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from rich.table import Table
from rich.text import Text

from ncscope.errors import printable
from ncscope.report.tables import Summary, make_table
from ncscope.report.wording import format_plain
from ncscope_lab.findings import Finding, tally
from ncscope_lab.observations import Observation
from ncscope_lab.report.rows import format_value, last_rows

FAILED = "failed"


@dataclass(frozen=True)
class SweepRow:
    """Content of the table about one run.

    Attributes:
        name: Name of the run and of its folder.
        settings: Settings in which the runs of the sweep differ.
        claims: Claims; empty if the run has not ended.
        rows: All observations of the run.
        error: Reason of the failure; empty if the run did not fail.
    """

    name: str
    settings: Mapping[str, Any]
    claims: Sequence[Finding] = ()
    rows: Sequence[Observation] = ()
    error: str = ""

    @property
    def held(self) -> str:
        """Return the number of claims that held out of all claims, or the failure."""
        if self.error:
            return FAILED
        return str(tally(self.claims))

    def ends(self, columns: Sequence[str]) -> dict[str, Observation]:
        """Return each part's last measurement, at the layer and split with most of the columns.

        If several layers have equally many of the columns, the last such layer is taken.
        """

        def count_known(row: Observation) -> int:
            return sum(key in row for key in columns)

        return {
            part: max(rows[::-1], key=count_known) for part, rows in last_rows(self.rows).items()
        }


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
        name: Name of a run, or of a part of the run above.
        cells: Values; empty for a run without measurements or with separate lines for its parts.
        held: Number of claims that held out of all claims, or the failure; None for a part.
    """

    name: str
    cells: Sequence[str]
    held: str | None = None


@dataclass(frozen=True)
class SweepTable:
    """Table of a sweep: one line per run, and one per part for runs with several parts.

    Attributes:
        caption: Description of the cells.
        columns: Headings of the columns after the name and the claims.
        lines: Lines of the runs, in order.
        failures: Reason of the failure, for each run that failed.
        spread: Mean and spread over the seeds; None without two runs that differ in the seed alone.
    """

    caption: str
    columns: Sequence[str]
    lines: Sequence[Line]
    failures: Mapping[str, str] = field(default_factory=dict)
    spread: Summary | None = None


CAPTION = (
    "Claims that held, of how many, and the last measurement of every part: of its last layer that "
    "has all of this, which table.csv names."
)


def sweep_table(runs: Sequence[SweepRow], columns: Sequence[str]) -> SweepTable:
    """Build the table of a sweep.

    Args:
        runs: In the order in which they are to stand.
        columns: Keys of the rows to show.
    """
    lines = []
    for run in runs:
        cells = {
            part: [format_value(row, key) for key in columns]
            for part, row in run.ends(columns).items()
        }
        if len(cells) == 1:
            lines.append(Line(run.name, next(iter(cells.values())), run.held))
        else:
            lines.append(Line(run.name, [""] * len(columns), run.held))
            lines += [Line(part, own) for part, own in cells.items()]
    failures = {run.name: run.error for run in runs if run.error}
    return SweepTable(CAPTION, columns, lines, failures, _spread(runs, columns))


def _spread(runs: Sequence[SweepRow], columns: Sequence[str]) -> Summary | None:
    """Return mean and standard deviation over the runs that differ in the seed alone, by part."""
    groups: dict[tuple[str, str], list[Observation]] = {}
    for run in runs:
        others = [f"{k}={v}" for k, v in run.settings.items() if k.rpartition(".")[2] != "seed"]
        for part, row in run.ends(columns).items():
            groups.setdefault((", ".join(others), part), []).append(row)
    repeated = {name: rows for name, rows in groups.items() if len(rows) > 1}
    if not repeated:
        return None
    parts = {part for _, part in repeated}

    def write(rows: Sequence[Observation], key: str) -> str:
        numbers = [float(row[key]) for row in rows if isinstance(row.get(key), int | float)]
        if len(numbers) < len(rows):
            return ""
        if not all(map(math.isfinite, numbers)):
            return format_plain(math.nan)
        return f"{format_plain(fmean(numbers))} ± {format_plain(stdev(numbers), 2)}"

    lines = {
        ": ".join(filter(None, (others, part if len(parts) > 1 else ""))) or "all runs": [
            str(len(rows)),
            *(write(rows, key) for key in columns),
        ]
        for (others, part), rows in repeated.items()
    }
    caption = "Mean ± standard deviation of the last measurement over runs that differ in the seed."
    return Summary(caption, ["seeds", *columns], lines, title="Mean and spread over seeds")


def build_sweep_table(sweep: SweepTable) -> Table:
    """Build the table for the terminal.

    Args:
        sweep: Table to print.
    """
    table = make_table()
    table.caption = sweep.caption
    table.add_column("", min_width=10, overflow="fold")
    for column in sweep.columns:
        table.add_column(
            column.replace("_", "\n"), justify="right", no_wrap=True, vertical="bottom"
        )
    for line in sweep.lines:
        name = Text(f"  {printable(line.name)}")
        if line.held is not None:
            # The space after each comma lets the terminal break a long name into lines.
            name = Text(printable(line.name).replace(",", ", "), style="bold")
            said = line.held if line.held == FAILED else f"held {line.held}"
            name.append(f"\n{said}", style="not bold dim")
        table.add_row(name, *map(Text, line.cells))
    return table


def sweep_csv(runs: Sequence[SweepRow], columns: Sequence[str]) -> str:
    """Write the table as CSV: numbers in full precision, and one column for every setting.

    Args:
        runs: In the order in which they are to stand.
        columns: Keys of the rows to write.
    """
    fields = list(dict.fromkeys(name for run in runs for name in run.settings))
    places = [key for key in ("part", "layer", "split") if key not in columns]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["run", *fields, "claims_held", "claims_undecided", "claims", "error", *places, *columns]
    )
    for run in runs:
        counted = tally(run.claims)
        counts = (counted.held, counted.undecided, counted.total)
        own = [run.name, *(run.settings.get(name, "") for name in fields)]
        own += [*(("", "", "") if run.error else counts), run.error]
        ends: list[Observation | None] = [*run.ends(columns).values()] or [None]
        for row in ends:
            cells = [row.get(key, "") if row else "" for key in (*places, *columns)]
            writer.writerow([*own, *cells])
    return text.getvalue()
