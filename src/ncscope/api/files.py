"""Features and weights saved in files, judged by their content: nothing is ever unpickled.

Before an array is read, the size that the file announces is compared with the size of the file
and with the free memory.
"""

import io
import json
import math
import sys
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from reprlib import Repr
from typing import Any

import numpy as np
from safetensors.torch import load, load_file

from ncscope.errors import InputError
from ncscope.files import is_folder
from ncscope.memory import check_memory
from ncscope.models.weights import SavedWeights, find_weights
from ncscope.tensor_files import (
    Kind,
    TensorFile,
    check_exists,
    check_stored,
    detect_kind,
    lacks_checksums,
    load_tensors,
)

ENTRIES = ("features", "labels", "weight", "bias")

_PLAIN = "save plain arrays (pickled objects are never loaded)"
_AGAIN = "save it again: the writing may have been cut off"
_MOST_NAMED = 20
_CHUNK = 2**24


def load_samples(
    file: str | Path | TensorFile, optional: Sequence[str] = ENTRIES[2:]
) -> dict[str, Any]:
    """Read the entries ``features`` and ``labels`` of a file, and ``weight`` and ``bias`` if any.

    Args:
        file: Path of an .npz or .safetensors file or of a file of torch.save (a mapping of names to
            tensors), under any name; or what `standard_input` returned.
        optional: Names of further entries, which are returned if the file has them.

    Raises:
        InputError: If the file is missing, empty, damaged, of another kind, holds pickled objects
            or fewer numbers than it announces, does not fit into memory, or lacks features or
            labels.
    """
    return _load_entries(file, names=(*ENTRIES[:2], *optional), required=ENTRIES[:2])


def load_classifier(
    file: str | Path | TensorFile, required: Sequence[str] = ("weight",)
) -> dict[str, Any]:
    """Read the entries ``weight`` and ``bias`` of a file, or the weight from an .npy file.

    Args:
        file: Path of an .npy, .npz or .safetensors file or of a file of torch.save, under any name.
        required: Entries that the file must have.

    Raises:
        InputError: As `load_samples` does.
    """
    if isinstance(file, str | Path):
        saved = TensorFile.at(file)
        with reading(saved):
            array = detect_kind(saved) == "npy"
        if array:
            return {"weight": load_array(file)}
    return _load_entries(file, names=ENTRIES[2:], required=required)


def load_features(file: str | Path) -> Any:
    """Read an .npy file, or the entry ``features`` of a file of several arrays.

    Args:
        file: Path of an .npy, .npz or .safetensors file or of a file of torch.save.

    Raises:
        InputError: As `load_samples` does.
    """
    saved = TensorFile.at(file)
    with reading(saved):
        array = detect_kind(saved) == "npy"
    if array:
        return load_array(file)
    return _load_entries(file, names=ENTRIES[:1], required=ENTRIES[:1])["features"]


def _load_entries(
    file: str | Path | TensorFile, names: Sequence[str], required: Sequence[str]
) -> dict[str, Any]:
    if not isinstance(file, TensorFile):
        file = TensorFile.at(file)
    kind = _checked_kind(file, ("npz", "safetensors", "torch"), "an .npz, .safetensors or .pt file")
    entries = _read_npz(file, names) if kind == "npz" else _READERS[kind](file)
    if any(name not in entries for name in required):
        fix = "save the arrays under these names"
        if "features" in entries:
            fix = "save the labels too, or the features alone as .npy for spectra without labels"
        quoted = " and ".join(map(repr, required))
        expected = f"{'entries' if len(required) > 1 else 'the entry'} {quoted} in {file.name}"
        raise InputError(expected=expected, found=f"entries {_names(entries)}", fix=fix)
    samples = {name: entries[name] for name in names if name in entries}
    if kind == "torch":
        check_stored(file, samples)
    return samples


def checksum_notes(files: Iterable[str | Path | TensorFile]) -> tuple[str, ...]:
    """Return a sentence on files of torch.save without checksums, in which damage is not seen.

    Args:
        files: Files of any kind that were read before.
    """
    names = []
    for file in files:
        saved = file if isinstance(file, TensorFile) else TensorFile.at(file)
        with reading(saved):
            if lacks_checksums(saved):
                names.append(saved.name)
    if not names:
        return ()
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return (f"checksums not recorded in {names[0]}{more}: damage of a file would not be seen",)


def standard_input() -> TensorFile:
    """Read a file from standard input into memory.

    Raises:
        InputError: If the input does not fit into memory.
    """
    chunks: list[bytes] = []
    length = 0
    while chunk := sys.stdin.buffer.read(_CHUNK):
        chunks.append(chunk)
        length += len(chunk)
        # The chunks are joined, and then the arrays are read from the joined bytes.
        check_memory(length + _CHUNK, "standard input", "save it to a file, and pass the file")
    return TensorFile("standard input", content=b"".join(chunks))


def load_weights(path: str | Path, key: str = "") -> SavedWeights:
    """Read a model's weights: see `find_weights`.

    Args:
        path: Path of a .safetensors file or a file of torch.save, under any name; or folder that
            holds ``model.safetensors`` or ``pytorch_model.bin``, whole or in shards with an index.
        key: Dotted path of the entry that holds the weights; empty to find the entry.

    Raises:
        InputError: If the file is missing, empty, damaged, of another kind, holds pickled objects
            or fewer numbers than it announces, or holds no weights of a model, or several.
    """
    path = Path(path)
    if not is_folder(path):
        return _weights_of(TensorFile.at(path), key)
    files = [TensorFile.at(shard) for shard in _weights_in(path)]
    shards = [_weights_of(file, key) for file in files]
    tensors = {name: tensor for shard in shards for name, tensor in shard.tensors.items()}
    notes = checksum_notes(files)
    return replace(shards[0], tensors=tensors, file=path.resolve().name, notes=notes)


def _weights_of(file: TensorFile, key: str) -> SavedWeights:
    expected = "weights in a .safetensors file or a file of torch.save"
    kind = _checked_kind(file, ("safetensors", "torch"), expected)
    weights = find_weights(_READERS[kind](file), file.name, key)
    if kind == "torch":
        check_stored(file, weights.tensors)
    return replace(weights, notes=checksum_notes([file]))


_IN_FOLDER = ("model.safetensors", "pytorch_model.bin")
"""Names of the weights in a folder that Hugging Face's libraries wrote."""


def _weights_in(folder: Path) -> list[Path]:
    """Return the files of a folder that hold the weights of one model."""
    for name in _IN_FOLDER:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            file = TensorFile.at(index)
            with reading(file), file.open() as opened:
                names = set(json.loads(opened.read())["weight_map"].values())
                if not names:
                    msg = "no shards"
                    raise ValueError(msg)
                # A shard lies beside its index: a path in an index may lead anywhere.
                return [folder / Path(shard).name for shard in sorted(names)]
    fix = "name the file of the weights"
    expected = f"{' or '.join(_IN_FOLDER)} in {folder}"
    raise InputError(expected=expected, found="neither", fix=fix)


def load_array(path: str | Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Map an .npy file into memory; the file may be larger than the memory.

    Raises:
        InputError: If the file is missing, empty, damaged, of another kind, or holds pickled
            objects.
    """
    file = TensorFile.at(path)
    _checked_kind(file, ("npy",), f"one array in {file.name}")
    with reading(file):
        _check_array(file.read_start(LONGEST_HEADER), file.size)
        return np.lib.format.open_memmap(Path(path), mode="r")


def _checked_kind(file: TensorFile, kinds: Sequence[Kind], expected: str) -> Kind:
    """Return the kind of a file, after checking that it is one of some kinds.

    Args:
        file: File to judge by its content.
        kinds: Kinds that the caller reads.
        expected: Description of these kinds, for the message.
    """
    check_exists(file)
    with reading(file):
        if file.size == 0:
            raise InputError(expected=f"arrays in {file.name}", found="an empty file", fix=_AGAIN)
        kind = detect_kind(file)
    if kind is None or kind not in kinds:
        fix = "check the file"
        found = "another kind of file, or a damaged file"
        if kind is not None:
            found, fix = _DESCRIPTIONS[kind]
        elif file.read_start(1) == b"{" and file.contains(b'"schema_version"'):
            found = "a report or a history that ncscope wrote"
            fix = "show it with ncscope report, or pass the features themselves"
        raise InputError(expected=expected, found=f"{found} ({file.name})", fix=fix)
    return kind


_DESCRIPTIONS: Mapping[Kind, tuple[str, str]] = {
    "npy": ("an .npy file", "pass .npy files with --features and --labels"),
    "npz": ("an .npz file", "pass an .npz file as FILE; save weights with torch.save"),
    "torch": ("a file of torch.save", "save the array with numpy.save"),
    "safetensors": ("a .safetensors file", "save the array with numpy.save"),
}
"""What a message calls a file of the wrong kind, and the remedy."""


def _read_npz(file: TensorFile, entries: Collection[str]) -> Mapping[str, Any]:
    """Read some entries of an .npz file; the others are named without being read."""
    with reading(file), file.open() as opened, zipfile.ZipFile(opened) as archive:
        members = archive.infolist()
        names = [info.filename.removesuffix(".npy") for info in members]
        wanted = {n: info for n, info in zip(names, members, strict=True) if n in entries}
        twice = [name for name in wanted if names.count(name) > 1]
        if twice:
            expected, fix = f"{twice[0]} once in {file.name}", "save every array once"
            raise InputError(expected=expected, found="several entries of it", fix=fix)
        needed = sum(_size_in(archive, info) for info in wanted.values())
        fix = "save arrays as .npy and pass --features and --labels, which are read in parts"
        check_memory(needed, f"the arrays of {file.name}", fix)
        arrays = {name: _array_in(archive, info) for name, info in wanted.items()}
        return dict.fromkeys(names) | arrays


def _size_in(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Return the bytes that an array of an archive takes, from its header alone."""
    with archive.open(info) as stream:
        return _check_array(stream.read(LONGEST_HEADER), info.file_size)


def _array_in(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _read_safetensors(file: TensorFile) -> Mapping[str, Any]:
    with reading(file):
        return load(file.content) if file.path is None else load_file(file.path)


def _read_torch(file: TensorFile) -> Mapping[str, Any]:
    with reading(file, "torch"):
        loaded = load_tensors(file)
    if not isinstance(loaded, Mapping):
        fix = "torch.save({'features': ..., 'labels': ...}, path), or torch.save a state_dict()"
        found = type(loaded).__name__
        raise InputError(expected=f"a mapping of tensors in {file.name}", found=found, fix=fix)
    return loaded


_READERS = {"safetensors": _read_safetensors, "torch": _read_torch}


def _names(entries: Collection[Any]) -> str:
    """Return the names of a file's entries as text; long names and long lists are cut."""
    short = Repr()
    short.maxother = 60
    shown = [
        name[:60] if isinstance(name, str) else short.repr(name)
        for name in islice(entries, _MOST_NAMED)
    ]
    more = len(entries) - len(shown)
    return ", ".join(sorted(shown)) + (f" and {more:,} more" if more else "") or "none"


@contextmanager
def reading(file: TensorFile, kind: Kind | None = None) -> Iterator[None]:
    """Re-raise every exception as InputError: a parser can raise anything on a damaged file.

    Args:
        file: File to name in the message.
        kind: Kind of the file, where the message depends on it.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        found, fix = _reason(error, kind)
        raise InputError(expected=f"plain arrays in {file.name}", found=found, fix=fix) from error


def _reason(error: Exception, kind: Kind | None) -> tuple[str, str]:
    """Return the fault of the file, as far as the parser's message tells, and the remedy."""
    message = " ".join(str(error).split())[:200]
    if isinstance(error, FileNotFoundError | IsADirectoryError):  # at an address
        return f"no file there ({message})", "check the address"
    if isinstance(error, PermissionError):
        return message, "make it readable, or choose another file"
    if isinstance(error, MemoryError):
        return "more than fits into memory", "save fewer samples, or use a machine with more memory"
    if kind == "torch":
        return "other objects than tensors, or a damaged file", _PLAIN
    if message.startswith(("Object arrays", "Array can't be memory-mapped: Python objects")):
        return "pickled objects", _PLAIN
    return f"a damaged file ({message or type(error).__name__})", _AGAIN


LONGEST_HEADER = 10_000
"""Longest header in bytes. NumPy refuses longer ones only after reading them: up to 4 GiB."""


def _check_array(head: bytes, size: int) -> int:
    """Return the bytes of an array's numbers, after checking that the file is large enough.

    Args:
        head: First `LONGEST_HEADER` bytes of an array in .npy format.
        size: Bytes of header and numbers, as the file system or the archive reports them.

    Raises:
        ValueError: If the header is damaged, announces more numbers than the file can hold, or
            announces Python objects.
    """
    start = io.BytesIO(head)
    version = np.lib.format.read_magic(start)
    first = version == (1, 0)  # later versions have a longer field for the header's length
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(start)
    if dtype.hasobject:
        msg = "Object arrays are pickled"
        raise ValueError(msg)
    # An entry of a type without bytes counts as one byte, or its shape could have any size.
    needed, held = math.prod(shape) * max(1, dtype.itemsize), size - start.tell()
    if min(shape, default=0) < 0 or needed > held:
        array = f"{dtype} of shape {shape}"
        msg = f"{array[:80]} takes {needed:,} bytes, and there are {held:,}"
        raise ValueError(msg)
    return needed
