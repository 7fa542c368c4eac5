"""Reports, histories and folders of runs, read from files to be compared."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncscope.api.history import History
from ncscope.api.readable import REPORT, REPORT_FIX, holds_ranking
from ncscope.api.result import Report, choose_columns, draw_panels
from ncscope.api.tables import Table, csv_text, parse_content
from ncscope.api.writable import COMPARISONS, check_file, save_text, write_figure
from ncscope.arguments import check_arguments
from ncscope.errors import InputError, printable
from ncscope.files import is_folder, read_file
from ncscope.measurement.history_file import is_history
from ncscope.measurement.records import Measurement

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from ncscope.report.comparison import ComparisonSource

RunSections = Callable[[Mapping[str, Path]], Mapping[str, Any]]
"""Function that returns the sections of a page about folders of runs, by their name on the page.

The sections are variables of ``page.html.j2``. A folder without a run of the function's package
adds nothing to them; if all folders are such, the result is empty.
"""


_COLUMNS = ("name", "run", "split", "step")
"""Columns of a table before sizes and metrics; the last three are those of a history's."""


@check_arguments
class Comparison(Table):
    """Reports and histories side by side: see `compare`.

    Attributes:
        contents: Report or history of each source, by its name; None for the folder of a run
            without a history, about which another package has sections.
        sections: Sections about the folders of runs.
    """

    def __init__(
        self,
        contents: "Mapping[str, Report | History | None]",
        sections: Mapping[str, Any] | None = None,
    ) -> None:
        self.contents, self.sections = dict(contents), dict(sections or {})

    def rows(self) -> list[dict[str, object]]:
        """Return a flat row for each measurement: name, run, split, step, sizes, metrics.

        ``name`` is the source's; a report has no run and no split, and its step is None.
        The metrics are those of the last layer; where there are standard errors, ``nc1_low`` and
        ``nc1_high`` are the ends of the 95 % interval of ``nc1``.
        """
        from ncscope.report.wording import find_interval

        rows = []
        for source in self._sources():
            for each in source.measurements:
                last = each.model_record.last
                place = (each.run, each.split, each.step) if source.unit else ("", "", None)
                row: dict[str, object] = dict(zip(_COLUMNS, (source.name, *place), strict=True))
                row |= {"samples": last.num_samples, "classes": last.k, "dimension": last.dim}
                for key, value in last.metrics.items():
                    row[key] = value
                    if (ends := find_interval(last, key)) is not None:
                        row[f"{key}_low"], row[f"{key}_high"] = ends
                rows.append(row)
        return rows

    def plot(self, metrics: str | Sequence[str] = "nc", *, axes: Any = None) -> "Figure":
        """Draw metrics of the last layer over training, a line for each run and split.

        Args:
            metrics: ``"nc"`` for NC1 to NC4, a key, or a list of keys: a panel each.
            axes: Axes of your own figure, one for each panel; see `History.plot`.

        Raises:
            InputError: If there is no history, their units differ, no layer has a metric, or the
                axes are not as many as the panels.
        """
        histories = {n: each for n, each in self.contents.items() if isinstance(each, History)}
        units = {each.unit for each in histories.values()}
        if len(units) != 1:
            found = f"units {' and '.join(sorted(units))}" if units else "reports, without steps"
            fix = "save the table as .csv or .tex, or the page as .html"
            fix += ", or one report by itself as a figure" * (not units)
            raise InputError(expected="histories of one unit to draw", found=found, fix=fix)
        together = History(unit=units.pop())
        for name, history in histories.items():
            for each in history:
                run = ", ".join(filter(None, (name, each.run))) if len(histories) > 1 else each.run
                together.append(replace(each, run=run))
        return draw_panels(together.measurements, metrics, together.keys(), axes, together.unit)

    def table(self) -> "RenderableType | None":
        """Return the table for the terminal; None if there are no measurements."""
        from ncscope.report.comparison import build_comparison_table
        from ncscope.report.tables import build_model_table

        columns = self._sources()
        if not columns:
            return None
        only = next(iter(self.contents.values()))
        if len(self.contents) == 1 and isinstance(only, Report):
            return build_model_table(only.model_record)
        return build_comparison_table(columns)

    def __repr__(self) -> str:
        table = self.table()
        if table is None:
            return f"Comparison: {', '.join(self.contents)}, without measurements"
        from rich.console import Console

        out = StringIO()
        Console(file=out, width=80, color_system=None).print(table)
        return out.getvalue().rstrip()

    def _repr_html_(self) -> str:
        from ncscope.report.comparison import build_columns, warn_of_unlike_sizes
        from ncscope.report.notebook import render_comparison_fragment

        sources = self._sources()
        if not sources:
            return f"<p>{escape(printable(repr(self)))}</p>"
        columns, apart, sentence = build_columns(sources)
        models = {each.title: each.model for each in columns}
        return render_comparison_fragment(
            models, [sentence], [*apart, *warn_of_unlike_sizes(columns)]
        )

    def save(
        self,
        path: str | Path,
        title: str | None = None,
        *,
        metrics: str | Sequence[str] | None = None,
    ) -> Path:
        """Write the comparison as .html, .csv, .tex, .png, .svg or .pdf.

        A ``.csv`` holds every measurement, a ``.tex`` the last step that all runs and splits have,
        as those of a history do.

        Args:
            path: File to write; one that is there is replaced whole or not at all.
            title: Heading of the page; by default the names of the sources, or of their experiment.
            metrics: Keys of the metrics of a figure (see `plot`), or of the columns of a ``.csv``
                or ``.tex``, in their order, which then has a row for each report, run and split; by
                default all. Pages hold all.

        Returns:
            Path of the file.

        Raises:
            InputError: If the suffix is none of these, nothing was measured, no last layer has a
                metric, or the file cannot be written.
        """
        from ncscope.report.comparison import render_comparison_page
        from ncscope.report.latex import format_sources_latex
        from ncscope.report.page import render_page

        path = check_file(path, COMPARISONS)
        only = next(iter(self.contents.values()))
        if path.suffix != ".html" and len(self.contents) == 1 and only is not None:
            return only.save(path, metrics=metrics)
        sources = self._sources()
        if path.suffix != ".html" and not sources:
            fix = "save an .html page"
            raise InputError(expected="measurements for a table", found="none", fix=fix)
        everything = [each for source in sources for each in source.measurements]
        known = {key for each in everything for key in each.model_record.last.metrics}
        chosen = choose_columns(path, metrics, known)
        if path.suffix == ".csv":
            ends = [f"{key}{end}" for key in chosen or () for end in ("", "_low", "_high")]
            names = None if chosen is None else (*_COLUMNS, *ends)
            return save_text(path, csv_text(self.rows(), names))
        if path.suffix == ".tex":
            return save_text(path, format_sources_latex(sources, chosen))
        if path.suffix != ".html":
            return write_figure(path, self.plot("nc" if metrics is None else metrics))
        sections = dict(self.sections)
        # The heading and lead of an experiment would claim to be about every source of the page.
        if len(sections.get("runs", ())) < len(self.contents):
            for name in ("title", "lead", "facts"):
                sections.pop(name, None)
        sections["title"] = title = title or sections.get("title") or " and ".join(self.contents)
        if len(self.contents) > 1 and sources:
            page = render_comparison_page(title, sources, sections)
        elif self.sections or only is None:
            page = render_page(**sections)
        else:
            page = only.page(title)
        return save_text(path, page)

    def _sources(self) -> "list[ComparisonSource]":
        """Return the sources that have measurements."""
        from ncscope.report.comparison import ComparisonSource

        columns = []
        for name, content in self.contents.items():
            if isinstance(content, Report):
                one = [Measurement(content.model_record, 0)]
                columns.append(ComparisonSource(name, one, "", content.provenance))
            elif content is not None and len(content):
                origin = content.provenance
                columns.append(ComparisonSource(name, content.measurements, content.unit, origin))
        return columns


@check_arguments
def compare(
    *sources: "Report | History | str | Path", names: Sequence[str] | None = None
) -> Comparison:
    """Compare reports and histories: a table, a figure over training, a page.

    Args:
        sources: Reports, histories, files that their ``save`` wrote as .json, and folders of runs.
        names: Name of each source; by default those of its file, of its model and data, or of the
            variable that holds it.

    Returns:
        The comparison, with ``rows``, ``to_dataframe``, ``plot`` and ``save``. Pages and tables
        compare runs of different length at the last step that all of them have.

    Raises:
        InputError: If there is no source, a file holds something else, a history is empty, or the
            names are not as many or not different.

    Example:
        >>> import ncscope
        >>> one = ncscope.measure([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
        >>> two = ncscope.measure([[0.0], [2.0], [4.0], [6.0]], [0, 0, 1, 1])
        >>> both = ncscope.compare(one, two, names=["near", "far"])
        >>> [(row["name"], row["nc1_quotient"]) for row in both.rows()]
        [('near', 0.0625), ('far', 0.25)]
    """
    if names is not None and (len(names) != len(sources) or len(set(names)) < len(names)):
        expected = f"{len(sources)} different names, one for each source"
        raise InputError(expected=expected, found=", ".join(names) or "none", fix="name each once")
    contents: dict[str, Report | History | None] = {}
    for number, source in enumerate(sources, start=1):
        if not isinstance(source, Report | History | str | Path):
            fix = "pass each report, history or file by itself"
            found = type(source).__name__
            raise InputError(expected="reports and histories", found=found, fix=fix)
        if isinstance(source, str | Path):
            ((named, content),) = read_sources([source]).contents.items()
        else:
            origin, content = source.provenance, source
            named = ", ".join(filter(None, (origin.model, origin.data)))
            if not named or named in contents:
                named = _find_variable(source) or named or f"source {number}"
        if isinstance(content, History) and not content:
            fix = "pass one with a measurement"
            raise InputError(expected="histories to compare", found="an empty one", fix=fix)
        name = named if names is None else names[number - 1]
        contents[f"{name} ({number})" if name in contents else name] = content
    if not contents:
        fix = "pass reports, histories, or their files"
        raise InputError(expected="something to compare", found="nothing", fix=fix)
    return Comparison(contents)


def _find_variable(source: object) -> str:
    """Return the name of the caller's variable that holds an object; empty if none does."""
    frame = sys._getframe().f_back
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("ncscope."):
            for name, value in (*frame.f_locals.items(), *frame.f_globals.items()):
                if value is source and not name.startswith("_"):
                    return name
        frame = frame.f_back
    return ""


def read_sources(
    paths: Sequence[str | Path], sections_of_runs: Sequence[RunSections] = ()
) -> Comparison:
    """Read reports, histories and folders of runs.

    Args:
        paths: Files that `Report.save` or `History.save` wrote as .json, and folders of runs.
        sections_of_runs: Functions of other packages that know more about folders of runs.

    Raises:
        InputError: If no path is given, there is no such file, or it holds something else.
    """
    expected, fix = REPORT, REPORT_FIX
    if not paths:
        raise InputError(expected=expected, found="none", fix=fix)
    path_by_name = _name_sources([Path(path) for path in paths])
    folders = {name: path for name, path in path_by_name.items() if is_folder(path)}
    sections: dict[str, Any] = {}
    for of_runs in sections_of_runs if folders else ():
        sections |= of_runs(folders)
    contents: dict[str, Report | History | None] = {}
    for name, path in path_by_name.items():
        if name in folders:
            has_sections_only = sections and not (path / "history.json").exists()
            contents[name] = None if has_sections_only else History.load(path)
        else:
            content = read_file(path, expected=expected, fix=fix)
            if holds_ranking(content):
                fix = f"show it by itself: ncscope report {path}, or TransferReport.from_json"
                raise InputError(expected=expected, found=f"a ranking, {path}", fix=fix)
            holds_history = parse_content(
                is_history,
                content,
                expected="a report or a history that ncscope wrote",
                name=str(path),
                fix="pass a file that save wrote as .json",
            )
            contents[name] = History.load(path) if holds_history else Report.from_json(path)
        if isinstance(contents[name], History) and not contents[name]:
            raise InputError(expected=expected, found=f"an empty history, {path}", fix=fix)
    return Comparison(contents, sections)


def _name_sources(paths: Sequence[Path]) -> dict[str, Path]:
    """Name each path by its base name, which shows no home folder; number equal names."""
    path_by_name: dict[str, Path] = {}
    for path in paths:
        name = path.resolve().name if is_folder(path) else path.stem
        # Every run's folder has files of these names; in the current folder they are told apart.
        if name in ("history", "report") and path.parent != Path():
            name = path.resolve().parent.name
        number = 1
        unique = name
        while unique in path_by_name:
            number += 1
            unique = f"{name} ({number})"
        path_by_name[unique] = path
    return path_by_name
