"""Labels as people hold them: every form of the same classes gives the same numbers."""

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import ncscope
from ncscope.errors import InputError
from ncscope.labels import read_labels

NAMES = ["cat", "dog", "emu"]
CLASSES = (np.arange(30) * 7 + 1) % 3  # the first name is not the first of the alphabet
WORDS = np.array(NAMES)[CLASSES]
FEATURES = np.random.default_rng(0).normal(size=(30, 4)) + np.eye(3, 4)[CLASSES]


def of_datasets(classes=CLASSES):
    features = datasets.Features({"label": datasets.ClassLabel(names=NAMES)})
    return datasets.Dataset.from_dict({"label": classes.tolist()}, features=features)["label"]


FORMS = {
    "list of names": list(WORDS),
    "tuple of names": tuple(map(str, WORDS)),
    "array of names": WORDS,
    "array of objects": WORDS.astype(object),
    "bytes": WORDS.astype("S"),
    "series": pd.Series(WORDS),
    "series of strings": pd.Series(WORDS, dtype="string"),
    "series of categories": pd.Series(pd.Categorical(WORDS, categories=NAMES)),
    "categorical": pd.Categorical(WORDS, categories=NAMES),
    "categorical index": pd.CategoricalIndex(WORDS, categories=NAMES),
    "pyarrow": pa.array(list(WORDS)),
    "pyarrow dictionary": pa.chunked_array([pa.array(list(WORDS)).dictionary_encode()]),
    "column of datasets": of_datasets(),
    "polars": pl.Series(WORDS),
    "polars categories": pl.Series(WORDS, dtype=pl.Categorical),
    "polars enumeration": pl.Series(WORDS, dtype=pl.Enum(NAMES)),
}


@pytest.mark.parametrize("form", FORMS)
def test_names_in_any_form_are_the_classes_of_their_numbers(form):
    wanted = ncscope.measure(FEATURES, CLASSES)
    report = ncscope.measure(FEATURES, FORMS[form])
    assert dict(report) == dict(wanted)
    assert report.class_names == tuple(NAMES)
    assert {row["class_name"] for row in report.per_class.rows()} == set(NAMES)


NUMBERS = {
    "nullable integers": pd.Series(CLASSES, dtype="Int64"),
    "objects": CLASSES.astype(object),
    "floats": CLASSES.astype(float),
    "pyarrow integers": pa.array(CLASSES),
    "range": None,
}


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_in_any_form_have_no_names(form):
    labels = range(30) if form == "range" else NUMBERS[form]
    read = read_labels(labels, 30)
    assert read.labels.tolist() == list(range(30) if form == "range" else CLASSES)
    assert read.names == ()


def test_the_order_of_categories_is_the_user_s_and_one_without_samples_is_a_class():
    order = ["emu", "yak", "dog", "cat"]
    report = ncscope.measure(FEATURES, pd.Categorical(WORDS, categories=order))
    numbers = np.array([order.index(word) for word in WORDS])
    assert dict(report) == dict(ncscope.measure(FEATURES, numbers, num_classes=4))
    assert report.class_names == tuple(order)
    enumeration = ncscope.measure(FEATURES, pl.Series(WORDS, dtype=pl.Enum(order)))
    assert dict(enumeration) == dict(report)


def test_declared_names_are_the_rows_of_the_weight():
    weight = np.random.default_rng(1).normal(size=(3, 4))
    order = ["emu", "cat", "dog"]
    report = ncscope.measure(FEATURES, WORDS, weight, class_names=order)
    numbers = np.array([order.index(word) for word in WORDS])
    assert dict(report) == dict(ncscope.measure(FEATURES, numbers, weight))
    named = ncscope.measure(FEATURES, numbers, weight, class_names=order)
    assert named.class_names == report.class_names == tuple(order)
    assert dict(named) == dict(report)


@pytest.mark.parametrize("mark", [-1, -100, 255])
def test_marks_are_left_out_and_counted(mark):
    labels = CLASSES.copy()
    labels[::7] = mark
    keep = labels != mark
    report = ncscope.measure(FEATURES, labels, ignore_index=mark)
    assert dict(report) == dict(ncscope.measure(FEATURES[keep], labels[keep]))
    assert report.num_samples == keep.sum()
    assert report.notes[0] == f"5 of 30 samples left out: labelled {mark}"


def test_several_marks_are_left_out():
    labels = CLASSES.copy()
    labels[:2], labels[2:5] = -1, 255
    report = ncscope.measure(FEATURES, labels, ignore_index=(255, -1))
    assert dict(report) == dict(ncscope.measure(FEATURES[5:], CLASSES[5:]))
    assert report.notes[0] == "5 of 30 samples left out: labelled -1 or 255"


ONE_HOT = np.eye(3)[CLASSES]
SEVERAL = np.where(np.arange(30)[:, None] == 3, [1.0, 1.0, 0.0], ONE_HOT)
COLUMNS = {
    "one-hot": ONE_HOT,
    "shares": 0.8 * ONE_HOT + 0.2 / 3,
    "several classes": SEVERAL,
    "a column": CLASSES[:, None].astype(float),
}
HOLDERS = {
    "array": np.array,
    "integers": lambda values: values.round().astype(int),
    "booleans": lambda values: values > 0.5,
    "tensor": torch.tensor,
    "halves": lambda values: torch.tensor(values).half(),
    "boolean tensor": lambda values: torch.tensor(values > 0.5),
    "lists": lambda values: values.tolist(),
    "rows": list,
    "batches": lambda values: [values[:12], values[12:]],
    "frame": pd.DataFrame,
    "polars": pl.DataFrame,
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_advice_on_labels_of_several_columns_gives_the_right_number(kind, holder):
    if holder in ("integers", "booleans", "boolean tensor") and kind in ("shares", "a column"):
        return  # of another meaning
    labels = HOLDERS[holder](COLUMNS[kind])
    keep = np.arange(30) != 3 if kind == "several classes" else np.full(30, fill_value=True)
    wanted = dict(ncscope.measure(FEATURES[keep], CLASSES[keep]))
    if kind == "a column" and holder in ("lists", "rows"):  # batches of one sample
        assert dict(ncscope.measure(FEATURES, labels)) == wanted
        return
    with pytest.raises(InputError) as caught:
        ncscope.measure(FEATURES, labels)
    advice = caught.value.fix.replace(", with the class indices ", ": ").split(": ")
    scope = {"labels": labels, "np": np}
    if kind == "several classes":
        scope["keep"] = eval(advice[1].removeprefix("keep = "), scope)
        assert np.asarray(scope["keep"]).tolist() == keep.tolist()
    assert dict(ncscope.measure(FEATURES[keep], eval(advice[-1], scope))) == wanted


TARGETS = np.random.default_rng(2).normal(size=(30, 3))


@pytest.mark.parametrize(
    "targets",
    [TARGETS, TARGETS[:, 0], TARGETS[:, :1], pd.DataFrame(TARGETS), np.arange(30) * 10**6],
    ids=["several", "one", "a column", "frame", "integers"],
)
def test_numbers_to_predict_are_for_another_function(targets):
    with pytest.raises(InputError, match="numbers to predict are for measure_regression"):
        ncscope.measure(FEATURES, targets)
    assert "r2_least_squares" in ncscope.measure_regression(FEATURES, targets)


BATCHES = {
    "names": np.split(WORDS, [12, 24]),
    "lists of names": [WORDS[:9].tolist(), WORDS[9:].tolist()],
    "series": [pd.Series(WORDS[:9]), pd.Series(WORDS[9:])],
    "categories": [pd.Categorical(part, categories=NAMES) for part in (WORDS[:9], WORDS[9:])],
    "tensors": list(torch.tensor(CLASSES).split(12)),
    "batches of one size": tuple(torch.tensor(CLASSES).split(10)),
    "lists of numbers": [CLASSES[:9].tolist(), CLASSES[9:].tolist()],
    "both": [CLASSES[:9], torch.tensor(CLASSES[9:])],
}


@pytest.mark.parametrize("form", BATCHES)
def test_batches_of_labels_are_joined(form):
    report = ncscope.measure([FEATURES[:9], FEATURES[9:]], BATCHES[form])
    assert dict(report) == dict(ncscope.measure(FEATURES, CLASSES))
    named = form in ("names", "lists of names", "series", "categories")
    assert report.class_names == (tuple(NAMES) if named else ())


def test_batches_of_labels_of_other_samples_are_refused():
    with pytest.raises(InputError, match=r"2 batches of labels, of 29 samples, for 30 rows"):
        ncscope.measure(FEATURES, [CLASSES[:12], CLASSES[13:]])
    with pytest.raises(InputError, match="2 batches of targets, of 29 samples, for 30 rows"):
        ncscope.measure_regression(FEATURES, [CLASSES[:12], CLASSES[13:]])
    targets = FEATURES[:, 0] ** 2
    joined = ncscope.measure_regression(np.split(FEATURES, [12]), np.split(targets, [12]))
    assert dict(joined) == dict(ncscope.measure_regression(FEATURES, targets))
    with pytest.raises(InputError, match="names and numbers"):
        ncscope.measure(FEATURES, [CLASSES[:12], WORDS[12:]])


def test_names_of_a_column_of_datasets_follow_the_order_that_is_declared():
    order = ["emu", "cat", "dog"]
    weight = np.random.default_rng(1).normal(size=(3, 4))
    report = ncscope.measure(FEATURES, of_datasets(), weight, class_names=order)
    assert dict(report) == dict(ncscope.measure(FEATURES, WORDS, weight, class_names=order))
    assert dict(report) != dict(ncscope.measure(FEATURES, WORDS, weight))
    marked = of_datasets(np.where(np.arange(30) < 4, -1, CLASSES))
    for names in (None, order):
        options = {"weight": weight, "class_names": names}
        left = ncscope.measure(FEATURES, marked, ignore_index=-1, **options)
        assert dict(left) == dict(ncscope.measure(FEATURES[4:], WORDS[4:], **options))
    with pytest.raises(InputError, match="label -1 at row 0"):
        ncscope.measure(FEATURES, marked, **options)


LACKING = {
    "None": [*WORDS[:-1], None],
    "NaN among names": pd.Series([*WORDS[:-1], float("nan")]),
    "NA": pd.Series([*CLASSES[:-1], pd.NA], dtype="Int64"),
    "category": pd.Categorical(WORDS, categories=NAMES).remove_categories("emu"),
    "NaN": np.where(np.arange(30) == 29, np.nan, CLASSES),
    "NaN of torch": torch.tensor([*CLASSES[:-1], float("nan")]),
    "polars": pl.Series([*map(str, WORDS[:-1]), None]),
    "polars numbers": pl.Series([*CLASSES[:-1].tolist(), None]),
    "tuple": (*WORDS[:-1], None),
    "NaN as text": np.array([*WORDS[:-1], float("nan")]),
    "null": pa.array([*map(str, WORDS[:-1]), None]),
}


@pytest.mark.parametrize("form", LACKING)
def test_lacking_labels_are_counted(form):
    count, first = (10, 1) if form == "category" else (1, 29)
    labels = LACKING[form]
    message = rf"{count} of 30 missing.*, the first at row {first}"
    with pytest.raises(InputError, match=message) as caught:
        ncscope.measure(FEATURES, labels)
    scope = {"np": np, "pandas": pd, "features": FEATURES, "labels": labels}
    keep, advice = caught.value.fix.removeprefix("drop these samples: ").split("; pass ")
    exec(keep, scope)
    features, kept = eval(advice, scope)
    assert len(features) == 30 - count
    there = WORDS != "emu" if form == "category" else np.arange(30) < 29
    expected = ncscope.measure(FEATURES[there], WORDS[there])
    if form == "category":
        kept = np.asarray(kept)
    assert dict(ncscope.measure(features, kept)) == dict(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": ["cat", "dog"]}, "'emu' at row 1"),
        ({"class_names": ["cat", "cat"]}, "'cat' twice"),
        ({"ignore_index": "cat"}, "ignore_index"),
        ({"ignore_index": 1.5}, "ignore_index"),
        ({"weight": np.ones((4, 4))}, "3 names; pass class_names"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        ncscope.measure(FEATURES, WORDS, **options)


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (CLASSES, ["a", "b"], "found 2 names, and label 2; name all classes in class_names"),
        (CLASSES, "abc", "found 1 name, and label 2"),
        ([CLASSES[:20], CLASSES[20:]], None, "20 labels for 10 rows in batch 0"),
    ],
)
def test_names_and_batches_that_do_not_fit_are_refused(labels, names, message):
    with pytest.raises(InputError, match=message):
        ncscope.measure([FEATURES[:10], FEATURES[10:]], labels, class_names=names)


def test_nothing_left_is_refused():
    with pytest.raises(InputError, match="all 30 labelled 0 or 1 or 2"):
        ncscope.measure(FEATURES, CLASSES, ignore_index=[0, 1, 2])


def test_names_that_are_hardly_two_get_a_note() -> None:
    rows, pairs = torch.randn(20, 2), (("Cat ", "cat"), ("cafe\u0301", "caf\xe9"))
    for one, other in pairs:
        report = ncscope.measure(rows, [one, other] * 10)
        assert f"{one!a} and {other!a} are two classes here" in report.notes[0]
    batches = [(rows, ["a", "A"] * 10)]
    assert any("'A' and 'a' are two" in note for note in ncscope.measure_shards([batches]).notes)
