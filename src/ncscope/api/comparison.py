"""Reports, histories and folders of runs, read from files to be compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncscope.api.history import History
from ncscope.api.result import Report
from ncscope.api.tables import parse_content
from ncscope.api.writable import check_file, write_text
from ncscope.errors import InputError
from ncscope.files import is_folder, read_file
from ncscope.measurement.history_file import is_history
from ncscope.measurement.records import Measurement

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ncscope.report.comparison import ComparisonSource

RunSections = Callable[[Mapping[str, Path]], Mapping[str, Any]]
"""Function that returns the sections of a page about folders of runs, by their name on the page.

The sections are variables of ``page.html.j2``. A folder without a run of the function's package
adds nothing to them; if all folders are such, the result is empty.
"""


@dataclass(frozen=True)
class ReportSources:
    """Reports, histories and folders of runs to show on one page.

    Attributes:
        contents: Report or history of each source, by its name; None for the folder of a run
            without a history, about which another package has sections.
        sections: Sections about the folders of runs.
    """

    contents: Mapping[str, Report | History | None]
    sections: Mapping[str, Any]

    def table(self) -> "RenderableType | None":
        """Return the table for the terminal; None if there are no measurements."""
        from ncscope.report.comparison import build_comparison_table
        from ncscope.report.tables import build_model_table

        columns = self._columns()
        if not columns:
            return None
        only = next(iter(self.contents.values()))
        if len(self.contents) == 1 and isinstance(only, Report):
            return build_model_table(only.model_record)
        return build_comparison_table(columns)

    def save(self, path: str | Path, title: str | None = None) -> Path:
        """Write one HTML page: the page of a single source, or the comparison of several.

        Args:
            path: File to write.
            title: Heading of the page; by default the names of the sources, or of their study.

        Raises:
            InputError: If the file cannot be written.
        """
        from ncscope.report.comparison import render_comparison_page
        from ncscope.report.page import render_page

        path = check_file(path)
        sections = dict(self.sections)
        # The heading and lead that a study gives would claim to be about every source of the page.
        if len(sections.get("runs", ())) < len(self.contents):
            for name in ("title", "lead", "facts"):
                sections.pop(name, None)
        sections["title"] = title = title or sections.get("title") or " and ".join(self.contents)
        columns = self._columns()
        only = next(iter(self.contents.values()))
        if len(self.contents) > 1 and columns:
            page = render_comparison_page(title, columns, sections)
        elif self.sections or only is None:
            page = render_page(**sections)
        else:
            page = only.page(title)
        return write_text(path, page)

    def _columns(self) -> "list[ComparisonSource]":
        """Return the sources that have measurements, as columns of a comparison."""
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


def read_sources(
    paths: Sequence[str | Path], sections_of_runs: Sequence[RunSections] = ()
) -> ReportSources:
    """Read reports, histories and folders of runs.

    Args:
        paths: Files that `Report.save` or `History.save` wrote as .json, and folders of runs.
        sections_of_runs: Functions of other packages that know more about folders of runs.

    Raises:
        InputError: If no path is given, there is no such file, or it holds something else.
    """
    fix = "pass files that save wrote as .json, or folders of runs"
    expected = "a report, a history or the folder of a run"
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
            holds_history = parse_content(
                is_history,
                read_file(path, expected=expected, fix=fix),
                expected="a report or a history that ncscope wrote",
                name=str(path),
                fix="pass a file that save wrote as .json",
            )
            contents[name] = History.load(path) if holds_history else Report.from_json(path)
        if isinstance(contents[name], History) and not contents[name]:
            raise InputError(expected=expected, found=f"an empty history, {path}", fix=fix)
    return ReportSources(contents, sections)


def _name_sources(paths: Sequence[Path]) -> dict[str, Path]:
    """Name each path by its base name, which shows no home folder; number equal names."""
    path_by_name: dict[str, Path] = {}
    for path in paths:
        name = path.resolve().name if is_folder(path) else path.stem
        if name in ("history", "report"):  # every run's folder has files of these names
            name = path.resolve().parent.name
        number = 1
        unique = name
        while unique in path_by_name:
            number += 1
            unique = f"{name} ({number})"
        path_by_name[unique] = path
    return path_by_name
