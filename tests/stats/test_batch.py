"""What is read as a tensor, and what is refused in one line."""

import numpy as np
import pytest
import torch

from ncscope.errors import InputError
from ncscope.stats.batch import as_tensor, check_labels

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


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([[1.0, 2.0], [3.0]], "list .*inhomogeneous"),  # NumPy's ValueError
        ([torch.ones(2), torch.ones(3)], "list .*equal size"),  # torch's RuntimeError
    ],
)
def test_lists_of_unequal_rows_are_refused(value, found):
    with pytest.raises(InputError, match=f"as a numeric array, found {found}"):
        as_tensor(value, "features")


@pytest.mark.parametrize(
    ("shape", "fix"),
    [
        ((4, 1), r"labels\[:, 0\]"),
        ((4, 3), r"labels\.argmax\(1\) if they are one-hot"),
        ((3, 4), "pass matching features and labels"),
        ((5,), "pass matching features and labels"),
        ((4, 2, 2), "pass matching features and labels"),
    ],
)
def test_labels_of_another_shape_get_the_fix_that_fits(shape, fix):
    with pytest.raises(InputError, match=fix):
        check_labels(torch.zeros(shape, dtype=torch.int64), 4)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_an_array_keeps_its_type(dtype):
    tensor = as_tensor(np.ones(3, dtype=dtype), "features")
    assert tensor.dtype == getattr(torch, dtype)
