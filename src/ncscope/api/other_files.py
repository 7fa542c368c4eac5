"""Sound files of kinds that are not read: their name, and the command that converts them.

Nothing is loaded to find the kind; a pickle's instructions are listed and not followed.
"""

import bz2
import gzip
import io
import json
import lzma
import pickletools
import re
import shlex
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Any, NamedTuple

from ncscope.file_kinds import python_line, python_text
from ncscope.tensor_files import TensorFile

UNPACKERS: Mapping[bytes, tuple[str, Callable[[Any], Any]]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bz2", bz2.open),
    b"\xfd7zXZ": ("lzma", lzma.open),
}
"""First bytes of packed files; the module that unpacks them, and its function."""

_BINARY_START = 4096
_PICKLE_START = 2**16


class OtherKind(NamedTuple):
    """Name of a kind of file, and the remedy for somebody who wants to measure it."""

    name: str
    remedy: str


@contextmanager
def unpack(file: TensorFile) -> Iterator[Any]:
    """Open a file for reading, unpacked if it is packed by gzip, bzip2 or xz."""
    start = file.read_start(6)
    with file.open() as stream:
        for magic, (_, opener) in UNPACKERS.items():
            if start.startswith(magic):
                with opener(stream) as unpacked:
                    yield unpacked
                return
        yield stream


def find_packing(file: TensorFile) -> str:
    """Return the name of the module that unpacks a file; empty if it is not packed."""
    start = file.read_start(6)
    return next((name for magic, (name, _) in UNPACKERS.items() if start.startswith(magic)), "")


def path_of(file: TensorFile) -> str:
    """Return the path of a file, for a command."""
    return file.name if file.path is None else str(file.path)


def path_beside(file: TensorFile, suffix: str) -> str:
    """Return a path beside a file that is hardly the path of another file of the user's.

    Args:
        file: File to convert.
        suffix: Suffix of the new file, or the end of its name and the suffix.
    """
    path = PurePath(path_of(file))
    stem = path.name.partition(".")[0] or path.name
    return str(path.with_name(f"{stem}-converted{suffix}" if suffix[0] == "." else stem + suffix))


def describe_other_kind(file: TensorFile) -> OtherKind | None:
    """Return the kind of a file that is not read, judged by its content; None if it is unknown."""
    start = file.read_start(_BINARY_START)
    if start.startswith(b"version https://git-lfs"):
        folder = str(PurePath(path_of(file)).parent)
        name = shlex.quote(file.name)
        return OtherKind(
            "a pointer of Git LFS, in place of the file itself",
            f"fetch the file: git -C {shlex.quote(folder)} lfs pull --include {name}",
        )
    if start.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return OtherKind("a web page, saved in place of the file", "download the file itself")
    for magic, kind in _BY_START.items():
        if start.startswith(magic):
            return kind(file)
    if start[257:262] == b"ustar":
        return _archive(file, "a tar archive", "tarfile")
    if start.startswith(b"PK\x03\x04"):
        return _describe_zip(file)
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return _image(file)
    packing = find_packing(file)
    if packing:
        return _describe_packed(file, packing)
    if _is_pickle(start):
        return _describe_pickle(file)
    if start.lstrip()[:1] in (b"{", b"["):
        return _describe_json(file, start)
    if b"\0" not in start and _is_sparse_text(start):
        return _sparse_text(file)
    by_name = _BY_SUFFIX.get(PurePath(file.name).suffix.lower())
    if by_name is None and PurePath(file.name).suffix.lower() in (".pkl", ".pickle", ".joblib"):
        return _describe_pickle(file)  # of the first protocols, which are text
    return None if by_name is None else by_name(file)


def _convert(name: str, code: str, target: str) -> Callable[[TensorFile], OtherKind]:
    """Return a function that describes files of a kind which a line of Python converts.

    Args:
        name: Name of the kind.
        code: Program, with ``IN`` and ``OUT`` in place of the paths.
        target: Suffix of the new file.
    """

    def describe(file: TensorFile) -> OtherKind:
        new = path_beside(file, target)
        paths = {"IN": python_text(path_of(file)), "OUT": python_text(new)}
        line = re.sub(r"\b(IN|OUT)\b", lambda match: paths[match[0]], code)
        return OtherKind(name, f"convert it to {PurePath(new).name}: {python_line(line)}")

    return describe


def _explain(name: str, remedy: str) -> Callable[[TensorFile], OtherKind]:
    """Return a function that describes files of a kind, with ``IN`` in place of the path."""
    return lambda file: OtherKind(
        name, re.sub(r"\bIN\b", lambda _: python_text(path_of(file)), remedy)
    )


# A mapping of arrays, or a pair of features and labels, as entries of an .npz file. Lists of
# batches are joined: of matrices, and of vectors that are named as labels.
_SAVE = (
    'd = d if isinstance(d, dict) else dict(zip(("features", "labels"), d, strict=True)); '
    "numpy.savez(OUT, **{k: numpy.concatenate(v) if isinstance(v, list) and "
    'numpy.ndim(v[0]) > (k[0] not in "lty") else v for k, v in d.items()})'
)

_mat = _convert(
    "a MATLAB file",
    "import numpy, scipy.io; numpy.savez(OUT, **{k: numpy.squeeze(v) for k, v in "
    'scipy.io.loadmat(IN).items() if k[:2] != "__"})',
    ".npz",
)
# MATLAB writes columns first, so the arrays lie transposed in the file.
mat_hdf5 = _convert(
    "a MATLAB file of version 7.3",
    "import h5py, numpy; f = h5py.File(IN); numpy.savez(OUT, **{k: numpy.squeeze(v[()].T) for k, v "
    "in f.items() if isinstance(v, h5py.Dataset)})",
    ".npz",
)
pandas_hdf5 = _convert(
    "an HDF5 file of pandas",
    "import pandas; pandas.read_hdf(IN).to_parquet(OUT, index=False)",
    ".parquet",
)
_excel = _convert(
    "an Excel workbook",
    "import pandas; pandas.read_excel(IN).to_csv(OUT, index=False)",
    ".csv",
)
_arrow = "import pyarrow as a, pyarrow.parquet as p; "
_feather = _convert(
    "a Feather file (Arrow IPC)",
    f"{_arrow}p.write_table(a.ipc.open_file(IN).read_all(), OUT)",
    ".parquet",
)
_stata = _convert(
    "a Stata file", "import pandas; pandas.read_stata(IN).to_csv(OUT, index=False)", ".csv"
)
_model = "measure the model on your data in Python: ncscope.measure_model({}, loader)"
_keras = _explain(
    "a model of Keras, which holds no features",
    _model.format("keras.saving.load_model(IN)") + ", with KERAS_BACKEND=torch",
)
_onnx = _explain(
    "a model in ONNX, which holds no features", _model.format("onnx2torch.convert(IN)")
)
_image = _explain(
    "an image",
    "measure a model on a folder of images, CLASS/*.png: ncscope measure-model MODEL FOLDER",
)
_save_arrays = "save features and labels with numpy.savez, from the library that reads it"

_BY_START: Mapping[bytes, Callable[[TensorFile], OtherKind]] = {
    b"MATLAB 7.3": mat_hdf5,
    b"MATLAB 5.0": _mat,
    b"ARROW1": _feather,
    b"\xff\xff\xff\xff": _convert(
        "a stream of Arrow IPC",
        f"{_arrow}p.write_table(a.ipc.open_stream(IN).read_all(), OUT)",
        ".parquet",
    ),
    b"ORC": _convert(
        "an ORC file",
        "import pyarrow.orc as o, pyarrow.parquet as p; p.write_table(o.read_table(IN), OUT)",
        ".parquet",
    ),
    b"\xd0\xcf\x11\xe0": _excel,
    b"<stata_dta>": _stata,
    b"GGUF": _explain(
        "a language model in GGUF, which holds no features",
        _model.format('transformers.AutoModelForCausalLM.from_pretrained(".", gguf_file=IN)'),
    ),
    b"SQLite format 3": _convert(
        "an SQLite database",
        "import pandas, sqlite3; c = sqlite3.connect(IN); t = next(c.execute("
        '"select name from sqlite_master where type = \\"table\\""))[0]; '
        'pandas.read_sql(f"select * from [{t}]", c).to_csv(OUT, index=False)',
        ".csv",
    ),
    b"\x89PNG": _image,
    b"\xff\xd8\xff": _image,
    b"GIF8": _image,
    b"II*\0": _image,
    b"MM\0*": _image,
    b"%PDF": _explain("a PDF document", _save_arrays),
    b"Obj\x01": _explain("an Avro file", _save_arrays),
    b"\x93NUMPY": _explain(
        "an .npy file", "pass .npy files with --features and --labels, or both as an .npz file"
    ),
}

_BY_SUFFIX: Mapping[str, Callable[[TensorFile], OtherKind]] = {
    ".mat": _mat,
    ".dta": _stata,
    ".onnx": _onnx,
    ".tfrecord": _explain("a TFRecord file", _save_arrays),
    ".pb": _explain("a model of TensorFlow, which holds no features", _save_arrays),
    ".tflite": _explain("a model of TensorFlow Lite, which holds no features", _save_arrays),
}


def describe_pair(file: TensorFile, content: Any) -> str:
    """Return the command that writes a pair of tensors as entries; empty for other content.

    Args:
        file: File of torch.save.
        content: Object that the file holds.
    """
    if not isinstance(content, list | tuple) or len(content) != 2:
        return ""
    new = python_text(path_beside(file, "-entries.pt"))
    return python_line(
        f"import torch; x, y = torch.load({python_text(path_of(file))}); "
        f'torch.save({{"features": x, "labels": y}}, {new})'
    )


def _archive(file: TensorFile, name: str, module: str) -> OtherKind:
    folder = str(PurePath(path_of(file)).with_name(PurePath(file.name).name.partition(".")[0]))
    if folder == path_of(file):
        folder += "-files"
    line = f"python -m {module} -e {shlex.quote(path_of(file))} {shlex.quote(folder)}"
    return OtherKind(name, f"unpack it, and pass the files: {line}")


def _describe_zip(file: TensorFile) -> OtherKind:
    with file.open() as opened, zipfile.ZipFile(opened) as archive:
        names = archive.namelist()
    if "xl/workbook.xml" in names or "xl/workbook.bin" in names:
        return _excel(file)
    if "content.xml" in names and "mimetype" in names:
        return OtherKind("an OpenDocument file", _excel(file).remedy)
    if "config.json" in names and any(name.endswith(".weights.h5") for name in names):
        return _keras(file)
    count = f"{len(names):,} files, the first " if len(names) > 1 else "1 file, "
    return _archive(file, f"a zip archive of {count}{names[0]:.60}", "zipfile")


def is_torchscript(file: TensorFile) -> bool:
    """Return whether a file of torch holds a program; a file of tensors does not.

    Args:
        file: Archive that torch wrote, or file of another kind.
    """
    if file.read_start(4) != b"PK\x03\x04":
        return False
    with file.open() as opened, zipfile.ZipFile(opened) as archive:
        return any(name.partition("/")[2] == "constants.pkl" for name in archive.namelist())


torchscript = _explain(
    "a model of TorchScript, which holds no features",
    "run it on your data, torch.jit.load(IN)(inputs), and save what its last layer reads with "
    "numpy.savez",
)


def _describe_packed(file: TensorFile, module: str) -> OtherKind:
    """Describe a packed file that holds no text."""
    with unpack(file) as stream:
        start = stream.read(512)
    if start[257:262] == b"ustar":
        return _archive(file, "a packed tar archive", "tarfile")
    if _is_pickle(start):
        return _describe_pickle(file)
    path = PurePath(path_of(file))
    new = str(path.with_suffix("") if path.suffix in (".gz", ".bz2", ".xz") else f"{path}-unpacked")
    code = f"import {module}, shutil; shutil.copyfileobj({module}.open({python_text(str(path))}), "
    line = python_line(f'{code}open({python_text(new)}, "wb"))')
    return OtherKind(f"a file packed by {module}", f"unpack it: {line}")


_ZLIB = b"\x78"
"""First byte of what joblib packs by default."""


def _is_pickle(start: bytes) -> bool:
    """Return whether bytes begin like a pickle of protocol 2 or later, or are packed by joblib."""
    is_zlib = start[:2] in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
    return is_zlib or (start[:1] == b"\x80" and b"\x02" <= start[1:2] <= b"\x05")


def _describe_pickle(file: TensorFile) -> OtherKind:
    trust = " (a pickle runs code of whoever wrote it)"
    name, read = "a pickle", 'pickle.load(open(IN, "rb"))'
    with unpack(file) as stream:
        start = stream.read(_PICKLE_START)
    if start[:1] == _ZLIB:
        start = zlib.decompressobj().decompress(start, _PICKLE_START)
    names = _list_classes(start)
    packed = bool(find_packing(file)) or file.read_start(1) == _ZLIB
    if packed or any(each.startswith("joblib.") for each in names):
        name, read = "a file of joblib", "joblib.load(IN)"
    module = read.partition(".")[0]
    first = next((n for n in names if not n.startswith(("copyreg.", "_codecs.", "joblib."))), "")
    if first.startswith("pandas."):
        code = "import pandas; pandas.read_pickle(IN).to_parquet(OUT, index=False)"
        kind = _convert("a pickle of pandas", code, ".parquet")(file)
    elif first and not first.startswith(_PLAIN_CLASSES):
        return OtherKind(
            f"{name} of the class {first[:100]}",
            "save features and labels as arrays: numpy.savez(path, features=..., labels=...)",
        )
    else:
        code = f"import numpy, {module}; d = {read}; {_SAVE}"
        kind = _convert(name, code, ".npz")(file)
    return OtherKind(kind.name, kind.remedy + trust)


_PLAIN_CLASSES = ("numpy.", "collections.", "builtins.", "sklearn.utils.", "torch._utils.")
"""Where the classes of a pickle are from that holds arrays by name."""


def _list_classes(start: bytes) -> list[str]:
    """Return the names of classes and functions at the beginning of a pickle, in order."""
    names: list[str] = []
    texts: list[str] = []
    # In memory an instruction that announces a long text gets no more than there is.
    with suppress(Exception):  # the end of what was read, or joblib's numbers in between
        for code, argument, _ in pickletools.genops(io.BytesIO(start)):
            if code.name == "GLOBAL":
                names.append(str(argument).replace(" ", "."))
            elif code.name == "STACK_GLOBAL" and len(texts) > 1:
                names.append(f"{texts[-2]}.{texts[-1]}")
            elif "UNICODE" in code.name:
                texts.append(str(argument)[:200])
    return names


def _describe_json(file: TensorFile, start: bytes) -> OtherKind | None:
    """Describe a file of JSON: rows, or one object of arrays."""
    first = start.lstrip().partition(b"\n")[0]
    lines = False
    if start.lstrip()[:1] == b"{" and len(first) < _BINARY_START:
        try:
            lines = isinstance(json.loads(first), dict) and file.size > len(first) + 2
        except ValueError:
            lines = False
    if lines or (start.lstrip()[:1] == b"{" and PurePath(file.name).suffix == ".jsonl"):
        return _convert(
            "a file of JSON lines",
            "import pandas; pandas.read_json(IN, lines=True).to_parquet(OUT, index=False)",
            ".parquet",
        )(file)
    if start.lstrip()[:1] == b"[":
        return _convert(
            "a file of JSON",
            "import pandas; pandas.read_json(IN).to_parquet(OUT, index=False)",
            ".parquet",
        )(file)
    if PurePath(file.name).suffix != ".json" and b'"' not in start:
        return None
    return _convert(
        "a file of JSON",
        f"import json, numpy; d = json.load(open(IN)); {_SAVE}",
        ".npz",
    )(file)


def _is_sparse_text(start: bytes) -> bool:
    """Return whether text is that of svmlight: a label, and pairs of a number and a value."""
    words = start.partition(b"\n")[0].split()
    return (
        len(words) > 1
        and all(word.partition(b":")[0].isdigit() for word in words[1:])
        and all(b":" in word for word in words[1:])
    )


_sparse_text = _convert(
    "a file of svmlight",
    "import numpy, sklearn.datasets; x, y = sklearn.datasets.load_svmlight_file(IN); "
    "numpy.savez(OUT, features=x.toarray(), labels=y)",
    ".npz",
)
