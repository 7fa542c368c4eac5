"""Rows of numbers as CSV and as data frames, and files that are read again."""

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ncscope.errors import InputError, printable

if TYPE_CHECKING:
    import pandas

Content = TypeVar("Content")
Value = TypeVar("Value")


class Table(ABC):
    """Object that has rows of named cells, such as a report."""

    @abstractmethod
    def rows(self) -> list[dict[str, object]]:
        """Return the rows of the table."""

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return `rows` as a pandas data frame.

        Raises:
            InputError: If pandas is not installed.
        """
        return data_frame(self.rows())


class MappingTable(Table, Mapping[str, Value]):
    """Table that is also a mapping from key to value.

    A subclass sets ``_content`` in its constructor.
    """

    _content: Mapping[str, Value]

    def __getitem__(self, key: str) -> Value:
        try:
            return self._content[key]
        except KeyError:
            raise KeyError(self._explain_absence(key)) from None

    # Mapping's own would look the key up by __getitem__, which explains an absence at length.
    def __contains__(self, key: object) -> bool:
        return key in self._content

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    @abstractmethod
    def _explain_absence(self, key: str) -> object:
        """Return the argument of the KeyError for a key that is not there: a sentence, or the key.

        Args:
            key: Key that was asked for.
        """


def csv_text(rows: Sequence[Mapping[str, object]], columns: Sequence[str] | None = None) -> str:
    """Write rows as CSV with a column for every name; a cell that a row lacks is empty.

    Text is `printable`: a line break, a NUL or half a character of UTF-16 is an escape. Text that a
    spreadsheet would compute, because it begins with ``=``, ``+``, ``-`` or ``@`` and is no number,
    gets an apostrophe before.

    Args:
        rows: Rows of the table.
        columns: Names to write, in their order, of which a name without a cell is left out; None
            for all.
    """
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    if columns is not None:
        names = [name for name in dict.fromkeys(columns) if name in names]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_quote_formula, names))
    writer.writerows([_quote_formula(row.get(name, "")) for name in names] for row in rows)
    return text.getvalue()


def _quote_formula(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    if not text.startswith(("=", "+", "-", "@")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def data_frame(rows: Sequence[Mapping[str, object]]) -> "pandas.DataFrame":
    """Return rows as a pandas data frame.

    Args:
        rows: Rows of the table.

    Raises:
        InputError: If pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        fix = "pip install pandas, or save as .csv"
        found = "that it is not installed"
        raise InputError(expected="the library pandas", found=found, fix=fix) from error
    return pandas.DataFrame(rows)


def parse_content(
    parse: Callable[[bytes], Content], content: bytes, *, expected: str, name: str, fix: str
) -> Content:
    """Parse the content of a file, and turn every failure into an InputError of one line.

    Args:
        parse: Function that parses the content.
        content: Content of the file.
        expected: Description of the content, for the message.
        name: Name of the file, for the message.
        fix: Remedy, for the message.

    Raises:
        InputError: If the content is something else.
    """
    if content.lstrip()[:1] == b"<":
        fix = "pass the .json"
        raise InputError(expected=expected, found=f"an HTML page, {name}", fix=fix)
    try:
        return parse(content)
    # RecursionError: JSON nested a thousand deep; OverflowError: a whole number beyond all floats.
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        reason = f"nothing named {error}" if isinstance(error, KeyError) else error
        raise InputError(expected=expected, found=f"{name}: {reason}", fix=fix) from error
