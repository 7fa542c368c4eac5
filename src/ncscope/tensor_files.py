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
from ncscope.file_kinds import describe_pickle
from ncscope.files import check_input

Kind = Literal["torch", "safetensors", "npz", "npy"]

_NPY, _ZIP, _PICKLE = b"\x93NUMPY", b"PK\x03\x04", b"\x80"
_TORCH_NUMBER = torch.serialization.MAGIC_NUMBER.to_bytes(10, "little")


@dataclass(frozen=True)
class TensorFile:
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
    def at(cls, path: str | Path) -> "TensorFile":
        """Return the file at a path."""
        return cls(Path(path).name, Path(path))

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.content) if self.path is None else self.path.stat().st_size

    def open(self) -> BufferedReader | BytesIO:
        """Open the file for reading.

        Raises:
            InputError: If there is no file at the path, but nothing, a folder, a pipe or a device.
        """
        if self.path is None:
            return BytesIO(self.content)
        check_exists(self)
        return self.path.open("rb")

    def read_start(self, length: int) -> bytes:
        """Return the first bytes."""
        with self.open() as file:
            return file.read(length)

    def contains(self, part: bytes) -> bool:
        """Return whether some bytes occur anywhere in the file."""
        if self.path is None:
            return part in self.content
        with self.open() as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return content.find(part) >= 0


def check_exists(file: TensorFile) -> None:
    """Check that there is a file at the path.

    Raises:
        InputError: If there is nothing, a folder, a pipe, a socket or a device.
    """
    if file.path is not None:
        check_input(file.path)


def detect_kind(file: TensorFile) -> Kind | None:
    """Return the kind of a file, judged by its content alone; None for any other kind.

    Raises:
        zipfile.BadZipFile: If the file begins like an archive and is damaged.
    """
    start = file.read_start(9)
    if start.startswith(_NPY):
        return "npy"
    if start.startswith(_ZIP):
        with file.open() as opened, zipfile.ZipFile(opened) as archive:
            names = archive.namelist()
        if any(name.rpartition("/")[2] == "data.pkl" for name in names):
            return "torch"
        # Documents and many other kinds of file are archives too, of files with other suffixes.
        suffixes = {Path(name).suffix for name in names}
        return "npz" if ".npy" in suffixes or suffixes <= {""} else None
    # A safetensors file begins with the length of a JSON object in 8 bytes. It comes before the
    # pickle, because a length can begin with the byte of a pickle.
    if start[8:] == b"{" and int.from_bytes(start[:8], "little") <= file.size - 8:
        return "safetensors"
    # Older files of torch.save are several pickles, the first of which is a long number.
    is_torch = start.startswith(_PICKLE) and _TORCH_NUMBER in file.read_start(40)
    return "torch" if is_torch else None


def load_tensors(file: TensorFile, *, mapped: bool = True) -> Any:
    """Return the content of a file of torch.save: tensors on the CPU, and plain values.

    Args:
        file: File to load.
        mapped: Map the tensors into memory if possible; read them if False.

    Raises:
        InputError: If entries are compressed, so that a small file could fill the memory, or the
            file holds an object of a class that is not loaded; the message names the class. Also
            if the checksum (CRC-32) of an entry is not that of its bytes.
        Exception: If the file is damaged in another way.

    Cost: one pass over the file for the checksums, at about 1 GB a second: 0.7 of
    the time of loading.
    """
    archive = _is_archive(file)
    if archive:
        _check_archive(file)
    if (not archive or lacks_checksums(file)) and file.contains(_BYTEARRAY):
        raise _bytearray_error(file)
    # Pairs of a stand-in, whose name messages show, and the full name of the class it stands for.
    stand_ins: list[Any] = [
        (type(shown, (_StandIn,), {}), name) for name, shown in _SUBSTITUTES.items()
    ]
    # Torch cannot map its older format, which is no zip file, and judges a path by its suffix.
    path = None if file.name.endswith(".safetensors") or not (mapped and archive) else file.path
    with (
        warnings.catch_warnings(),
        torch.serialization.safe_globals(stand_ins),
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
            found = f"an object of the class {refused[1]}"
            fix = "save model.state_dict() or tensors alone (pickled objects are never loaded)"
            opened.seek(0)
            described = describe_pickle(opened, str(file.path or file.name), refused[1])
            if described is not None:
                found, fix = described
            expected = f"tensors and plain values in {file.name}"
            raise InputError(expected=expected, found=found, fix=fix) from error


_SUBSTITUTES = {
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


def check_stored(file: TensorFile, entries: Mapping[str, Any]) -> None:
    """Check that entries are tensors whose numbers are all in the file.

    A tensor that was expanded before it was saved takes a few bytes in the file, but can take any
    number of bytes in a computation.

    Args:
        file: File that `load_tensors` read.
        entries: Values of the file, by name.

    Raises:
        InputError: If an entry is no such tensor; the message names it.
    """
    # Sizes that a tensor's storage can have; in the older format, up to the file's.
    sizes: Collection[int] = range(file.size + 1)
    if _is_archive(file):
        sizes = {record.file_size for record in _records(file)}
    for name, value in entries.items():
        if not isinstance(value, Tensor):
            found = f"{type(value).__name__} under {name!r:.80}"
            fix = "save tensors of numbers (pickled objects are never loaded)"
            raise InputError(expected=f"tensors in {file.name}", found=found, fix=fix)
        found, fix = _explain_lack(value, sizes)
        if found:
            expected = f"all numbers of {name!r:.80} in {file.name}"
            raise InputError(expected=expected, found=found, fix=fix)


def _explain_lack(tensor: Tensor, sizes: Collection[int]) -> tuple[str, str]:
    """Say why a tensor's numbers are not all in the file, and what helps; empty if they are."""
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


def _is_archive(file: TensorFile) -> bool:
    return file.read_start(len(_ZIP)) == _ZIP  # the same test as torch's


def lacks_checksums(file: TensorFile) -> bool:
    """Return whether torch.save wrote entries without checksums into an archive.

    It does so after ``torch.serialization.set_crc32_options(False)``, and for tensors under
    ``skip_data``. The older format and safetensors never have any, and give False.

    Args:
        file: File of any kind.
    """
    return _is_archive(file) and any(map(_lacks_checksum, _records(file)))


def _lacks_checksum(record: zipfile.ZipInfo) -> bool:
    return record.CRC == 0 < record.file_size


def _records(file: TensorFile) -> list[zipfile.ZipInfo]:
    with file.open() as opened, zipfile.ZipFile(opened) as archive:
        return archive.infolist()


def _check_archive(file: TensorFile) -> None:
    """Check that all entries are stored as they are, and have the checksums that were recorded."""
    records = _records(file)
    for record in records:
        if record.compress_type != zipfile.ZIP_STORED:
            expected = f"entries of {file.name} as torch.save writes them"
            found = f"{record.filename} compressed"
            raise InputError(expected=expected, found=found, fix="save it with torch.save")
    # Entries may share bytes of the file, so that a small file could still fill the memory.
    if sum(record.file_size for record in records) > file.size:
        found, fix = "entries larger than the file", "save it with torch.save"
        raise InputError(expected=f"an archive of tensors in {file.name}", found=found, fix=fix)
    with file.open() as opened, zipfile.ZipFile(opened) as archive:
        for record in records:
            if _lacks_checksum(record):
                continue
            last = b""
            try:
                # zipfile compares the checksum when an entry has been read to its end; torch
                # compares none.
                with archive.open(record) as stream:
                    while chunk := stream.read(_CHUNK):
                        # A bytearray in a pickle may lie across two chunks.
                        if record.filename.endswith(".pkl") and _BYTEARRAY in last + chunk:
                            raise _bytearray_error(file)
                        last = chunk[-len(_BYTEARRAY) :]
            except zipfile.BadZipFile as error:
                found = f"other bytes in {record.filename} than its checksum (CRC-32) is of"
                fix = "copy or save the file again: it was damaged after it was written"
                expected = f"{file.name} as it was saved"
                raise InputError(expected=expected, found=found, fix=fix) from error


_CHUNK = 2**20

_BYTEARRAY = b"\nbytearray\n"
"""Pickle instruction for a bytearray of any size. Torch allows it, and it could fill the memory."""


def _bytearray_error(file: TensorFile) -> InputError:
    fix = "save tensors only"
    return InputError(expected=f"tensors in {file.name}", found="a bytearray", fix=fix)
