"""Shards of a data set: files, addresses and iterables of labelled features, read batch by batch.

Parquet, HDF5, CSV and .npy are read by batches of rows, so that a shard may be larger than the
memory; a shard of another kind is read whole. Nothing is ever unpickled.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import has_magic
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ncscope.api.files import explain_read_errors, load_array, load_classifier
from ncscope.api.readable import is_address, is_plain
from ncscope.api.sample_file import (
    SampleFile,
    flatten_labels,
    rows_of_batch,
)
from ncscope.api.samples import open_samples
from ncscope.arguments import describe
from ncscope.errors import InputError, import_library, list_names
from ncscope.files import find_matches, refuse_pattern
from ncscope.tensor_files import TensorFile, check_exists, detect_kind

Shard: TypeAlias = (
    str | Path | tuple[str | Path, str | Path] | Iterable[Any] | Callable[[], Iterable[Any]]
)
"""Path or address of a file, or of two .npy files of features and labels; iterable of batches; or
function that returns such an iterable."""

_VERSION = ("size", "ETag", "Last-Modified", "Content-MD5", "Digest")


@dataclass(frozen=True)
class Columns:
    """Parts of files that hold the features and the labels.

    Attributes:
        features: Name or pattern of the features, as for `open_samples`.
        labels: Name of the labels.
        order: Columns of the features of tables, in the order in which they are read; none for
            that of each table.
    """

    features: str | None = None
    labels: str | None = None
    order: tuple[str, ...] = ()


EVERYTHING = Columns()
"""Features and labels under customary names."""


def batches_of(
    shard: Shard, columns: Columns = EVERYTHING, labels_only: bool = False
) -> Iterable[Any]:
    """Return the batches of a shard.

    Args:
        shard: Path or address of a file of any kind that `open_samples` reads; pair of paths of
            .npy files; iterable of batches; or function without arguments that returns such an
            iterable.
        columns: Parts of a file that hold features and labels.
        labels_only: Read no features of a file if True: they are None.

    Raises:
        InputError: If the file is missing, damaged or of another kind, or lacks an entry; or if the
            function returns no iterable.
    """
    if is_file_shard(shard):
        return _read_batches(shard, columns, labels_only)
    batches = shard() if callable(shard) else shard
    if not isinstance(batches, Iterable):
        fix = "let the function of a shard return a list of pairs of features and labels"
        raise InputError(expected="batches", found=describe(batches), fix=fix)
    return batches


def is_file_shard(shard: Any) -> bool:
    """Return whether a shard is a file, or two files of features and labels."""
    if isinstance(shard, tuple):
        return len(shard) == 2 and all(isinstance(part, str | Path) for part in shard)
    return isinstance(shard, str | Path)


def open_shard(shard: Any, columns: Columns) -> SampleFile:
    """Open a file, or two .npy files of features and labels.

    Args:
        shard: Path, address, or pair of paths.
        columns: Parts of a file that hold features and labels.

    Raises:
        InputError: As `open_samples` does; or if two files have different numbers of rows.
    """
    if isinstance(shard, tuple):
        return _open_pair(*shard)
    file = open_samples(_fetch_file(str(shard)), columns.features, columns.labels)
    return file.in_order(columns.order, shard_name(shard))


def find_order(shards: Iterable[Any], columns: Columns) -> tuple[str, ...]:
    """Return the columns of the features of the first table among shards; none without a table.

    Args:
        shards: Shards of any form.
        columns: Parts of files that hold features and labels.
    """
    kinds = set()
    for shard in shards:
        kind = shard_name(shard).rpartition(".")[2]
        # One file of each kind is opened: there may be very many, far away.
        if isinstance(shard, str | Path) and kind not in kinds:
            kinds.add(kind)
            order = open_shard(shard, columns).columns
            if order:
                return order
    return ()


def shard_name(shard: Shard) -> str:
    """Return the name of a shard for messages: of a file its base name, else an empty text."""
    first: Any = shard[0] if isinstance(shard, tuple) and is_file_shard(shard) else shard
    return str(first).rpartition("/")[2] if isinstance(first, str | Path) else ""


def resolve_shard(shard: Any) -> str:
    """Return the one path of a file, which may be written in several ways; or its address."""
    if isinstance(shard, tuple):
        return " and ".join(map(resolve_shard, shard))
    return str(shard) if is_address(str(shard)) else str(Path(shard).resolve())


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
            raise refuse_pattern(pattern)
        files += matches
    times = Counter(map(resolve_shard, files))
    for file in files:
        if times[resolve_shard(file)] > 1:
            fix = "name it once: its samples would count twice"
            raise InputError(expected="every shard once", found=f"{file} twice", fix=fix)
    return files


def pair_files(features: Sequence[str], labels: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of files of features and of labels, by what the patterns matched in their names.

    Files that were named without a pattern, as by a shell, are paired by the part of the names in
    which they differ. Parts may differ as texts if they are equal as numbers, such as 1 and 01.

    Args:
        features: Patterns of .npy files of features.
        labels: Patterns of .npy files of labels.

    Raises:
        InputError: If they are not as many, a pattern names none, or the names do not tell which
            belong together.
    """
    rows, classes = expand_patterns(features), expand_patterns(labels)
    if len(rows) != len(classes):
        raise InputError(
            expected=f"a file of labels for each of the {len(rows)} files of features",
            found=f"{len(classes)} files of labels",
            fix="name them so that both patterns match the same in place of *",
        )
    of_rows, of_classes = _parts_by_pattern(features, rows), _parts_by_pattern(labels, classes)
    if len(rows) == 1 and not (of_rows and of_classes):
        return [(rows[0], classes[0])]
    for left in [of_rows] if of_rows else _differing_parts(rows):
        for right in [of_classes] if of_classes else _differing_parts(classes):
            for form in (tuple, _as_integers):
                keys, others = list(map(form, left)), list(map(form, right))
                if None in (*keys, *others) or len({*keys}) != len(keys):
                    continue
                if {*keys} == {*others}:
                    by_key = dict(zip(others, classes, strict=True))
                    return [(row, by_key[key]) for row, key in zip(rows, keys, strict=True)]
    raise InputError(
        expected=f"a file of labels for each file of features: one for {shard_name(rows[0])}",
        found=list_names([shard_name(file) for file in classes], 20),
        fix="name the files alike, and quote the patterns: --features 'X_*.npy' --labels 'y_*.npy'",
    )


_WILDCARD = re.compile(r"(\*\*/|\*+|\?|\[!?\]?[^\]]*\])")


def _parts_by_pattern(patterns: Sequence[str], files: Sequence[str]) -> list[tuple[str, ...]]:
    """Return what one pattern matched in each name; nothing if there is no such pattern."""
    if len(patterns) != 1 or is_plain(patterns[0]):
        return []
    forms = {"**/": "((?:.*/)?)", "*": "([^/]*)", "?": "([^/])"}
    text = "".join(
        forms.get(part, "(.*)" if part[0] == "*" else f"({part.replace('[!', '[^')})")
        if place % 2
        else re.escape(part)
        for place, part in enumerate(_WILDCARD.split(_bare(patterns[0])))
    )
    matches = [re.fullmatch(text, _bare(file), re.DOTALL) for file in files]
    return [match.groups() for match in matches if match] if all(matches) else []


def _bare(file: str) -> str:
    """Return an address without the slashes after its protocol, which may be two or three."""
    return file.partition("://")[2].lstrip("/") if is_address(file) else file


def _differing_parts(files: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Yield the parts in which names differ, cut to whole numbers, then to whole words."""
    start = _common_start(files)
    end = _common_start([file[len(start) :][::-1] for file in files])
    for edge in (r"\d", r"[^\W_]"):
        left, right = (len(re.sub(f"{edge}+$", "", text)) for text in (start, end))
        yield [(file[left : len(file) - right],) for file in files]


def _common_start(texts: Sequence[str]) -> str:
    columns = zip(*texts, strict=False)
    return "".join(letters[0] for letters in takewhile(lambda each: len({*each}) == 1, columns))


def _as_integers(key: tuple[str, ...]) -> tuple[int, ...] | None:
    return tuple(map(int, key)) if all(part.isdecimal() for part in key) else None


def shard_identity(file: Any) -> str:
    """Return a text that differs if a file is another, or has changed in size or date."""
    if isinstance(file, tuple):
        return " ".join(map(shard_identity, file))
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
        if detect_kind(shard) not in _WITH_CLASSIFIER:
            return {}
    return load_classifier(shard, required=())


_WITH_CLASSIFIER = ("npz", "safetensors", "torch")


def _find_matches(pattern: str) -> list[str]:
    if is_plain(pattern) or not has_magic(pattern):
        return [pattern]
    if not is_address(pattern):
        return find_matches(pattern)
    with explain_read_errors(TensorFile(pattern)):
        system, path = _open_file_system(pattern)
        return sorted(map(system.unstrip_protocol, system.glob(path)))


def _open_file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    fsspec = import_library("fsspec")
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


@dataclass(frozen=True)
class _RemoteFile(TensorFile):
    """File at an address, of which parts are read.

    Attributes:
        system: File system of `fsspec`.
        address: Path in it.
    """

    system: Any = None
    address: str = ""

    @property
    def size(self) -> int:
        """Number of bytes."""
        return int(self.system.size(self.address))

    def open(self) -> Any:
        """Open the file for reading."""
        return self.system.open(self.address, "rb")


def _fetch_file(file: str) -> TensorFile:
    """Return a file on disk or at an address; of the kinds that are read whole, its bytes."""
    if not is_address(file):
        on_disk = TensorFile.at(file)
        check_exists(on_disk)
        return on_disk
    name = shard_name(file)
    with explain_read_errors(TensorFile(name)):
        system, path = _open_file_system(file)
        remote = _RemoteFile(name, system=system, address=path)
        if detect_kind(remote) in _WITH_CLASSIFIER:
            return TensorFile(name, content=system.cat_file(path))
    return remote


def _read_batches(shard: Any, columns: Columns, labels_only: bool) -> Iterator[Any]:
    for rows, labels in open_shard(shard, columns).batches(not labels_only):
        yield rows, flatten_labels(labels)


def _open_pair(features: str | Path, labels: str | Path) -> SampleFile:
    """Open .npy files of features and labels, which are mapped into memory."""
    rows, classes = load_array(features), load_array(labels)
    if rows.ndim == 0 or classes.shape[:1] != rows.shape[:1]:
        raise InputError(
            expected=f"one label a sample in {Path(labels).name}",
            found=f"labels of shape {classes.shape} for features of shape {rows.shape} in "
            f"{Path(features).name}",
            fix="name the files so that those in the same place of both patterns belong together",
        )
    step = rows_of_batch(int(np.prod(rows.shape[1:])))

    def read(whole: bool) -> Iterator[tuple[Any, Any]]:
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            yield rows[part] if whole else None, np.asarray(classes[part])

    return SampleFile(read)
