"""Tensors in files that torch wrote: loaded without unpickling, and held to what is stored."""

import warnings
import zipfile
from collections.abc import Collection, Mapping
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ncscope.errors import InputError


def load_tensors(path: Path, *, mapped: bool = True) -> Any:
    """Return what a file that torch wrote holds: tensors on the CPU, and plain values.

    Args:
        path: File.
        mapped: Map its tensors into memory where possible if True; read them if False.

    Raises:
        InputError: If entries are compressed, so that a small file could fill the memory.
        Exception: If the file is damaged, or holds other objects than tensors and plain values.
    """
    archive = zipfile.is_zipfile(path)
    if archive:
        _check_archive(path)
    else:
        _refuse_bytearrays(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of pickle protocols: the error says it
        # torch's older format, which is no zip file, cannot be memory-mapped
        as_map = mapped and archive
        return torch.load(path, weights_only=True, map_location="cpu", mmap=as_map)


def check_stored(path: Path, entries: Mapping[str, Any]) -> None:
    """Refuse what is no tensor, or a tensor whose numbers are not all in the file.

    A tensor that was expanded before it was saved takes a few bytes there and any number of them
    once it is computed with.

    Args:
        path: File that `load_tensors` read.
        entries: Values in it, by name.

    Raises:
        InputError: Naming the entry.
    """
    sizes = _record_sizes(path)
    for name, value in entries.items():
        if not isinstance(value, Tensor):
            found, fix = f"{type(value).__name__} under {name!r:.80}", "save tensors of numbers"
            raise InputError(expected=f"tensors in {path.name}", found=found, fix=fix)
        found, fix = _lacking(value, sizes)
        if found:
            expected = f"all numbers of {name!r:.80} in {path.name}"
            raise InputError(expected=expected, found=found, fix=fix)


def _lacking(tensor: Tensor, sizes: Collection[int]) -> tuple[str, str]:
    """Return what keeps a tensor's numbers from being in the file, and the remedy; or ''."""
    if tensor.layout != torch.strided or tensor.is_nested:
        return f"a sparse or nested tensor of shape {_shape(tensor)}", "save tensor.to_dense()"
    if tensor.is_meta:
        return "a tensor without data", "save it from a device that holds numbers"
    needed, stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
    if needed > stored:
        found = f"{stored:,} bytes for {needed:,} of shape {_shape(tensor)}"
        return found, "save tensor.contiguous(), which stores every number"
    if stored and stored not in sizes:
        return "a damaged file", "save it again: the writing may have been cut off"
    return "", ""


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape[:4]))


def _record_sizes(path: Path) -> Collection[int]:
    """Return the sizes that a tensor's storage can have; in the older format, up to the whole."""
    if not zipfile.is_zipfile(path):
        return range(path.stat().st_size + 1)
    with zipfile.ZipFile(path) as archive:
        return {record.file_size for record in archive.infolist()}


def _check_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for record in archive.infolist():
            if record.compress_type != zipfile.ZIP_STORED:
                expected = f"entries of {path.name} as torch.save writes them"
                found = f"{record.filename} compressed"
                raise InputError(expected=expected, found=found, fix="save it with torch.save")
            if record.filename.endswith(".pkl") and _BYTEARRAY in archive.read(record):
                raise _bytearray_in(path)


_BYTEARRAY = b"\nbytearray\n"
"""An instruction to make one, of any size: of all that torch lets through, what fills memory."""


def _refuse_bytearrays(path: Path) -> None:
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        if content.find(_BYTEARRAY) >= 0:
            raise _bytearray_in(path)


def _bytearray_in(path: Path) -> InputError:
    fix = "save tensors only"
    return InputError(expected=f"tensors in {path.name}", found="a bytearray", fix=fix)
