"""Files that claim more than they hold, or would fill the memory, are refused unread."""

import argparse
import copy
import io
import json
import os
import pickle
import struct
import tracemalloc
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import ncscope
from ncscope import InputError
from ncscope.api.files import (
    checksum_notes,
    load_array,
    load_classifier,
    load_weights,
    read_standard_input,
)
from ncscope.api.samples import load_features, load_samples
from ncscope.tensor_files import TensorFile

pytestmark = pytest.mark.usefixtures("unchecked_signatures")

FEATURES = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)).double()
LABELS = torch.arange(60) % 3


def npy(array: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, np.asarray(array))
    return content.getvalue()


def header(shape: str, kind: str = "<f8") -> bytes:
    """The start of an .npy file, of any shape."""
    words = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}"
    padded = words.encode() + b" " * (-(len(words) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded


def archive(path: Path, members: list[tuple[str, bytes]], kind: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


ARRAYS = {
    "29 TiB": (header("(1073741824, 4000)"), "takes 34,359,738,368,000 bytes, and there are 2,400"),
    "8 GB": (header("(100000000, 10)"), "takes 8,000,000,000 bytes, and there are 2,400"),
    "one row too many": (header("(61, 5)"), "takes 2,440 bytes, and there are 2,400"),
    "negative": (header("(-60, 5)"), "float64 of shape (-60, 5)"),
    "negative twice": (header("(-60, -5)"), "float64 of shape (-60, -5)"),
    "beyond 64 bits": (header("(4294967296, 4294967296)"), "and there are 2,400"),
    "beyond all": (header(f"({'9' * 4200}, {'9' * 4200})"), "a damaged file"),
    "no bytes each": (header("(1125899906842624, 2)", "|V0"), "and there are 2,400"),
    "objects": (header("(1000000000,)", "|O"), "found pickled objects"),
    "deep header": (b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000, "a damaged file"),
    "header of 2 GiB": (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), "a damaged file"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_is_not_all_there(name: str, tmp_path: Path) -> None:
    start, said = ARRAYS[name]
    content = start + FEATURES.numpy().tobytes()
    members = [("features.npy", content), ("labels.npy", npy(LABELS))]
    with pytest.raises(InputError) as as_entries:
        load_samples(archive(tmp_path / "a.npz", members))
    with pytest.raises(InputError) as packed:
        load_samples(archive(tmp_path / "b.npz", members, zipfile.ZIP_DEFLATED))
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(InputError) as mapped:
        load_array(tmp_path / "a.npy")
    for refused in (as_entries, packed, mapped):
        assert said in str(refused.value)
        assert len(str(refused.value)) < 500


def test_a_long_header_is_not_read(tmp_path: Path) -> None:
    length = 2**24
    start = b"\x93NUMPY\x02\x00" + struct.pack("<I", length)
    members = [("features.npy", start + b" " * length), ("labels.npy", npy(LABELS))]
    path = archive(tmp_path / "a.npz", members, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(InputError, match="a damaged file"):
        load_samples(path)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_arrays_that_do_not_fit_into_memory(
    kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.zeros((1000, 100))
    members = [("features.npy", npy(rows)), ("labels.npy", npy(np.arange(1000) % 3))]
    path = archive(tmp_path / "a.npz", members, kind)
    needed = rows.nbytes + 8 * 1000
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: needed - 1)
    with pytest.raises(InputError) as refused:
        load_samples(path)
    assert str(refused.value) == (
        "expected 808,000 bytes of memory for the arrays of a.npz, found 807,999 available; "
        "save arrays as .npy and pass --features and --labels, which are read in parts"
    )
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: needed)
    assert load_samples(path)["features"].shape == (1000, 100)
    np.save(tmp_path / "a.npy", rows)
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: 0)
    assert load_array(tmp_path / "a.npy").shape == (1000, 100)  # mapped, of any size


def test_a_memory_that_is_not_known_may_still_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    members = [("features.npy", npy(FEATURES)), ("labels.npy", npy(LABELS))]
    path = archive(tmp_path / "a.npz", members)
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: None)
    monkeypatch.setattr(np.lib.format, "read_array", full)
    with pytest.raises(InputError, match="found more than fits into memory"):
        load_samples(path)


def test_an_array_is_there_once(tmp_path: Path) -> None:
    for second in ("features.npy", "features"):
        members = [("features.npy", npy(FEATURES)), ("labels.npy", npy(LABELS))]
        with pytest.warns(UserWarning, match="Duplicate") if second[-1] == "y" else nullcontext():
            path = archive(tmp_path / "a.npz", [*members, (second, npy(0 * FEATURES))])
        with pytest.raises(InputError, match=r"features once in a\.npz, found several"):
            load_samples(path)


def test_entries_elsewhere_are_other_entries(tmp_path: Path) -> None:
    members = [("../features.npy", npy(FEATURES)), ("/tmp/labels.npy", npy(LABELS))]
    with pytest.raises(InputError, match=r"found entries \.\./features, /tmp/labels;"):
        load_samples(archive(tmp_path / "a.npz", members))


def test_many_or_long_entries_are_not_all_named(tmp_path: Path) -> None:
    members = [(f"{index}{'x' * 1000}", b"") for index in range(100)]
    with pytest.raises(InputError, match="and 80 more") as refused:
        load_samples(archive(tmp_path / "a.npz", members))
    assert len(str(refused.value)) < 2000


def as_entries(features: Any, labels: Any = LABELS) -> dict[str, Any]:
    return {"features": features, "labels": labels}


TENSORS: dict[str, tuple[Mapping[Any, Any], str]] = {
    "expanded": (
        as_entries(torch.ones(1, 1).expand(400_000, 3000), torch.zeros(1).expand(400_000)),
        "all numbers of 'features' in a.pt, found 4 bytes for 4,800,000,000 of shape 400000 x 3000",
    ),
    "expanded labels": (
        as_entries(FEATURES, torch.zeros(1).expand(60)),
        "all numbers of 'labels' in a.pt, found 4 bytes for 240",
    ),
    "overlapping": (
        as_entries(torch.arange(20_000.0).as_strided((10_000, 10_000), (1, 1))),
        "found 80,000 bytes for 400,000,000",
    ),
    "sparse": (
        as_entries(torch.sparse_coo_tensor(size=(2**20, 2**10), check_invariants=True)),
        "found a sparse or nested tensor of shape 1048576 x 1024; save tensor.to_dense()",
    ),
    "without data": (as_entries(torch.empty(60, 5, device="meta")), "found a tensor without data"),
    "a list": (as_entries([[1.0], [2.0]]), "tensors in a.pt, found list under 'features'"),
    "text": (as_entries(FEATURES, "abc"), "tensors in a.pt, found str under 'labels'"),
    "other keys": ({1: FEATURES, ("a",): LABELS}, "found entries 1, ('a',);"),
}


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_that_is_not_all_stored(name: str, older: bool, tmp_path: Path) -> None:
    entries, said = TENSORS[name]
    path = tmp_path / "a.pt"
    torch.save(dict(entries), path, _use_new_zipfile_serialization=not older)
    with pytest.raises(InputError) as refused:
        load_samples(path)
    assert said in str(refused.value)


@pytest.mark.parametrize("older", [False, True])
def test_tensors_of_any_kind_that_are_stored(older: bool, tmp_path: Path) -> None:
    wide = torch.cat([FEATURES, FEATURES], 1)
    expected = dict(ncscope.measure(FEATURES, LABELS, groups=["pfc"]))
    for features in (
        FEATURES,
        wide[:, :5],
        FEATURES.T.contiguous().T,
        torch.nn.Parameter(FEATURES),
    ):
        path = tmp_path / "a.pt"
        torch.save(as_entries(features), path, _use_new_zipfile_serialization=not older)
        found = ncscope.measure(**load_samples(path), groups=["pfc"])
        assert dict(found) == pytest.approx(expected)


def text(words: str) -> bytes:
    return b"X" + struct.pack("<I", len(words)) + words.encode()


def constant(name: str) -> bytes:
    module, _, inner = name.rpartition(".")
    return f"c{module}\n{inner}\n".encode()


def integer(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def tensor(numel: int, rows: int, columns: int, key: str, kind: str) -> bytes:
    """A pickled tensor, whatever is stored of it."""
    storage = b"(" + text("storage") + constant(f"torch.{kind}") + text(key) + text("cpu")
    shape = b"(" + integer(rows) + integer(columns) + b"t(" + integer(columns) + integer(1) + b"t"
    rest = b"\x89" + constant("collections.OrderedDict") + b")R"
    begin = constant("torch._utils._rebuild_tensor_v2") + b"("
    return begin + storage + integer(numel) + b"tQ" + integer(0) + shape + rest + b"tR"


def torch_file(path: Path, pickled: bytes, kind: int = zipfile.ZIP_STORED) -> Path:
    members = [("a/data.pkl", b"\x80\x02" + pickled + b"."), ("a/byteorder", b"little")]
    members += [("a/version", b"3\n"), ("a/data/0", FEATURES.numpy().tobytes())]
    return archive(path, [*members, ("a/data/1", LABELS.numpy().tobytes())], kind)


def samples_of(numel: int, rows: int) -> bytes:
    features = tensor(numel, rows, 5, "0", "DoubleStorage")
    labels = tensor(60, 60, 1, "1", "LongStorage")
    return b"}" + text("features") + features + b"s" + text("labels") + labels + b"s"


def test_a_storage_is_a_record_of_the_file(tmp_path: Path) -> None:
    found = load_samples(torch_file(tmp_path / "a.pt", samples_of(300, 60)))
    assert torch.equal(found["features"], FEATURES)
    for numel, rows in ((400, 80), (2**40, 2**37), (300, -60)):  # the first into the next record
        path = torch_file(tmp_path / "b.pt", samples_of(numel, rows))
        with pytest.raises(InputError, match="a damaged file"):
            load_samples(path)


def test_a_compressed_archive_of_tensors(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "a.pt", samples_of(300, 60), zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match=r"torch\.save writes them, found a/data\.pkl compressed"):
        load_samples(path)


def flip(path: Path, place: int) -> Path:
    """Write a file again with one bit of a byte flipped."""
    content = bytearray(path.read_bytes())
    content[place] ^= 0x20
    changed = path.with_name(f"flipped-{path.name}")
    changed.write_bytes(content)
    return changed


@pytest.mark.parametrize("read", [load_samples, load_weights, load_features])
def test_a_flipped_bit_in_an_archive_of_tensors(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({"features": FEATURES, "labels": LABELS}, path)
    read(path)
    content = path.read_bytes()
    for place in (
        content.index(FEATURES.numpy().tobytes()) + 8 * 40 + 6,
        content.index(b"features"),
    ):
        with pytest.raises(InputError, match=r"flipped-a\.pt as it was saved.*checksum \(CRC-32\)"):
            read(flip(path, place))


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_flipped_bit_in_other_files_with_checksums(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        np.savez(path, features=FEATURES, labels=LABELS)
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        rows = pyarrow.table({"features": FEATURES.tolist(), "labels": LABELS.tolist()})
        options = {"use_dictionary": False, "compression": "none"}
        parquet.write_table(rows, path, write_page_checksum=True, **options)
    flipped = flip(path, path.read_bytes().index(FEATURES.numpy().tobytes()[:64]) + 8 * 40 + 6)
    with pytest.raises(InputError, match="CRC"):
        ncscope.measure_shards([flipped])


def test_tensors_without_checksums_are_read_and_noted(tmp_path: Path) -> None:
    entries = {"features": FEATURES, "labels": LABELS}
    plain, off, skipped = (tmp_path / name for name in ("a.pt", "b.pt", "c.pt"))
    torch.save(entries, plain)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(entries, off)
    finally:
        torch.serialization.set_crc32_options(True)
    with torch.serialization.skip_data():  # to be filled in later
        torch.save(entries, skipped)
    assert torch.equal(load_samples(off)["features"], FEATURES)
    assert load_samples(skipped)["features"].shape == FEATURES.shape
    assert checksum_notes([plain]) == load_weights(plain).notes == ()
    (note,) = checksum_notes([plain, off, skipped])
    assert note.startswith("checksums not recorded in b.pt and 1 more")
    assert load_weights(off).notes == checksum_notes([off])
    assert checksum_notes([TensorFile("-", content=off.read_bytes())])
    older, safe = tmp_path / "d.pt", tmp_path / "e.safetensors"  # formats that have none
    torch.save(entries, older, _use_new_zipfile_serialization=False)
    save_file(entries, safe)
    assert checksum_notes([older, safe]) == ()


def test_a_bytearray_is_seen_without_checksums(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"features": bytearray(b"abc")}, tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    with pytest.raises(InputError, match="found a bytearray"):
        load_samples(tmp_path / "a.pt")


def test_entries_that_share_bytes_are_not_read(tmp_path: Path) -> None:
    """Many entries of the same bytes would take hours to check, whatever the file's size."""
    path = tmp_path / "a.pt"
    torch.save({"features": FEATURES, "labels": LABELS}, path)
    with zipfile.ZipFile(path, "a") as file:
        for index in range(50):
            again = copy.copy(file.getinfo("a/data/0"))
            again.filename = f"a/data/{index + 2}"
            file.filelist.append(again)
        file.writestr("a/end", b"")  # makes zipfile write the list of entries again
    with pytest.raises(InputError, match="found entries larger than the file"):
        load_samples(path)


@pytest.mark.parametrize(
    "read", [load_samples, load_weights, load_features, load_array, load_classifier]
)
def test_what_is_no_file_is_refused_before_it_is_opened(read: Any, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe.pt", tmp_path / "link.npy"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    for path, said in ((pipe, "a pipe, "), (link, "a device, ")):
        with pytest.raises(InputError, match=f"expected a file, found {said}.*standard input as -"):
            read(path)
    with pytest.raises(InputError, match="File name too long; check the path"):
        read("x" * 5000)


def test_an_instruction_that_fills_memory_is_not_followed(tmp_path: Path) -> None:
    # for torch, a bytearray of any length is as safe as a tensor
    for name in ("builtins.bytearray", "__builtin__.bytearray"):
        making = constant(name) + integer(10**8) + b"\x85R"
        pickled = b"}" + text("features") + making + b"s"
        with pytest.raises(InputError, match=r"tensors in a\.pt, found a bytearray"):
            load_samples(torch_file(tmp_path / "a.pt", pickled))
    older = tmp_path / "b.pt"
    torch.save({"features": bytearray(b"abc")}, older, _use_new_zipfile_serialization=False)
    with pytest.raises(InputError, match="found a bytearray"):
        load_samples(older)


WEIGHTS: dict[str, tuple[bytes, str]] = {
    "nested 10,000 times": (
        b"}" + (text("state_dict") + b"}") * 10_000 + b"s" * 10_000,
        "something else under 'state_dict'",
    ),
    "nested deeply around weights": (
        b"}"
        + (text("state_dict") + b"}") * 100
        + (text("w") + tensor(300, 60, 5, "0", "DoubleStorage") + b"s")
        + b"s" * 100,
        "more than 10 nested mappings",
    ),
    "nested in itself": (b"}q\x00" + text("model") + b"h\x00s", "something else under 'model'"),
    "nested in itself around weights": (
        b"}q\x00"
        + (text("model") + b"h\x00s")
        + (text("w") + tensor(300, 60, 5, "0", "DoubleStorage") + b"s"),
        "more than 10 nested mappings",
    ),
    "nothing": (b"}", "weights by name in a.pt, found none"),
    "no names": (
        b"}" + integer(1) + tensor(300, 60, 5, "0", "DoubleStorage") + b"s",
        "found 1 as a name",
    ),
    "a list": (b"}" + text("a") + b"]s", "something else under 'a'"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_any_nesting(name: str, tmp_path: Path) -> None:
    pickled, said = WEIGHTS[name]
    path = torch_file(tmp_path / "a.pt", pickled)
    with pytest.raises(InputError) as refused:
        load_weights(path)
    assert said in str(refused.value)


def test_weights_that_are_not_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.save({"state_dict": {"fc.weight": torch.ones(1, 1).expand(10**6, 512)}}, path)
    with pytest.raises(InputError, match=r"numbers of 'fc\.weight' in a\.pth, found 4 bytes"):
        load_weights(path)


SUFFIXES = (".pt", ".pth", ".pth.tar", ".ckpt", ".bin", ".safetensors", ".npz", ".npy", "")


class Command:
    """Object whose pickle runs a command when it is loaded."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


def malicious(path: Path) -> Iterator[None]:
    """Write files of every kind that make a folder named ``executed`` when they are unpickled."""
    folder = str(path.parent / "executed")
    for call in (
        (os.mkdir, folder),
        (os.system, f"mkdir {folder}"),
        (eval, f"__import__('os').mkdir({folder!r})"),
    ):
        evil = {"features": FEATURES, "labels": LABELS, "args": Command(*call)}
        for older in (False, True):
            torch.save(evil, path, _use_new_zipfile_serialization=not older)
            yield
        for protocol in range(6):
            path.write_bytes(pickle.dumps(evil, protocol))
            yield
        objects = np.array([evil], dtype=object)
        with path.open("wb") as file:
            np.savez(file, features=objects, labels=LABELS)
        yield
        with path.open("wb") as file:
            np.save(file, objects)
        yield
        archive(path, [("a/data.pkl", pickle.dumps(evil, 2)), ("features.npy", npy(FEATURES))])
        yield


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_in_a_file_is_executed(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    for _ in malicious(path):
        for read in (load_samples, load_weights, load_array):
            with pytest.raises(InputError) as refused:
                read(path)
            assert "\n" not in str(refused.value)
        assert not (tmp_path / "executed").exists()


def test_an_object_of_an_unknown_class_is_named(tmp_path: Path) -> None:
    for older in (False, True):
        torch.save(
            {"w": FEATURES, "made": Command(os.mkdir, "x")},
            tmp_path / "a.ckpt",
            _use_new_zipfile_serialization=not older,
        )
        with pytest.raises(InputError) as refused:
            load_weights(tmp_path / "a.ckpt")
        assert str(refused.value) == (
            "expected tensors and plain values in a.ckpt, found an object of the class "
            "posix.mkdir; save model.state_dict() or tensors alone "
            "(pickled objects are never loaded)"
        )
    torch.save(torch.nn.Linear(2, 2), tmp_path / "whole.pt")
    whole = r"a whole model of the class torch\.nn\.modules\.linear\.Linear; if you trust"
    with pytest.raises(InputError, match=whole):
        load_weights(tmp_path / "whole.pt")


BESIDE = {
    "arguments": argparse.Namespace(lr=0.1, inner=argparse.Namespace(name="a")),
    "settings": types.SimpleNamespace(out=Path("runs")),
    "paths": [Path("a"), PurePosixPath("b")],
    "numbers": [np.float64(0.5), np.int64(3), np.float32(2), np.dtype("f4")],
    "arrays": np.arange(3),
}


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("name", BESIDE)
def test_objects_that_libraries_write_beside_weights(
    name: str, older: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    content = {"state_dict": {"w": FEATURES}, "beside": BESIDE[name]}
    torch.save(content, path, _use_new_zipfile_serialization=not older)
    found = load_weights(path)
    assert torch.equal(found.tensors["w"], FEATURES)
    torch.save(as_entries(BESIDE[name]), path, _use_new_zipfile_serialization=not older)
    with pytest.raises(InputError, match=r"found .* under 'features'"):
        load_samples(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_samples_in_files_of_any_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"samples{suffix}"
    written: list[Callable[[], Any]] = [
        lambda: path.write_bytes(npz(FEATURES, LABELS)),
        lambda: save_file(as_entries(FEATURES), path),
        lambda: torch.save(as_entries(FEATURES), path),
        lambda: torch.save(as_entries(FEATURES), path, _use_new_zipfile_serialization=False),
    ]
    for write in written:
        write()
        for file in (path, TensorFile("standard input", content=path.read_bytes())):
            found = load_samples(file)
            assert np.array_equal(found["features"], FEATURES)
            assert np.array_equal(found["labels"], LABELS)


def npz(features: Any, labels: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, features=features, labels=labels)
    return content.getvalue()


def test_a_safetensors_file_that_begins_like_a_pickle(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for length in range(700):
        save_file({"w": FEATURES}, path, {"note": "x" * length})
        if path.read_bytes()[:1] == b"\x80":
            break
    assert path.read_bytes()[:1] == b"\x80"
    assert torch.equal(load_weights(path).tensors["w"], FEATURES)


def test_files_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_text("features, labels")
    with pytest.raises(
        InputError, match=r"found another kind of file, or a damaged file \(a\.pt\)"
    ):
        load_samples(path)
    path.write_bytes(npz(FEATURES, LABELS))
    with pytest.raises(InputError, match=r"torch\.save, found an \.npz file"):
        load_weights(path)
    torch.save({"features": FEATURES}, path)
    with pytest.raises(InputError, match=r"one array in a\.pt, found a file of torch\.save"):
        load_array(path)
    archive(path, [("word/document.xml", b"")])
    with pytest.raises(InputError, match=r"a zip archive of 1 file, word/document\.xml \(a\.pt\)"):
        load_samples(path)


def test_standard_input_that_does_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.BytesIO(npz(FEATURES, LABELS))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(given))
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: 1000)
    with pytest.raises(InputError, match="of memory for standard input, found 1,000 available"):
        read_standard_input()


def test_weights_in_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.safetensors or pytorch_model\.bin in .*neither"):
        load_weights(tmp_path)
    parts = {"a.bin": {"w": FEATURES}, "b.bin": {"v": LABELS}}
    for name, part in parts.items():
        torch.save(part, tmp_path / name)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "a.bin", "v": "b.bin"}}))
    assert set(load_weights(tmp_path).tensors) == {"w", "v"}
    index.write_text(json.dumps({"weight_map": {"w": "../elsewhere/a.bin", "v": "b.bin"}}))
    assert set(load_weights(tmp_path).tensors) == {"w", "v"}  # beside the index, nowhere else
    for damaged in ("[]", "{", '{"weight_map": 3}', '{"weight_map": {"w": 3}}'):
        index.write_text(damaged)
        with pytest.raises(InputError, match="a damaged file"):
            load_weights(tmp_path)
    index.write_text('{"weight_map": {}}')
    with pytest.raises(InputError, match="a damaged file"):
        load_weights(tmp_path)
