"""A file of labelled features that is read batch by batch, of any kind."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncscope.errors import InputError

BATCH_BYTES = 32 * 2**20
MOST_ROWS = 65_536
"""Bytes of features in float64, and rows, that a batch has at most."""


@dataclass(frozen=True)
class SampleFile:
    """Labelled features in a file, of which the beginning was read.

    Attributes:
        batches: Function that yields features and labels by batches of rows; the features are None
            if it is called with False, which reads the labels alone.
        size: Bytes of the features in float64, at most; 0 for a file that is read whole.
        notes: Sentence that says what was taken as features and labels, if it is in doubt.
        columns: Names of the columns of features of a table; none if an array holds them.
    """

    batches: Callable[[bool], Iterator[tuple[Any, Any]]]
    size: int = 0
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def in_order(self, columns: Sequence[str], name: str) -> "SampleFile":
        """Return the file with its columns of features in the order of another table's.

        Args:
            columns: Names of the columns of the other table; none if an array holds its features.
            name: Name of this file, for messages.

        Raises:
            InputError: If the two have other columns of features.
        """
        if not columns or not self.columns or self.columns == tuple(columns):
            return self
        if sorted(self.columns) != sorted(columns):
            lacking = [column for column in columns if column not in self.columns]
            more = [column for column in self.columns if column not in columns]
            found = f"no {lacking[0]!r}" if lacking else f"{more[0]!r} too"
            raise InputError(
                expected=f"the columns of features of the first file in {name}",
                found=f"{found} ({len(self.columns)} columns)",
                fix="choose columns that all files have by --features (in Python features=), or "
                "give the columns the same names",
            )
        places = [self.columns.index(column) for column in columns]

        def read(whole: bool) -> Iterator[tuple[Any, Any]]:
            for rows, labels in self.batches(whole):
                yield None if rows is None else rows[:, places], labels

        return replace(self, batches=read, columns=tuple(columns))


@dataclass(frozen=True)
class Categories:
    """Labels as numbers of named categories, as `ncscope.labels.read_labels` takes them.

    Attributes:
        codes: Number of each sample's category.
        categories: Names in the order of the numbers.
        has_marks: True if numbers without a name are marks of samples to leave out.
    """

    codes: np.ndarray[Any, np.dtype[Any]]
    categories: tuple[str, ...]
    has_marks: bool = False

    def __len__(self) -> int:
        return len(self.codes)


def rows_of_batch(dim: int, most: int = MOST_ROWS) -> int:
    """Return the number of rows that a batch of features has.

    Args:
        dim: Number of features.
        most: Largest number of rows.
    """
    return max(1, min(most, BATCH_BYTES // (8 * max(1, dim))))


def is_named(labels: Any) -> bool:
    """Return whether labels are names, and not numbers."""
    return isinstance(labels, Categories) or (
        isinstance(labels, np.ndarray) and labels.dtype.kind in "US"
    )


def flatten_labels(labels: Any) -> Any:
    """Return labels of one column, or of one row as MATLAB's are, as a plain list of labels.

    Args:
        labels: Array or tensor of any shape, or categories.
    """
    shape: Any = getattr(labels, "shape", ())
    if len(shape) == 2 and shape[1] == 1:
        return labels[:, 0]
    return labels[0] if len(shape) == 2 and shape[0] == 1 else labels


def join_labels(parts: Sequence[Any]) -> Any:
    """Return the labels of several batches as one array, or as categories if they have the same."""
    orders = {part.categories for part in parts if isinstance(part, Categories)}
    if len(orders) == 1 and all(isinstance(part, Categories) for part in parts):
        codes = np.concatenate([part.codes for part in parts])
        return Categories(codes, orders.pop(), any(part.has_marks for part in parts))
    if not all(map(is_named, parts)):  # numbers, of which those of some batches have names
        parts = [part.codes if isinstance(part, Categories) else part for part in parts]
    return np.concatenate([name_labels(part) for part in parts])


def name_labels(labels: Any) -> Any:
    """Return names as text, also those of categories and of bytes; numbers as they are.

    A number without a name, which marks a sample to leave out, becomes its digits.
    """
    if isinstance(labels, Categories):
        names = dict(enumerate(labels.categories))
        return np.array([names.get(code, str(code)) for code in labels.codes.tolist()])
    is_bytes = isinstance(labels, np.ndarray) and labels.dtype.kind == "S"
    return np.char.decode(labels, "utf-8", "replace") if is_bytes else labels
