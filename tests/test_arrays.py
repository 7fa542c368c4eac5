"""Arrays as people hold them: batches, columns of vectors, data frames are one matrix."""

from decimal import Decimal

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import ncscope
from ncscope.array_checks import as_tensor
from ncscope.errors import InputError

NAMES = np.array(["cat", "dog", "emu"])
CLASSES = np.arange(30) * 7 % 3
FEATURES = np.random.default_rng(0).normal(size=(30, 4)) + np.eye(3, 4)[CLASSES]
ROWS = list(FEATURES)
CUTS = (12, 24)  # two batches of one size, and a smaller one
COLUMNS = list("abcd")


def frame_with(**columns):
    return pd.DataFrame(FEATURES, columns=COLUMNS).assign(**columns)


FORMS = {
    "batches of arrays": np.split(FEATURES, CUTS),
    "batches of tensors": list(torch.tensor(FEATURES).split(12)),
    "batches of one size": list(torch.tensor(FEATURES).split(10)),
    "one batch": [torch.tensor(FEATURES)],
    "batches of both": [FEATURES[:12], torch.tensor(FEATURES[12:])],
    "batches with an empty one": (FEATURES[:0], FEATURES),
    "batches of lists": [FEATURES[:20].tolist(), FEATURES[20:].tolist()],
    "batches of data frames": [frame_with()[:9], frame_with()[9:]],
    "rows and a list": [*ROWS[:29], ROWS[29].tolist()],
    "series of arrays": pd.Series(ROWS),
    "series of lists": pd.Series(FEATURES.tolist()),
    "series of tensors": pd.Series(list(torch.tensor(FEATURES))),
    "array of objects": pd.Series(ROWS).to_numpy(),
    "polars lists": pl.Series(FEATURES.tolist()),
    "polars arrays": pl.Series(FEATURES.tolist(), dtype=pl.Array(pl.Float64, 4)),
    "pyarrow lists": pa.array(FEATURES.tolist()),
    "pyarrow lists of one size": pa.FixedSizeListArray.from_arrays(FEATURES.reshape(-1), 4),
    "pyarrow chunks": pa.chunked_array([FEATURES[:9].tolist(), FEATURES[9:].tolist()]),
    "column of datasets": datasets.Dataset.from_dict({"x": FEATURES})["x"],
    "column of tensors": datasets.Dataset.from_dict({"x": FEATURES})
    .cast_column("x", datasets.List(datasets.Value("float64")))
    .with_format("torch", dtype=torch.float64)["x"],
    "pandas": frame_with(),
    "pandas, nullable": frame_with().astype("Float64"),
    "pandas, objects": frame_with().astype(object),
    "pandas, decimals": frame_with(a=[Decimal(float(row[0])) for row in ROWS]),
    "polars": pl.DataFrame(FEATURES, schema=COLUMNS),
    "pyarrow table": pa.table(frame_with()),
    "pyarrow batch": pa.RecordBatch.from_pandas(frame_with()),
}


@pytest.mark.parametrize("form", FORMS)
def test_features_in_any_form_are_their_matrix(form):
    read = as_tensor(FORMS[form], "features")
    np.testing.assert_array_equal(read, FEATURES)


@pytest.mark.parametrize("form", ["batches of tensors", "series of lists", "polars"])
def test_what_is_read_is_measured(form):
    weight = np.random.default_rng(1).normal(size=(3, 4))
    wanted = ncscope.measure(FEATURES, CLASSES, weight, ood=FEATURES + 1)
    report = ncscope.measure(FORMS[form], CLASSES, list(weight), ood=FORMS[form])
    assert report["nc1"] == wanted["nc1"]
    shifted = ncscope.measure(FEATURES, CLASSES, weight, ood=FORMS[form])
    assert dict(report) == dict(shifted)


def test_mixed_types_of_columns_become_one():
    evens = np.arange(0, 60, 2)  # a column that counts the rows would be refused
    mixed = frame_with(a=FEATURES[:, 0] > 0, b=evens, c=pd.array(evens, "Int64"))
    read = as_tensor(mixed, "features")
    assert read.dtype == torch.float64
    wanted = np.stack([FEATURES[:, 0] > 0, evens, evens, FEATURES[:, 3]], 1)
    np.testing.assert_array_equal(read, wanted)


RAGGED = [*FEATURES[:, :3].tolist(), [1.0, 2.0, 3.0, 4.0]]
LENGTHS = "rows of one length, found length 3 at row 0 and 4 at row 30; pad or cut .*np.stack$"
WORDS = NAMES[CLASSES]
COLUMN = r"; drop this column, or pass it as labels$"
REFUSED = {
    "ragged lists": (RAGGED, LENGTHS),
    "ragged arrays": (list(map(np.array, RAGGED)), LENGTHS),
    "ragged tensors": (list(map(torch.tensor, RAGGED)), LENGTHS),
    "ragged series": (pd.Series(RAGGED), LENGTHS),
    "ragged polars": (pl.Series(RAGGED), LENGTHS),
    "ragged pyarrow": (pa.array(RAGGED), LENGTHS),
    "ragged datasets": (datasets.Dataset.from_dict({"x": RAGGED})["x"], LENGTHS),
    "batches of two layers": (
        [FEATURES[:9], FEATURES[9:20], FEATURES[20:, :3]],
        r"in batches of one dimension, found shape \(9, 4\) of batch 0 and \(10, 3\) of batch 2",
    ),
    "a row among batches": (
        [FEATURES, FEATURES[0]],
        r"found shape \(30, 4\) of batch 0 and \(4,\) of batch 1",
    ),
    "a missing row": (
        pd.Series([*ROWS[:29], None]),
        "without missing values, found 1 of 30 missing, the first at row 29",
    ),
    "text in pandas": (frame_with(kind=WORDS), r"str in column 'kind'" + COLUMN),
    "text in polars": (pl.DataFrame({"a": FEATURES[:, 0], "kind": WORDS}), "'kind'" + COLUMN),
    "text in pyarrow": (
        pa.table({"a": FEATURES[:, 0], "kind": WORDS}),
        "string in column 'kind'" + COLUMN,
    ),
    "categories": (frame_with(kind=pd.Categorical(WORDS)), "category in column 'kind'" + COLUMN),
    "dates": (frame_with(day=pd.Timestamp("2026-01-01")), "datetime64.* in column 'day'" + COLUMN),
    "a missing number": (
        frame_with().astype("Float64").mask(FEATURES.max() - 1e-9 < FEATURES),
        r"(column '.' of the features without missing values, found 1 of 30|NaN or Inf in 1 of 30)",
    ),
    "a column of vectors": (
        pd.DataFrame({"vector": ROWS}),
        r"an array a row in column 'vector'; pass this column alone: features\['vector'\]",
    ),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_no_matrix_is_refused_by_its_place(form):
    value, message = REFUSED[form]
    with pytest.raises(InputError, match=message) as caught:
        ncscope.measure(value, CLASSES)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_advice_on_ragged_rows_and_columns_gives_the_right_number():
    wanted = dict(ncscope.measure(FEATURES, CLASSES))
    table = frame_with(kind=WORDS)
    assert dict(ncscope.measure(table.drop(columns="kind"), CLASSES)) == wanted
    assert dict(ncscope.measure(table[COLUMNS], table["kind"])) == wanted
    frame = pd.DataFrame({"vector": ROWS})
    assert dict(ncscope.measure(frame["vector"], CLASSES)) == wanted
    cut = np.stack([row[:3] for row in RAGGED])
    assert cut.shape == (31, 3)


def test_a_matrix_a_sample_is_told_from_batches():
    sequences = [FEATURES[: 2 + length % 5] + length for length in range(12)]
    with pytest.raises(
        InputError, match=r"shape \(12,\) for 45 rows.*; if each matrix is one"
    ) as told:
        ncscope.measure(sequences, CLASSES[:12])
    means = eval(told.value.fix.partition("mean: ")[2], {"features": sequences})
    wanted = ncscope.measure(np.stack([rows.mean(0) for rows in sequences]), CLASSES[:12])
    assert dict(ncscope.measure(means, CLASSES[:12])) == dict(wanted)


CLASSIFIERS = {
    "logistic": LogisticRegression(),
    "support vectors": LinearSVC(),
    "ridge": RidgeClassifier(),
    "one against the rest": OneVsRestClassifier(LogisticRegression()),
}


@pytest.mark.parametrize("names", [NAMES, NAMES[:2]], ids=["three classes", "one row"])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_rows_of_a_classifier_are_in_the_order_of_the_names(kind, names):
    chosen = np.isin(WORDS, names)
    features, words = FEATURES[chosen], WORDS[chosen]
    classifier = CLASSIFIERS[kind].fit(features, words)
    each = getattr(classifier, "estimators_", [classifier])
    weight = np.concatenate([one.coef_ for one in each])
    bias = np.concatenate([one.intercept_ for one in each])
    assert weight.size == 4 * (3 if len(names) == 3 else 1)
    accuracy = classifier.score(features, words)
    assert 0.4 < accuracy < 1
    report = ncscope.measure(features, words, weight, bias)
    assert report["accuracy"] == pytest.approx(accuracy)
    assert report.class_names == tuple(classifier.classes_)
    # without the last class, the order of the rows must be told
    part = words != names[-1]
    if len(names) == 3:
        with pytest.raises(InputError, match="found 2 names; pass class_names"):
            ncscope.measure(features[part], words[part], weight, bias)
        subset = ncscope.measure(
            features[part], words[part], weight, bias, class_names=classifier.classes_
        )
        assert subset["accuracy"] == pytest.approx(classifier.score(features[part], words[part]))
    elif weight.ndim == 2:
        with pytest.raises(InputError, match=r"weight of one row.*; pass samples of its two"):
            ncscope.measure(FEATURES, WORDS, weight, bias)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_labels_may_be_named_as_a_column_of_the_frame(kind: str) -> None:
    library = pytest.importorskip(kind)
    rows = {"a": [0.0, 1.0, 4.0, 5.0], "species": ["x", "x", "y", "y"], "b": [1.0, 0.0, 1.0, 0.0]}
    frame = library.table(rows) if kind == "pyarrow" else library.DataFrame(rows)
    report = ncscope.measure(frame, "species")
    exact = ncscope.measure([[0.0, 1], [1, 0], [4, 1], [5, 0]], [0, 0, 1, 1])
    assert dict(report) == dict(exact)
    assert report.class_names == ("x", "y")
    for name, fix in (
        ("specie", "the nearest is 'species'"),
        ("label", "the first columns are a, species, b"),
    ):
        with pytest.raises(InputError, match=f"found {name!r}, which is no column; {fix}"):
            ncscope.measure(frame, name)


def test_labels_of_pandas_in_another_order_of_the_index_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(torch.randn(8, 2).numpy(), list("abcdefgh"), list("xy"))
    labels = pandas.Series([0, 0, 0, 0, 1, 1, 1, 1], index=frame.index)
    expected = ncscope.measure(frame, labels)["nc1"]
    shuffled = labels.iloc[::-1]
    with pytest.raises(InputError, match=r"the same index in another order; pass labels\.loc\["):
        ncscope.measure(frame, shuffled)
    assert ncscope.measure(frame, shuffled.loc[frame.index])["nc1"] == expected
    # An index of other entries, such as one that was reset, says nothing of the order.
    assert ncscope.measure(frame, labels.reset_index(drop=True))["nc1"] == expected
    assert ncscope.measure(frame, list(labels))["nc1"] == expected
    moments = ncscope.ClassMoments(2, 2)
    with pytest.raises(InputError, match="the same index in another order"):
        moments.update(frame, shuffled)
    with pytest.raises(InputError, match=r"one label a sample"):
        ncscope.measure(frame, pandas.concat([labels, labels]))
