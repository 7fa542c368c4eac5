"""What is read as a tensor, and what is refused in one line."""

import re

import numpy as np
import pytest
import torch

import ncscope
from ncscope.array_checks import as_tensor, check_labels
from ncscope.errors import InputError

MASKED = np.ma.masked_equal([1.0, 2.0, 2.0], 2.0)


@pytest.mark.parametrize("value", [MASKED, [np.ones(3), MASKED]], ids=["alone", "in a list"])
def test_masked_entries_are_refused(value):
    with pytest.raises(
        InputError, match=r"^expected features without masked entries, found 2 of 3 masked"
    ):
        as_tensor(value, "features")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.array("cat"), "dtype <U3"),
        (["cat", "dog"], "dtype <U3"),
        (None, "NoneType"),
        (object(), "object"),
    ],
)
def test_what_is_no_number_is_named_by_its_type(value, found):
    with pytest.raises(InputError, match=f"as a numeric array, found {found};"):
        as_tensor(value, "features")


@pytest.mark.parametrize("value", [[[1.0, 2.0], [3.0]], [torch.ones(2), torch.ones(1)]])
def test_lists_of_unequal_rows_are_refused(value):
    with pytest.raises(InputError, match="length 2 at row 0 and 1 at row 1"):
        as_tensor(value, "features")


@pytest.mark.parametrize(
    ("labels", "fix"),
    [
        (torch.zeros(4, 1), r"labels\[:, 0\]"),
        (torch.eye(3)[[0, 1, 2, 0]], r"one-hot; pass class indices: labels\.argmax\(1\)$"),
        (torch.eye(3)[[0, 1, 2, 0]] > 0, r"one-hot; pass class indices: labels\.argmax\(1\)$"),
        (torch.ones(4, 3), r"several classes or none a sample; .*keep = labels\.sum\(1\) == 1"),
        (torch.full((4, 2), 0.5), r"shares that add to 1; .*labels\.argmax\(1\)$"),
        (torch.full((4, 2), 7), "pass one class index a sample"),
        (torch.zeros(3, 4), "pass matching features and labels"),
        (torch.zeros(5), "pass matching features and labels"),
        (torch.zeros(4, 2, 2), "pass matching features and labels"),
    ],
)
def test_labels_of_another_shape_get_the_fix_that_fits(labels, fix):
    with pytest.raises(InputError, match=fix):
        check_labels(labels, 4)


X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3
MARKED = torch.arange(12) % 4 == 3


def evaluated(names, **values):
    """What the code in a message gives."""
    return eval(names, {"torch": torch}, values)


@pytest.mark.parametrize("mark", [-1, -100, 255])
@pytest.mark.parametrize("given", [{}, {"num_classes": 3}])
def test_the_advice_on_marks_leaves_them_out(mark, given):
    labels = Y.masked_fill(MARKED, mark)
    with pytest.raises(InputError, match=f"{mark} usually marks samples") as error:
        ncscope.measure(X, labels, groups=["nc1"], **given)
    code = re.search(r"keep = (labels != -?\d+)", error.value.fix)[1]
    keep = evaluated(code, labels=labels)
    found = ncscope.measure(X[keep], labels[keep], groups=["nc1"], **given)
    wanted = ncscope.measure(X[~MARKED], Y[~MARKED], groups=["nc1"])
    assert dict(found) == dict(wanted)


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        (Y + 1, r"pass (labels - 1)$"),
        (torch.eye(3)[Y], r"(labels\.argmax\(1\))$"),
        (torch.eye(3)[Y] * 0.8 + 0.2 / 3, r"(labels\.argmax\(1\))$"),
        (Y[:, None], r"(labels\[:, 0\])$"),
    ],
)
def test_the_advice_on_labels_gives_the_classes(labels, code):
    with pytest.raises(InputError) as error:
        ncscope.measure(X, labels, torch.ones(3, 3), groups=["nc1"])
    found = evaluated(re.search(code, error.value.fix)[1], labels=labels)
    assert torch.equal(found, Y)


def test_the_advice_on_several_classes_keeps_the_samples_of_one():
    labels = torch.eye(3)[Y]
    labels[MARKED] = 1
    with pytest.raises(InputError, match="several classes") as error:
        ncscope.measure(X, labels)
    keep, classes = re.search(
        r"keep = (.*), with the class indices (.*)$", error.value.fix
    ).groups()
    kept = evaluated(keep, labels=labels)
    assert torch.equal(evaluated(classes, labels=labels, keep=kept), Y[~MARKED])


def test_the_advice_on_two_signs_gives_two_classes():
    labels = 2 * (Y > 0).long() - 1
    with pytest.raises(InputError) as error:
        ncscope.measure(X, labels)
    code = re.search(r"pass (\(labels.*//.2)", error.value.fix)[1]
    assert torch.equal(evaluated(code, labels=labels), (Y > 0).long())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_an_array_keeps_its_type(dtype):
    tensor = as_tensor(np.ones(3, dtype=dtype), "features")
    assert tensor.dtype == getattr(torch, dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_read_and_long_ones_refused(dtype):
    assert as_tensor(np.ones(3, dtype=dtype), "features").dtype == getattr(torch, dtype)
    long = np.ones(3, dtype=np.clongdouble)
    if long.itemsize > 16:
        with pytest.raises(InputError, match=f"found dtype {long.dtype}"):
            as_tensor(long, "features")


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, np.inf, -np.inf, np.nan])
def test_long_doubles_become_doubles(value):
    found = as_tensor(np.array([value, 1], dtype=np.longdouble), "features")
    assert found.dtype == torch.float64
    np.testing.assert_array_equal(found.numpy(), [value, 1])


@pytest.mark.parametrize("exponent", [1100, -1100])
@pytest.mark.parametrize("sign", [1, -1])
def test_long_doubles_out_of_range_are_refused(exponent, sign):
    value = sign * np.longdouble(2) ** exponent
    if value in (0, np.inf, -np.inf):
        pytest.skip("long doubles are doubles here")
    with pytest.raises(InputError, match="found larger or smaller long doubles"):
        as_tensor(np.array([1, value], dtype=np.longdouble), "features")
