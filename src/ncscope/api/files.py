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
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load, load_file

from ncscope.api.other_files import (
    describe_other_kind,
    describe_pair,
    path_beside,
    path_of,
)
from ncscope.errors import InputError, list_names, say_error
from ncscope.file_kinds import describe_foreign, python_line, python_text
from ncscope.files import is_folder
from ncscope.memory import check_memory
from ncscope.models.weights import FileWeights, find_weights
from ncscope.tensor_files import (
    Kind,
    TensorFile,
    check_exists,
    check_stored,
    detect_kind,
    lacks_checksums,
    load_tensors,
)

CLASSIFIER = ("weight", "bias")
"""Names under which files hold a classifier."""

_FIX_PICKLED = "save plain arrays (pickled objects are never loaded)"
_FIX_DAMAGED = "save it again: the writing may have been cut off"
_CHUNK_BYTES = 2**24


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
    if isinstance(file, str | Path) and _is_array(file):
        return {"weight": load_array(file)}
    return _load_entries(file, names=CLASSIFIER, required=required)


def _is_array(path: str | Path) -> bool:
    file = TensorFile.at(path)
    with explain_read_errors(file):
        return detect_kind(file) == "npy"


def _load_entries(
    file: str | Path | TensorFile, names: Sequence[str], required: Sequence[str]
) -> dict[str, Any]:
    if not isinstance(file, TensorFile):
        file = TensorFile.at(file)
    kind = check_kind(file, ("npz", "safetensors", "torch"), "an .npz, .safetensors or .pt file")
    entries = read_npz(file, names) if kind == "npz" else read_tensors(file, kind)
    if any(name not in entries for name in required):
        quoted = " and ".join(map(repr, required))
        raise InputError(
            expected=f"{'entries' if len(required) > 1 else 'the entry'} {quoted} in {file.name}",
            found=f"entries {list_names(entries, 20)}",
            fix="save the arrays under these names",
        )
    samples = {name: entries[name] for name in names if name in entries}
    if kind == "torch":
        check_stored(file, samples)
    return samples


def checksum_notes(files: Iterable[str | Path | TensorFile]) -> tuple[str, ...]:
    """Return a sentence that names files of torch.save without checksums; empty if there are none.

    Damage inside of such a file would go unnoticed.

    Args:
        files: Files of any kind that were read before.
    """
    names = []
    for file in files:
        saved = file if isinstance(file, TensorFile) else TensorFile.at(file)
        with explain_read_errors(saved):
            if lacks_checksums(saved):
                names.append(saved.name)
    if not names:
        return ()
    shown = list_names(names, 1)
    return (f"checksums not recorded in {shown}: damage of a file would not be seen",)


def read_standard_input() -> TensorFile:
    """Read a file from standard input into memory.

    Raises:
        InputError: If the input does not fit into memory.
    """
    chunks: list[bytes] = []
    length = 0
    while chunk := sys.stdin.buffer.read(_CHUNK_BYTES):
        chunks.append(chunk)
        length += len(chunk)
        # The chunks are joined, and then the arrays are read from the joined bytes.
        check_memory(
            length + _CHUNK_BYTES, "standard input", "save it to a file, and pass the file"
        )
    return TensorFile("standard input", content=b"".join(chunks))


def load_weights(path: str | Path, key: str = "") -> FileWeights:
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
    _refuse_foreign(path)
    if not is_folder(path):
        return _load_weights_file(TensorFile.at(path), key)
    files = [TensorFile.at(shard) for shard in _find_weights_files(path)]
    for file in files:
        _refuse_foreign(Path(str(file.path)), alone=False)
    shards = [_load_weights_file(file, key) for file in files]
    tensors = {name: tensor for shard in shards for name, tensor in shard.tensors.items()}
    notes = checksum_notes(files)
    return replace(shards[0], tensors=tensors, file=path.resolve().name, notes=notes)


def _refuse_foreign(path: Path, *, alone: bool = True) -> None:
    with explain_read_errors(TensorFile.at(path)):
        foreign = describe_foreign(path, alone=alone)
    if foreign is not None:
        found, fix = foreign
        raise InputError(expected=f"weights by name in {path.name}", found=found, fix=fix)


def _load_weights_file(file: TensorFile, key: str) -> FileWeights:
    expected = "weights in a .safetensors file or a file of torch.save"
    kind = check_kind(file, ("safetensors", "torch"), expected)
    weights = find_weights(read_tensors(file, kind), file.name, key)
    if kind == "torch":
        check_stored(file, weights.tensors)
    return replace(weights, notes=checksum_notes([file]))


_IN_FOLDER = ("model.safetensors", "pytorch_model.bin")
"""Names of the weights in a folder that Hugging Face's libraries wrote."""


def _find_weights_files(folder: Path) -> list[Path]:
    """Find the files of a folder that hold the weights of one model: one file, or shards."""
    for name in _IN_FOLDER:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            file = TensorFile.at(index)
            with explain_read_errors(file), file.open() as stream:
                names = set(json.loads(stream.read())["weight_map"].values())
                if not names:
                    msg = "no shards"
                    raise ValueError(msg)
                # The index names files beside it. Taken as a path, ../../x would lead out of the
                # folder that the user named.
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
    check_kind(file, ("npy",), f"one array in {file.name}")
    with explain_read_errors(file):
        _check_array(file.read_start(LONGEST_HEADER), file.size)
        return np.lib.format.open_memmap(Path(path), mode="r")


def check_kind(file: TensorFile, kinds: Sequence[Kind], expected: str) -> Kind:
    """Return the kind of a file, after checking that it is one of some kinds.

    Args:
        file: File to judge by its content.
        kinds: Kinds that the caller reads.
        expected: Description of these kinds, for the message.
    """
    check_exists(file)
    with explain_read_errors(file):
        if file.size == 0:
            raise InputError(
                expected=f"arrays in {file.name}", found="an empty file", fix=_FIX_DAMAGED
            )
        kind = detect_kind(file)
    if kind is None or kind not in kinds:
        fix = "check the file"
        found = "another kind of file, or a damaged file"
        if kind is not None:
            found, fix = _DESCRIPTIONS[kind]
        elif file.read_start(1) == b"{" and file.contains(b'"schema_version"'):
            found = "a report or a history that ncscope wrote"
            fix = "show it with ncscope report, or pass the features themselves"
        elif "npz" in kinds or "npy" in kinds:
            with explain_read_errors(file):
                other: tuple[str, str] | None = describe_other_kind(file)
                if other is None and kinds == ("npy",):
                    other = _describe_table(file)
                found, fix = other or (found, fix)
        raise InputError(expected=expected, found=f"{found} ({file.name})", fix=fix)
    return kind


def _describe_table(file: TensorFile) -> tuple[str, str] | None:
    """Describe a table that is given where one array is wanted; None for another file."""
    start, suffixes = file.read_start(8), Path(file.name).suffixes
    is_text = any(suffix.lower() in (".csv", ".tsv", ".txt") for suffix in suffixes)
    if is_text or start.startswith((b"PAR1", b"\x89HDF")):
        return "a table, which holds features and labels", f"pass it as FILE: {file.name}"
    return None


_DESCRIPTIONS: Mapping[Kind, tuple[str, str]] = {
    "npy": (
        "an .npy file",
        "pass .npy files with --features and --labels, or both as an .npz file",
    ),
    "npz": ("an .npz file", "pass an .npz file as FILE; save weights with torch.save"),
    "torch": ("a file of torch.save", "save the array with numpy.save"),
    "safetensors": ("a .safetensors file", "save the array with numpy.save"),
}
"""What a message calls a file of the wrong kind, and the remedy."""


def read_npz_shapes(file: TensorFile) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array of an .npz file by name; of no array, an empty shape.

    Args:
        file: File of that kind.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    with file.open() as stream, zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            shape: tuple[int, ...] = ()
            # The entry may be damaged, and no one may want it.
            with suppress(Exception), archive.open(info) as member:
                shape = _read_header(member.read(LONGEST_HEADER))[0]
            shapes[info.filename.removesuffix(".npy")] = shape
    return shapes


def read_npz(file: TensorFile, entries: Collection[str]) -> Mapping[str, Any]:
    """Read some entries of an .npz file; the others are named without being read."""
    with explain_read_errors(file), file.open() as stream, zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        names = [info.filename.removesuffix(".npy") for info in members]
        members_by_name = {n: info for n, info in zip(names, members, strict=True) if n in entries}
        twice = [name for name in members_by_name if names.count(name) > 1]
        if twice:
            expected, fix = f"{twice[0]} once in {file.name}", "save every array once"
            raise InputError(expected=expected, found="several entries of it", fix=fix)
        # The headers alone say how much memory the arrays need: a few kilobytes of zip can unpack
        # to any size, so nothing is read before the sum is checked.
        size = 0
        for info in members_by_name.values():
            with archive.open(info) as member:
                size += _check_array(member.read(LONGEST_HEADER), info.file_size)
        fix = "save arrays as .npy and pass --features and --labels, which are read in parts"
        check_memory(size, f"the arrays of {file.name}", fix)
        arrays = {}
        for name, info in members_by_name.items():
            with archive.open(info) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
        return dict.fromkeys(names) | arrays


def read_tensors(file: TensorFile, kind: Kind) -> Mapping[str, Any]:
    """Read all tensors of a .safetensors file or a file of torch.save, by name."""
    if kind == "safetensors":
        with explain_read_errors(file):
            return load(file.content) if file.path is None else load_file(file.path)
    with explain_read_errors(file, "torch"):
        content = load_tensors(file)
    if not isinstance(content, Mapping):
        fix = "torch.save({'features': ..., 'labels': ...}, path), or torch.save a state_dict()"
        fix = describe_pair(file, content) or fix
        found = type(content).__name__
        raise InputError(expected=f"a mapping of tensors in {file.name}", found=found, fix=fix)
    return content


@contextmanager
def explain_read_errors(file: TensorFile, kind: Kind | None = None) -> Iterator[None]:
    """Re-raise every exception as InputError: a parser can raise anything on a damaged file.

    The body must only read the file: an error of our own in it would be reported as damage.

    Args:
        file: File to name in the message.
        kind: Kind of the file, where the message depends on it.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        found, fix = _describe_damage(error, kind, file)
        raise InputError(expected=f"plain arrays in {file.name}", found=found, fix=fix) from error


def _describe_damage(error: Exception, kind: Kind | None, file: TensorFile) -> tuple[str, str]:
    """Describe the fault of a file, as far as the parser's message tells, and the remedy."""
    message = say_error(error)
    if isinstance(error, FileNotFoundError | IsADirectoryError):  # at an address
        return f"no file there ({message})", "check the address"
    if isinstance(error, PermissionError):
        return message, "make it readable, or choose another file"
    if isinstance(error, MemoryError):
        return "more than fits into memory", "save fewer samples, or use a machine with more memory"
    if kind == "torch":
        return "other objects than tensors, or a damaged file", _FIX_PICKLED
    if message.startswith(("Object arrays", "Array can't be memory-mapped: Python objects")):
        return "pickled objects", _rewrite_objects(file)
    return f"a damaged file ({message or type(error).__name__})", _FIX_DAMAGED


def _rewrite_objects(file: TensorFile) -> str:
    """Return the remedy for arrays of Python objects: the command that writes plain arrays."""
    path, suffix = python_text(path_of(file)), Path(file.name).suffix
    if suffix == ".npz":
        new = python_text(path_beside(file, "-plain.npz"))
        code = f"d = numpy.load({path}, allow_pickle=True); numpy.savez({new}, "
        code += "**{k: numpy.array(v.tolist()) for k, v in d.items()})"
    else:
        new = python_text(path_beside(file, "-plain.npy"))
        code = f"numpy.save({new}, numpy.array(numpy.load({path}, allow_pickle=True).tolist()))"
    return f"{_FIX_PICKLED}; if you trust the file: {python_line(f'import numpy; {code}')}"


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
    shape, dtype, end = _read_header(head)
    if dtype.hasobject:
        msg = "Object arrays are pickled"
        raise ValueError(msg)
    # An entry of a type without bytes counts as one byte, or its shape could have any size.
    length, most = math.prod(shape) * max(1, dtype.itemsize), size - end
    if min(shape, default=0) < 0 or length > most:
        array = f"{dtype} of shape {shape}"
        msg = f"{array[:80]} takes {length:,} bytes, and there are {most:,}"
        raise ValueError(msg)
    return length


def _read_header(head: bytes) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return shape and type of an array in .npy format, and where its numbers begin."""
    start = io.BytesIO(head)
    version = np.lib.format.read_magic(start)
    # Later versions of the format have a longer field for the header's length.
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(start)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(start)
    return shape, dtype, start.tell()
