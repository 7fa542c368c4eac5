"""Spec 0's table of bad input: what was expected, what was found, the likely fix."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import ncscope
from ncscope import ClassMoments, InputError

pytestmark = pytest.mark.usefixtures("unchecked_signatures")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(12, 3))
Y = np.arange(12) % 3
W, B = GENERATOR.normal(size=(3, 3)), GENERATOR.normal(size=3)


def spoil(value: float) -> np.ndarray:
    features = X.copy()
    features[4, 1] = features[7, 0] = value
    return features


def relabel(value: float) -> np.ndarray:
    """The last label changed."""
    labels = Y.astype(float)
    labels[11] = value
    return labels


ROWS = "2 of 12 rows, the first is row 4"
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "NaN": (lambda: ncscope.measure(spoil(np.nan), Y), ROWS),
    "infinity": (lambda: ncscope.measure(spoil(np.inf), Y), ROWS),
    "minus infinity": (lambda: ncscope.measure(spoil(-np.inf), Y), ROWS),
    "NaN, traces only": (lambda: ncscope.measure(spoil(np.nan), Y, groups=["pfc"]), ROWS),
    "NaN, uniform": (lambda: ncscope.measure(spoil(np.nan), Y, prior="uniform"), ROWS),
    "NaN, half": (lambda: ncscope.measure(spoil(np.nan).astype(np.float16), Y), ROWS),
    "NaN, bfloat16": (lambda: ncscope.measure(torch.tensor(spoil(np.nan)).bfloat16(), Y), ROWS),
    "NaN, streamed": (
        lambda: ClassMoments(3, 3).update(*map(torch.tensor, (spoil(np.nan), Y))),
        ROWS,
    ),
    "label too large": (
        lambda: ncscope.measure(X, Y, num_classes=2),
        r"labels in 0\.\.1, found label 2 at row 2, one of 4 outside; pass num_classes=3",
    ),
    "label too large for the head": (
        lambda: ncscope.measure(X, Y + 1, W),
        "label 3 at row 2, .*; number the classes from 0: pass labels - 1$",
    ),
    "label too large for the head, uniform": (
        lambda: ncscope.measure(X, Y + 1, W, prior="uniform"),
        "label 3 at row 2, .*; number the classes from 0: pass labels - 1$",
    ),
    "label too large for the head, batches": (
        lambda: ncscope.batch_information(X, Y + 1, W, batch_size=6),
        "label 3 at row 2, .*; number the classes from 0: pass labels - 1$",
    ),
    "label too large, uniform": (
        lambda: ncscope.measure(X, Y, num_classes=2, prior="uniform"),
        "label 2 at row 2",
    ),
    "negative label": (lambda: ncscope.measure(X, relabel(-1)), "label -1 at row 11"),
    "ignored sample": (
        lambda: ncscope.measure(X, relabel(-100), W),
        r"labels in 0\.\.2, found label -100 at row 11, .*: ignore_index=-100$",
    ),
    "numbers to predict": (
        lambda: ncscope.measure(X, X[:, 0]),
        "integer labels.*numbers to predict are for measure_regression$",
    ),
    "features on their side": (
        lambda: ncscope.measure(X.T, Y),
        "found labels of shape .* for 3 rows of features; transpose the features",
    ),
    "path of features": (
        lambda: ncscope.measure("x.npz", Y),
        "found the path 'x.npz'; pass np.load",
    ),
    "OOD without labels": (lambda: ncscope.measure(X, ood=X), "labels with ood, found none"),
    "OOD of another layer": (
        lambda: ncscope.measure(X, Y, ood=X[:, :2]),
        "OOD features of dimension 3, found dimension 2; take both from the same layer",
    ),
    "OOD by name": (lambda: ncscope.measure(X, Y, ood="x.npy"), "OOD features as a numeric array"),
    "OOD metric without OOD": (
        lambda: ncscope.measure(X, Y, groups=["nc1", "neco_auroc"]),
        "OOD samples for neco_auroc, found none",
    ),
    "NaN in targets": (
        lambda: ncscope.measure_regression(X, spoil(np.nan)),
        f"finite targets, .*{ROWS}; drop those rows",
    ),
    "NaN in features of targets": (
        lambda: ncscope.measure_regression(spoil(np.nan), X),
        f"finite features, .*{ROWS}",
    ),
    "head of a regression on its side": (
        lambda: ncscope.measure_regression(X, X[:, :2], W[:, :2]),
        r"a weight of shape \(2, 3\), found shape \(3, 2\); transpose it",
    ),
    "flat head of one target": (
        lambda: ncscope.measure_regression(X, X[:, 0], W[0]),
        r"found shape \(3,\); reshape it to \(1, 3\)",
    ),
    "layers of no other model": (
        lambda: ncscope.compare_layers(torch.nn.Linear(3, 3), [(X, Y)], other_layers=["0"]),
        "another model with other_layers or other_head, found none",
    ),
    "negative labels only": (lambda: ncscope.measure(X, -1 - Y), "label -1 at row 0"),
    "broken label": (lambda: ncscope.measure(X, relabel(0.5)), "label 0.5 at row 11"),
    "NaN label": (lambda: ncscope.measure(X, relabel(np.nan)), "1 of 12 missing .* at row 11"),
    "infinite label": (lambda: ncscope.measure(X, relabel(np.inf)), "label inf at row 11"),
    "complex labels": (lambda: ncscope.measure(X, Y + 1j), "dtype torch.complex128"),
    "classes -1 and 1": (
        lambda: ncscope.measure(X, 2 * (Y > 0).astype(int) - 1, num_classes=2),
        r"label -1 at row 0, one of 4 outside; pass \(labels \+ 1\) // 2",
    ),
    "a mark of 255": (
        lambda: ncscope.measure(X, np.where(np.arange(12) < 2, 255, Y)),
        "2 of 12 labels are 255, .*: ignore_index=255; or pass num_classes=256$",
    ),
    "words and numbers as labels": (
        lambda: ncscope.measure(X, [*"abc" * 3, 0, 1, 2]),
        r"labels as a numeric array.*np\.unique\(labels, return_inverse=True\)\[1\]",
    ),
    "one-hot labels": (
        lambda: ncscope.measure(X, np.eye(3)[Y]),
        r"shape \(12, 3\) for 12 rows.*argmax\(1\)",
    ),
    "labels a column": (
        lambda: ncscope.measure(X, Y[:, None]),
        r"shape \(12, 1\) for 12 rows of features; .*labels\[:, 0\]",
    ),
    "fewer labels": (lambda: ncscope.measure(X, Y[:5]), r"shape \(5,\) for 12 rows"),
    "more labels": (lambda: ncscope.measure(X[:5], Y), r"shape \(12,\) for 5 rows"),
    "weight too narrow": (
        lambda: ncscope.measure(X, Y, W[:, :2]),
        r"\(3, 3\), found shape \(3, 2\)",
    ),
    "weight transposed": (
        lambda: ncscope.measure(X[:, :2], Y, W[:2]),
        r"\(3, 2\), found shape \(2, 3\); transpose it",
    ),
    "weight of other classes": (
        lambda: ncscope.measure(X, Y, W, num_classes=5),
        r"num_classes=5 rows, found 3 rows; leave num_classes out",
    ),
    "labels from -1 beside a weight": (
        lambda: ncscope.measure(X, Y - 1, W),
        r"ignore_index=-1; or pass labels \+ 1, if the classes",
    ),
    "weight one vector": (lambda: ncscope.measure(X, Y, W[0]), r"\(3, 3\), found shape \(3,\)"),
    "weight NaN": (lambda: ncscope.measure(X, Y, W * np.nan), "a finite weight"),
    "bias too short": (lambda: ncscope.measure(X, Y, W, B[:2]), r"\(3,\), found shape \(2,\)"),
    "bias a column": (
        lambda: ncscope.measure(X, Y, W, B[:, None]),
        r"\(3,\), found shape \(3, 1\)",
    ),
    "bias infinite": (lambda: ncscope.measure(X, Y, W, B + np.inf), "a finite bias"),
    "bias alone": (lambda: ncscope.measure(X, Y, None, B), "a weight along with the bias"),
    "one class": (lambda: ncscope.measure(X, Y * 0), "two classes with samples, found 1 in 12"),
    "one class of several": (lambda: ncscope.measure(X, Y * 0, num_classes=3), "two classes"),
    "no samples": (
        lambda: ncscope.measure(X[:0], Y[:0]),
        r"samples, found features of shape \(0, 3\)",
    ),
    "empty lists": (lambda: ncscope.measure([], []), r"shape \(0,\)"),
    "no features": (lambda: ncscope.measure(X[:, :0], Y), r"shape \(12, 0\)"),
    "one number a sample": (
        lambda: ncscope.measure(X[:, 0], Y),
        r"shape \(12,\); pass features\[:, None\] if",
    ),
    "maps": (lambda: ncscope.measure(X[:, :, None], Y), r"shape \(12, 3, 1\); flatten"),
    "complex features": (lambda: ncscope.measure(X * 1j, Y), "complex128"),
    "boolean features": (lambda: ncscope.measure(X > 0, Y), "torch.bool"),
    "words as features": (lambda: ncscope.measure([["a"], ["b"]], [0, 1]), "features as a numeric"),
    "ragged features": (
        lambda: ncscope.measure([[1.0, 2.0], [1.0]], [0, 1]),
        "features with rows of one length, found length 2 at row 0 and 1 at row 1; .*np.stack",
    ),
    "nothing": (lambda: ncscope.measure(None, Y), "features as a numeric array, found NoneType"),
    "objects as weight": (lambda: ncscope.measure(X, Y, np.array([None])), "weight as a numeric"),
    "unknown group": (lambda: ncscope.measure(X, Y, groups=["nc1", "nc9"]), r"found \['nc9'\]"),
    "unknown group by name": (lambda: ncscope.measure(X, Y, groups="nc9"), r"found \['nc9'\]"),
    "unknown prior": (lambda: ncscope.measure(X, Y, prior="balanced"), "found 'balanced'"),
    "no classes": (lambda: ncscope.measure(X, Y, num_classes=0), r"label 0 at row 0|num_classes"),
    "negative classes": (lambda: ncscope.measure(X, Y, num_classes=-1), "num_classes"),
    "broken number of classes": (lambda: ncscope.measure(X, Y, num_classes=3.5), "num_classes"),
    "negative weight decay": (
        lambda: ncscope.measure(X, Y, W, B, weight_decay=-1.0),
        "weight_decay",
    ),
    "NaN weight decay": (lambda: ncscope.measure(X, Y, W, weight_decay=np.nan), "weight_decay"),
    "reference of another dimension": (
        lambda: ncscope.measure(X, Y, reference=ncscope.measure(X[:, :2], Y)),
        "reference of dimension 3, found dimension 2",
    ),
    "reference of something else": (lambda: ncscope.measure(X, Y, reference=X), "found an array"),
    "more classes than memory": (
        lambda: ncscope.measure(X, Y, num_classes=2**50),
        "bytes of memory for the counts of 1,125,899,906,842,624 classes",
    ),
    "moments of more classes than memory": (
        lambda: ClassMoments(2**50, 2),
        "bytes of memory for the moments of 1,125,899,906,842,624 classes",
    ),
    "moments of nothing": (
        lambda: ncscope.measure_moments(ClassMoments(3, 2)),
        "at least two classes with samples, found 0 in 0",
    ),
    "moments, weight": (
        lambda: ncscope.measure_moments(moments(), W[:, :2]),
        r"\(3, 3\), found shape \(3, 2\)",
    ),
    "moments, bias": (
        lambda: ncscope.measure_moments(moments(), W, B[:2]),
        r"\(3,\), found shape \(2,\)",
    ),
    "moments, bias alone": (lambda: ncscope.measure_moments(moments(), None, B), "weight along"),
    "moments, group": (lambda: ncscope.measure_moments(moments(), groups=["x"]), r"found \['x'\]"),
}


def moments() -> ClassMoments:
    gathered = ClassMoments(3, 3)
    gathered.update(torch.as_tensor(X), torch.as_tensor(Y))
    return gathered


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_refused_by_name(what: str) -> None:
    call, message = REFUSED[what]
    with pytest.raises(InputError, match=message) as caught:
        call()
    text = str(caught.value)
    assert text.startswith("expected ")
    assert ", found " in text
    assert "; " in text
    assert "\n" not in text


def test_the_same_without_the_spoiling_is_accepted() -> None:
    """What the table changes is all that is wrong with it."""
    ncscope.measure(X, Y, W, B, num_classes=3, prior="uniform", weight_decay=0.0)
    ncscope.measure(X, relabel(2.0))
    ncscope.measure_moments(moments(), W, B)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int8", "int32", "uint64", "float32"])
def test_labels_of_any_integral_type(dtype: str) -> None:
    assert dict(ncscope.measure(X, Y.astype(dtype))) == dict(ncscope.measure(X, Y))


def test_features_given_are_left_as_they_were() -> None:
    features, labels, weight, bias = (torch.tensor(value) for value in (X, Y, W, B))
    ncscope.measure(features, labels, weight, bias, weight_decay=0.1, prior="uniform")
    for value, before in ((features, X), (labels, Y), (weight, W), (bias, B)):
        np.testing.assert_array_equal(value, before)


def test_an_identifier_is_not_taken_for_a_class() -> None:
    with pytest.raises(ncscope.InputError, match="label 1099511627776"):
        ncscope.measure([[0.0], [1.0], [2.0]], [0, 1, 2**40])


@pytest.mark.parametrize("measure", [ncscope.measure, ncscope.batch_information])
def test_advice_names_arguments_that_a_call_has(measure) -> None:
    with pytest.raises(InputError, match="expected a weight of shape") as caught:
        measure(np.ones((4, 2)), [0, 1, 1, 2**40], np.ones(3))
    assert "pass num_classes" not in str(caught.value)
