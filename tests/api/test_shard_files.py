"""Shards in files: every kind, also at an address; one clear error for what cannot be read."""

import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ncscope
from ncscope.api.shard_files import (
    batches_of,
    expand_patterns,
    load_shard_classifier,
    pair_files,
    shard_identity,
)
from ncscope.errors import InputError
from tests.api.shards import WRITERS, cut, save_npz, save_parquet, save_shards

pyarrow = pytest.importorskip("pyarrow")
fsspec = pytest.importorskip("fsspec")
parquet = pytest.importorskip("pyarrow.parquet")


def test_all_kinds_hold_the_same_samples(tmp_path) -> None:
    samples = cut()
    features, labels = samples.parts[0]
    for suffix, write in WRITERS.items():
        batches = list(batches_of(write(tmp_path / f"a{suffix}", features, labels)))
        rows, classes = (np.concatenate([np.asarray(b[i]) for b in batches]) for i in (0, 1))
        np.testing.assert_array_equal(rows, features)
        np.testing.assert_array_equal(classes, labels)
    expected = ncscope.measure_shards([[part] for part in samples.parts])
    assert dict(ncscope.measure_shards(save_shards(tmp_path, samples))) == dict(expected)


PAIRS: dict[str, tuple[str, str, str, str]] = {
    "texts": ("X_train X_test", "y_test y_train", "X_*.npy", "y_*.npy"),
    "texts without patterns": ("X_train X_test", "y_test y_train", "", "y_*.npy"),
    "numbers": ("X_1 X_2 X_10", "y_01 y_02 y_10", "X_*.npy", "y_*.npy"),
    "numbers without patterns": ("X_10 X_11 X_9", "y10 y11 y09", "", "y*.npy"),
    "folders": ("a1/X b2/X", "a1/y b2/y", "*[12]/X.npy", "*/y.npy"),
    "any folders": ("a/X a/b/X", "a/y a/b/y", "**/X.npy", "**/y.npy"),
}


@pytest.mark.parametrize("case", PAIRS)
def test_arrays_are_paired_by_what_the_patterns_match(case: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows, classes, features, labels = PAIRS[case]
    files = [f"{name}.npy" for name in f"{rows} {classes}".split()]
    for file in files:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch()
    named = [features] if features else [f"{name}.npy" for name in rows.split()]
    if case == "folders":  # the parts of the two patterns are others in number
        with pytest.raises(InputError, match=r"each file of features: one for X\.npy"):
            pair_files(named, [labels])
        named = ["*/X.npy"]
    pairs = pair_files(named, [labels])
    assert len(pairs) == len(rows.split())
    for one, other in pairs:
        alike = [re.sub(r"X_?0*|y_?0*", "", file) for file in (one, other)]
        assert alike[0] == alike[1]
    if labels == "y_*.npy":
        Path(pairs[0][1]).rename("y_other.npy")
        with pytest.raises(InputError, match=r"found .*y_other\.npy.*; name the files alike"):
            pair_files(named, [labels])


def test_arrays_at_addresses_are_paired() -> None:
    system = fsspec.filesystem("memory")
    for name in ("X_a", "X_b", "y_b", "y_a"):
        system.pipe_file(f"/pairs/{name}.npy", b"")
    pairs = pair_files(["memory://pairs/X_*.npy"], ["memory://pairs/y_*.npy"])
    assert [one.replace("X", "y") for one, _ in pairs] == [other for _, other in pairs]


def test_parquet_is_read_by_batches(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ncscope.api.parquet_files.MOST_ROWS", 16)
    file = save_parquet(tmp_path / "a.parquet", *cut((50,)).parts[0])
    assert [len(labels) for _, labels in batches_of(file)] == [16, 16, 16, 2]


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_any_address_is_read(protocol: str, tmp_path) -> None:
    samples = cut()
    files = save_shards(tmp_path, samples)
    if protocol == "file":
        pattern = f"file://{tmp_path}/*.*"
    else:
        system = fsspec.filesystem("memory")
        for file in files:
            system.put_file(file, f"/shards/{file.rpartition('/')[2]}")
        pattern = "memory://shards/*.*"
    addresses = expand_patterns([pattern])
    assert len(addresses) == len(files)
    assert all(address.startswith(f"{protocol}://") for address in addresses)
    assert dict(ncscope.measure_shards(addresses)) == dict(ncscope.measure_shards(files))
    assert len({shard_identity(address) for address in addresses}) == len(files)


LISTS = {
    "lists of any length": pyarrow.list_(pyarrow.float32()),
    "large lists": pyarrow.large_list(pyarrow.float64()),
    "halves": pyarrow.list_(pyarrow.float16(), 3),
    "integers": pyarrow.list_(pyarrow.int8(), 3),
}


def write_columns(path, **columns) -> str:
    parquet.write_table(pyarrow.table(columns), path)
    return str(path)


@pytest.mark.parametrize("kind", LISTS)
def test_columns_of_other_lists(kind: str, tmp_path) -> None:
    value_type, rows = LISTS[kind].value_type, np.arange(12).reshape(4, 3)
    numbers = rows.astype(value_type.to_pandas_dtype())
    column = pyarrow.array(list(numbers), LISTS[kind])
    file = write_columns(tmp_path / "a.parquet", features=column, labels=[0, 1, 0, 1])
    ((features, _),) = batches_of(file)
    np.testing.assert_array_equal(features, numbers)


ROWS = pyarrow.array([[1.0, 2.0], [3.0, 4.0]], pyarrow.list_(pyarrow.float32(), 2))
BAD_COLUMNS = {
    "no labels": (
        {"features": ROWS},
        "labels, 'label', in a.parquet, found columns features; save the labels too",
    ),
    "lists as labels": (
        {"features": ROWS, "labels": [[0], [1]]},
        "indices or names in the column 'labels' of a.parquet, found list<element: int64>",
    ),
    "lists of texts": (
        {"features": [["a"], ["b"]], "labels": [0, 1]},
        r"numbers in .*, found list<element: string> in the column 'features'",
    ),
    "lists of no numbers": (
        {
            "features": pyarrow.array([[], []], pyarrow.list_(pyarrow.float32(), 0)),
            "labels": [0, 1],
        },
        "found fixed_size_list<element: float>.* in the column 'features'",
    ),
    "two lengths": (
        {"features": [[1.0], [1.0, 2.0]], "labels": [0, 1]},
        "features of one length in a.parquet, found lengths 1 and 2",
    ),
    "a missing row": (
        {"features": [[1.0], None], "labels": [0, 1]},
        "every row of the column 'features' of a.parquet, found 1 missing",
    ),
    "a missing number": (
        {"features": [[1.0, None]], "labels": [0]},
        "every row of the column 'features' of a.parquet, found 1 missing",
    ),
    "a missing label": (
        {"features": ROWS, "labels": [0, None]},
        "every row of the column 'labels' of a.parquet, found 1 missing",
    ),
    "a fraction as label": (
        {"features": ROWS, "labels": [0.0, 0.5]},
        r"integer labels, found label 0.5 at row 1 \(a.parquet\)",
    ),
}


@pytest.mark.parametrize("fixed", [True, False])
def test_rows_that_do_not_fit_into_memory_are_not_read(fixed: bool, tmp_path, monkeypatch) -> None:
    """Rows of one repeated number take a few bytes in a file."""
    long = pyarrow.array(np.zeros(2 * 10**6))
    if fixed:
        rows = pyarrow.FixedSizeListArray.from_arrays(long, 10**6)
    else:
        rows = pyarrow.ListArray.from_arrays([0, 10**6, 2 * 10**6], long)
    file = write_columns(tmp_path / "a.parquet", features=rows, labels=[0, 1])
    assert Path(file).stat().st_size < 20_000
    assert [features.shape for features, _ in batches_of(file)] == [(2, 10**6)]
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: 10**6)
    with pytest.raises(InputError, match=r"16,000,000|32,000,000"):
        list(batches_of(file))


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_a_wrong_column_is_named(case: str, tmp_path) -> None:
    columns, message = BAD_COLUMNS[case]
    file = write_columns(tmp_path / "a.parquet", **columns)
    with pytest.raises(InputError, match=message):
        ncscope.measure_shards([file])


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_file_cut_anywhere_gives_one_error(suffix: str, tmp_path) -> None:
    file = WRITERS[suffix](tmp_path / f"a{suffix}", *cut((20,)).parts[0])
    content = file.read_bytes()
    for length in range(0, len(content), len(content) // 20):
        file.write_bytes(content[:length])
        with pytest.raises(InputError, match=rf"a{suffix}"):
            ncscope.measure_shards([file])
    file.write_bytes(content[: len(content) // 2] + bytes(100) + content[len(content) // 2 :])
    with pytest.raises(InputError, match=rf"a{suffix}"):
        ncscope.measure_shards([file])


@pytest.mark.slow
def test_damage_inside_of_parquet_gives_one_error_or_numbers(tmp_path) -> None:
    file = save_parquet(tmp_path / "a.parquet", *cut((20,)).parts[0])
    content = bytearray(file.read_bytes())
    rng = np.random.default_rng(0)
    refusals = 0
    for _ in range(80):
        damaged = bytearray(content)
        for place in rng.integers(4, len(content), 3):
            damaged[place] = rng.integers(256)
        file.write_bytes(damaged)
        try:
            ncscope.measure_shards([file], groups=["nc1"])
        except InputError:
            refusals += 1
    assert refusals > 25


def test_what_is_not_there_is_named(tmp_path, monkeypatch) -> None:
    missing = {
        f"{tmp_path}/none.npz": "a file, found nothing at",
        "memory://none/none.parquet": "in none.parquet, found no file there",
        "memory://none/none.npz": "in none.npz, found no file there",
        "nowhere://a/b.parquet": "for b.parquet, found Protocol not known: nowhere; write file://",
    }
    for file, message in missing.items():
        with pytest.raises(InputError, match=message):
            ncscope.measure_shards([file])
    for pattern in (f"{tmp_path}/*.parquet", "memory://none/*.parquet"):
        with pytest.raises(InputError, match=r"files that match .*\*\.parquet, found none"):
            expand_patterns([pattern])
    file = save_parquet(tmp_path / "a.parquet", *cut((20,)).parts[0])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"the library pyarrow, .*\[shards\]"):
        ncscope.measure_shards([file])
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match=r"the library fsspec, .*\[shards\]"):
        ncscope.measure_shards(["memory://a.npz"])


def test_patterns_are_expanded_in_order_and_name_a_file_once(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.npz", "a.npz", "c[1].npz"):
        save_npz(tmp_path / name, *cut((5,)).parts[0])
    assert expand_patterns(["c[1].npz", "[ab].npz"]) == ["c[1].npz", "a.npz", "b.npz"]
    with pytest.raises(InputError, match=r"every shard once, found a\.npz twice"):
        expand_patterns(["*.npz", "a.npz"])


def test_another_content_is_another_identity(tmp_path) -> None:
    file = save_npz(tmp_path / "a.npz", *cut((5,)).parts[0])
    before = shard_identity(str(file))
    assert shard_identity(str(file)) == before
    time.sleep(0.02)
    save_npz(file, *cut((5,), seed=1).parts[0])
    assert shard_identity(str(file)) != before


def test_an_address_is_not_taken_for_static(monkeypatch) -> None:
    system = fsspec.filesystem("memory")
    monkeypatch.setattr(type(system), "ukey", lambda self, path: "static")  # as for https://
    system.pipe_file("/static/a.npz", b"before")
    before = shard_identity("memory://static/a.npz")
    assert shard_identity("memory://static/a.npz") == before
    system.pipe_file("/static/a.npz", b"afterwards")
    assert shard_identity("memory://static/a.npz") != before


def test_a_classifier_beside_the_features(tmp_path) -> None:
    samples = cut((5,))
    np.savez(tmp_path / "a.npz", weight=samples.weight, features=samples.parts[0][0])
    assert set(load_shard_classifier(str(tmp_path / "a.npz"))) == {"weight"}
    file = save_parquet(tmp_path / "a.parquet", *samples.parts[0])
    assert load_shard_classifier(str(file)) == {}
