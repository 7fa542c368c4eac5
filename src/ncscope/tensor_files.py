"""Tensors in files of torch.save, loaded without unpickling and compared with the file's size."""

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
    """Return the content of a file of torch.save: tensors on the CPU, and plain values.

    Args:
        path: File to load.
        mapped: Map the tensors into memory if possible; read them if False.

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
        warnings.simplefilter("ignore", UserWarning)  # about pickle protocols; an error follows
        # Torch's older format, which is no zip file, cannot be memory-mapped.
        as_map = mapped and archive
        return torch.load(path, weights_only=True, map_location="cpu", mmap=as_map)


def check_stored(path: Path, entries: Mapping[str, Any]) -> None:
    """Check that entries are tensors whose numbers are all in the file.

    A tensor that was expanded before it was saved takes a few bytes in the file, but can take any
    number of bytes in a computation.

    Args:
        path: File that `load_tensors` read.
        entries: Values of the file, by name.

    Raises:
        InputError: If an entry is no such tensor; the message names it.
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
    """Return why a tensor's numbers are not all in the file, and the remedy; else empty texts."""
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
    """Return the sizes that a tensor's storage can have; in the older format, up to the file's."""
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
"""Pickle instruction for a bytearray of any size. Torch allows it, and it could fill the memory."""


def _refuse_bytearrays(path: Path) -> None:
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        if content.find(_BYTEARRAY) >= 0:
            raise _bytearray_in(path)


def _bytearray_in(path: Path) -> InputError:
    fix = "save tensors only"
    return InputError(expected=f"tensors in {path.name}", found="a bytearray", fix=fix)
