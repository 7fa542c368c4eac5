"""Shards of a data set: files, addresses and iterables of labelled features, read batch by batch.

Parquet is read by batches of rows, so that a shard may be larger than the memory; a shard of
another kind is read whole. Nothing is ever unpickled.
"""

from collections.abc import Callable, Iterable, Iterator
from glob import glob, has_magic
from pathlib import Path
from typing import Any, TypeAlias

from ncscope.api.files import SAMPLES, explain_read_errors, load_classifier, load_samples
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
        return _read_batches(str(shard))
    batches = shard() if callable(shard) else shard
    if not isinstance(batches, Iterable):
        fix = "let the function of a shard return a list of pairs of features and labels"
        raise InputError(expected="batches", found=describe(batches), fix=fix)
    return batches


def shard_name(shard: Shard) -> str:
    """Return the name of a shard for messages: of a file its base name, else an empty text."""
    return str(shard).rpartition("/")[2] if isinstance(shard, str | Path) else ""


def expand_patterns(patterns: Iterable[str]) -> list[str]:
    """Return the files that patterns name, each once, those of one pattern in order of name.

    Args:
        patterns: Paths, addresses such as ``s3://bucket/*.parquet``, and patterns of both.

    Raises:
        InputError: If a pattern names no file, or two patterns name one file.
    """
    files: list[str] = []
    for pattern in patterns:
        matches = _find_matches(pattern)
        if not matches:
            fix = "check the pattern, and quote it so that the shell leaves it alone"
            raise InputError(expected=f"files that match {pattern}", found="none", fix=fix)
        files += matches
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
    with explain_read_errors(TensorFile(shard_name(file))):
        start = b"" if describe_fault(Path(file)) else TensorFile.at(file).read_start(len(_PARQUET))
        return start == _PARQUET


def shard_identity(file: str) -> str:
    """Return a text that differs if a file is another, or has changed in size or date."""
    if is_address(file):
        with explain_read_errors(TensorFile(shard_name(file))):
            system, path = _open_file_system(file)
            info = system.info(path)
            # The library's key of a file over http is that of the address alone, as if the content
            # never changed; size and headers tell another version.
            version = {name: info[name] for name in _VERSION if name in info}
            return f"{file} {system.ukey(path)} {version}"
    with explain_read_errors(TensorFile(shard_name(file))):
        state = Path(file).stat()
    return f"{Path(file).absolute()} {state.st_size} {state.st_mtime_ns}"


def load_shard_classifier(file: str) -> dict[str, Any]:
    """Return the entries ``weight`` and ``bias`` of a shard, as far as it has them."""
    shard = _fetch_file(file)
    with explain_read_errors(shard):
        if shard.read_start(len(_PARQUET)) == _PARQUET:
            return {}
    return load_classifier(shard, required=())


def _find_matches(pattern: str) -> list[str]:
    if is_plain(pattern) or not has_magic(pattern):
        return [pattern]
    if not is_address(pattern):
        # Path.glob takes no absolute patterns.
        return sorted(glob(pattern, recursive=True))  # noqa: PTH207
    with explain_read_errors(TensorFile(pattern)):
        system, path = _open_file_system(pattern)
        return sorted(map(system.unstrip_protocol, system.glob(path)))


def is_address(file: str) -> bool:
    """Return whether a file is named by an address with a protocol, such as ``s3://``."""
    return "://" in file


def _open_file_system(address: str) -> tuple[Any, str]:
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
        expected = f"an address that fsspec opens for {shard_name(address)}"
        raise InputError(expected=expected, found=str(error), fix=fix) from error
    except ImportError as error:  # the library of one protocol, such as s3fs
        expected = f"a library that opens {protocol}://"
        raise InputError(expected=expected, found="none", fix=str(error)) from error


def _fetch_file(file: str) -> TensorFile:
    """Return a file on disk, or the bytes at an address."""
    if not is_address(file):
        on_disk = TensorFile.at(file)
        check_exists(on_disk)
        return on_disk
    with explain_read_errors(TensorFile(shard_name(file))):
        system, path = _open_file_system(file)
        return TensorFile(shard_name(file), content=system.cat_file(path))


def _read_batches(file: str) -> Iterator[Any]:
    """Yield the batches of a file, whose kind is judged by its content."""
    source = TensorFile(shard_name(file))
    if is_address(file):
        with explain_read_errors(source):
            system, path = _open_file_system(file)
            stream = system.open(path, "rb")
    else:
        on_disk = _fetch_file(file)
        with explain_read_errors(source):
            stream = on_disk.open()
    with stream:
        with explain_read_errors(source):
            parquet = stream.read(len(_PARQUET)) == _PARQUET
            stream.seek(0)
        if parquet:
            yield from _read_parquet(stream, source)
            return
    entries = load_samples(_fetch_file(file))
    yield entries["features"], entries["labels"]


def _read_parquet(stream: Any, file: TensorFile) -> Iterator[tuple[Any, Any]]:
    """Yield the columns ``features`` and ``labels`` of a Parquet file, by batches of rows."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise library_error(name="pyarrow") from error
    # Pages without a checksum, as most writers leave them by default, are read as they are.
    checked = {"page_checksum_verification": True}
    with explain_read_errors(file), parquet.ParquetFile(stream, **checked) as table:
        dim = _check_columns(table, file.name)
        rows = max(1, min(_MOST_ROWS, _BATCH_BYTES // (8 * dim)))
        # A column of one repeated number takes a few bytes, whatever its length.
        check_memory(8 * dim * rows, f"{rows:,} rows of {file.name}", "write shorter lists")
        for batch in table.iter_batches(rows, columns=list(SAMPLES)):
            features, labels = (batch.column(name) for name in SAMPLES)
            _refuse_missing(labels, "labels", file.name)
            # A missing row has no values in the flat column: the reshape would deal out those of
            # the other rows to all. A missing value would become NaN.
            values = features.flatten()
            _refuse_missing(features, "features", file.name)
            _refuse_missing(values, "features", file.name)
            lengths = features.value_lengths().unique()
            if len(lengths) > 1:
                expected = f"features of one length in {file.name}"
                found = f"lengths {lengths[0]} and {lengths[1]}"
                fix = "write every sample as one fixed-size list"
                raise InputError(expected=expected, found=found, fix=fix)
            matrix = values.to_numpy(zero_copy_only=False).reshape(len(features), -1)
            yield matrix, labels.to_numpy(zero_copy_only=False)


def _check_columns(table: Any, name: str) -> int:
    """Check the types of the two columns, and return the length of the lists of features.

    Lists that may differ in length have the greatest mean length of a group of rows, at least 1:
    the file says no more before it is read.

    Raises:
        InputError: If a column is missing or of another type.
    """
    from pyarrow import types

    schema = table.schema_arrow
    if any(schema.names.count(entry) != 1 for entry in SAMPLES):
        expected = f"columns 'features' and 'labels' in {name}"
        found = f"columns {', '.join(schema.names) or 'none'}"
        raise InputError(expected=expected, found=found, fix="rename the columns")
    features, labels = (schema.field(entry).type for entry in SAMPLES)
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
    if fixed:
        return int(features.list_size)
    longest = 1
    for index in range(table.metadata.num_row_groups):
        group = table.metadata.row_group(index)
        columns = [group.column(place) for place in range(group.num_columns)]
        for column in columns:
            if column.path_in_schema.startswith("features."):
                longest = max(longest, -(-column.num_values // max(1, group.num_rows)))
    return longest


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return types.is_integer(kind) or types.is_floating(kind)


def _refuse_missing(values: Any, column: str, name: str) -> None:
    if values.null_count:
        expected = f"a value in every row of the column {column!r} of {name}"
        raise InputError(expected=expected, found=f"{values.null_count} missing", fix="drop them")
