"""Parquet: columns of numbers or one of lists, read by batches of rows."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from ncscope.api.columns import Cells, choose_columns, refuse_repeats
from ncscope.api.files import explain_read_errors
from ncscope.api.other_files import path_beside, path_of
from ncscope.api.sample_file import MOST_ROWS, Categories, SampleFile, rows_of_batch
from ncscope.errors import InputError, import_library
from ncscope.file_kinds import python_line, python_text
from ncscope.memory import check_memory
from ncscope.tensor_files import TensorFile

_LOOKED_AT = 100
"""Rows in which a column is looked at that may be no feature."""


def open_parquet(
    file: TensorFile,
    features: str | None = None,
    labels: str | None = None,
    *,
    labelled: bool = True,
) -> SampleFile:
    """Open a Parquet file.

    Args:
        file: File of that kind.
        features: Columns of the features, as for `choose_columns`.
        labels: Column of the labels.
        labelled: False if the features alone are wanted.

    Raises:
        InputError: If the library pyarrow is missing, the file is damaged, or has no such columns.
    """
    with _open(file) as table:
        schema, rows, size = table.schema_arrow, table.metadata.num_rows, _lengths(table)
        columns = {field.name: _kind(field.type) for field in schema}

        @cache
        def first_values(name: str) -> list[Any]:
            from pyarrow import types

            kind = schema.types[schema.names.index(name)]
            if columns[name] == "lists" or types.is_floating(kind):
                return []
            batch = next(table.iter_batches(_LOOKED_AT, columns=[name]), None)
            # A column that occurs twice is refused later.
            return [] if batch is None or batch.num_columns != 1 else batch.column(0).to_pylist()

        choice = choose_columns(
            columns,
            file.name,
            features,
            labels,
            labelled=labelled,
            first=first_values,
            example=lambda name: str(schema.field(name).type),
        )
    names = [*choice.features, *([] if choice.labels is None else [choice.labels])]
    twice = next((name for name in names if schema.names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            expected=f"every column once in {file.name}",
            found=f"{twice!r} {schema.names.count(twice)} times",
            fix="rename the columns",
        )
    if choice.labels is not None:
        _check_labels(schema.field(choice.labels), file.name)
    dim = len(choice.features)
    of_lists = columns[choice.features[0]] == "lists"
    if of_lists:
        dim = size[choice.features[0]]
    return SampleFile(
        lambda whole: refuse_repeats(
            _read(file, choice.features if whole else (), choice.labels, dim),
            choice,
            file.name,
            features,
        ),
        size=8 * dim * rows,
        notes=choice.notes,
        columns=() if of_lists else choice.features,
    )


@contextmanager
def _open(file: TensorFile) -> Iterator[Any]:
    parquet = import_library("pyarrow.parquet")
    # Pages without a checksum, as most writers leave them by default, are read as they are.
    with (
        explain_read_errors(file),
        file.open() as stream,
        parquet.ParquetFile(stream, page_checksum_verification=True) as table,
    ):
        yield table


def _kind(column: Any) -> Cells:
    from pyarrow import types

    if _is_number(column):
        return "numbers"
    fixed = types.is_fixed_size_list(column)
    if fixed or types.is_list(column) or types.is_large_list(column):
        empty = fixed and not column.list_size
        return "lists" if _is_number(column.value_type) and not empty else "other"
    return "other"


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return types.is_integer(kind) or types.is_floating(kind)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _check_labels(field: Any, file: str) -> None:
    """Refuse a column of labels that are neither numbers nor names."""
    from pyarrow import types

    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if not (_is_number(kind) or _is_text(kind) or types.is_boolean(kind)):
        raise InputError(
            expected=f"class indices or names in the column {field.name!r} of {file}",
            found=str(field.type),
            fix="choose another column by --labels, or write class indices",
        )


def _lengths(table: Any) -> dict[str, int]:
    """Return the length of the lists in each column of lists.

    Lists that may differ in length have the greatest mean length of a group of rows, at least 1:
    the file says no more before it is read.
    """
    from pyarrow import types

    lengths = {}
    for field in table.schema_arrow:
        if _kind(field.type) == "lists":
            fixed = types.is_fixed_size_list(field.type)
            lengths[field.name] = int(field.type.list_size) if fixed else 1
    for index in range(table.metadata.num_row_groups if lengths else 0):
        group = table.metadata.row_group(index)
        for column in (group.column(place) for place in range(group.num_columns)):
            name = column.path_in_schema.partition(".")[0]
            if name in lengths:
                mean = -(-column.num_values // max(1, group.num_rows))
                lengths[name] = max(lengths[name], mean)
    return lengths


def _read(
    file: TensorFile, features: Sequence[str], labels: str | None, dim: int
) -> Iterator[tuple[Any, Any]]:
    """Yield features and labels by batches of rows."""
    columns = [*features, *([] if labels is None else [labels])]
    done = 0
    with _open(file) as table:
        rows = rows_of_batch(dim if features else 1, MOST_ROWS)
        # A column of one repeated number takes a few bytes, whatever its length.
        if features:
            what = f"{rows:,} rows of {file.name}"
            check_memory(8 * dim * rows, what, "write shorter lists")
        names = None if labels is None else _class_names(table.schema_arrow, labels)
        ordered = labels is not None and _is_categorical(table.schema_arrow, labels)
        for batch in table.iter_batches(rows, columns=columns):
            parts = [batch.column(name) for name in features]
            for name, part in zip(features, parts, strict=True):
                _refuse_missing(part, name, file, done)
            classes = None
            if labels is not None:
                _refuse_missing(batch.column(labels), labels, file, done)
                classes = _to_labels(batch.column(labels), names, ordered)
            matrix = None
            if features and _kind(parts[0].type) == "lists":
                matrix = _to_matrix(parts[0], features[0], file, done)
            elif features:
                matrix = np.column_stack([p.to_numpy(zero_copy_only=False) for p in parts])
            done += len(batch)
            yield matrix, classes


def _to_matrix(column: Any, name: str, file: TensorFile, done: int) -> Any:
    # A missing row has no values in the flat column: the reshape would deal out those of
    # the other rows to all. A missing value would become NaN.
    values = column.flatten()
    _refuse_missing(values, name, file, done, rows=len(column))
    lengths = column.value_lengths().unique()
    if len(lengths) > 1:
        raise InputError(
            expected=f"features of one length in {file.name}",
            found=f"lengths {lengths[0]} and {lengths[1]}",
            fix="write every sample as one fixed-size list",
        )
    return values.to_numpy(zero_copy_only=False).reshape(len(column), -1)


def _to_labels(column: Any, names: tuple[str, ...] | None, ordered: bool) -> Any:
    """Return labels; names have an order if they are declared, or are categories of pandas."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        # Other libraries write a dictionary in the order in which its names occur.
        if ordered and _is_text(column.type.value_type):
            codes = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            return Categories(codes, tuple(column.dictionary.to_pylist()))
        column = column.dictionary_decode()
    if _is_text(column.type):
        return np.array(column.to_pylist(), dtype=np.str_)
    numbers = column.to_numpy(zero_copy_only=False)
    return Categories(numbers, names, has_marks=True) if names else numbers


def _is_categorical(schema: Any, labels: str) -> bool:
    """Return whether pandas wrote a column as categories, whose order is that of the classes."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        columns = json.loads(schema.metadata[b"pandas"])["columns"]
        kinds = [each["pandas_type"] for each in columns if each["name"] == labels]
        return kinds == ["categorical"]
    return False


def _class_names(schema: Any, labels: str) -> tuple[str, ...] | None:
    """Return the names that the library `datasets` wrote for the numbers of a column."""
    from pyarrow import types

    if not types.is_integer(schema.field(labels).type):
        return None
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        content = json.loads(schema.metadata[b"huggingface"])
        names = content["info"]["features"][labels]["names"]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return tuple(names)
    return None


def _refuse_missing(
    values: Any, column: str, file: TensorFile, done: int, rows: int | None = None
) -> None:
    """Refuse values that are missing, and say how many of these rows, and where the first is."""
    # In files of pandas a missing label is NaN.
    gaps = values.is_null(nan_is_null=True)
    count = gaps.true_count
    if not count:
        return
    first = gaps.to_pylist().index(True)
    if rows:  # of the flat values of lists
        first //= max(1, len(values) // rows)
    code = (
        f"import pandas; pandas.read_parquet({python_text(path_of(file))}).dropna("
        f"subset=[{python_text(column)}]).to_parquet({python_text(path_beside(file, '.parquet'))}, "
        "index=False)"
    )
    raise InputError(
        expected=f"a value in every row of the column {column!r} of {file.name}",
        found=f"{count} missing, the first at row {done + first}",
        fix=f"drop them: {python_line(code)}" if rows is None else "drop these samples",
    )
