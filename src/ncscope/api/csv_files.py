"""Tables as text: CSV, TSV and their relatives, read line by line in bounded memory."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from ncscope.api.columns import LABELS, MORE_LABELS, Cells, choose_columns, refuse_repeats
from ncscope.api.files import explain_read_errors
from ncscope.api.other_files import (
    find_packing,
    path_beside,
    path_of,
    unpack,
)
from ncscope.api.sample_file import SampleFile, rows_of_batch
from ncscope.errors import InputError
from ncscope.file_kinds import python_line, python_text
from ncscope.tensor_files import TensorFile

_DELIMITERS = "\t;|, "
"""In the order of trial: a comma may belong to a decimal number, and a blank to a text."""

_MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "-nan", "+nan", "null", "<na>", "?"})
_MISSING_NUMBER = _MISSING | {"none"}
"""Cells that say that a value is missing, in lower case; a class may be called None."""

_LONGEST_LINE = 2**25
_SNIFFED_LINES, _SNIFFED_CHARACTERS = 100, 2**22
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_NUMBER = re.compile(
    r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf|infinity)\s*", re.I
)


def open_csv(
    file: TensorFile,
    features: str | None = None,
    labels: str | None = None,
    *,
    labelled: bool = True,
) -> SampleFile | None:
    """Open a table in text; None if the file is none.

    Args:
        file: File of any kind.
        features: Columns of the features, as for `choose_columns`.
        labels: Column of the labels.
        labelled: False if the features alone are wanted.

    Raises:
        InputError: If the table has no such columns, or cannot be read.
    """
    with explain_read_errors(file):
        head, encoding = _read_head(file)
    if head is None:
        return None
    delimiter = _find_delimiter(head, named=_is_named_table(file))
    if delimiter is None:
        return None
    with explain_read_errors(file):
        table = _Table(file, encoding, delimiter, head)
    choice = choose_columns(
        table.kinds(),
        file.name,
        features,
        labels,
        labelled=labelled,
        first=table.first_values,
        example=table.example,
    )
    # A number and its delimiter take two characters at least, and eight bytes in memory; packed
    # text may be some ten times as long as its file.
    with explain_read_errors(file):
        packed = 10 if find_packing(file) else 1
    return SampleFile(
        lambda whole: refuse_repeats(
            table.read(choice.features if whole else (), choice.labels), choice, file.name, features
        ),
        size=4 * packed * file.size,
        notes=choice.notes,
        columns=choice.features,
    )


def _is_named_table(file: TensorFile) -> bool:
    return not {"csv", "tsv", "tab"}.isdisjoint(file.name.lower().split(".")[1:])


def _read_head(file: TensorFile) -> tuple[list[str] | None, str]:
    """Return the first lines of a text, and its encoding; None in place of them for no text."""
    with unpack(file) as stream:
        start = stream.read(4)
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding == "utf-8-sig" and b"\0" in start:
        return None, encoding
    lines, length = [], 0
    try:
        for line in _lines(file, encoding):
            lines.append(line)
            length += len(line)
            if len(lines) == _SNIFFED_LINES or length > _SNIFFED_CHARACTERS:
                break
    except UnicodeDecodeError as error:
        if _is_named_table(file):
            raise _encoding_error(file) from error
        return None, encoding
    if any(c in line for line in lines for c in "\0\x01\x02\x03\x04"):
        return None, encoding
    return lines, encoding


def _encoding_error(file: TensorFile) -> InputError:
    code = (
        f'import pandas; pandas.read_csv({python_text(path_of(file))}, sep=None, engine="python", '
        f'encoding="latin-1").to_csv({python_text(path_beside(file, ".csv"))}, index=False)'
    )
    return InputError(
        expected=f"text in UTF-8 in {file.name}",
        found="bytes of another encoding",
        fix=f"write it again: {python_line(code)}",
    )


def _lines(file: TensorFile, encoding: str) -> Iterator[str]:
    """Yield the lines of a text, none of which may be longer than fits into memory."""
    with unpack(file) as stream, io.TextIOWrapper(stream, encoding, newline="") as text:
        while line := text.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise InputError(
                    expected=f"lines of at most {_LONGEST_LINE:,} characters in {file.name}",
                    found="a longer one",
                    fix="save one sample a line, or the arrays with numpy.savez",
                )
            yield line


def _find_delimiter(lines: Sequence[str], *, named: bool) -> str | None:
    """Return the character between the cells of a table; None for another text.

    Args:
        lines: First lines of the text.
        named: True if the name of the file says that it is a table.
    """
    for delimiter in _DELIMITERS:
        try:
            rows = [row for row in _read_cells(lines, delimiter) if row]
        except csv.Error:  # a cell of more than 128 kB
            continue
        # The last line may go on beyond what was read, in a quoted cell.
        rows = rows[:-1] if len(lines) == _SNIFFED_LINES else rows
        is_table = len(rows) > 1 and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1
        if is_table and (delimiter != " " or all(map(_is_number, rows[1]))):
            return delimiter
    if not named or not lines:
        return None
    return max(",;\t", key=lines[0].count)  # a damaged table, whose fault is named by its row


def _read_cells(lines: Iterable[str], delimiter: str) -> Any:
    """Return a reader of rows; blanks after a delimiter, as those between columns, are skipped."""
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _is_missing(cell: str, marks: frozenset[str] = _MISSING_NUMBER) -> bool:
    return cell.strip().casefold() in marks


class _Table:
    """Table in a text file: its columns, and what its first rows say of them.

    Args:
        file: File of the table.
        encoding: Encoding of the text.
        delimiter: Character between the cells.
        head: First lines.
    """

    def __init__(
        self, file: TensorFile, encoding: str, delimiter: str, head: Sequence[str]
    ) -> None:
        self.file, self.encoding, self.delimiter = file, encoding, delimiter
        rows = [row for row in _read_cells(head, delimiter) if _is_filled(row)]
        first = [cell.strip() for cell in rows[0]] if rows else []
        if first and first[0].startswith("#"):  # as numpy.savetxt writes a header
            first[0] = first[0].lstrip("# ")
        self.has_header = not _is_row_of_data(first, rows[1:])
        self.names = first if self.has_header else [str(place) for place in range(len(first))]
        # The columns that pandas names so are those without a name, as its index is.
        self.names = [name or f"Unnamed: {place}" for place, name in enumerate(self.names)]
        self.first = [row for row in rows[self.has_header :] if len(row) == len(self.names)]
        if not self.first:
            raise InputError(
                expected=f"a line of names and lines of numbers in {file.name}",
                found=f"{len(rows)} line{'s' * (len(rows) != 1)}",
                fix="write one sample a line",
            )

    def kinds(self) -> dict[str, Cells]:
        """Return what the columns hold, by their names."""
        return {
            name: "numbers"
            if all(_is_number(row[place]) or _is_missing(row[place]) for row in self.first)
            else "other"
            for place, name in enumerate(self.names)
        }

    def first_values(self, name: str) -> list[Any]:
        """Return the first cells of a column: texts, or integers; nothing of other numbers."""
        place = self.names.index(name)
        cells = [row[place].strip() for row in self.first]
        if not any(map(_is_number, cells)):
            return cells
        numbers = [float(cell) if _is_number(cell) else math.nan for cell in cells]
        return list(map(int, numbers)) if all(map(float.is_integer, numbers)) else []

    def example(self, name: str) -> str:
        """Return the first cell of a column that is no number, and refuse decimal commas."""
        place = self.names.index(name)
        for row, cells in enumerate(self.first):
            cell = cells[place]
            if not _is_number(cell) and not _is_missing(cell):
                if self.delimiter != "," and _DECIMAL_COMMA.fullmatch(cell.strip()):
                    raise self._comma_error(name, cell, row)
                return f"{cell[:40]!r} at row {row}"
        return ""

    def _comma_error(self, name: str, cell: str, row: int) -> InputError:
        code = (
            f"{self._pandas(', decimal=' + python_text(','))}.to_csv({self._target()}, index=False)"
        )
        return InputError(
            expected=f"numbers with decimal points in {self.file.name}",
            found=f"the decimal comma of {cell[:40]!r} in the column {name!r} at row {row}",
            fix=f"write them with points: {python_line('import pandas; ' + code)}",
        )

    def _pandas(self, more: str = "") -> str:
        """Return the call of pandas that reads this table."""
        path = python_text(path_of(self.file))
        written = {" ": "\\s+"}.get(self.delimiter, self.delimiter)
        separator = "" if written == "," else f", sep={python_text(written)}"
        header = "" if self.has_header else ", header=None"
        return f"pandas.read_csv({path}{separator}{header}{more})"

    def _target(self) -> str:
        return python_text(path_beside(self.file, ".csv"))

    def read(self, features: Sequence[str], label: str | None) -> Iterator[tuple[Any, Any]]:
        """Yield features and labels by batches of rows.

        Args:
            features: Columns of the features; none to read the labels alone.
            label: Column of the labels; None to read the features alone.

        Raises:
            InputError: If a line has another number of cells, a cell is missing, or one holds text
                where the others hold numbers.
        """
        for name in (*features, *([] if label is None else [label])):
            if self.names.count(name) > 1:
                raise InputError(
                    expected=f"every column once in {self.file.name}",
                    found=f"{name!r} {self.names.count(name)} times",
                    fix="rename the columns, or choose others by --features and --labels",
                )
        places = [self.names.index(name) for name in features]
        place = None if label is None else self.names.index(label)
        missing: Counter[str] = Counter()
        first_missing = ""
        named: bool | None = None
        done = 0
        rows = self._rows()
        # A cell takes some ten times as much memory as a text as it takes as a number.
        step = max(1, rows_of_batch(len(places)) // 16)
        while chunk := list(islice(rows, step)):
            matrix = _to_numbers(chunk, places)
            words = None if place is None else [row[place].strip() for row in chunk]
            lost = [] if matrix is not None else list(self._list_missing(chunk, features, done))
            if words is not None and label is not None:
                lost += [(r, label, c) for r, c in enumerate(words) if _is_missing(c, _MISSING)]
            for row, name, cell in sorted(lost):
                missing[name] += 1
                first_missing = first_missing or f"{name!r} at row {done + row} ({cell!r})"
            classes: Any = None
            if words is not None and not missing:
                if named is None:
                    named = not all(map(_is_number, words))
                classes = np.array(words) if named else self._number_labels(words, label, done)
            done += len(chunk)
            # The other missing values are counted before the first is told.
            if not missing:
                yield matrix if features else None, classes
        if missing:
            raise self._missing_error(missing, first_missing)

    def _rows(self) -> Iterator[list[str]]:
        """Yield the cells of each row of data."""
        reader = _read_cells(_lines(self.file, self.encoding), self.delimiter)
        to_skip, row = int(self.has_header), 0
        while True:
            try:
                cells = next(reader, None)
            except UnicodeDecodeError as error:
                raise _encoding_error(self.file) from error
            except Exception:
                with explain_read_errors(self.file):
                    raise
            if cells is None:
                return
            if not _is_filled(cells):
                continue
            if to_skip:
                to_skip = 0
                continue
            if len(cells) != len(self.names):
                raise InputError(
                    expected=f"{len(self.names)} cells a line in {self.file.name}",
                    found=f"{len(cells)} at row {row} (line {reader.line_num})",
                    fix="correct the line, or save the table again",
                )
            row += 1
            yield cells

    def _list_missing(
        self, chunk: Sequence[Sequence[str]], features: Sequence[str], done: int
    ) -> Iterator[tuple[int, str, str]]:
        """Yield row, column and cell of missing numbers; refuse a text."""
        for name in features:
            place = self.names.index(name)
            for row, cells in enumerate(chunk):
                cell = cells[place]
                if _is_missing(cell):
                    yield row, name, cell
                elif not _is_number(cell):
                    if self.delimiter != "," and _DECIMAL_COMMA.fullmatch(cell.strip()):
                        raise self._comma_error(name, cell, done + row)
                    raise InputError(
                        expected=f"numbers in the columns of features of {self.file.name}",
                        found=f"{cell[:40]!r} in the column {name!r} at row {done + row}",
                        fix="correct the cell, or leave the column out by --features "
                        f"'!{name.replace(',', '?')}'",
                    )

    def _number_labels(self, words: Sequence[str], label: str | None, done: int) -> Any:
        for row, word in enumerate(words):
            if not _is_number(word):
                raise InputError(
                    expected=f"numbers in the column {label!r} of {self.file.name}, as in its "
                    "first rows",
                    found=f"{word[:40]!r} at row {done + row}",
                    fix="write names, or numbers, for all labels",
                )
        numbers = np.array([float(word) for word in words])
        whole = np.isfinite(numbers).all() and (abs(numbers) < 2**53).all()
        return numbers.astype(np.int64) if whole and (numbers == numbers.round()).all() else numbers

    def _missing_error(self, missing: Mapping[str, int], first: str) -> InputError:
        count = sum(missing.values())
        columns: list[Any] = list(missing)
        if not self.has_header:
            columns = list(map(int, columns))
        among = (
            ""
            if len(columns) > 8
            else "subset=["
            + ", ".join(python_text(c) if isinstance(c, str) else str(c) for c in columns)
            + "]"
        )
        marks = f", na_values={python_text('?')}"
        code = f"{self._pandas(marks)}.dropna({among}).to_csv({self._target()}, index=False)"
        return InputError(
            expected=f"a value in every cell of features and labels of {self.file.name}",
            found=f"{count:,} missing, the first in the column {first}",
            fix=f"drop these rows: {python_line('import pandas; ' + code)}",
        )


def _is_filled(cells: Iterable[str]) -> bool:
    return any(cell.strip() for cell in cells)


def _is_row_of_data(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line of a table holds data and no names.

    Names may be numbers too, but then they count the columns; or they rise, as years do, or stand
    beside a name of labels, and no other row has the words in the line.

    Args:
        first: Cells of the first line.
        others: Cells of the lines after it.
    """
    numbers = [cell for cell in first if _is_number(cell)]
    counted = [[str(start + place) for place in range(len(numbers))] for start in (0, 1)]
    if not numbers or numbers in counted:
        return False
    words = {place: cell for place, cell in enumerate(first) if not _is_number(cell) and cell}
    repeated = any(row[p].strip() == word for row in others for p, word in words.items() if row[p:])
    if not words or repeated:
        return True
    rising = len(numbers) > 2 and all(a < b for a, b in pairwise(map(float, numbers)))
    return not rising and not any(w.casefold() in (*LABELS, *MORE_LABELS) for w in words.values())


def _to_numbers(chunk: Sequence[Sequence[str]], places: Sequence[int]) -> Any:
    """Return the numbers in some columns of rows; None if a cell holds none."""
    if not places:
        return np.empty((len(chunk), 0))
    take = itemgetter(*places) if len(places) > 1 else (lambda row: (row[places[0]],))
    flat = list(chain.from_iterable(map(take, chunk)))
    # Python takes 1_000 for a number; in a table it is a text.
    if "_" in "".join(flat):
        return None
    try:
        numbers = np.fromiter(map(float, flat), np.float64, len(flat))
    except ValueError:
        return None
    return None if np.isnan(numbers).any() else numbers.reshape(len(chunk), -1)
