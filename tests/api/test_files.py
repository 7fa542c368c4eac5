"""Files that claim more than they hold, or would fill the memory, are refused unread."""

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ncscope
from ncscope import InputError
from ncscope.api.files import load_array, load_samples, load_weights

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
    with pytest.raises(InputError) as stored:
        load_samples(archive(tmp_path / "a.npz", members))
    with pytest.raises(InputError) as packed:
        load_samples(archive(tmp_path / "b.npz", members, zipfile.ZIP_DEFLATED))
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(InputError) as mapped:
        load_array(tmp_path / "a.npy")
    for refused in (stored, packed, mapped):
        assert said in str(refused.value)
        assert len(str(refused.value)) < 400


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

    path = archive(tmp_path / "a.npz", [("features.npy", npy(FEATURES))])
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


def stored(features: Any, labels: Any = LABELS) -> dict[str, Any]:
    return {"features": features, "labels": labels}


TENSORS: dict[str, tuple[Mapping[Any, Any], str]] = {
    "expanded": (
        stored(torch.ones(1, 1).expand(400_000, 3000), torch.zeros(1).expand(400_000)),
        "all numbers of 'features' in a.pt, found 4 bytes for 4,800,000,000 of shape 400000 x 3000",
    ),
    "expanded labels": (
        stored(FEATURES, torch.zeros(1).expand(60)),
        "all numbers of 'labels' in a.pt, found 4 bytes for 240",
    ),
    "overlapping": (
        stored(torch.arange(20_000.0).as_strided((10_000, 10_000), (1, 1))),
        "found 80,000 bytes for 400,000,000",
    ),
    "sparse": (
        stored(torch.zeros(2**20, 2**10).to_sparse()),
        "found a sparse or nested tensor of shape 1048576 x 1024; save tensor.to_dense()",
    ),
    "without data": (stored(torch.empty(60, 5, device="meta")), "found a tensor without data"),
    "a list": (stored([[1.0], [2.0]]), "tensors in a.pt, found list under 'features'"),
    "text": (stored(FEATURES, "abc"), "tensors in a.pt, found str under 'labels'"),
    "other keys": ({1: FEATURES, ("a",): LABELS}, "found entries ('a',), 1;"),
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
        torch.save(stored(features), path, _use_new_zipfile_serialization=not older)
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
        "",
    ),
    "nested in itself": (b"}q\x00" + text("model") + b"h\x00s", "a mapping that contains itself"),
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
    if not said:
        assert load_weights(path) == {}
        return
    with pytest.raises(InputError) as refused:
        load_weights(path)
    assert said in str(refused.value)


def test_a_long_row_of_wrappers_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.save({"module." * 5000 + "fc.weight": torch.ones(2, 3)}, path)
    assert list(load_weights(path)) == ["fc.weight"]


def test_weights_that_are_not_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.save({"state_dict": {"fc.weight": torch.ones(1, 1).expand(10**6, 512)}}, path)
    with pytest.raises(InputError, match=r"numbers of 'fc\.weight' in a\.pth, found 4 bytes"):
        load_weights(path)
