"""Files of arrays and tensors: their kind, judged by content, and safe loading of torch's files.

Nothing in a file is executed. Torch's restricted unpickler makes tensors and plain values; for the
few other classes that training libraries write, an inert stand-in takes the place of the object.
"""

import re
import warnings
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ncscope.errors import InputError

Kind = Literal["torch", "safetensors", "npz", "npy"]

_NPY, _ZIP, _PICKLE = b"\x93NUMPY", b"PK\x03\x04", b"\x80"


@dataclass(frozen=True)
class SavedFile:
    """File to read: a file on disk, or bytes in memory.

    Attributes:
        name: Base name of the file, for messages.
        path: Path on disk; None for bytes in memory.
        content: Bytes of a file without a path.
    """

    name: str
    path: Path | None = None
    content: bytes = b""

    @classmethod
    def at(cls, path: str | Path) -> "SavedFile":
        """Return the file at a path."""
        return cls(Path(path).name, Path(path))

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return len(self.content) if self.path is None else self.path.stat().st_size

    def open(self) -> BufferedReader | BytesIO:
        """Open the file for reading."""
        return BytesIO(self.content) if self.path is None else self.path.open("rb")

    def start(self, length: int) -> bytes:
        """Return the first bytes."""
        with self.open() as file:
            return file.read(length)

    def contains(self, part: bytes) -> bool:
        """Return whether some bytes occur anywhere in the file."""
        if self.path is None:
            return part in self.content
        with self.open() as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return content.find(part) >= 0


def kind_of(file: SavedFile) -> Kind | None:
    """Return the kind of a file, judged by its content alone; None for any other kind.

    Raises:
        zipfile.BadZipFile: If the file begins like an archive and is damaged.
    """
    start = file.start(9)
    if start.startswith(_NPY):
        return "npy"
    if start.startswith(_ZIP):
        with file.open() as opened, zipfile.ZipFile(opened) as archive:
            names = archive.namelist()
        return "torch" if any(name.rpartition("/")[2] == "data.pkl" for name in names) else "npz"
    # A safetensors file begins with the length of a JSON object in 8 bytes. It comes before the
    # pickle, because a length can begin with the byte of a pickle.
    if start[8:] == b"{" and int.from_bytes(start[:8], "little") <= file.size - 8:
        return "safetensors"
    return "torch" if start.startswith(_PICKLE) else None


def load_tensors(file: SavedFile, *, mapped: bool = True) -> Any:
    """Return the content of a file of torch.save: tensors on the CPU, and plain values.

    Args:
        file: File to load.
        mapped: Map the tensors into memory if possible; read them if False.

    Raises:
        InputError: If entries are compressed, so that a small file could fill the memory, or the
            file holds an object of a class that is not loaded; the message names the class.
        Exception: If the file is damaged.
    """
    archive = file.start(len(_ZIP)) == _ZIP  # the same test as torch's
    if archive:
        _check_archive(file)
    elif file.contains(_BYTEARRAY):
        raise _bytearray_in(file)
    # Torch cannot map its older format, which is no zip file, and judges a path by its suffix.
    path = None if file.name.endswith(".safetensors") or not (mapped and archive) else file.path
    with (
        warnings.catch_warnings(),
        torch.serialization.safe_globals(_stand_ins()),
        file.open() as opened,
    ):
        warnings.simplefilter("ignore", UserWarning)  # about pickle protocols; an error follows
        try:
            return torch.load(
                path or opened, weights_only=True, map_location="cpu", mmap=path is not None
            )
        except Exception as error:
            refused = re.search(r"GLOBAL (\S{1,200}) (was not an allowed|whose module)", str(error))
            if refused is None:
                raise
            raise InputError(
                expected=f"tensors and plain values in {file.name}",
                found=f"an object of the class {refused[1]}",
                fix="save model.state_dict() or tensors alone (pickled objects are never loaded)",
            ) from error


_STOOD_IN = {
    # Arguments of a script: timm writes them as `args`, and so do many training scripts.
    "argparse.Namespace": "Namespace",
    "types.SimpleNamespace": "SimpleNamespace",
    # Paths among arguments and hyperparameters; Python 3.13 has a module of its own for them.
    "pathlib.PosixPath": "Path",
    "pathlib.WindowsPath": "Path",
    "pathlib.PurePosixPath": "Path",
    "pathlib._local.PosixPath": "Path",
    "pathlib._local.WindowsPath": "Path",
    # Metrics and hyperparameters from NumPy, before and since version 2.
    "numpy.dtype": "NumPy dtype",
    "numpy.ndarray": "NumPy array",
    "numpy.core.multiarray.scalar": "NumPy number",
    "numpy._core.multiarray.scalar": "NumPy number",
    "numpy.core.multiarray._reconstruct": "NumPy array",
    "numpy._core.multiarray._reconstruct": "NumPy array",
    # Configurations of Hydra: Lightning writes them as hyperparameters.
    "omegaconf.dictconfig.DictConfig": "DictConfig",
    "omegaconf.listconfig.ListConfig": "ListConfig",
    "omegaconf.base.ContainerMetadata": "ContainerMetadata",
    "omegaconf.base.Metadata": "Metadata",
    "omegaconf.nodes.AnyNode": "AnyNode",
    "collections.defaultdict": "defaultdict",
    "typing.Any": "type",
    "builtins.dict": "type",
    "builtins.list": "type",
    "builtins.int": "type",
}
"""Classes and functions that are not loaded, but passed over, and what messages call them.

Only names that libraries and scripts commonly write beside weights; weights never need them.
"""


class _StandIn:
    """Object in place of one that is not loaded; it ignores what it is made from."""

    def __init__(self, *arguments: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


def _stand_ins() -> list[Any]:
    """Return pairs of a stand-in and the full name of the class for which it stands."""
    return [(type(shown, (_StandIn,), {}), name) for name, shown in _STOOD_IN.items()]


def check_stored(file: SavedFile, entries: Mapping[str, Any]) -> None:
    """Check that entries are tensors whose numbers are all in the file.

    A tensor that was expanded before it was saved takes a few bytes in the file, but can take any
    number of bytes in a computation.

    Args:
        file: File that `load_tensors` read.
        entries: Values of the file, by name.

    Raises:
        InputError: If an entry is no such tensor; the message names it.
    """
    sizes = _record_sizes(file)
    for name, value in entries.items():
        if not isinstance(value, Tensor):
            found = f"{type(value).__name__} under {name!r:.80}"
            fix = "save tensors of numbers (pickled objects are never loaded)"
            raise InputError(expected=f"tensors in {file.name}", found=found, fix=fix)
        found, fix = _lacking(value, sizes)
        if found:
            expected = f"all numbers of {name!r:.80} in {file.name}"
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


def _record_sizes(file: SavedFile) -> Collection[int]:
    """Return the sizes that a tensor's storage can have; in the older format, up to the file's."""
    if file.start(len(_ZIP)) != _ZIP:
        return range(file.size + 1)
    with file.open() as opened, zipfile.ZipFile(opened) as archive:
        return {record.file_size for record in archive.infolist()}


def _check_archive(file: SavedFile) -> None:
    with file.open() as opened, zipfile.ZipFile(opened) as archive:
        for record in archive.infolist():
            if record.compress_type != zipfile.ZIP_STORED:
                expected = f"entries of {file.name} as torch.save writes them"
                found = f"{record.filename} compressed"
                raise InputError(expected=expected, found=found, fix="save it with torch.save")
            if record.filename.endswith(".pkl") and _BYTEARRAY in archive.read(record):
                raise _bytearray_in(file)


_BYTEARRAY = b"\nbytearray\n"
"""Pickle instruction for a bytearray of any size. Torch allows it, and it could fill the memory."""


def _bytearray_in(file: SavedFile) -> InputError:
    fix = "save tensors only"
    return InputError(expected=f"tensors in {file.name}", found="a bytearray", fix=fix)
