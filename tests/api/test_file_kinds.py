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

import datasets
import h5py
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
import scipy.io
import sklearn.datasets
import sklearn.linear_model
import torch
from safetensors.torch import save_file

import ncscope
from ncscope.api.sample_file import join_labels
from ncscope.api.samples import load_features, load_samples
from ncscope.api.shard_files import Columns, batches_of, expand_patterns
from ncscope.array_checks import as_tensor
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
    "text in columns": (
        "a.txt",
        lambda p: write(p, NUMBERED.to_string(index=False, header=False)),
        {"labels": "4"},
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
    "hdf5, a column of labels": (
        "a.h5",
        lambda p: write_hdf5(p, features=ROWS, y=WORDS[:, None]),
        {},
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
    "mat without a header": (
        "a.mat",
        lambda p: copy_mat(p),
        "a MATLAB file of version 7.3",
    ),
    "pickle": ("a.pkl", lambda p: write(p, pickle.dumps({"X": ROWS, "y": CLASSES})), "a pickle"),
    "pickle in text": (
        "a.pkl",
        lambda p: write(p, pickle.dumps({"X": ROWS, "y": CLASSES}, protocol=0)),
        "a pickle",
    ),
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
    "pt of a pair": (
        "a.pt",
        lambda p: torch.save((torch.tensor(ROWS), torch.tensor(CLASSES)), p),
        "a mapping of tensors in a.pt, found tuple",
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
        "found entries x_train, y_train, x_test, y_test",
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


def copy_mat(path: Path) -> None:
    """Write the entries of a file of MATLAB without its header, as tools that copy entries do."""
    write_hdf5(path, X=ROWS.T, y=CLASSES[None].astype(float))
    with h5py.File(path, "r+") as file:
        file["X"].attrs["MATLAB_class"] = np.bytes_("double")


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


MODELS: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "pointer of Git LFS": (
        "a.csv",
        lambda p: write(p, "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n"),
        "a pointer of Git LFS.* lfs pull --include a.csv",
    ),
    "web page": ("a.npz", lambda p: write(p, "<!DOCTYPE html><html></html>"), "a web page"),
    "excel": (
        "a.xlsx",
        lambda p: write_zip(p, {"[Content_Types].xml": b"", "xl/workbook.xml": b""}),
        r"an Excel workbook .* pandas\.read_excel\(.*a\.xlsx.*a-converted\.csv",
    ),
    "older excel": (
        "a.xls",
        lambda p: write(p, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512)),
        "an Excel workbook",
    ),
    "keras": (
        "a.keras",
        lambda p: write_zip(p, {"config.json": b"", "model.weights.h5": b""}),
        r"a model of Keras.*keras\.saving\.load_model\(.*KERAS_BACKEND=torch",
    ),
    "torchscript": (
        "a.pt",
        lambda p: write_torchscript(p),
        r"a model of TorchScript, .*torch\.jit\.load\(",
    ),
    "gguf": ("a.gguf", lambda p: write(p, b"GGUF\3" + bytes(99)), "a language model in GGUF"),
    "hdf5 of pandas": (
        "a.h5",
        lambda p: write_frame(p),
        r"an HDF5 file of pandas .*pandas\.read_hdf\(",
    ),
    "onnx": ("a.onnx", lambda p: write(p, b"\x08\x07\x12\x07pytorch" + bytes(99)), "in ONNX"),
    "image": ("a.png", lambda p: write(p, b"\x89PNG\r\n\x1a\n" + bytes(99)), "an image.* FOLDER"),
    "photograph": ("a.jpg", lambda p: write(p, b"\xff\xd8\xff\xe0" + bytes(99)), "an image"),
    "pickled model": (
        "a.pkl",
        lambda p: write(p, pickle.dumps(sklearn.linear_model.LogisticRegression())),
        r"a pickle of the class sklearn\.linear_model\._logistic\.LogisticRegression",
    ),
    "one tensor": ("a.pt", lambda p: torch.save(torch.tensor(ROWS), p), "found Tensor; torch.save"),
    "text": ("a.md", lambda p: write(p, "# Notes\n\nNothing, in\nparticular.\n"), "another kind"),
}


def write_frame(path: Path) -> None:
    """Write an HDF5 file with the mark of pandas, whose library for it is not installed here."""
    write_hdf5(path, df__block0_values=ROWS)
    with h5py.File(path, "a") as file:
        file["df"].attrs["pandas_type"] = "frame"


def write_torchscript(path: Path) -> None:
    """Write an archive with the entries that torch.jit.save writes."""
    write_zip(path, {"a/data.pkl": b"\x80\2}.", "a/constants.pkl": b"\x80\2).", "a/code/a.py": b""})


@pytest.mark.parametrize("case", MODELS)
def test_what_holds_no_features_is_called_by_its_kind(case: str, tmp_path: Path) -> None:
    name, write_file, said = MODELS[case]
    write_file(tmp_path / name)
    with pytest.raises(InputError, match=said):
        load_samples(tmp_path / name)


def numbers(*changes: tuple[int, int, Any]) -> pd.DataFrame:
    """The table, with other cells in some rows and columns."""
    table = NUMBERED.astype(object)
    for row, column, value in changes:
        table.iloc[row, column] = value
    return table


WRONG: dict[str, tuple[bytes, str]] = {
    "missing numbers": (
        csv(numbers((7, 2, ""), (9, 2, "NA"), (11, 0, np.nan))),
        r"3 missing, the first in the column 'f2' at row 7 \(''\); drop these rows: python -c",
    ),
    "missing labels": (csv(numbers((7, 4, ""))), "1 missing, the first in the column 'label' at"),
    "question marks": (csv(numbers((3, 1, "?"))), r"'f1' at row 3 \('\?'\)"),
    "a text far below": (
        csv(pd.concat([NUMBERED] * 9 + [numbers((4, 1, "1_000"))])),
        "'1_000' in the column 'f1' at row 274; correct the cell, or leave the column out",
    ),
    "a name among numbers": (
        csv(pd.concat([NUMBERED] * 9 + [numbers((4, 4, "cat"))])),
        "numbers in the column 'label'",
    ),
    "a fraction as label": (csv(numbers((4, 4, 0.5))), "label 0.5 at row 4"),
    "a line with fewer cells": (csv() + b"1,2,3\n", r"5 cells a line.*3 at row 30 \(line 32\)"),
    "two columns of one name": (b"a,a,label\n1,2,0\n2,3,1\n", "every column once in a.csv, found"),
    "names alone": (b"a,b,label\n", "a line of names and lines of numbers in a.csv, found 1 line"),
    "an endless line": (b"1," * 20 + b"1\n" + b"2," * 2**24, "lines of at most 33,554,432"),
    "a number that is none": (csv(numbers((2, 0, "inf"))), "NaN or Inf in 1 of"),
    "two columns of labels": (csv(NUMBERED.assign(y=1)), "several: label, y; choose it"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_cell_is_named(case: str, tmp_path: Path, monkeypatch) -> None:
    content, said = WRONG[case]
    write(tmp_path / "a.csv", content)
    monkeypatch.setattr("ncscope.api.sample_file.BATCH_BYTES", 8 * 4 * 16 * 100)
    with pytest.raises(InputError, match=said):
        ncscope.measure(**load_samples(tmp_path / "a.csv"))


@pytest.mark.slow
def test_rows_with_missing_numbers_are_dropped_as_the_sentence_says(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", csv(numbers((7, 2, "?"), (9, 2, "NA"), (11, 4, "")), sep=";"))
    with pytest.raises(InputError) as refused:
        load_samples(tmp_path / "a.csv")
    entries = load_samples(follow(str(refused.value), tmp_path / "a.csv", {}))
    kept = np.delete(np.arange(30), [7, 9, 11])
    np.testing.assert_allclose(entries["features"], ROWS[kept])
    np.testing.assert_array_equal(entries["labels"], CLASSES[kept])


def link(file: h5py.File, folder: Path) -> None:
    write_hdf5(folder / "other.h5", features=ROWS)
    file["features"] = h5py.ExternalLink("other.h5", "features")


def link_softly(file: h5py.File, folder: Path) -> None:
    write_hdf5(folder / "other.h5", features=ROWS)
    file["elsewhere"] = h5py.ExternalLink("other.h5", "/")
    file["features"] = h5py.SoftLink("/elsewhere/features")


def point_to_bytes(file: h5py.File, folder: Path) -> None:
    secret = folder / "secret"
    secret.write_bytes(ROWS.tobytes())
    external = [(str(secret), 0, h5py.h5f.UNLIMITED)]
    file.create_dataset("features", (30, 4), "f8", external=external)


def make_virtual(file: h5py.File, folder: Path) -> None:
    write_hdf5(folder / "other.h5", features=ROWS)
    layout = h5py.VirtualLayout((30, 4), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "features", (30, 4))
    file.create_virtual_dataset("features", layout)


def refer(file: h5py.File, folder: Path) -> None:
    file["inner"] = ROWS
    file.create_dataset("features", data=[file["inner"].ref] * 30, dtype=h5py.ref_dtype)


def leave_unwritten(file: h5py.File, folder: Path) -> None:
    entry = file.create_dataset("features", (30, 4), "f8", chunks=(10, 4))
    entry[:20] = ROWS[:20]


def loop(file: h5py.File, folder: Path) -> None:
    file.create_group("group")["again"] = file["/"]


HDF5 = {
    link: "found a link to another file",
    link_softly: "entries 'features' and 'labels' in a.h5",
    point_to_bytes: "found a link to another file",
    make_virtual: "found a link to another file",
    refer: r"references to other entries in 'features' \(they are not followed\)",
    leave_unwritten: r"parts of shape \(30, 4\) that were never written",
    loop: "found entries labels",
}


@pytest.mark.parametrize("make", HDF5, ids=lambda make: make.__name__)
def test_an_hdf5_file_that_leads_elsewhere_is_refused(make, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["labels"] = CLASSES
        make(file, tmp_path)
    with pytest.raises(InputError, match=HDF5[make]):
        load_samples(tmp_path / "a.h5")


def test_damage_inside_of_hdf5_gives_one_error_or_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_chunks(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    refusals = 0
    for _ in range(60):
        damaged = bytearray(content)
        for place in rng.integers(8, len(content), 20):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            load_samples(path)
        except InputError as error:
            refusals += "\n" not in str(error)
    assert refusals > 20


@pytest.mark.parametrize("kind", [".csv", ".parquet", ".h5"])
def test_a_table_is_read_by_batches(kind: str, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / f"a{kind}"
    if kind == ".h5":
        write_hdf5(path, features=ROWS, labels=WORDS)
    else:
        write_table = {".csv": NAMED.to_csv, ".parquet": NAMED.to_parquet}[kind]
        write_table(path, index=False)
    size = 8 * 4 * 7 * (16 if kind == ".csv" else 1)
    monkeypatch.setattr("ncscope.api.sample_file.BATCH_BYTES", size)
    columns = Columns(labels=None if kind == ".h5" else "species")
    batches = list(batches_of(path, columns))
    assert [len(rows) for rows, _ in batches] == [7, 7, 7, 7, 2]
    check(
        {
            "features": np.concatenate([rows for rows, _ in batches]),
            "labels": join_labels([labels for _, labels in batches]),
        },
        named=True,
    )
    alone = list(batches_of(path, columns, labels_only=True))
    assert all(rows is None for rows, _ in alone)
    assert sum(len(labels) for _, labels in alone) == len(ROWS)
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: 8 * 4 * 12)
    with pytest.raises(InputError, match=r"the features of a\..*split the file"):
        load_samples(path, (), None, columns.labels)


def test_names_of_shards_are_numbered_together(tmp_path: Path) -> None:
    for number, rows in enumerate([range(0, 30, 3), range(1, 30, 3), range(2, 30, 3)]):
        NAMED.iloc[list(rows)].to_csv(tmp_path / f"{number}.csv", index=False)
    files = sorted(tmp_path.glob("*.csv"))
    report = ncscope.measure_shards(files, labels="species", groups=["nc1"])
    assert dict(report) == pytest.approx(dict(ncscope.measure(ROWS, WORDS, groups=["nc1"])))
    assert report.class_names == tuple(NAMES)
    with pytest.raises(InputError, match="2 classes, as many as rows of the weight or num_classes"):
        ncscope.measure_shards(files, labels="species", num_classes=2)


NO_FEATURES: dict[str, tuple[str, Any, str]] = {
    "numbers of the names": ("code", 7 - CLASSES, "a column that repeats the labels"),
    "the same as fractions": ("code", 7.0 - CLASSES, "a column that repeats the labels"),
    "target": ("Target", CLASSES % 2, "a column named like labels"),
    "class": ("class", CLASSES % 2, "a column named like labels"),
    "identifier": (
        "PatientID",
        842302 + 17 * CLASSES + 1000 * np.arange(30),
        "identifies the rows",
    ),
}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("case", NO_FEATURES)
def test_a_column_that_is_hardly_a_feature_must_be_named(
    case: str, kind: str, tmp_path: Path
) -> None:
    name, values, said = NO_FEATURES[case]
    frame, path = NAMED.assign(**{name: values}), tmp_path / f"a.{kind}"
    write(path, csv(frame)) if kind == "csv" else frame.to_parquet(path, index=False)
    with pytest.raises(InputError, match=f"{said}.* in the column '{name}'") as caught:
        load_samples(path, **SPECIES)
    left_out = shlex.split(caught.value.fix.partition("--features ")[2])[0]
    check(load_samples(path, **SPECIES, features=left_out), named=True)
    every = load_samples(path, **SPECIES, features="*")["features"]
    np.testing.assert_array_equal(every, np.c_[ROWS, values])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_repeats_the_labels_in_sorted_rows_of_several_batches(
    kind: str, tmp_path: Path, monkeypatch
) -> None:
    frame = pd.concat([NAMED.assign(code=7 - CLASSES, nearly=CLASSES)] * 9).sort_values("species")
    frame.iloc[-1, -1] = 0
    path = tmp_path / f"a.{kind}"
    write(path, csv(frame)) if kind == "csv" else frame.to_parquet(path, index=False)
    monkeypatch.setattr("ncscope.api.sample_file.BATCH_BYTES", 8 * 6 * 16 * 40)
    with pytest.raises(InputError, match=r"repeats the labels in the column 'code'.*'!code' "):
        ncscope.measure_shards([path], **SPECIES)
    ncscope.measure_shards([path], **SPECIES, features="!code", groups=["nc1"])


@pytest.mark.parametrize("label", ["label", "species"])
@pytest.mark.parametrize("names", [[400, 410, 420, 430], ["430", "7.5", "0", "2"]])
def test_a_line_of_numbers_and_a_name_of_labels_is_a_header(
    names: list, label: str, tmp_path: Path
) -> None:
    frame = WIDE.set_axis(names, axis=1).assign(**{label: WORDS})
    path = tmp_path / "a.csv"
    write(path, csv(frame))
    if label == "label" or names[0] == 400:
        check(load_samples(path, labels=label), named=True)
    write(path, csv(frame, header=False))
    check(load_samples(path, labels="4"), named=True)


def test_a_missing_label_of_pandas_is_dropped_as_the_sentence_says(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    NUMBERED.astype(float).to_parquet(path, index=False)
    table = pq.read_table(path)
    gap = pyarrow.array([np.nan, *CLASSES[1:]], pyarrow.float64())
    pq.write_table(table.set_column(4, "label", gap), path)
    with pytest.raises(InputError, match=r"1 missing, the first at row 0; drop them: python -c"):
        ncscope.measure(**load_samples(path))


def test_integers_that_repeat_and_coordinates_are_features(tmp_path: Path) -> None:
    counts = np.random.default_rng(1).integers(0, 9, (30, 2))
    frame = NAMED.assign(x=counts[:, 0], y=counts[:, 1])
    write(tmp_path / "a.csv", csv(frame))
    rows = load_samples(tmp_path / "a.csv", **SPECIES)["features"]
    np.testing.assert_array_equal(rows, np.c_[ROWS, counts])


@pytest.mark.parametrize("members", [{}, {"none": -1}])
def test_a_mark_among_the_names_of_hdf5_is_left_out(members: dict, tmp_path: Path) -> None:
    numbers = np.where(np.arange(30) == 4, -1, CLASSES)
    kind = h5py.enum_dtype({name: code for code, name in enumerate(NAMES)} | members, "i1")
    write_hdf5(tmp_path / "a.h5", features=ROWS)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file.create_dataset("labels", data=numbers, dtype=kind)
        kind = h5py.enum_dtype({name: 5 + code for code, name in enumerate(NAMES)}, "i1")
        file.create_dataset("confused", data=CLASSES, dtype=kind)
    read = read_labels(load_samples(tmp_path / "a.h5")["labels"], 30, ignore_index=-1)
    assert read.names == tuple(NAMES)
    np.testing.assert_array_equal(read.labels, np.delete(CLASSES, 4))
    with pytest.raises(InputError, match="the number 0, which has none"):
        load_samples(tmp_path / "a.h5", labels="confused")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_names_of_hdf5_in_other_letters_are_read(encoding: str, tmp_path: Path) -> None:
    names = ["Ameise", "Käfer", "Würmer"]
    cells = np.array([names[number].encode(encoding) for number in CLASSES])
    for place, data in enumerate((cells, cells.astype(object))):
        write_hdf5(tmp_path / f"{place}.h5", features=ROWS, labels=data)
        read = read_labels(load_samples(tmp_path / f"{place}.h5")["labels"], 30)
        assert read.names == tuple(names)
        np.testing.assert_array_equal(read.labels, CLASSES)


def test_labels_of_hdf5_that_do_not_fit_into_memory_are_refused(
    tmp_path: Path, monkeypatch
) -> None:
    labels = WORDS.astype("S99999")
    write_hdf5(tmp_path / "a.h5", features=ROWS, labels=labels)
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: labels.nbytes // 2)
    load_features(tmp_path / "a.h5")
    with pytest.raises(InputError, match=r"30 rows of a\.h5"):
        load_samples(tmp_path / "a.h5")


@pytest.mark.parametrize("place", [0, 4])
@pytest.mark.parametrize("others", ["fractions", "integers"])
def test_the_column_of_classes_is_proposed(place: int, others: str, tmp_path: Path) -> None:
    rows = ROWS if others == "fractions" else (1000 * ROWS).astype(int)
    table = np.insert(rows.astype(object), place, CLASSES, axis=1)
    write(tmp_path / "a.csv", csv(pd.DataFrame(table), header=False))
    with pytest.raises(InputError, match=rf"for example --labels {place} "):
        load_samples(tmp_path / "a.csv")


def test_no_column_of_fractions_is_proposed(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", csv(WIDE))
    with pytest.raises(InputError, match="save the labels too"):
        load_samples(tmp_path / "a.csv")


ENTRIES: dict[str, tuple[dict[str, Any], str]] = {
    "a known name": ({"ids": CLASSES, "h": ROWS, "y": CLASSES}, "--features h --labels y "),
    "a word": ({"ids": CLASSES, "h": ROWS, "y_train": CLASSES}, "--features h --labels y_train "),
    "known features": ({"a": ROWS, "x": ROWS, "t": CLASSES}, "--features x --labels t "),
    "no number": ({"id": CLASSES, "h": ROWS, "t": CLASSES}, "--features h --labels t "),
    "in doubt": ({"s": CLASSES, "h": ROWS, "t": CLASSES}, "--features h --labels ENTRY "),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_the_entry_of_the_labels_is_proposed(case: str, tmp_path: Path) -> None:
    entries, said = ENTRIES[case]
    np.savez(tmp_path / "a.npz", **entries)
    with pytest.raises(InputError, match=said):
        load_samples(tmp_path / "a.npz")


@pytest.mark.parametrize("rows", [7, 30])
def test_a_mark_among_named_numbers_is_left_out(rows: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("ncscope.api.parquet_files.MOST_ROWS", rows)
    marked = CLASSES.copy()
    marked[[0, 20]] = -1, 255
    features = datasets.Features(
        {name: datasets.Value("float64") for name in WIDE}
        | {"label": datasets.ClassLabel(3, NAMES)}
    )
    table = datasets.Dataset.from_pandas(NUMBERED, features=features).data.table
    # The library itself refuses to make a column with 255; other writers do not.
    column = table.schema.get_field_index("label")
    table = table.set_column(column, table.schema.field(column), pyarrow.array(marked))
    pq.write_table(table, tmp_path / "a.parquet")
    labels = load_samples(tmp_path / "a.parquet")["labels"]
    read = read_labels(labels, 30, ignore_index=(-1, 255))
    kept = (marked >= 0) & (marked < 3)
    np.testing.assert_array_equal(read.labels, CLASSES[kept])
    assert read.names == tuple(NAMES)
    report = ncscope.measure_shards([tmp_path / "a.parquet"], ignore_index=(-1, 255))
    assert report["nc1"] == pytest.approx(ncscope.measure(ROWS[kept], CLASSES[kept])["nc1"])
    with pytest.raises(InputError, match=r"label 255; .*with ignore_index"):
        ncscope.measure(**load_samples(tmp_path / "a.parquet"))


@pytest.mark.parametrize("write_names", ["pyarrow", "polars", "pandas"])
def test_only_categories_of_pandas_have_an_order(write_names: str, tmp_path: Path) -> None:
    path, backwards = tmp_path / "a.parquet", WORDS[::-1]
    frame = WIDE.assign(label=backwards)
    if write_names == "pyarrow":
        table = table_of(frame)
        column = table["label"].dictionary_encode()
        pq.write_table(table.set_column(4, "label", column), path)
    elif write_names == "polars":
        pl.from_pandas(frame).with_columns(pl.col("label").cast(pl.Categorical)).write_parquet(path)
    else:
        frame.assign(label=pd.Categorical(backwards, NAMES[::-1])).to_parquet(path)
    read = read_labels(load_samples(path)["labels"], 30)
    order = NAMES[::-1] if write_names == "pandas" else sorted(NAMES)
    assert [read.names[number] for number in read.labels] == list(backwards)
    assert read.names == tuple(order)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_in_another_order_are_read_by_name(kind: str, tmp_path: Path) -> None:
    def save(name: str, frame: pd.DataFrame) -> str:
        path = tmp_path / f"{name}.{kind}"
        write(path, csv(frame)) if kind == "csv" else frame.to_parquet(path, index=False)
        return str(path)

    mixed = NAMED[["f2", "species", "f0", "f3", "f1"]]
    files = [save("a", NAMED[:13]), save("b", mixed[13:])]
    options = {"labels": "species"}
    report = ncscope.measure_shards(files, **options)
    expected = ncscope.measure_shards([save("c", NAMED[:13]), save("d", NAMED[13:])], **options)
    assert dict(report) == dict(expected)
    other = save("e", NAMED.rename(columns={"f1": "g1"}))
    with pytest.raises(InputError, match=r"first file in e\..*found no 'f1' \(4 columns\)"):
        ncscope.measure_shards([files[0], other], **options)
    order = [f"f{place}" for place in range(4)]
    np.testing.assert_array_equal(load_features(files[1], **options, order=order), ROWS[13:])


def test_data_frames_in_another_order_are_joined_by_name() -> None:
    mixed = WIDE[["f2", "f0", "f3", "f1"]]
    for form in (lambda frame: frame, pl.from_pandas, table_of):
        parts = [form(WIDE[:13]), form(mixed[13:])]
        np.testing.assert_array_equal(as_tensor(parts, "features"), ROWS)
        parts[1] = form(mixed[13:].rename(columns={"f0": "g"}))
        with pytest.raises(InputError, match="first data frame"):
            as_tensor(parts, "features")


def test_data_frames_in_another_order_are_not_mixed() -> None:
    mixed = WIDE[["f2", "f0", "f3", "f1"]]
    both = [ncscope.measure(WIDE, CLASSES, ood=frame) for frame in (WIDE[:9], mixed[:9])]
    assert dict(both[1]) == pytest.approx(dict(both[0]), nan_ok=True)
    weight = pd.DataFrame(ROWS[:3], columns=WIDE.columns)
    expected = ncscope.measure(ROWS, CLASSES, ROWS[:3], ood=ROWS[:9])
    found = ncscope.measure([WIDE[:13], WIDE[13:]], CLASSES, weight[mixed.columns], ood=mixed[:9])
    assert dict(found) == pytest.approx(dict(expected), nan_ok=True)
    with pytest.raises(InputError, match="the columns of the reference"):
        ncscope.measure(mixed, CLASSES, reference=found)
    batches = [(WIDE[:13], CLASSES[:13]), (mixed[13:], CLASSES[13:])]
    for shards in ([batches], [[batch] for batch in batches]):
        with pytest.raises(InputError, match="columns of the first data frame"):
            ncscope.measure_shards(shards)


def test_a_file_under_two_paths_is_named_twice(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.csv"), csv())
    for files in (["a.csv", "./a.csv"], ["a.csv", str(tmp_path / "a.csv")]):
        with pytest.raises(InputError, match="each file once"):
            ncscope.measure_shards(files)
        with pytest.raises(InputError, match="every shard once"):
            expand_patterns(files)


def test_no_name_leaves_the_quotes_of_a_command(tmp_path: Path) -> None:
    name = """a'; touch x; "$(touch y)`touch z`.pkl"""
    write(tmp_path / name, pickle.dumps((ROWS, WORDS)))
    with pytest.raises(InputError) as refused:
        load_samples(tmp_path / name)
    words = shlex.split(re.search(r"(python -c .*)$", str(refused.value))[1])
    compile(words[2], "command", "exec")
    assert words[:2] == ["python", "-c"]
    assert len(words) == 3 + len(["(a", "pickle", "runs", "code", "of", "whoever", "wrote", "it)"])


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.h5"])
def test_a_table_at_an_address_is_read(name: str, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    if name == "a.h5":
        write_hdf5(tmp_path / name, features=ROWS, labels=WORDS)
    elif name == "a.parquet":
        NAMED.to_parquet(tmp_path / name)
    else:
        NAMED.to_csv(tmp_path / name, index=False)
    address = f"memory://{tmp_path.name}/{name}"
    fsspec.filesystem("memory").put_file(str(tmp_path / name), address)
    labels = None if name == "a.h5" else "species"
    report = ncscope.measure_shards([address], labels=labels, groups=["nc1"])
    assert dict(report) == pytest.approx(dict(ncscope.measure(ROWS, WORDS, groups=["nc1"])))


@pytest.mark.parametrize("length", [10, 60, -1])
def test_a_packed_table_that_was_cut_off_is_damaged(length: int, tmp_path: Path) -> None:
    write(tmp_path / "a.csv.gz", gzip.compress(csv())[:length])
    with pytest.raises(InputError, match=r"a\.csv\.gz, found a damaged file"):
        load_samples(tmp_path / "a.csv.gz")
