"""Features saved in files: .npz, .safetensors, .pt and .npy. Nothing is ever unpickled.

Before an array is read, the size that the file announces is compared with the size of the file
and with the free memory.
"""

import io
import math
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from reprlib import Repr
from typing import Any

import numpy as np
from safetensors.torch import load_file

from ncscope.errors import InputError
from ncscope.memory import check_memory
from ncscope.models.libraries import Weights, bare_weights
from ncscope.tensor_files import check_stored, load_tensors

ENTRIES = ("features", "labels", "weight", "bias")

_NPY, _ZIP = b"\x93NUMPY", b"PK"
_PLAIN = "save plain arrays (pickled objects are never loaded)"
_AGAIN = "save it again: the writing may have been cut off"
_MOST_NAMED = 20


def load_samples(path: str | Path) -> dict[str, Any]:
    """Read the entries ``features`` and ``labels`` of a file, and ``weight`` and ``bias`` if any.

    Args:
        path: An .npz, .safetensors or .pt file (a mapping of names to tensors).

    Raises:
        InputError: If the file is missing, empty, damaged, of another kind, holds pickled objects
            or fewer numbers than it announces, does not fit into memory, or lacks features or
            labels.
    """
    path = Path(path)
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors, ".pt": _read_pt}
    if path.suffix not in readers:
        found, fix = repr(path.name), "or pass --features and --labels as .npy files"
        raise InputError(expected="an .npz, .safetensors or .pt file", found=found, fix=fix)
    _require_file(path)
    entries = readers[path.suffix](path)
    missing = [name for name in ENTRIES[:2] if name not in entries]
    if missing:
        fix = "save the arrays under these names"
        expected = f"entries 'features' and 'labels' in {path.name}"
        raise InputError(expected=expected, found=f"entries {_names(entries)}", fix=fix)
    samples = {name: entries[name] for name in ENTRIES if name in entries}
    if path.suffix == ".pt":
        check_stored(path, samples)
    return samples


def load_weights(path: str | Path) -> Weights:
    """Read a model's weights: see `bare_weights`.

    Args:
        path: A .safetensors, .pt or .pth file.

    Raises:
        InputError: If the file is missing, empty, damaged, of another kind, holds pickled objects
            or fewer numbers than it announces, or holds no weights of a model.
    """
    path = Path(path)
    readers = {".safetensors": _read_safetensors, ".pt": _read_pt, ".pth": _read_pt}
    if path.suffix not in readers:
        expected, fix = "weights in a .safetensors, .pt or .pth file", "torch.save(its state_dict)"
        raise InputError(expected=expected, found=repr(path.name), fix=fix)
    _require_file(path)
    weights = bare_weights(readers[path.suffix](path))
    if path.suffix != ".safetensors":
        check_stored(path, weights)
    return weights


def load_array(path: str | Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Map an .npy file into memory; the file may be larger than the memory.

    Raises:
        InputError: If the file is missing, empty, damaged, of another kind, or holds pickled
            objects.
    """
    path = Path(path)
    _require_file(path)
    with _reading(path), path.open("rb") as file:
        if _starts_with(path, _ZIP):
            fix = "rename it to end in .npz and pass it as FILE"
            raise InputError(expected=f"one array in {path.name}", found="an .npz file", fix=fix)
        _check_array(file.read(LONGEST_HEADER), path.stat().st_size)
        return np.lib.format.open_memmap(path, mode="r")


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(expected="a file", found=f"nothing at {path}", fix="check the path")
    if path.stat().st_size == 0:
        raise InputError(expected=f"arrays in {path.name}", found="an empty file", fix=_AGAIN)


def _read_npz(path: Path) -> Mapping[str, Any]:
    with _reading(path), path.open("rb") as file:
        if _starts_with(path, _NPY):
            fix = "pass .npy files with --features and --labels"
            raise InputError(expected=f"an archive in {path.name}", found="an .npy file", fix=fix)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [info.filename.removesuffix(".npy") for info in members]
            wanted = {n: info for n, info in zip(names, members, strict=True) if n in ENTRIES}
            twice = [name for name in wanted if names.count(name) > 1]
            if twice:
                expected, fix = f"{twice[0]} once in {path.name}", "save every array once"
                raise InputError(expected=expected, found="several entries of it", fix=fix)
            needed = sum(_size_in(archive, info) for info in wanted.values())
            fix = "save arrays as .npy and pass --features and --labels, which are read in parts"
            check_memory(needed, f"the arrays of {path.name}", fix)
            arrays = {name: _array_in(archive, info) for name, info in wanted.items()}
            return dict.fromkeys(names) | arrays


def _size_in(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Return the bytes that an array of an archive takes, from its header alone."""
    with archive.open(info) as stream:
        return _check_array(stream.read(LONGEST_HEADER), info.file_size)


def _array_in(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _read_safetensors(path: Path) -> Mapping[str, Any]:
    with _reading(path):
        return load_file(path)


def _read_pt(path: Path) -> Mapping[str, Any]:
    with _reading(path):
        loaded = load_tensors(path)
    if not isinstance(loaded, Mapping):
        fix = "torch.save({'features': ..., 'labels': ...}, path)"
        found = type(loaded).__name__
        raise InputError(expected=f"a mapping of tensors in {path.name}", found=found, fix=fix)
    return loaded


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


def _starts_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Re-raise every exception as InputError: a parser can raise anything on a damaged file."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        found, fix = _reason(path, error)
        raise InputError(expected=f"plain arrays in {path.name}", found=found, fix=fix) from error


def _reason(path: Path, error: Exception) -> tuple[str, str]:
    """Return the fault of the file, as far as the parser's message tells, and the remedy."""
    message = " ".join(str(error).split())[:200]
    if isinstance(error, PermissionError):
        return message, "make it readable, or choose another file"
    if isinstance(error, MemoryError):
        return "more than fits into memory", "save fewer samples, or use a machine with more memory"
    if path.suffix in (".pt", ".pth"):
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
