"""Shards of a data set: files, addresses and iterables of labelled features, read batch by batch.

Parquet is read by batches of rows, so that a shard may be larger than the memory; a shard of
another kind is read whole. Nothing is ever unpickled.
"""

from collections.abc import Callable, Iterable, Iterator
from glob import glob, has_magic
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ncscope.api.files import ENTRIES, load_classifier, load_samples, reading
from ncscope.arguments import describe
from ncscope.errors import InputError, library_error
from ncscope.files import describe_fault
from ncscope.memory import check_memory
from ncscope.tensor_files import TensorFile, check_exists

Shard: TypeAlias = str | Path | Iterable[Any] | Callable[[], Iterable[Any]]
"""Path or address of a file; iterable of batches; or function that returns such an iterable."""

_PARQUET = b"PAR1"
_BATCH_BYTES = 32 * 2**20
_MOST_ROWS = 65_536
_VERSION = ("size", "ETag", "Last-Modified", "Content-MD5", "Digest")


def batches_of(shard: Shard) -> Iterable[Any]:
    """Return the batches of a shard.

    Args:
        shard: Path or address of an .npz, .safetensors, torch.save or Parquet file; iterable of
            batches; or function without arguments that returns such an iterable.

    Raises:
        InputError: If the file is missing, damaged or of another kind, or lacks an entry; or if the
            function returns no iterable.
    """
    if isinstance(shard, str | Path):
        return _batches_in(str(shard))
    batches = shard() if callable(shard) else shard
    if not isinstance(batches, Iterable):
        fix = "let the function of a shard return a list of pairs of features and labels"
        raise InputError(expected="batches", found=describe(batches), fix=fix)
    return batches


def name_of(shard: Shard) -> str:
    """Return the name of a shard for messages: of a file its base name, else an empty text."""
    return str(shard).rpartition("/")[2] if isinstance(shard, str | Path) else ""


def expanded(patterns: Iterable[str]) -> list[str]:
    """Return the files that patterns name, each once, those of one pattern in order of name.

    Args:
        patterns: Paths, addresses such as ``s3://bucket/*.parquet``, and patterns of both.

    Raises:
        InputError: If a pattern names no file, or two patterns name one file.
    """
    files: list[str] = []
    for pattern in patterns:
        found = _matches(pattern)
        if not found:
            fix = "check the pattern, and quote it so that the shell leaves it alone"
            raise InputError(expected=f"files that match {pattern}", found="none", fix=fix)
        files += found
    for file in files:
        if files.count(file) > 1:
            fix = "name it once: its samples would count twice"
            raise InputError(expected="every shard once", found=f"{file} twice", fix=fix)
    return files


def is_plain(pattern: str) -> bool:
    """Return whether a text is the path of one file: no address, and no pattern of several."""
    return not is_address(pattern) and (not has_magic(pattern) or Path(pattern).exists())


def is_parquet(file: str) -> bool:
    """Return whether a file on disk is one of Parquet, judged by its content."""
    with reading(TensorFile(name_of(file))):
        start = b"" if describe_fault(Path(file)) else TensorFile.at(file).read_start(len(_PARQUET))
        return start == _PARQUET


def identity_of(file: str) -> str:
    """Return a text that differs if a file is another, or has changed in size or date."""
    if is_address(file):
        with reading(TensorFile(name_of(file))):
            system, path = _opened_by(file)
            known = system.info(path)
            # The key alone is that of the address where the library takes files for static (http).
            version = {name: known[name] for name in _VERSION if name in known}
            return f"{file} {system.ukey(path)} {version}"
    with reading(TensorFile(name_of(file))):
        state = Path(file).stat()
    return f"{Path(file).absolute()} {state.st_size} {state.st_mtime_ns}"


def classifier_in(file: str) -> dict[str, Any]:
    """Return the entries ``weight`` and ``bias`` of a shard, as far as it has them."""
    saved = _saved(file)
    with reading(saved):
        if saved.read_start(len(_PARQUET)) == _PARQUET:
            return {}
    return load_classifier(saved, required=())


def _matches(pattern: str) -> list[str]:
    if is_plain(pattern) or not has_magic(pattern):
        return [pattern]
    if not is_address(pattern):
        # Not Path.glob, which takes no absolute patterns.
        return sorted(glob(pattern, recursive=True))  # noqa: PTH207
    with reading(TensorFile(pattern)):
        system, path = _opened_by(pattern)
        return sorted(map(system.unstrip_protocol, system.glob(path)))


def is_address(file: str) -> bool:
    """Return whether a file is named by an address with a protocol, such as ``s3://``."""
    return "://" in file


def _opened_by(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise library_error(name="fsspec") from error
    protocol = address.partition("://")[0]
    try:
        return fsspec.core.url_to_fs(address)
    except ValueError as error:  # no such protocol
        fix = "write file://, s3://, gs://, https:// or another protocol of fsspec"
        expected = f"an address that fsspec opens for {name_of(address)}"
        raise InputError(expected=expected, found=str(error), fix=fix) from error
    except ImportError as error:  # the library of one protocol, such as s3fs
        expected = f"a library that opens {protocol}://"
        raise InputError(expected=expected, found="none", fix=str(error)) from error


def _saved(file: str) -> TensorFile:
    """Return a file on disk, or the bytes at an address."""
    if not is_address(file):
        saved = TensorFile.at(file)
        check_exists(saved)
        return saved
    with reading(TensorFile(name_of(file))):
        system, path = _opened_by(file)
        return TensorFile(name_of(file), content=system.cat_file(path))


def _batches_in(file: str) -> Iterator[Any]:
    """Yield the batches of a file, whose kind is judged by its content."""
    named = TensorFile(name_of(file))
    if is_address(file):
        with reading(named):
            system, path = _opened_by(file)
            stream = system.open(path, "rb")
    else:
        saved = _saved(file)
        with reading(named):
            stream = saved.open()
    with stream:
        with reading(named):
            parquet = stream.read(len(_PARQUET)) == _PARQUET
            stream.seek(0)
        if parquet:
            yield from _rows_of_parquet(stream, named)
            return
    entries = load_samples(_saved(file))
    yield entries["features"], entries["labels"]


def _rows_of_parquet(stream: Any, file: TensorFile) -> Iterator[tuple[Any, Any]]:
    """Yield the columns ``features`` and ``labels`` of a Parquet file, by batches of rows."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise library_error(name="pyarrow") from error
    # Pages without a checksum, as most writers leave them by default, are read as they are.
    checked = {"page_checksum_verification": True}
    with reading(file), parquet.ParquetFile(stream, **checked) as table:
        dim = _checked_dimension(table, file.name)
        rows = max(1, min(_MOST_ROWS, _BATCH_BYTES // (8 * dim)))
        # A column of one repeated number takes a few bytes, whatever its length.
        check_memory(8 * dim * rows, f"{rows:,} rows of {file.name}", "write shorter lists")
        for batch in table.iter_batches(rows, columns=list(ENTRIES[:2])):
            features, labels = (batch.column(name) for name in ENTRIES[:2])
            _refuse_missing(labels, "labels", file.name)
            yield _matrix(features, file.name), labels.to_numpy(zero_copy_only=False)


def _checked_dimension(table: Any, name: str) -> int:
    """Check the types of the two columns, and return the length of the lists, 1 if none is there.

    Raises:
        InputError: If a column is missing or of another type.
    """
    from pyarrow import types

    schema = table.schema_arrow
    if any(schema.names.count(entry) != 1 for entry in ENTRIES[:2]):
        expected = f"columns 'features' and 'labels' in {name}"
        found = f"columns {', '.join(schema.names) or 'none'}"
        raise InputError(expected=expected, found=found, fix="rename the columns")
    features, labels = (schema.field(entry).type for entry in ENTRIES[:2])
    fixed = types.is_fixed_size_list(features)
    lists = fixed or types.is_list(features) or types.is_large_list(features)
    empty = fixed and not features.list_size
    if empty or not lists or not _is_number(features.value_type):
        expected = f"lists of numbers in the column 'features' of {name}"
        fix = "write every sample as one fixed-size list"
        raise InputError(expected=expected, found=str(features), fix=fix)
    if not _is_number(labels):
        expected = f"integers in the column 'labels' of {name}"
        raise InputError(expected=expected, found=str(labels), fix="write class indices")
    return features.list_size if fixed else _length_of_lists(table.metadata)


def _length_of_lists(metadata: Any) -> int:
    """Return the greatest mean length of the lists of features in a group of rows, at least 1."""
    longest = 1
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        columns = (group.column(place) for place in range(group.num_columns))
        for column in columns:
            if column.path_in_schema.startswith("features."):
                longest = max(longest, -(-column.num_values // max(1, group.num_rows)))
    return longest


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return types.is_integer(kind) or types.is_floating(kind)


def _matrix(column: Any, name: str) -> "np.ndarray[Any, np.dtype[Any]]":
    """Return a column of lists of one length as a matrix, without a copy.

    Raises:
        InputError: If a value is missing, or the lengths differ.
    """
    values = column.flatten()
    _refuse_missing(column, "features", name)
    _refuse_missing(values, "features", name)
    lengths = column.value_lengths().unique()
    if len(lengths) > 1:
        found = f"lengths {lengths[0]} and {lengths[1]}"
        fix = "write every sample as one fixed-size list"
        raise InputError(expected=f"features of one length in {name}", found=found, fix=fix)
    return values.to_numpy(zero_copy_only=False).reshape(len(column), -1)


def _refuse_missing(values: Any, column: str, name: str) -> None:
    if values.null_count:
        expected = f"a value in every row of the column {column!r} of {name}"
        raise InputError(expected=expected, found=f"{values.null_count} missing", fix="drop them")
