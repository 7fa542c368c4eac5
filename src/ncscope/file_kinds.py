"""Sound files that hold no weights which ncscope reads: what they are called, and what to do.

A file is judged by its content, a folder by the names in it. Nothing is loaded or unpickled: of a
pickle only the instructions are listed.
"""

import json
import pickletools
import re
import zipfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

from ncscope.files import describe_fault, is_folder

_LOAD_TRUSTED = "if you trust the file, whose code this runs: "
_KERAS = (
    "leave --weights out, and name a function that loads it as MODEL: net.py:make_model with "
    "`return keras.saving.load_model({name!r})`, run with KERAS_BACKEND=torch"
)


def python_text(text: str) -> str:
    """Return a text as Python writes it in double quotes, for a command in single quotes.

    Args:
        text: Any text, such as the name of a file.
    """
    return json.dumps(text, ensure_ascii=False)


def python_line(code: str) -> str:
    """Return the command line that runs a program; no name in it can leave its quotes.

    Example:
        >>> python_line("print(1)")
        "python -c 'print(1)'"
    """
    return f"python -c {quote(code)}"


def describe_foreign(path: Path, *, alone: bool = True) -> tuple[str, str] | None:
    """Return what a sound file or folder of another kind is called, and what to do with it.

    Args:
        path: Path of a file or a folder.
        alone: True if the user named the path; False for a file of a folder that the user named.

    Returns:
        None for anything else: weights that ncscope reads, damaged and unknown files.
    """
    if is_folder(path):
        return _describe_folder(path)
    if describe_fault(path):
        return None
    with path.open("rb") as file:
        start = file.read(512)
        # A safetensors file begins with a length, of which every byte may look like another kind.
        if start[8:9] != b"{" and (described := _describe_file(path, file, start)):
            return described
    if not alone:
        return None
    shard = re.search(r"-\d{5}-of-(\d{5})\.", path.name)
    if shard and int(shard[1]) > 1:
        return "one of several shards", f"pass their folder: --weights {quote(str(path.parent))}"
    return _describe_adapter(path)


def _describe_file(path: Path, file: BufferedIOBase, start: bytes) -> tuple[str, str] | None:
    text, name = start.lstrip().lower(), str(path)
    if path.suffix == ".distcp" and (path.parent / ".metadata").exists():
        return _describe_folder(path.parent)
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        return (
            "a pointer of Git LFS, and not the file itself",
            f"git lfs pull -I {quote(path.name)}",
        )
    if text.startswith((b"<!doctype html", b"<html")):
        return "a web page", "download the file itself: the address led to a page about it"
    if start.startswith(b"GGUF"):
        return (
            "a GGUF file, the quantised weights of llama.cpp",
            "pass the weights from which it was converted",
        )
    if start.startswith(b"\x89HDF\r\n\x1a\n"):
        return "an HDF5 file, as Keras writes", _KERAS.format(name=name)
    if start.startswith(b"\x1f\x8b"):
        return "a gzip archive", f"unpack it: gunzip {quote(name)}"
    if start[257:262] == b"ustar":
        return "a tar archive", f"unpack it: tar -xf {quote(name)}, and pass the file in it"
    if start.startswith(b"PK\x03\x04"):
        return _describe_archive(path)
    if start[:1] == b"{" and b'"weight_map"' in start:
        return (
            "an index of weights in shards",
            f"pass its folder: --weights {quote(str(path.parent))}",
        )
    if _is_tensorflow(path):
        return "a checkpoint of TensorFlow", _from_tensorflow(name)
    fields = _read_fields(file, path.stat().st_size)
    if 7 in fields and fields <= _ONNX:
        return (
            "an ONNX model",
            "pass the weights of torch from which it was exported, or measure features that "
            "onnxruntime computes: ncscope measure features.npz",
        )
    if fields and path.name == "saved_model.pb":
        return "a SavedModel of TensorFlow", _from_tensorflow(str(path.parent))
    if start.startswith(b"\x80") and not _is_torch_pickle(file):
        load = f'torch.save(pickle.load(open({python_text(name)}, "rb")), "weights.pt")'
        line = python_line(f"import pickle, torch; {load}")
        return "a pickle that torch.save has not written", _LOAD_TRUSTED + line
    return None


def describe_pickle(file: BufferedIOBase, name: str, kind: str) -> tuple[str, str] | None:
    """Return what a file of torch.save with objects is called, and the line that saves its weights.

    Args:
        file: File of torch.save, of either format.
        name: Path of the file, for the line.
        kind: Full name of the class of an object in the file.

    Returns:
        None if the objects are neither models nor beside weights of a usual name.
    """
    strings: list[str] = []
    before: list[str] | None = None
    for opcode, value in _list_instructions(file):
        if opcode == "GLOBAL" and value.replace(" ", ".") == kind and before is None:
            before = list(strings)
        elif isinstance(value, str):
            strings.append(value)
    file.seek(0)
    # The older format has the word "module" before the class of each module.
    if before and before[-1] == "module" and file.read(1) == b"\x80":
        before.pop()
    load = f'torch.load({python_text(name)}, weights_only=False, map_location="cpu")'
    if {"_parameters", "_modules"} <= set(strings):
        under = f" under {before[-1]!r}" if before else ""
        entry = f"[{python_text(before[-1])}]" if before else ""
        line = python_line(f'import torch; torch.save({load}{entry}.state_dict(), "weights.pt")')
        return f"a whole model of the class {kind}{under}", _LOAD_TRUSTED + line
    entry = next((each for each in _ENTRIES if each in strings), "")
    if not entry:
        return None
    line = python_line(f'import torch; torch.save({load}[{python_text(entry)}], "weights.pt")')
    return f"a checkpoint with an object of the class {kind}", _LOAD_TRUSTED + line


_ENTRIES = ("state_dict", "model_state_dict", "model", "net")
_LONGEST_HEADER = 2**24
_MOST_FIELDS = 10**5
_ONNX = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26})
"""Numbers of the fields of an ONNX model; 7 is the graph."""


def _from_tensorflow(name: str) -> str:
    return (
        f"measure features that TensorFlow computes from {name}: numpy.savez('features.npz', "
        "features=..., labels=...), then ncscope measure features.npz"
    )


def _describe_folder(folder: Path) -> tuple[str, str] | None:
    names = {each.name for each in folder.iterdir()}
    if names & {"model.safetensors", "pytorch_model.bin"}:
        return None
    if any(name.endswith((".safetensors.index.json", ".bin.index.json")) for name in names):
        return None
    if ".metadata" in names and any(name.endswith(".distcp") for name in names):
        command = "python -m torch.distributed.checkpoint.format_utils dcp_to_torch"
        return (
            "a distributed checkpoint (DCP)",
            f"write its weights into one file: {command} {quote(str(folder))} weights.pt",
        )
    if "zero_to_fp32.py" in names:
        script, whole = quote(str(folder / "zero_to_fp32.py")), quote(str(folder))
        return (
            "a checkpoint of DeepSpeed",
            f"write its weights into a folder: python {script} {whole} weights; then pass "
            "--weights weights",
        )
    if any(re.fullmatch(r"(bf16_)?zero_pp_rank_\d+_mp_rank_\d+_\w+\.pt", name) for name in names):
        return (
            "the parts of a checkpoint of DeepSpeed",
            "pass the folder above it, which has zero_to_fp32.py",
        )
    if "saved_model.pb" in names:
        return "a SavedModel of TensorFlow", _from_tensorflow(str(folder))
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if name in names:
            return _describe_adapter(folder / name)
    inner = sorted(
        each for each in folder.iterdir() if each.is_dir() and (each / ".metadata").exists()
    )
    if len(inner) == 1:
        return _describe_folder(inner[0])
    steps = [name for name in names if re.fullmatch(r"checkpoint-\d+", name)]
    if steps:
        last = max(steps, key=lambda name: int(name.rpartition("-")[2]))
        return "a folder of checkpoints", f"name one of them: --weights {quote(str(folder / last))}"
    return None


def _describe_archive(path: Path) -> tuple[str, str] | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return None
    inner = {name.partition("/")[2] for name in names}
    if "constants.pkl" in inner and any(name.startswith("code/") for name in inner):
        code = f'torch.save(torch.jit.load({python_text(str(path))}).state_dict(), "weights.pt")'
        return "a TorchScript archive", f"save its weights: {python_line('import torch; ' + code)}"
    # The format of torch 2.6 and before has its files at the top, later ones in a folder.
    exported = {"serialized_exported_program.json", "models/model.json"}
    if exported & (inner | set(names)) or "archive_format" in inner:
        load = f"torch.export.load({python_text(str(path))}).state_dict"
        code = f'import torch; torch.save(dict({load}), "weights.pt")'
        return "a program of torch.export", f"save its weights: {python_line(code)}"
    if "model.weights.h5" in names:
        return "a model of Keras", _KERAS.format(name=str(path))
    if not any(name.endswith((".npy", "data.pkl")) for name in names):
        return "a zip archive", f"unpack it: unzip {quote(str(path))}, and pass the file in it"
    return None


def _describe_adapter(path: Path) -> tuple[str, str] | None:
    """Describe the weights of an adapter, which are added to those of another model."""
    settings = path.parent / "adapter_config.json"
    if not path.name.startswith("adapter_model.") or not settings.is_file():
        return None
    base, classes = "BASE", 0
    # Damaged settings only leave the line with a gap.
    with suppress(ValueError, AttributeError, OSError):
        base = json.loads(settings.read_bytes()).get("base_model_name_or_path") or base
        with path.open("rb") as file:
            header = file.read(min(int.from_bytes(file.read(8), "little"), _LONGEST_HEADER))
        heads = [e for name, e in json.loads(header).items() if name.endswith("classifier.weight")]
        classes = heads[0]["shape"][0] if heads else 0
    # A head that was trained with the adapter may have other classes than the model before.
    size = f", num_labels={classes}, ignore_mismatched_sizes=True" if classes else ""
    code = (
        "from transformers import AutoModelForImageClassification as A; from peft import PeftModel "
        f"as P; P.from_pretrained(A.from_pretrained({python_text(base)}{size}), "
        f'{python_text(str(path.parent))}).merge_and_unload().save_pretrained("merged")'
    )
    return (
        "an adapter of peft, without the model that it changes",
        f"merge them: {python_line(code)} and measure hf:merged",
    )


def _is_tensorflow(path: Path) -> bool:
    """Return whether a file is part of a TensorFlow checkpoint: its table ends with a mark."""
    table = path.with_name(re.sub(r"\.data-\d+-of-\d+$", ".index", path.name))
    if table.suffix != ".index" or describe_fault(table) or table.stat().st_size < 8:
        return False
    with table.open("rb") as file:
        file.seek(-8, 2)
        return file.read() == bytes.fromhex("57fb808b247547db")


def _read_fields(file: BufferedIOBase, size: int) -> set[int]:
    """Return the numbers of the top fields of a protocol buffer; empty if a file is none."""
    fields: set[int] = set()
    file.seek(0)
    if file.read(1) != b"\x08":  # ONNX and SavedModel begin with their version
        return fields
    file.seek(0)
    for _ in range(_MOST_FIELDS):
        if file.tell() >= size:
            return fields
        tag = _read_varint(file)
        if tag is None or tag >> 3 == 0:
            return set()
        value = _read_varint(file) if tag & 7 in (0, 2) else None
        if value is None:
            return set()
        fields.add(tag >> 3)
        if tag & 7 == 2:
            if file.tell() + value > size:
                return set()
            file.seek(value, 1)
    return set()


def _read_varint(file: BufferedIOBase) -> int | None:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
    return None


def _is_torch_pickle(file: BufferedIOBase) -> bool:
    """Return whether a pickle begins like torch's older format: with its magic number."""
    file.seek(0)
    try:
        first = [value for _, value in islice(_instructions(file), 3)]
    except Exception:  # a damaged pickle: torch's own reader says so
        return True
    return 0x1950A86A20F9469CFC6C in first


def _list_instructions(file: BufferedIOBase) -> Iterator[tuple[str, Any]]:
    """Yield the instructions of the pickle in a file of torch.save, and their arguments."""
    file.seek(0)
    if file.read(4) == b"PK\x03\x04":
        with zipfile.ZipFile(file) as archive:
            name = next(each for each in archive.namelist() if each.endswith("data.pkl"))
            with archive.open(name) as pickled:
                yield from _instructions(pickled)
        return
    file.seek(0)
    for _ in range(3):  # magic number, version and system come before the object
        deque(_instructions(file), maxlen=0)
    yield from _instructions(file)


def _instructions(file: Any) -> Iterator[tuple[str, Any]]:
    for opcode, value, _ in pickletools.genops(file):
        yield opcode.name, value
