"""Features saved in files: .npz, .safetensors, .pt and .npy. Nothing is ever unpickled."""

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ncscope.errors import InputError

ENTRIES = ("features", "labels", "weight", "bias")


def load_samples(path: str | Path) -> dict[str, Any]:
    """The entries ``features``, ``labels`` and, if there, ``weight`` and ``bias`` of a file.

    Args:
        path: An .npz, .safetensors or .pt file (a mapping of names to tensors).

    Raises:
        InputError: If the file is missing, of another kind, holds pickled objects, or lacks
            features or labels.
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


def load_array(path: str | Path) -> np.ndarray[Any, np.dtype[Any]]:
    """An .npy file, memory-mapped.

    Raises:
        InputError: If it is missing, no .npy file, or holds pickled objects.
    """
    path = Path(path)
    _require_file(path)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise _refused(path, error) from error


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(expected="a file", found=f"nothing at {path}", fix="check the path")


def _read_npz(path: Path) -> Mapping[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            wanted = {name: archive[name] for name in archive.files if name in ENTRIES}
            return dict.fromkeys(archive.files) | wanted
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise _refused(path, error) from error


def _read_safetensors(path: Path) -> Mapping[str, Any]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _refused(path, error) from error


def _read_pt(path: Path) -> Mapping[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of pickle protocols: the error says it
            loaded = torch.load(path, weights_only=True, map_location="cpu", mmap=_is_zip(path))
    except pickle.UnpicklingError as error:
        raise _refused(path, ValueError("other objects than tensors, or a damaged file")) from error
    except (RuntimeError, OSError, EOFError, KeyError) as error:
        raise _refused(path, error) from error
    if not isinstance(loaded, Mapping):
        fix = "torch.save({'features': ..., 'labels': ...}, path)"
        found = type(loaded).__name__
        raise InputError(expected=f"a mapping of tensors in {path.name}", found=found, fix=fix)
    return loaded


def _is_zip(path: Path) -> bool:
    """Whether the file can be memory-mapped: torch's older format cannot."""
    return zipfile.is_zipfile(path)


def _refused(path: Path, error: Exception) -> InputError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    fix = "save plain arrays (pickled objects are never loaded)"
    return InputError(expected=f"plain arrays in {path.name}", found=reason[:200], fix=fix)
