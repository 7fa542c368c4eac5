"""Images of the user in files that hold many: Arrow, Parquet and WebDataset's tar archives.

The folders of ``datasets`` (``save_to_disk``, and those of Parquet on the Hugging Face Hub) are
read without that library. Nothing is unpacked to disk, and nothing is unpickled.
"""

import json
import os
import re
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import glob, has_magic
from io import BytesIO
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

from ncscope.array_checks import is_missing
from ncscope.data.folders import Split
from ncscope.data.images import Pictures, open_picture
from ncscope.data.names import IMAGE_FILES
from ncscope.errors import InputError, import_library, list_names, say_error
from ncscope.files import describe_fault, is_file, is_folder, refuse_pattern
from ncscope.labels import (
    IgnoreIndex,
    is_ignored,
    kinds_error,
    list_marks,
    nothing_left,
    read_labels,
)
from ncscope.memory import check_memory

_SPLIT = re.compile(r"(?:^|[-_./])(train|test|valid|val)[a-z]*(?=[-_./\d]|$)")
_IMAGE_SUFFIXES = ("jpg", "jpeg", "png", "webp", "bmp", "ppm", "pgm", "tif", "tiff", "gif")
_LABEL_NAMES = ("label", "labels", "class", "cls", "target", "class_id")
_MOST_PATTERNS = 100_000
_KEPT = 2**28
_MOST_ROWS = 1024
_LONGEST_LABEL = 2**20


def find_image_files(data: str) -> dict[str, list[Path]]:
    """Find the files of a data set by the name of their split.

    Args:
        data: File, pattern such as ``photos-{000..003}.tar`` or ``'data/*.parquet'``, or folder.

    Returns:
        Files of each split, under an empty name if they have no splits; nothing for a folder of
        images, and for a path without a file.

    Raises:
        InputError: If a pattern names no file.

    Example:
        >>> find_image_files("no such folder")
        {}
    """
    folder = Path(data)
    if is_file(folder):
        return {"": [folder]} if folder.suffix in IMAGE_FILES else {}
    if not is_folder(folder):
        if not data.endswith(IMAGE_FILES) or not (has_magic(data) or "{" in data):
            return {}
        patterns = list(islice(_expand_braces(data), _MOST_PATTERNS + 1))
        if len(patterns) > _MOST_PATTERNS:
            expected = f"at most {_MOST_PATTERNS:,} names in braces"
            fix = "write a pattern with * instead"
            raise InputError(expected=expected, found=f"more in {data}", fix=fix)
        # Path.glob takes no absolute patterns.
        names = [name for pattern in patterns for name in sorted(glob(pattern))]  # noqa: PTH207
        if not names:
            raise refuse_pattern(data)
        return {"": [Path(name) for name in names]}
    if (folder / "dataset_dict.json").is_file():
        splits = _read_saved(folder / "dataset_dict.json", "splits", str)
        return {_name_split(name): _list_saved(folder / Path(name).name) for name in splits}
    if (folder / "state.json").is_file():
        return {"": _list_saved(folder)}
    found: dict[str, list[Path]] = {}
    parts = [folder, *(each for each in sorted(folder.iterdir()) if _may_hold_files(each))]
    for part in parts:
        for file in sorted(part.iterdir()):
            if file.suffix in IMAGE_FILES:
                place = file.relative_to(folder).as_posix().lower()
                match = _SPLIT.search(place)
                found.setdefault(_name_split(match[1]) if match else "", []).append(file)
    return found


def choose_split(found: Mapping[str, Sequence[Path]], split: Split, data: str) -> list[Path]:
    """Return the files of a split; without a test split, those of validation are the test images.

    Args:
        found: Files by split, from `find_image_files`.
        split: Split to choose.
        data: Name of the data set, for messages.

    Raises:
        InputError: If there is no such split.
    """
    if found.keys() == {""}:
        if split == "train":
            return list(found[""])
        fix = "leave --split out to measure all its images"
        raise InputError(expected=f"a split {split} in {data}", found="no splits", fix=fix)
    if split == "test" and "test" not in found and "validation" in found:
        split = "validation"
    if split not in found:
        known = ", ".join(name or "files without a split" for name in found)
        fix = "choose another split, or name its files: 'FOLDER/NAME-*.parquet'"
        raise InputError(expected=f"a split {split} in {data}", found=known, fix=fix)
    return list(found[split])


def read_image_files(
    files: Sequence[Path],
    image_key: str = "",
    label_key: str = "",
    others: Sequence[Path] = (),
    ignore_index: IgnoreIndex = None,
) -> tuple[Pictures, tuple[str, ...]]:
    """Read the images and labels in files of one kind.

    Args:
        files: Files of Parquet, of Arrow as ``datasets`` writes it, or WebDataset's tar archives.
        others: Files of the other splits. Labels that are names are numbered in alphabetical order
            over all splits, so that a class has one number.
        image_key: Column, or suffix in the archive, of the images; empty for the only one.
        label_key: Column, suffix, or entry of the JSON, of the labels; empty for the only one.
        ignore_index: Labels of samples that will be left out: these may be any numbers.

    Returns:
        Images and labels in the order of the files; and the names of the classes, in the order of
        the labels, empty if there are none.

    Raises:
        InputError: If a file is missing, damaged or of another kind, the images or the labels
            cannot be told, a sample lacks one of them, or no sample has a class; pyarrow is not
            installed.
    """
    for file in (*files, *others):
        if fault := describe_fault(file):
            raise InputError(expected="a file of images", found=fault, fix="check the path")
    read = _read_archives if files[0].suffix == ".tar" else _read_tables
    pictures, labels, names = read(files, image_key, label_key)
    if not labels:
        fix = "check the files: the split may be another one"
        raise InputError(expected="images to measure", found="none", fix=fix)
    missing = [row for row, label in enumerate(labels) if is_missing(label) or label == ""]
    if missing:
        raise InputError(
            expected="a label for each image",
            found=f"{len(missing)} of {len(labels)} missing, the first at row {missing[0]}",
            fix="name another column with --label-key, or write the files without these images",
        )
    marks = list_marks(ignore_index)
    words = {label for label in labels if isinstance(label, str)}
    if words:
        if not words.union(marks).issuperset(labels):
            raise kinds_error()
        if not names:
            further = read(others, image_key, label_key)[1] if others else []
            names = tuple(sorted(words.union(each for each in further if isinstance(each, str))))
        order = {name: number for number, name in enumerate(names)}
        numbers = torch.tensor([order.get(label, label) for label in labels], device="cpu")
    else:
        numbers = read_labels(labels, len(labels)).labels
    kept = numbers[~is_ignored(numbers, ignore_index)]
    if not len(kept):
        raise nothing_left(len(labels), ignore_index)
    least, most = int(kept.min()), int(kept.max())
    leave_out = f"or leave them out with --ignore-index {least if least < 0 else most}"
    if least < 0:
        fix = "choose a split with labels, for example --split validation"
        fix += f", {leave_out}" if most >= 0 else ""
        found = f"{least}, which marks hidden labels"
        raise InputError(expected="labels from 0", found=found, fix=fix)
    if names and most >= len(names):
        expected = f"labels of the {len(names)} classes that the files declare"
        fix = f"name another column with --label-key, {leave_out}"
        raise InputError(expected=expected, found=f"label {most}", fix=fix)
    return Pictures(pictures, numbers), names


def _may_hold_files(folder: Path) -> bool:
    return folder.is_dir() and (
        folder.name == "data" or bool(_SPLIT.fullmatch(folder.name.lower()))
    )


def _name_split(name: str) -> str:
    return "validation" if name.startswith(("val", "dev")) else name


def _expand_braces(pattern: str) -> Iterator[str]:
    """Expand ``{000..003}`` and ``{a,b}`` in a pattern, as shells and WebDataset do."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        yield pattern
        return
    before, after = pattern[: found.start()], pattern[found.end() :]
    span = re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", found[1])
    parts: Iterable[str] = found[1].split(",")
    if span:
        width = len(span[1])
        parts = (f"{number:0{width}}" for number in range(int(span[1]), int(span[2]) + 1))
    for part in parts:
        yield from _expand_braces(before + part + after)


def _read_saved(path: Path, key: str, kind: type) -> list[Any]:
    """Read a list of values of a type in a file of JSON that ``save_to_disk`` wrote."""
    fix = "save the data set again with save_to_disk"
    if fault := describe_fault(path):
        raise InputError(expected="a data set of save_to_disk", found=fault, fix=fix)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(expected=f"JSON in {path}", found="a damaged file", fix=fix) from error
    values = content.get(key) if isinstance(content, dict) else None
    if not isinstance(values, list) or not values or not all(isinstance(v, kind) for v in values):
        found = "another value" if isinstance(content, dict) and key in content else "none"
        raise InputError(expected=f"a list {key!r} in {path}", found=found, fix=fix)
    return values


def _list_saved(folder: Path) -> list[Path]:
    """List the files of a folder that `Dataset.save_to_disk` wrote, in order."""
    state = folder / "state.json"
    names = [each.get("filename") for each in _read_saved(state, "_data_files", dict)]
    if not all(isinstance(name, str) for name in names):
        fix = "save the data set again with save_to_disk"
        raise InputError(expected=f"names of files in {state}", found="other entries", fix=fix)
    return [folder / Path(name).name for name in names]


# Arrow and Parquet


Contents = tuple[Callable[[int], Image], list[Any], tuple[str, ...]]
"""Function that reads the image at an index, labels, and declared names of the classes."""


def _read_tables(files: Sequence[Path], image_key: str, label_key: str) -> Contents:
    pa = import_library("pyarrow")
    try:
        tables = [_Table(file) for file in files]
        schema = tables[0].schema
        features = _read_features((schema.metadata or {}).get(b"huggingface", b"{}"))
        image_key = _find_column(_list_image_columns(schema, features), image_key, "image", schema)
        label_key = _find_column(_list_label_columns(schema, features), label_key, "label", schema)
        labels = [value for table in tables for value in table.read_column(label_key)]
        column = _ImageColumn(tables, image_key)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        found = say_error(error)
        fix = "check the file: it may be of another kind, or cut off"
        expected = f"a table of images in {files[0].name}"
        raise InputError(expected=expected, found=found, fix=fix) from error
    names = features.get(label_key, {}).get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        names = []
    return column, labels, tuple(names) if len(set(names)) == len(names) else ()


def _read_features(metadata: bytes) -> dict[str, dict[str, Any]]:
    """Read the description of the columns in the metadata of ``datasets``; empty without one."""
    try:
        content = json.loads(metadata)
        for key in ("info", "features"):
            content = content[key]
        return {name: value for name, value in content.items() if isinstance(value, dict)}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}  # a table is read without it too


class _Table:
    """File of Arrow or Parquet, of which columns are read in groups of rows."""

    def __init__(self, file: Path) -> None:
        import pyarrow.parquet as pq

        self.file, self.is_parquet = file, file.suffix == ".parquet"
        if self.is_parquet:
            metadata = pq.read_metadata(file)
            self.schema = metadata.schema.to_arrow_schema()
            self.sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        else:
            table = self._map()
            self.schema, self.sizes = table.schema, [table.num_rows]

    def read_group(self, group: int, name: str) -> Iterator[Any]:
        """Yield parts of a column of a group of rows, each of about `pages_size` bytes or less.

        A value that a Parquet file stores once may stand in every row. Arrow is mapped into memory,
        and has one part.
        """
        import pyarrow.parquet as pq

        if not self.is_parquet:
            yield self._map().column(name)
            return
        size = self.pages_size(group, name)
        what = f"rows of {self.file.name}"
        check_memory(2 * size, what, "write the file with smaller groups of rows")
        # No value is longer than all pages together.
        rows = min(_MOST_ROWS, max(1, _KEPT // max(size, 1)))
        with pq.ParquetFile(self.file) as opened:
            for batch in opened.iter_batches(rows, row_groups=[group], columns=[name]):
                yield batch.column(0)

    def pages_size(self, group: int, name: str) -> int:
        """Return the bytes of the pages of a column in a group of rows, before they are decoded."""
        import pyarrow.parquet as pq

        if not self.is_parquet:
            return 0
        columns = pq.read_metadata(self.file).row_group(group)
        chunks = [columns.column(number) for number in range(columns.num_columns)]
        parts = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] == name]
        return sum(max(0, part.total_uncompressed_size) for part in parts)

    def read_column(self, name: str) -> Iterator[Any]:
        """Yield the values of a column; equal texts are one object."""
        texts: dict[str, str] = {}
        for group in range(len(self.sizes)):
            for part in self.read_group(group, name):
                for value in part.to_pylist():
                    yield texts.setdefault(value, value) if isinstance(value, str) else value

    def _map(self) -> Any:
        import pyarrow as pa

        source = pa.memory_map(str(self.file))
        try:
            return pa.ipc.open_stream(source).read_all()
        except pa.ArrowInvalid:
            return pa.ipc.open_file(source).read_all()


class _ImageColumn:
    """Images of a column in several files.

    Kept are the last rows that were read: those of a group, or a part of them if the group expands
    to many more bytes than it has in the file.
    """

    def __init__(self, tables: Sequence[_Table], name: str) -> None:
        self.name = name
        self.groups = [
            (table, group)
            for table in tables
            for group in range(len(table.sizes))
            if table.sizes[group]
        ]
        self.starts = [0]
        for table, group in self.groups:
            self.starts.append(self.starts[-1] + table.sizes[group])
        self._forget()

    def _forget(self) -> None:
        self.process = os.getpid()  # one that is forked must not read on in the same open file
        self.place, self.stop, self.size, self.most = -1, 0, 0, 0
        self.kept: list[tuple[int, Any]] = []
        self.parts: Iterator[Any] = iter(())

    def __call__(self, index: int) -> Image:
        """Return the image at an index."""
        place = bisect_right(self.starts, index) - 1
        value = self._find(place, index - self.starts[place])
        name = f"{self.groups[place][0].file.name}, row {index}"
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise InputError(
                expected=f"the bytes of an image in {name}",
                found="a path alone" if isinstance(value, dict) else describe_value(value),
                fix="save the data set with save_to_disk, which copies the images into it",
            )
        return open_picture(BytesIO(content), name)

    def _find(self, place: int, row: int) -> Any:
        """Return the value in a row of a group, and keep the rows before it if they are few."""
        table, group = self.groups[place]
        is_before = bool(self.kept) and row < self.kept[0][0]
        if place != self.place or is_before or self.process != os.getpid():
            self._forget()
            self.place, self.parts = place, table.read_group(group, self.name)
            self.most = max(_KEPT, table.pages_size(group, self.name))
        while row >= self.stop:
            part = self._read_part(table.file)
            self.kept.append((self.stop, part))
            self.stop += len(part)
            self.size += part.nbytes
            while self.size > self.most and len(self.kept) > 1:
                self.size -= self.kept.pop(0)[1].nbytes
        place = bisect_right(self.kept, row, key=itemgetter(0)) - 1
        start, part = self.kept[place]
        return part[row - start].as_py()

    def _read_part(self, file: Path) -> Any:
        import pyarrow as pa

        found = "fewer rows than it declares"
        try:
            if (part := next(self.parts, None)) is not None:
                return part
        except (pa.ArrowException, OSError) as error:
            found = say_error(error)
        expected = f"a table of images in {file.name}"
        raise InputError(expected=expected, found=found, fix="copy the file again")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the rows that were read: each process reads its own."""
        return {"name": self.name, "groups": self.groups, "starts": self.starts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget()


def describe_value(value: Any) -> str:
    """Return the type of a value as text, for a message."""
    return "nothing" if value is None else type(value).__name__


def _list_image_columns(schema: Any, features: Mapping[str, Any]) -> list[str]:
    import pyarrow as pa

    def holds_images(field: Any) -> bool:
        if features.get(field.name, {}).get("_type") == "Image":
            return True
        if pa.types.is_struct(field.type):
            return field.type.get_field_index("bytes") >= 0
        return pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)

    return [field.name for field in schema if holds_images(field)]


def _list_label_columns(schema: Any, features: Mapping[str, Any]) -> list[str]:
    """List the columns of labels: of classes by their type; else by name; else of integers."""
    import pyarrow as pa

    def is_text(kind: Any) -> bool:
        return pa.types.is_string(kind) or pa.types.is_large_string(kind)

    fields = [field for field in schema if pa.types.is_integer(field.type) or is_text(field.type)]
    declared = [f.name for f in fields if features.get(f.name, {}).get("_type") == "ClassLabel"]
    usual = [field.name for field in fields if field.name.lower() in _LABEL_NAMES]
    integers = [field.name for field in fields if pa.types.is_integer(field.type)]
    return declared or usual or integers or [field.name for field in fields]


def _find_column(candidates: Sequence[str], key: str, what: str, schema: Any) -> str:
    if key in schema.names or (not key and len(candidates) == 1):
        return key or candidates[0]
    shown = candidates if candidates and not key else schema.names
    raise InputError(
        expected=f"the column {key}" if key else f"one column of {what}s",
        found=f"columns {list_names(shown)}",
        fix=f"name it with --{what}-key",
    )


# WebDataset


def _read_archives(files: Sequence[Path], image_key: str, label_key: str) -> Contents:
    places: list[tuple[Path, int, int, str]] = []
    labels: list[Any] = []
    for file in files:
        for name, parts in _list_samples(file):
            images = [key for key in parts if key.rpartition(".")[2] in _IMAGE_SUFFIXES]
            if image_key in parts:
                images = [image_key]
            label = _find_label(parts, label_key)
            if len(images) != 1 or label is None:
                raise InputError(
                    expected=f"one image and a label for the sample {name} in {file.name}",
                    found=f"entries {', '.join(parts)}",
                    fix="name the entries with --image-key and --label-key, for example "
                    "--label-key cls, or that of the JSON",
                )
            _, offset, size = parts[images[0]]
            places.append((file, offset, size, name))
            labels.append(label)

    def read(index: int) -> Image:
        file, offset, size, name = places[index]
        with file.open("rb") as opened:
            opened.seek(offset)
            return open_picture(BytesIO(opened.read(size)), f"{file.name}, sample {name}")

    return read, labels, ()


def _list_samples(file: Path) -> Iterator[tuple[str, dict[str, tuple[bytes, int, int]]]]:
    """Yield the samples of an archive: files whose names are the same up to the first dot.

    Each entry has the content if it may be a label, and the place and size of its bytes.
    """
    current, parts = "", dict[str, tuple[bytes, int, int]]()
    try:
        with tarfile.open(file, "r:") as archive:
            for member in archive:
                folder, _, base = member.name.rpartition("/")
                stem, _, suffix = base.partition(".")
                if not member.isfile() or not suffix or base.startswith("."):
                    continue
                if f"{folder}/{stem}" != current:
                    if parts:
                        yield current.lstrip("./"), parts
                    current, parts = f"{folder}/{stem}", {}
                key, content = suffix.lower(), b""
                if key.rpartition(".")[2] not in _IMAGE_SUFFIXES and member.size < _LONGEST_LABEL:
                    stream = archive.extractfile(member)
                    content = b"" if stream is None else stream.read()
                parts[key] = content, member.offset_data, member.size
    except tarfile.TarError as error:
        found = say_error(error)
        fix = "unpack it if it is compressed (gunzip), else copy it again"
        raise InputError(expected=f"a tar archive in {file.name}", found=found, fix=fix) from error
    if parts:
        yield current.lstrip("./"), parts


def _find_label(parts: Mapping[str, tuple[bytes, int, int]], key: str) -> Any:
    """Return the label of a sample: a number, or a name; None if it cannot be told."""
    if "json" in parts and key not in parts:
        try:
            values = json.loads(parts["json"][0])
        except ValueError:
            values = None
        if isinstance(values, dict):
            names = [key] if key else [name for name in _LABEL_NAMES if name in values]
            integers = [name for name, value in values.items() if type(value) is int]
            names = names or integers
            if "cls" not in parts or key:
                value = values.get(names[0]) if len(names) == 1 else None
                return value if isinstance(value, int | str) else None
    content = parts.get(key or "cls", (b"",))[0].strip()
    if not content:
        return None
    text = content.decode(errors="replace")
    return int(text) if re.fullmatch(r"-?\d+", text) else text
