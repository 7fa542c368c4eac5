"""HDF5: two data sets of a file, read by rows; nothing outside of the file is opened."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ncscope.api.columns import choose_entries
from ncscope.api.files import explain_read_errors
from ncscope.api.other_files import mat_hdf5, pandas_hdf5
from ncscope.api.sample_file import Categories, SampleFile, rows_of_batch
from ncscope.errors import InputError, import_library
from ncscope.memory import check_memory
from ncscope.tensor_files import TensorFile

_MOST_ENTRIES = 10_000
_DEEPEST = 20


def open_hdf5(
    file: TensorFile,
    features: str | None = None,
    labels: str | None = None,
    *,
    labelled: bool = True,
) -> SampleFile:
    """Open an HDF5 file.

    Args:
        file: File of that kind.
        features: Path of the features in the file, or a pattern.
        labels: Path of the labels.
        labelled: False if the features alone are wanted.

    Raises:
        InputError: If the library h5py is missing, the file is damaged, has no such entries, or an
            entry holds no plain numbers or names, or lies in another file.
    """
    with _open(file) as content:
        entries = _list_entries(content, file)
        groups = {name.partition("/")[0] for name in entries if "/" in name}
        writer = None
        if any("pandas_type" in content[group].attrs for group in groups):
            writer = pandas_hdf5
        # A tool that copies entries leaves out the first bytes of MATLAB's own files.
        elif any(each is not None and "MATLAB_class" in each.attrs for each in entries.values()):
            writer = mat_hdf5
        if writer is not None:
            kind, remedy = writer(file)
            expected = "features and labels as arrays"
            raise InputError(expected=expected, found=f"{kind} ({file.name})", fix=remedy)
        choice = choose_entries(
            entries,
            file.name,
            features,
            labels,
            labelled=labelled,
            shapes=lambda: {
                name: value.shape or () for name, value in entries.items() if value is not None
            },
        )
        names = (choice.features[0], choice.labels)
        shapes = [_check_entry(entries[name], name, file) for name in names if name is not None]
        if choice.labels is not None and _kind(entries[choice.labels]) == "refused":
            raise _kind_error(choice.labels, entries[choice.labels], file)
        if _kind(entries[choice.features[0]]) != "numbers":
            raise _kind_error(choice.features[0], entries[choice.features[0]], file)
    rows = {shape[0] if shape else 0 for shape in shapes}
    if len(rows) > 1:
        raise InputError(
            expected=f"one label a sample in {file.name}",
            found=f"labels of shape {shapes[1]} for {shapes[0][0]} rows of features",
            fix="choose the entries that belong together by --features and --labels",
        )
    return SampleFile(
        lambda whole: _read(file, choice.features[0] if whole else None, choice.labels),
        size=8 * math.prod(shapes[0]),
        notes=choice.notes,
    )


@contextmanager
def _open(file: TensorFile) -> Iterator[Any]:
    h5py = import_library("h5py")
    with explain_read_errors(file), file.open() as stream, h5py.File(stream, "r") as content:
        yield content


def _list_entries(content: Any, file: TensorFile) -> dict[str, Any]:
    """List the data sets of a file by path; None for one that lies in another file.

    Only links inside of the file are followed, each group once: a file may link to any file that
    the user may read, or to itself.
    """
    import h5py

    entries: dict[str, Any] = {}
    seen = set()
    open_groups = [("", content)]
    while open_groups:
        path, group = open_groups.pop()
        if group.id.__hash__() in seen or path.count("/") > _DEEPEST:
            continue
        seen.add(group.id.__hash__())
        for name in group:
            link = group.get(name, getlink=True)
            inner = f"{path}/{name}".lstrip("/")
            if isinstance(link, h5py.ExternalLink):
                entries[inner] = None
                continue
            if isinstance(link, h5py.SoftLink):  # it may lead through a link to another file
                continue
            item = group[name]
            if isinstance(item, h5py.Group):
                open_groups.append((inner, item))
            elif isinstance(item, h5py.Dataset):
                entries[inner] = item
            if len(entries) > _MOST_ENTRIES:
                raise InputError(
                    expected=f"at most {_MOST_ENTRIES:,} entries in {file.name}",
                    found="more",
                    fix="save features and labels as one entry each",
                )
    return entries


def _check_entry(entry: Any, name: str, file: TensorFile) -> tuple[int, ...]:
    """Return the shape of a data set, all of whose numbers are in the file."""
    elsewhere = entry is None or entry.is_virtual or entry.external
    if elsewhere:
        raise InputError(
            expected=f"the numbers of {name!r} in {file.name}",
            found="a link to another file",
            fix="pass that file, or copy the numbers into one file (links are not followed)",
        )
    shape = tuple(entry.shape or ())
    # Places that were never written would be read as zeros.
    missing = bool(math.prod(shape)) and not entry.id.get_storage_size()
    if entry.chunks is not None and math.prod(shape):
        parts = math.prod(-(-n // c) for n, c in zip(shape, entry.chunks, strict=True))
        missing = entry.id.get_num_chunks() < parts
    if missing:
        raise InputError(
            expected=f"all numbers of {name!r} in {file.name}",
            found=f"parts of shape {shape} that were never written",
            fix="write all samples, or cut the entry to those that are there",
        )
    return shape


def _kind(entry: Any) -> str:
    """Return whether an entry holds numbers, names, numbers with names, or what is refused."""
    import h5py

    kind = entry.dtype
    if h5py.check_enum_dtype(kind) is not None:
        return "enum"
    if kind.kind in "biuf":
        return "numbers"
    is_text = kind.kind == "S" or h5py.check_string_dtype(kind) is not None
    return "names" if is_text else "refused"


def _kind_error(name: str, entry: Any, file: TensorFile) -> InputError:
    import h5py

    found = f"{entry.dtype} in {name!r}"
    if h5py.check_ref_dtype(entry.dtype) is not None:
        found = f"references to other entries in {name!r} (they are not followed)"
    return InputError(
        expected=f"numbers as features, and numbers or names as labels, in {file.name}",
        found=found,
        fix="choose other entries by --features and --labels, or save plain arrays",
    )


def _read(file: TensorFile, features: str | None, labels: str | None) -> Iterator[tuple[Any, Any]]:
    """Yield features and labels by batches of rows."""
    with _open(file) as content:
        matrix = None if features is None else content[features]
        classes = None if labels is None else content[labels]
        shape: Sequence[int] = (content[labels] if matrix is None else matrix).shape
        dim = math.prod(shape[1:])
        rows = max(1, min(rows_of_batch(dim), shape[0]))
        size = 0
        for entry in (matrix, classes):
            if entry is not None:
                # A chunk is unpacked whole, whatever part of it is wanted.
                numbers = math.prod(entry.shape[1:]) * rows + math.prod(entry.chunks or (0,))
                size += max(8, entry.dtype.itemsize) * numbers
        check_memory(size, f"{rows:,} rows of {file.name}", "use smaller chunks")
        for start in range(0, shape[0], rows):
            part = slice(start, start + rows)
            yield (
                None if matrix is None else matrix[part],
                None if classes is None else _to_labels(classes, part, file),
            )


def _to_labels(entry: Any, part: slice, file: TensorFile) -> Any:
    import h5py

    members = h5py.check_enum_dtype(entry.dtype)
    if members is not None:
        # Negative numbers are marks of samples without a class, also if they have a name.
        names = sorted((name for name in members if members[name] >= 0), key=members.get)
        places = {members[name]: place for place, name in enumerate(names)}
        numbers = np.asarray(entry[part]).ravel().tolist()
        codes = [places.get(number, number) for number in numbers]
        confused = [n for n in numbers if n not in places and 0 <= n < len(names)]
        if confused:
            raise InputError(
                expected=f"labels with names in {file.name}",
                found=f"the number {confused[0]}, which has none",
                fix="give it a name, or write -1 for samples without a class",
            )
        return Categories(np.array(codes, np.int64), tuple(names), has_marks=True)
    if _kind(entry) == "names":
        cells = np.asarray(entry[part])
        texts, inverse = np.unique(cells, return_inverse=True)
        return np.array(list(map(_decode, texts)), np.str_)[inverse].reshape(cells.shape)
    return entry[part]


def _decode(text: Any) -> str:
    """Return a name, whose bytes may be of another encoding than the file says."""
    if isinstance(text, str):
        return text
    try:
        return bytes(text).decode()
    except UnicodeDecodeError:
        return bytes(text).decode("latin-1")
