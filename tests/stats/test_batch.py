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
