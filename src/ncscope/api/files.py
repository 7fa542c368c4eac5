"""Features saved in files: .npz, .safetensors, .pt and .npy. Nothing is ever unpickled."""

import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from ncscope.errors import InputError
from ncscope.models.libraries import Weights, bare_weights

ENTRIES = ("features", "labels", "weight", "bias")

_NPY, _ZIP = b"\x93NUMPY", b"PK"
_PLAIN = "save plain arrays (pickled objects are never loaded)"


def load_samples(path: str | Path) -> dict[str, Any]:
    """The entries ``features``, ``labels`` and, if there, ``weight`` and ``bias`` of a file.

    Args:
        path: An .npz, .safetensors or .pt file (a mapping of names to tensors).

    Raises:
        InputError: If the file is missing, empty, damaged, of another kind, holds pickled objects,
            or lacks features or labels.
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
        names = ", ".join(sorted(map(str, entries))) or "none"
        fix = "save the arrays under these names"
        expected = f"entries 'features' and 'labels' in {path.name}"
        raise InputError(expected=expected, found=f"entries {names}", fix=fix)
    return {name: entries[name] for name in ENTRIES if name in entries}


def load_weights(path: str | Path) -> Weights:
    """A model's weights: see `bare_weights`.

    Args:
        path: A .safetensors, .pt or .pth file.

    Raises:
        InputError: If the file is missing, empty, damaged, of another kind, holds pickled objects,
            or is no model's state.
    """
    path = Path(path)
    readers = {".safetensors": _read_safetensors, ".pt": _read_pt, ".pth": _read_pt}
    if path.suffix not in readers:
        expected, fix = "weights in a .safetensors, .pt or .pth file", "torch.save(its state_dict)"
        raise InputError(expected=expected, found=repr(path.name), fix=fix)
    _require_file(path)
    return bare_weights(readers[path.suffix](path))


def load_array(path: str | Path) -> np.ndarray[Any, np.dtype[Any]]:
    """An .npy file, memory-mapped.

    Raises:
        InputError: If it is missing, empty, damaged, no .npy file, or holds pickled objects.
    """
    path = Path(path)
    _require_file(path)
    with _reading(path):
        if _starts_with(path, _ZIP):
            fix = "rename it to end in .npz and pass it as FILE"
            raise InputError(expected=f"one array in {path.name}", found="an .npz file", fix=fix)
        return np.lib.format.open_memmap(path, mode="r")


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(expected="a file", found=f"nothing at {path}", fix="check the path")
    if path.stat().st_size == 0:
        fix = "save it again: the writing may have been cut off"
        raise InputError(expected=f"arrays in {path.name}", found="an empty file", fix=fix)


def _read_npz(path: Path) -> Mapping[str, Any]:
    with _reading(path), path.open("rb") as file:
        if _starts_with(path, _NPY):
            fix = "pass .npy files with --features and --labels"
            raise InputError(expected=f"an archive in {path.name}", found="an .npy file", fix=fix)
        with np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            wanted = {name: archive[name] for name in archive.files if name in ENTRIES}
            return dict.fromkeys(archive.files) | wanted


def _read_safetensors(path: Path) -> Mapping[str, Any]:
    with _reading(path):
        return load_file(path)


def _read_pt(path: Path) -> Mapping[str, Any]:
    with _reading(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of pickle protocols: the error says it
        # torch's older format, which is no zip file, cannot be memory-mapped
        mapped = zipfile.is_zipfile(path)
        loaded = torch.load(path, weights_only=True, map_location="cpu", mmap=mapped)
    if not isinstance(loaded, Mapping):
        fix = "torch.save({'features': ..., 'labels': ...}, path)"
        found = type(loaded).__name__
        raise InputError(expected=f"a mapping of tensors in {path.name}", found=found, fix=fix)
    return loaded


def _starts_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a parser raises is about the file: a damaged one can make it raise anything."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        expected = f"plain arrays in {path.name}"
        raise InputError(expected=expected, found=_reason(path, error), fix=_PLAIN) from error


def _reason(path: Path, error: Exception) -> str:
    """What is wrong with the file, as far as the parser's own words tell."""
    words = " ".join(str(error).split())[:200]
    if isinstance(error, PermissionError):
        return words
    if path.suffix in (".pt", ".pth"):
        return "other objects than tensors, or a damaged file"
    if words.startswith(("Object arrays", "Array can't be memory-mapped: Python objects")):
        return "pickled objects"
    return f"a damaged file ({words or type(error).__name__})"
