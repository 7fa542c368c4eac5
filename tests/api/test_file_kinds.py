"""Data files as their libraries write them: measured right, or called by name with what helps.

A sentence that names a command is followed: the command is run, then the file that it wrote is
measured, with the options that the next sentence names, if there is one.
"""

import bz2
import gzip
import io
import json
import pickle
import re
import shlex
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import joblib
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.feather
import pyarrow.orc
import pytest
import scipy.io
import sklearn.datasets
import torch
from safetensors.torch import save_file

import ncscope
from ncscope.api.samples import load_features, load_samples
from ncscope.errors import InputError
from ncscope.labels import read_labels

pytestmark = pytest.mark.usefixtures("unchecked_signatures")

CLASSES = np.arange(30) % 3
NAMES = ["ant", "bee, wild", "cat"]
WORDS = np.array(NAMES)[CLASSES]
ROWS = np.random.default_rng(0).normal(size=(30, 4)).round(3) + 3 * CLASSES[:, None]
WIDE = pd.DataFrame(ROWS, columns=[f"f{place}" for place in range(4)])
NUMBERED, NAMED = WIDE.assign(label=CLASSES), WIDE.assign(species=WORDS)
LONG = pd.DataFrame({"embedding": list(ROWS), "label": CLASSES})
SPECIES = {"labels": "species"}


def write(path: Path, content: bytes | str) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_hdf5(path: Path, **entries: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, value in entries.items():
            is_text = np.asarray(value).dtype.kind == "U"
            data = np.asarray(value).astype(object) if is_text else value
            file.create_dataset(name.replace("__", "/"), data=data)


def write_chunks(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=ROWS, chunks=(7, 2), compression="gzip")
        kind = h5py.enum_dtype({name: 5 * code for code, name in enumerate(NAMES)})
        file.create_dataset("labels", data=5 * CLASSES, dtype=kind)


def table_of(frame: pd.DataFrame) -> pyarrow.Table:
    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def write_class_label(path: Path) -> None:
    import datasets

    features = datasets.Features(
        {
            "embedding": datasets.Sequence(datasets.Value("float64")),
            "label": datasets.ClassLabel(names=NAMES),
        }
    )
    datasets.Dataset.from_pandas(LONG, features=features).to_parquet(path)


def write_zip(path: Path, names: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in names.items():
            file.writestr(name, content)


def write_tar(path: Path, mode: str = "w") -> None:
    NUMBERED.to_csv(path.parent / "inner.csv", index=False)
    with tarfile.open(path, mode) as file:
        file.add(path.parent / "inner.csv", "inner.csv")


def csv(frame: pd.DataFrame = NUMBERED, **options: Any) -> bytes:
    return frame.to_csv(index=False, **options).encode()


def npz(**entries: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, **entries)
    return content.getvalue()


def sqlite(path: Path) -> None:
    with sqlite3.connect(path) as base:
        NUMBERED.to_sql("samples", base, index=False)
    base.close()


Case = tuple[str, Callable[[Path], Any], dict[str, str], bool]
"""Name of the file, function that writes it, options, and whether the labels are names."""

READ: dict[str, Case] = {
    "csv": ("a.csv", lambda p: write(p, csv()), {}, False),
    "csv of names": ("a.csv", lambda p: write(p, csv(NAMED)), SPECIES, True),
    "csv, columns by pattern": (
        "a.csv",
        lambda p: write(p, csv(NAMED.assign(id=range(30), note="x"))),
        {**SPECIES, "features": "f?"},
        True,
    ),
    "csv, columns left out": (
        "a.csv",
        lambda p: write(p, csv(NAMED.assign(id=range(30), note="x"))),
        {**SPECIES, "features": "!id,!note"},
        True,
    ),
    "csv, semicolons": ("a.csv", lambda p: write(p, csv(sep=";")), {}, False),
    "csv, all quoted, CRLF": (
        "a.csv",
        lambda p: write(p, csv(NAMED, quoting=1, lineterminator="\r\n")),
        SPECIES,
        True,
    ),
    "csv with a mark of UTF-8": ("a.csv", lambda p: write(p, b"\xef\xbb\xbf" + csv()), {}, False),
    "csv in UTF-16": (
        "a.csv",
        lambda p: write(p, csv(NAMED).decode().encode("utf-16")),
        SPECIES,
        True,
    ),
    "csv, empty lines at the end": ("a.csv", lambda p: write(p, csv() + b"\n,,,,\n"), {}, False),
    "csv without a header": (
        "a.data",
        lambda p: write(p, csv(NAMED, header=False)),
        {"labels": "4"},
        True,
    ),
    "csv with numbers as header": (
        "a.csv",
        lambda p: pd.DataFrame(ROWS).assign(label=CLASSES).to_csv(p, index=False),
        {},
        False,
    ),
    "csv of numpy": (
        "a.csv",
        lambda p: np.savetxt(p, np.c_[ROWS, CLASSES], delimiter=",", header="a,b,c,d,y"),
        {},
        False,
    ),
    "text of numpy": (
        "a.txt",
        lambda p: np.savetxt(p, np.c_[CLASSES, ROWS]),
        {"labels": "0"},
        False,
    ),
    "csv.gz": ("a.csv.gz", lambda p: write(p, gzip.compress(csv(NAMED))), SPECIES, True),
    "csv.bz2": ("a.csv.bz2", lambda p: write(p, bz2.compress(csv())), {}, False),
    "tsv": ("a.tsv", lambda p: write(p, csv(NAMED, sep="\t")), SPECIES, True),
    "csv under another name": ("a.dat", lambda p: write(p, csv()), {}, False),
    "parquet, wide": ("a.parquet", lambda p: NAMED.to_parquet(p), SPECIES, True),
    "parquet, lists": ("a.parquet", lambda p: LONG.to_parquet(p), {}, False),
    "parquet, categories": (
        "a.parquet",
        lambda p: WIDE.assign(y=pd.Categorical(WORDS, NAMES)).to_parquet(p, row_group_size=7),
        {},
        True,
    ),
    "parquet, lists by name": (
        "a.parquet",
        lambda p: LONG.assign(other=list(ROWS[:, :2])).to_parquet(p),
        {"features": "embed*", "labels": "label"},
        False,
    ),
    "parquet of datasets": ("a.parquet", write_class_label, {}, True),
    "hdf5": ("a.h5", lambda p: write_hdf5(p, features=ROWS, labels=CLASSES), {}, False),
    "hdf5, groups": (
        "a.h5",
        lambda p: write_hdf5(p, train__x=ROWS, train__y=WORDS, test__x=ROWS[:5]),
        {"features": "/train/x", "labels": "/train/y"},
        True,
    ),
    "hdf5, chunks and names of numbers": ("a.hdf5", write_chunks, {}, True),
    "npz of X and y": ("a.npz", lambda p: np.savez(p, X=ROWS, y=CLASSES, ids=CLASSES), {}, False),
    "npz of names": ("a.npz", lambda p: np.savez(p, embeddings=ROWS, targets=WORDS), {}, True),
    "npz of bytes": (
        "a.npz",
        lambda p: np.savez(p, features=ROWS, labels=WORDS.astype("S")),
        {},
        True,
    ),
    "npz, a column of labels": (
        "a.npz",
        lambda p: np.savez(p, x=ROWS, y=CLASSES[:, None]),
        {},
        False,
    ),
    "npz of keras": (
        "a.npz",
        lambda p: np.savez(p, x_train=ROWS, y_train=CLASSES, x_test=ROWS[:5], y_test=CLASSES[:5]),
        {"features": "x_train", "labels": "y_train"},
        False,
    ),
    "pt": (
        "a.pt",
        lambda p: torch.save({"X": torch.tensor(ROWS), "y": CLASSES.tolist()}, p),
        {},
        False,
    ),
    "pt with a list of names": (
        "a.pt",
        lambda p: torch.save({"embeddings": torch.tensor(ROWS), "label": WORDS.tolist()}, p),
        {},
        True,
    ),
    "safetensors": (
        "a.safetensors",
        lambda p: save_file({"h": torch.tensor(ROWS), "t": torch.tensor(CLASSES)}, p),
        {"features": "h", "labels": "t"},
        False,
    ),
}


def check(entries: dict[str, Any], *, named: bool) -> None:
    """Compare what was read with what was written."""
    np.testing.assert_allclose(np.asarray(entries["features"]), ROWS)
    labels = read_labels(entries["labels"], 30)
    np.testing.assert_array_equal(labels.labels, CLASSES)
    assert labels.names == (tuple(NAMES) if named else ())


@pytest.mark.parametrize("case", READ)
def test_a_file_is_read(case: str, tmp_path: Path) -> None:
    name, write_file, options, named = READ[case]
    path = tmp_path / name
    write_file(path)
    check(load_samples(path, **options), named=named)
    np.testing.assert_allclose(np.asarray(load_features(path, **options)), ROWS)
    shards = ncscope.measure_shards([path], groups=["nc1", "nc4"], **options)
    whole = ncscope.measure(ROWS, WORDS if named else CLASSES, groups=["nc1", "nc4"])
    assert dict(shards) == pytest.approx(dict(whole), rel=1e-9)
    assert shards.class_names == whole.class_names


CONVERTED: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "mat": ("a.mat", lambda p: scipy.io.savemat(p, {"X": ROWS, "y": CLASSES}), "a MATLAB file"),
    "mat, version 4": (
        "a.mat",
        lambda p: scipy.io.savemat(p, {"X": ROWS, "y": CLASSES[:, None]}, format="4"),
        "a MATLAB file",
    ),
    "mat, version 7.3": (
        "a.mat",
        lambda p: write_mat_hdf5(p),
        "a MATLAB file of version 7.3",
    ),
    "pickle": ("a.pkl", lambda p: write(p, pickle.dumps({"X": ROWS, "y": CLASSES})), "a pickle"),
    "pickle of a pair": ("a.pickle", lambda p: write(p, pickle.dumps((ROWS, WORDS))), "a pickle"),
    "pickle of a table": ("a.pkl", lambda p: LONG.to_pickle(p), "a pickle of pandas"),
    "packed pickle of a table": ("a.pkl.gz", lambda p: NUMBERED.to_pickle(p), "a pickle of pandas"),
    "joblib": ("a.joblib", lambda p: joblib.dump({"X": ROWS, "y": CLASSES}, p), "a file of joblib"),
    "joblib, packed": (
        "a.joblib",
        lambda p: joblib.dump((ROWS, CLASSES), p, compress=3),
        "a file of joblib",
    ),
    "bunch": (
        "a.pkl",
        lambda p: write(p, pickle.dumps(sklearn.utils.Bunch(data=ROWS, target=CLASSES))),
        "a pickle",
    ),
    "feather": ("a.feather", lambda p: NUMBERED.to_feather(p), "a Feather file"),
    "arrow stream": (
        "a.arrow",
        lambda p: write_stream(p),
        "a stream of Arrow IPC",
    ),
    "orc": ("a.orc", lambda p: pyarrow.orc.write_table(table_of(NUMBERED), p), "an ORC file"),
    "json lines": (
        "a.jsonl",
        lambda p: LONG.to_json(p, orient="records", lines=True),
        "a file of JSON lines",
    ),
    "json of rows": ("a.json", lambda p: NUMBERED.to_json(p, orient="records"), "a file of JSON"),
    "json of arrays": (
        "a.json",
        lambda p: write(p, json.dumps({"X": ROWS.tolist(), "y": WORDS.tolist()})),
        "a file of JSON",
    ),
    "stata": ("a.dta", lambda p: NUMBERED.to_stata(p, write_index=False), "a Stata file"),
    "sqlite": ("a.sqlite", sqlite, "an SQLite database"),
    "svmlight": (
        "a.svm",
        lambda p: sklearn.datasets.dump_svmlight_file(ROWS, CLASSES, str(p)),
        "a file of svmlight",
    ),
    "npz.gz": (
        "a.npz.gz",
        lambda p: write(p, gzip.compress(npz(X=ROWS, y=CLASSES))),
        "a file packed by gzip",
    ),
    "npz of objects": (
        "a.npz",
        lambda p: np.savez(p, features=ROWS, labels=WORDS.astype(object)),
        "pickled objects",
    ),
    "pt of arrays": (
        "a.pt",
        lambda p: torch.save({"features": ROWS, "labels": CLASSES}, p),
        "NumPy array under 'features'",
    ),
    "zip": ("a.zip", lambda p: write_zip(p, {"inner.csv": csv()}), "a zip archive of 1 file"),
    "tar": ("a.tar", write_tar, "a tar archive"),
    "tar.gz": ("a.tar.gz", lambda p: write_tar(p, "w:gz"), "a packed tar archive"),
    "csv with decimal commas": (
        "a.csv",
        lambda p: write(p, csv(sep=";", decimal=",")),
        "the decimal comma of",
    ),
    "csv in Latin-1": (
        "a.csv",
        lambda p: write(p, csv(NUMBERED.rename(columns={"f0": "å"})).decode().encode("latin-1")),
        "bytes of another encoding",
    ),
    "csv with an index": ("a.csv", lambda p: NUMBERED.to_csv(p), "a column that identifies the"),
    "csv with a text": (
        "a.csv",
        lambda p: write(p, csv(NUMBERED.assign(who="x, y"))),
        "'x, y' at row 0 in the column 'who'",
    ),
    "csv with labels of another name": ("a.csv", lambda p: write(p, csv(NAMED)), "found columns"),
    "parquet with an id": (
        "a.parquet",
        lambda p: NUMBERED.assign(sample_id=CLASSES).to_parquet(p),
        "a column that identifies the rows in the column 'sample_id'",
    ),
    "npz of two sets": (
        "a.npz",
        lambda p: np.savez(p, x_train=ROWS, y_train=CLASSES, x_test=ROWS[:5], y_test=CLASSES[:5]),
        "found entries x_test, x_train, y_test, y_train",
    ),
    "hdf5 of groups": (
        "a.h5",
        lambda p: write_hdf5(p, train__x=ROWS, train__y=CLASSES),
        "found entries train/x, train/y",
    ),
}


def write_mat_hdf5(path: Path) -> None:
    """Write a file as MATLAB does: with a header of text, and columns first."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file["X"], file["y"] = ROWS.T, CLASSES[None].astype(float)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(128))


def write_stream(path: Path) -> None:
    table = table_of(LONG)
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def follow(sentence: str, path: Path, options: dict[str, str]) -> Path:
    """Do what a sentence says: run its command, or add its options; return the file to measure."""
    command = re.search(r"(python -[cm] .*)$", sentence)
    if command is None:
        words = shlex.split(re.search(r"--.*?(?= \(in Python)", sentence)[0])
        pairs = zip(words[::2], words[1::2], strict=True)
        options |= {option.strip("-"): value for option, value in pairs}
        return path
    words = shlex.split(command[1].removesuffix(" (a pickle runs code of whoever wrote it)"))
    before = set(path.parent.rglob("*"))
    done = subprocess.run([sys.executable, *words[1:]], cwd=path.parent, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-500:]
    (new,) = [file for file in set(path.parent.rglob("*")) - before if file.is_file()]
    return new


@pytest.mark.slow  # each command starts Python
@pytest.mark.parametrize("case", CONVERTED)
def test_the_sentence_leads_to_the_numbers(case: str, tmp_path: Path) -> None:
    name, write_file, said = CONVERTED[case]
    path, options, sentences = tmp_path / name, {}, []
    write_file(path)
    for _ in range(3):
        try:
            entries = load_samples(path, **options)
            break
        except InputError as error:
            sentences.append(str(error))
            path = follow(sentences[-1], path, options)
    assert said in sentences[0]
    check(entries, named=read_labels(entries["labels"], 30).names != ())


@pytest.mark.parametrize("case", CONVERTED)
def test_a_sound_file_is_called_by_its_kind(case: str, tmp_path: Path) -> None:
    name, write_file, said = CONVERTED[case]
    write_file(tmp_path / name)
    with pytest.raises(InputError) as refused:
        load_samples(tmp_path / name)
    assert said in str(refused.value)
    assert "damaged" not in str(refused.value)
