"""Labelled features in a file of any kind: opened, read whole, or read by batches of rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ncscope.api.columns import Choice, choose_entries
from ncscope.api.csv_files import open_csv
from ncscope.api.files import (
    CLASSIFIER,
    check_kind,
    explain_read_errors,
    load_array,
    read_npz,
    read_npz_shapes,
    read_tensors,
)
from ncscope.api.hdf5_files import open_hdf5
from ncscope.api.other_files import (
    describe_other_kind,
    find_packing,
    is_torchscript,
    path_beside,
    path_of,
    torchscript,
)
from ncscope.api.parquet_files import open_parquet
from ncscope.api.sample_file import SampleFile, flatten_labels, join_labels
from ncscope.errors import InputError
from ncscope.file_kinds import python_line, python_text
from ncscope.memory import check_memory
from ncscope.tensor_files import TensorFile, check_exists, check_stored, detect_kind

KINDS = "an .npz, .safetensors, .pt, CSV, Parquet or HDF5 file"

_OPENERS = {b"PAR1": open_parquet, b"\x89HDF\r\n\x1a\n": open_hdf5}
"""First bytes of the kinds of which a part can be read, and what opens them."""


def open_samples(
    file: str | Path | TensorFile,
    features: str | None = None,
    labels: str | None = None,
    *,
    labelled: bool = True,
) -> SampleFile:
    """Open a file of labelled features, of any kind, to read it batch by batch.

    Args:
        file: Path of an .npz, .safetensors, CSV, Parquet or HDF5 file or of a file of torch.save,
            under any name; or what `read_standard_input` returned.
        features: Name or pattern of the entry, or names and patterns of the columns, that hold the
            features; None to find them by a customary name.
        labels: Name of the entry or column that holds the labels, or None.
        labelled: False if the features alone are wanted.

    Raises:
        InputError: If the file is missing, damaged or of another kind, or has no such entries.
    """
    source = file if isinstance(file, TensorFile) else TensorFile.at(file)
    check_exists(source)
    with explain_read_errors(source):
        start = source.read_start(8)
    for magic, opener in _OPENERS.items():
        if start.startswith(magic):
            return opener(source, features, labels, labelled=labelled)
    if start and not _is_of_arrays(source):
        with explain_read_errors(source):
            may_be_text = bool(find_packing(source)) or describe_other_kind(source) is None
        table = None
        if may_be_text:
            table = open_csv(source, features, labels, labelled=labelled)
        if table is not None:
            return table
    choice, read = _open_arrays(source, features, labels, labelled=labelled)

    def read_whole(whole: bool) -> Iterator[tuple[Any, Any]]:
        arrays = read([*(choice.features if whole else ()), *_of_labels(choice)])
        rows = arrays[choice.features[0]] if whole else None
        yield rows, None if choice.labels is None else flatten_labels(arrays[choice.labels])

    return SampleFile(read_whole, notes=choice.notes)


def _of_labels(choice: Choice) -> list[str]:
    return [] if choice.labels is None else [choice.labels]


def _is_of_arrays(file: TensorFile) -> bool:
    with explain_read_errors(file):
        return detect_kind(file) is not None


def _open_arrays(
    file: TensorFile, features: str | None, labels: str | None, *, labelled: bool
) -> tuple[Choice, Callable[[Sequence[str]], Mapping[str, Any]]]:
    """Return the choice of entries in a file of arrays, and a function that reads entries."""
    kind = check_kind(file, ("npz", "safetensors", "torch"), KINDS)
    if kind == "npz":
        with explain_read_errors(file):
            shapes = read_npz_shapes(file)
        choice = choose_entries(
            shapes.keys(), file.name, features, labels, labelled=labelled, shapes=lambda: shapes
        )
        return choice, lambda names: read_npz(file, names)
    if kind == "torch" and is_torchscript(file):
        name, remedy = torchscript(file)
        raise InputError(expected=KINDS, found=f"{name} ({file.name})", fix=remedy)
    content = read_tensors(file, kind)
    choice = choose_entries(
        content.keys(),
        file.name,
        features,
        labels,
        labelled=labelled,
        shapes=lambda: {
            name: tuple(value.shape)
            for name, value in content.items()
            if isinstance(name, str) and isinstance(value, Tensor)
        },
    )

    def read(names: Sequence[str]) -> Mapping[str, Any]:
        entries = {name: content[name] for name in names if name in content}
        if kind == "torch":
            for name, value in entries.items():
                if name == choice.labels and _is_list_of_labels(value):
                    entries[name] = np.array(value)
                elif not isinstance(value, Tensor):
                    raise _tensor_error(file, name, value)
            stored = {n: v for n, v in entries.items() if isinstance(v, Tensor)}
            check_stored(file, stored)
        return entries

    return choice, read


def _is_list_of_labels(value: Any) -> bool:
    return isinstance(value, list) and (
        all(type(each) is int for each in value) or all(type(each) is str for each in value)
    )


def _tensor_error(file: TensorFile, name: str, value: Any) -> InputError:
    code = (
        f"import numpy, torch; d = torch.load({python_text(path_of(file))}, weights_only=False); "
        f"numpy.savez({python_text(path_beside(file, '.npz'))}, "
        "**{k: numpy.asarray(v) for k, v in d.items()})"
    )
    return InputError(
        expected=f"tensors in {file.name}",
        found=f"{type(value).__name__} under {name!r:.80}",
        fix="save tensors of numbers (pickled objects are never loaded); if you trust the file: "
        f"{python_line(code)}",
    )


def load_samples(
    file: str | Path | TensorFile,
    optional: Sequence[str] = CLASSIFIER,
    features: str | None = None,
    labels: str | None = None,
) -> dict[str, Any]:
    """Read the features and the labels of a file, and weight and bias if it has them.

    Args:
        file: File of any kind, as for `open_samples`.
        optional: Names of further entries, which are returned if a file of arrays has them.
        features: Name or pattern of the features, as for `open_samples`.
        labels: Name of the labels.

    Returns:
        Arrays by name: features, labels, and the further entries. Labels may be names.

    Raises:
        InputError: If the file is missing, empty, damaged, of another kind, holds pickled objects
            or fewer numbers than it announces, does not fit into memory, or lacks features or
            labels.
    """
    return load_with_notes(file, optional, features, labels)[0]


def load_with_notes(
    file: str | Path | TensorFile,
    optional: Sequence[str] = CLASSIFIER,
    features: str | None = None,
    labels: str | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read a file as `load_samples` does; also return a note on what was taken, if in doubt."""
    source = file if isinstance(file, TensorFile) else TensorFile.at(file)
    check_exists(source)
    if _is_of_arrays(source):
        choice, read = _open_arrays(source, features, labels, labelled=True)
        entries = read([*choice.features, *_of_labels(choice), *optional])
        others = {name: entries[name] for name in optional if name in entries}
        rows, classes = (entries[name] for name in (choice.features[0], *_of_labels(choice)))
        return {"features": rows, "labels": flatten_labels(classes)} | others, choice.notes
    samples = open_samples(source, features, labels)
    rows, classes = read_whole(samples, source.name)
    return {"features": rows, "labels": classes}, samples.notes


def find_size(file: str | Path, features: str | None = None, labels: str | None = None) -> int:
    """Return the bytes of a table's features in float64, at most; 0 for a file of arrays.

    Args:
        file: Path of a file.
        features: Features, as for `open_samples`.
        labels: Labels.
    """
    source = TensorFile.at(file)
    check_exists(source)
    return 0 if _is_of_arrays(source) else open_samples(source, features, labels).size


def load_features(
    file: str | Path,
    features: str | None = None,
    labels: str | None = None,
    order: Sequence[str] = (),
) -> Any:
    """Read an .npy file, or the features of a file of any other kind.

    Args:
        file: Path of the file.
        features: Name or pattern of the features, as for `open_samples`.
        labels: Column of a table that is none of the features, if it is there.
        order: Columns of features of the table to compare with, in which order they are read.

    Raises:
        InputError: As `load_samples` does.
    """
    source = TensorFile.at(file)
    check_exists(source)
    with explain_read_errors(source):
        if source.size and detect_kind(source) == "npy":
            return load_array(file)
    samples = open_samples(source, features, labels, labelled=False)
    return read_whole(samples.in_order(order, source.name), source.name)[0]


def read_whole(samples: SampleFile, name: str) -> tuple[Any, Any]:
    """Read all samples of a file; the labels are None if none were wanted.

    Args:
        samples: File that was opened.
        name: Name of the file, for messages.

    Raises:
        InputError: If the samples do not fit into memory, or the file is damaged.
    """
    matrices: list[Any] = []
    classes: list[Any] = []
    size = 0
    for rows, labels in samples.batches(True):
        size += rows.nbytes
        if matrices:  # they are joined at the end, in a copy
            fix = "split the file, and pass the parts as several files, which are read one by one"
            check_memory(size, f"the features of {name}", fix)
        matrices.append(rows)
        classes.append(labels)
    if not matrices:
        raise InputError(expected=f"samples in {name}", found="none", fix="check the file")
    labels = None if classes[0] is None else flatten_labels(join_labels(classes))
    return matrices[0] if len(matrices) == 1 else np.concatenate(matrices), labels
