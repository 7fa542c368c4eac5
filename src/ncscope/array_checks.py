"""Arrays as people hold them: made tensors, and checked, with the likely fix in each message.

Every public function checks here what it is given; inside, tensors travel that fit.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from numbers import Number
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.devices import refuse_without_float64
from ncscope.errors import InputError, say_error


def check_features(
    features: Shaped[Tensor, "..."], dim: int | None = None, *, has_dim: bool = False
) -> None:
    """Check that features are a real n x d matrix.

    Args:
        features: Features to check.
        dim: Required feature dimension; None for any.
        has_dim: True if the user gave the dimension, and may have given a wrong one.

    Raises:
        InputError: If the shape or the dtype is another; the message names it.
    """
    if features.ndim != 2:
        fix = "flatten each sample to one row"
        raise InputError(
            expected="features of shape (n, d)", found=f"shape {tuple(features.shape)}", fix=fix
        )
    if features.shape[1] == 0:
        fix = "pass at least one feature a sample"
        raise InputError(
            expected="features of shape (n, d)", found=f"shape {tuple(features.shape)}", fix=fix
        )
    if features.is_complex() or features.dtype == torch.bool:
        raise InputError(
            expected="real features", found=f"dtype {features.dtype}", fix="convert them first"
        )
    if dim is not None and features.shape[1] != dim:
        fix = (
            f"pass dim={features.shape[1]}" if has_dim else "measure one layer with one accumulator"
        )
        raise InputError(
            expected=f"features of dimension {dim}", found=f"dimension {features.shape[1]}", fix=fix
        )


def check_labels(
    labels: Shaped[Tensor, "..."],
    samples: int,
    *,
    dim: int | None = None,
    or_targets: bool = False,
    array: str = "labels",
    of_batch: bool = False,
) -> Int[Tensor, " n"]:
    """Check that there is one integer label for each sample, and return the labels as int64.

    Args:
        labels: Class of each sample.
        samples: Number n of samples, which are the rows of the features.
        dim: Number of columns of the features, if the user may have transposed them.
        or_targets: True if the user may have meant numbers to predict.
        array: Expression that makes an array of what the user calls ``labels``, for the messages.
        of_batch: True for labels of a model's batch, which ``split_batch`` can change.

    Raises:
        InputError: If the lengths differ or a label is no integer; the message names the lengths,
            or the first such label.
    """
    if labels.ndim != 1 or len(labels) != samples:
        found = f"labels of shape {tuple(labels.shape)} for {samples} rows of features"
        fix = "pass matching features and labels"
        if labels.ndim == 2 and len(labels) == samples:
            kind, fix = _describe_columns(labels, array, or_targets=or_targets, of_batch=of_batch)
            found += kind
        elif labels.ndim == 1 and len(labels) == dim:
            fix = "transpose the features: one row a sample"
        raise InputError(expected="one label a sample", found=found, fix=fix)
    if labels.is_complex():
        raise InputError(
            expected="integer labels", found=f"dtype {labels.dtype}", fix="pass class indices"
        )
    if labels.is_floating_point():
        missing = torch.nonzero(labels.isnan()).squeeze(1)
        if len(missing):
            raise InputError(
                expected="a label for each sample",
                found=f"{len(missing)} of {samples} missing (NaN), the first at row {missing[0]}",
                fix="mark them by -1, as labels.nan_to_num(-1) does, and pass ignore_index=-1"
                if of_batch
                else f"drop these samples: keep = {array} == {array}; "
                f"pass features[keep], {array}[keep]",
            )
        broken = torch.nonzero(~torch.isfinite(labels) | (labels != labels.round()))
        if len(broken):
            row = int(broken[0])
            found = f"label {labels[row].item()} at row {row}"
            fix = "pass class indices, not scores"
            if or_targets and bool(labels.isfinite().all()):
                fix += _OR_TARGETS
            raise InputError(expected="integer labels", found=found, fix=fix)
    return labels.to(torch.int64)


def check_range(
    labels: Int[Tensor, " n"],
    num_classes: int,
    *,
    of_classifier: bool = False,
    has_ignore_index: bool = False,
) -> None:
    """Refuse labels outside 0..num_classes-1.

    Args:
        labels: Labels to check.
        num_classes: Number of classes.
        of_classifier: True if ``num_classes`` is the number of rows of a classifier's weight, so
            that the user cannot choose a larger one.
        has_ignore_index: True if the user's function has the option ``ignore_index``.

    Raises:
        InputError: If a label is out of range; the message names the first one and its row.
    """
    outside = (labels < 0) | (labels >= num_classes)
    broken = torch.nonzero(outside)
    if not len(broken):
        return
    row, wrong = int(broken[0]), labels[outside]
    found = f"label {int(wrong[0])} at row {row}, one of {len(broken)} outside"
    marks = wrong.unique().tolist()
    are_marks = all(mark in MARKS for mark in marks)
    if are_marks or bool((wrong < 0).all()):
        others = labels[~outside]
        if marks == [-1] and len(others) and bool((others == 1).all()):
            fix = "pass (labels + 1) // 2 for classes -1 and 1"
        else:
            said = " and ".join(map(str, marks))
            said = f"{said} usually mark{'s' * (len(marks) == 1)}"
            found += f"; {said if are_marks else 'negative numbers usually mark'} samples without a"
            found += " class"
            fix = _leave_out(marks, has_ignore_index)
            if of_classifier and marks == [-1] and int(labels.max()) == num_classes - 2:
                fix += "; or pass labels + 1, if the classes are numbered from -1"
    elif int(labels.min()) >= 1 and int(labels.max()) == num_classes:
        fix = "number the classes from 0: pass labels - 1"
    elif of_classifier:
        fix = (
            f"pass the labels that this classifier of {num_classes} outputs predicts, or the "
            f"classifier that has {int(wrong.max()) + 1} outputs or more"
        )
    else:
        fix = f"pass num_classes={int(wrong.max()) + 1}, or number the classes from 0"
    raise InputError(expected=f"labels in 0..{num_classes - 1}", found=found, fix=fix)


def _leave_out(marks: Sequence[int], has_ignore_index: bool) -> str:
    """Say how to leave out samples that are marked by their labels.

    Args:
        marks: Labels of these samples.
        has_ignore_index: True if the user's function has the option ``ignore_index``.
    """
    if has_ignore_index:
        few = len(marks) <= _FEW_MARKS
        each = marks[0] if len(marks) == 1 else tuple(marks) if few else f"range({marks[0]}, 0)"
        return f"leave these samples out: ignore_index={each}"
    keep = "labels >= 0" if marks[-1] < 0 and len(marks) > 1 else f"labels != {marks[0]}"
    if len(marks) > 1 and marks[-1] >= 0:
        keep = f"(labels >= 0) & (labels != {marks[-1]})"
    return f"leave these samples out, in features and labels: keep = {keep}"


IGNORED = -100
"""Label of a token that is not to be measured, as in torch's cross-entropy."""

MARKS = (-1, IGNORED, 255)
"""Labels by which data sets mark samples, pixels or tokens that have no class."""

_FEW_MARKS = 5
"""Marks that a message lists one by one."""


def refuse_marks(labels: Int[Tensor, " n"], *, has_ignore_index: bool = False) -> None:
    """Refuse the label 255 beside labels that are far smaller: it marks samples without a class.

    Args:
        labels: Labels from which the number of classes would be taken.
        has_ignore_index: True if the user's function has the option ``ignore_index``.

    Raises:
        InputError: If there is such a label.
    """
    largest = MARKS[-1]
    if not len(labels) or int(labels.max()) != largest:
        return
    others = labels[labels != largest]
    if len(others) and int(others.max()) < largest - 1:
        count = len(labels) - len(others)
        raise InputError(
            expected="labels in 0..K-1",
            found=f"{count} of {len(labels)} labels are {largest}, the others at most "
            f"{int(others.max())}; {largest} usually marks samples without a class",
            fix=f"{_leave_out([largest], has_ignore_index)}; or pass num_classes={largest + 1}",
        )


_OR_TARGETS = "; numbers to predict are for measure_regression"


def _describe_columns(
    labels: Shaped[Tensor, "n m"], array: str, *, or_targets: bool, of_batch: bool
) -> tuple[str, str]:
    """Say what labels of several columns are, and what to pass in their place.

    Args:
        labels: Labels of several columns.
        array: Expression that makes an array of what the user calls ``labels``.
        or_targets: True if the user may have meant numbers to predict.
        of_batch: True for labels of a model's batch, which ``split_batch`` can change.
    """

    def advise(what: str, code: str) -> str:
        if not of_batch:
            return f"pass {what}: {code}"
        of_second = code.replace("labels", "batch[1]")
        fix = f"pass {what}: {code}, of a loader by "
        return f"{fix}split_batch=lambda batch: (batch[0], {of_second})"

    values = labels.real if labels.is_complex() else labels.to(torch.float64)
    or_others = _OR_TARGETS * or_targets
    if labels.shape[1] == 1:
        aside = or_others if bool((values != values.round()).any()) else ""
        return "", advise("class indices", f"{array}[:, 0]") + aside
    sums = values.sum(1)
    if bool(((values == 0) | (values == 1)).all()):
        if bool((sums == 1).all()):
            # torch has no argmax of booleans
            numbers = "labels.long()" if of_batch and labels.dtype == torch.bool else array
            return ", one-hot", advise("class indices", f"{numbers}.argmax(1)")
        several = ", of 0 and 1, with several classes or none a sample"
        if of_batch:
            code = "torch.where(labels.sum(1) == 1, labels.long().argmax(1), -1)"
            what = "ignore_index=-1, and the classes of the samples of one class"
            return several, f"call measure_multilabel with the features; or {advise(what, code)}"
        return (
            several,
            "call measure_multilabel, which measures sets of labels; or measure the samples of one "
            f"class: keep = {array}.sum(1) == 1, with the class indices {array}[keep].argmax(1)",
        )
    shares = bool((values >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all())
    if labels.is_floating_point() and shares:
        fix = advise("the class of the largest share", f"{array}.argmax(1)")
        return ", shares that add to 1", fix
    return "", "pass one class index a sample" + or_others


def refuse_nonfinite(features: Shaped[Tensor, "n d"], what: str = "features") -> None:
    """Refuse features that hold NaN or infinities.

    Args:
        features: Numbers to check, one sample a row.
        what: Name of the numbers, for the message.

    Raises:
        InputError: If a row holds one; the message names the number of such rows and the first.
    """
    broken = torch.nonzero(~torch.isfinite(features).all(1)).squeeze(1)
    if len(broken):
        found = f"NaN or Inf in {len(broken)} of {len(features)} rows, the first is row {broken[0]}"
        fix = "drop those rows, or look for the overflow that made them"
        raise InputError(expected=f"finite {what}", found=found, fix=fix)


def refuse_magnitude(
    exponent: int, limit: int, what: str = "features", *, scaled_by: str = "measure"
) -> None:
    """Refuse features whose squares could overflow or underflow when a stream sums them.

    Args:
        exponent: Exponent of 2 of the features' largest magnitude; 0 if it is within the limit.
        limit: Largest allowed exponent, of either sign.
        what: Name of the numbers, for the message.
        scaled_by: Name of a function that takes such numbers; empty if there is none.

    Raises:
        InputError: If the exponent is not 0.
    """
    if exponent:
        least, most = (f"{2.0**bound:.0e}" for bound in (-limit, limit))
        aside = f" ({scaled_by} does so by itself)" if scaled_by else ""
        raise InputError(
            expected=f"a batch of {what} of magnitude {least} to {most}",
            found=f"magnitude {2.0**exponent:.0e}",
            fix=f"scale them by a power of two{aside}",
        )


def as_tensor(value: Any, name: str) -> Tensor:
    """Return any numeric array-like as a plain tensor, copied only where necessary.

    Args:
        value: Tensor on any device, NumPy array, memmap, or nested list; data frame of pandas,
            polars or pyarrow; column of vectors of one of these or of ``datasets``; list of arrays.
            A list of matrices is one of batches, which are joined; a list of vectors is one of
            rows. Quantised and float8 numbers are converted to float32, long doubles to float64.
        name: Name of the value, for messages.

    Returns:
        A dense tensor without gradient or names, of a float, integer, boolean or complex type.

    Raises:
        InputError: If the value is no numeric array, has entries that are masked or missing, parts
            that differ in length, or is on a device without float64.

    Example:
        >>> batches = [np.zeros((32, 4)), torch.ones(7, 4)]
        >>> as_tensor(batches, "features").shape
        torch.Size([39, 4])
    """
    if isinstance(value, Tensor):
        refuse_without_float64(value.device, name)
        return _to_plain(value, name)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            readable = _to_readable(value, name)
            if isinstance(readable, Tensor):
                return _to_plain(readable, name)
            # An array of CuPy stays on its GPU, which need not be the current one.
            where = "cpu" if isinstance(readable, np.ndarray) else None
            return _to_plain(torch.as_tensor(readable, device=where), name)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        found = f"{type(value).__name__} ({say_error(error)})"
        raise _type_error(name, found) from error


def _to_readable(value: Any, name: str) -> Any:
    """Convert an array to a type, byte order and strides that torch can read."""
    if hasattr(value, "toarray"):  # a sparse matrix of SciPy or CuPy
        found, fix = f"a sparse {type(value).__name__}", f"pass {name}.toarray()"
        raise InputError(expected=f"{name} as a dense array", found=found, fix=fix)
    if hasattr(value, "column_name") and hasattr(value, "source"):  # a column of datasets
        value = value[:]
    if isinstance(value, list | tuple) and any(map(_is_array, value)):
        value = _join_parts(in_one_order(value, name), name)
    if isinstance(value, Tensor) or hasattr(value, "__cuda_array_interface__"):
        return value
    # np.asarray would give what is under the mask as if it were data.
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise _mask_error(name, f"{np.ma.getmaskarray(value).sum()} of {value.size} masked")
    array = _as_array(value, name)
    if array.dtype == object:
        array = _read_objects(array, name)
        if isinstance(array, Tensor):
            return array
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "biufc" or (kind == "c" and size > 16):
        is_array = isinstance(value, np.ndarray) or array.ndim > 0
        raise _type_error(name, f"dtype {array.dtype}" if is_array else type(value).__name__)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if kind == "f" and size > 8:  # long doubles, which torch does not have
        with np.errstate(over="ignore", under="ignore"):
            narrow = array.astype(np.float64)
        if ((narrow == 0) != (array == 0)).any() or (np.isinf(narrow) != np.isinf(array)).any():
            expected, fix = f"{name} in the range of float64", "scale them first"
            raise InputError(expected=expected, found="larger or smaller long doubles", fix=fix)
        array = narrow
    # torch refuses negative strides, which a reversed array has.
    return array.copy() if min(array.strides, default=0) < 0 else array


def _is_array(value: Any) -> bool:
    """Return whether a part of a list is an array of its own: no number, text or list."""
    if isinstance(value, _NO_ARRAYS):  # lists have millions of numbers
        return False
    return any(hasattr(value, each) for each in ("shape", "__array__", "to_numpy"))


_NO_ARRAYS = (int, float, complex, str, bytes, list, tuple, np.generic)


def in_one_order(parts: Sequence[Any], name: str) -> Sequence[Any]:
    """Return data frames with their columns in the order of the first; other parts as they are.

    Args:
        parts: Data frames, and arrays of any other kind.
        name: Name of the value, for messages.

    Raises:
        InputError: If data frames have other columns.
    """
    first: list[Any] = []
    ordered = []
    for index, part in enumerate(parts):
        columns = list(name_columns(part))
        if columns and first and columns != first and name != "labels":
            if len(columns) != len(first) or {*columns} != {*first}:
                raise InputError(
                    expected=f"the columns of the first data frame of {name} in all",
                    found=f"{columns[:5]} in data frame {index}, {first[:5]} in the first",
                    fix="choose the same columns of all data frames",
                )
            part = part[first] if hasattr(part, "iloc") else part.select(first)
        first = first or columns
        ordered.append(part)
    return ordered


def name_columns(value: Any) -> tuple[Any, ...]:
    """Return the names of the columns of a data frame; none of an array."""
    frame = None if isinstance(value, np.ndarray | Tensor) else _columns(value)
    return () if frame is None else tuple(label for label, _ in frame)


def _join_parts(parts: Sequence[Any], name: str) -> Any:
    """Join batches, which are matrices; stack vectors, which are rows, and numbers."""
    plain = all(type(part) is np.ndarray for part in parts)  # of which there may be very many
    arrays = list(parts) if plain else [as_tensor(part, name) for part in parts]
    first, *others = [tuple(array.shape) for array in arrays]
    batches = len(first) > 1
    for index, shape in enumerate(others, 1):
        if len(shape) == len(first) == 1 and shape != first:
            raise _length_error(name, first[0], shape[0], index)
        if len(shape) != len(first) or shape[batches:] != first[batches:]:
            part = "batch" if batches else "part"
            raise InputError(
                expected=f"{name} in batches of one dimension",
                found=f"shape {first} of {part} 0 and {shape} of {part} {index}",
                fix="take all of them from the same layer",
            )
    if plain:
        return np.concatenate(arrays) if batches else np.stack(arrays)
    return torch.cat(arrays) if batches else torch.stack(arrays)


def _as_array(value: Any, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return an array-like as an array of NumPy, perhaps of objects."""
    columns = _columns(value)
    if columns is not None:
        if name == "features":
            _refuse_identifiers(value)
        array = None if hasattr(value, "to_pylist") else value.to_numpy()
        # One type for all columns is objects if one of them lacks numbers or may lack values.
        if array is None or array.dtype.kind not in "biufc":
            return np.stack([_read_column(*column, name) for column in columns], axis=1)
        return np.asarray(array)
    if hasattr(value, "to_pylist"):  # pyarrow, which by default refuses what it must copy
        return np.asarray(value.to_numpy(zero_copy_only=False))
    try:
        return np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    except ValueError:
        if not isinstance(value, list | tuple) or not value:
            raise
        lengths = [len(part) if isinstance(part, list | tuple) else -1 for part in value]
        other = next((i for i, length in enumerate(lengths) if length != lengths[0]), 0)
        if min(lengths) < 0 or not other:
            raise
        if all(part and isinstance(part[0], list | tuple) for part in value):  # batches
            return np.asarray(_join_parts([np.asarray(part) for part in value], name))
        raise _length_error(name, lengths[0], lengths[other], other) from None


_IDENTIFIERS = ("id", "idx", "index", "row", "__index_level_0__")


def identifies_rows(name: str, counts_rows: Callable[[], bool]) -> bool:
    """Return whether a column identifies the rows, and is no feature.

    Args:
        name: Name of the column.
        counts_rows: Function that says whether its numbers are those of the rows.
    """
    plain = str(name).casefold()
    named = plain in _IDENTIFIERS or plain.startswith("unnamed: ") or plain.endswith("_id")
    return named or counts_rows()


def _refuse_identifiers(frame: Any) -> None:
    """Refuse a data frame of features that has a column which identifies the rows."""

    def counts_rows(column: Any) -> bool:
        numbers = np.asarray(column)
        if numbers.dtype.kind not in "iu" or len(numbers) < 3 or numbers[0] not in (0, 1):
            return False
        return bool((numbers == np.arange(len(numbers)) + numbers[0]).all())

    columns = list(_columns(frame) or ())
    for name, column in columns if len(columns) > 1 else ():
        if identifies_rows(name, partial(counts_rows, column)):
            pandas = hasattr(frame, "iloc")
            drop = f"features.drop({'columns=' * pandas}[{name!r}])"
            raise InputError(
                expected="features in the columns of the data frame",
                found=f"one that identifies the rows, {name!r}",
                fix=f"leave it out: {drop}; if it is a feature, pass features.to_numpy()",
            )


def split_frame(frame: Any, column: str) -> tuple[Any, Any]:
    """Return a data frame without one of its columns, and that column.

    Args:
        frame: Data frame of pandas, polars or pyarrow.
        column: Name of the column.

    Returns:
        Both parts; the arguments as they are if this is no frame.

    Raises:
        InputError: If the frame has no such column.
    """
    columns = _columns(frame)
    if columns is None:
        return frame, column
    names = [name for name, _ in columns]
    if column not in names:
        texts = list(map(str, names))
        nearest = get_close_matches(column, texts, n=1)
        raise InputError(
            expected="labels, or the name of their column in the frame",
            found=f"{column!r}, which is no column",
            fix=f"the nearest is {nearest[0]!r}"
            if nearest
            else f"the first columns are {', '.join(texts[:8])}",
        )
    if hasattr(frame, "drop_columns"):  # pyarrow
        return frame.drop_columns([column]), frame[column]
    rest = frame.drop(column) if hasattr(frame, "iter_columns") else frame.drop(columns=column)
    return rest, frame[column]


def _columns(value: Any) -> Iterable[tuple[str, Any]] | None:
    """Return the names and columns of a data frame of pandas, polars or pyarrow; None of others."""
    if hasattr(value, "column_names") and hasattr(value, "itercolumns"):  # pyarrow
        return zip(value.column_names, value.itercolumns(), strict=True)
    if hasattr(value, "iter_columns"):  # polars
        return ((column.name, column) for column in value.iter_columns())
    if hasattr(value, "columns") and hasattr(value, "to_numpy") and hasattr(value, "items"):
        return iter(value.items())  # pandas
    return None


def _read_column(label: str, column: Any, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the numbers of one column of a data frame."""
    kind = getattr(column, "dtype", getattr(column, "type", ""))
    found, fix = f"{kind} in column {label!r}", "drop this column, or pass it as labels"
    if name == "labels":
        fix = f"pass one column: labels[{label!r}]"
    try:
        array = np.asarray(_to_readable(column, f"column {label!r} of the {name}"))
    except InputError as error:
        if "numeric" not in error.expected:
            raise
        raise InputError(expected=f"{name} of numbers", found=found, fix=fix) from error
    if array.ndim != 1:
        fix = f"pass this column alone: {name}[{label!r}]"
        found = f"an array a row in column {label!r}"
        raise InputError(expected=f"{name} of one number a column", found=found, fix=fix)
    return array


def _read_objects(array: np.ndarray[Any, np.dtype[Any]], name: str) -> Any:
    """Return the numbers in an array of objects, or the rows of a column of vectors.

    Objects of another kind are returned as they are.
    """
    values = array.ravel().tolist()
    vectors = array.ndim == 1 and any(
        isinstance(value, list | tuple) or _is_array(value) for value in values
    )
    if not vectors and not any(isinstance(value, Number) for value in values):
        return array
    gaps = [place for place, value in enumerate(values) if is_missing(value)]
    if gaps:
        row = gaps[0] // max(1, math.prod(array.shape[1:]))
        raise InputError(
            expected=f"{name} without missing values",
            found=f"{len(gaps)} of {len(values)} missing, the first at row {row}",
            fix="drop the rows that lack a value",
        )
    if vectors:
        return _to_readable(values, name)
    exact = [float(v) if isinstance(v, Decimal | Fraction) else v for v in values]
    numbers = np.array(exact) if all(isinstance(v, Number) for v in values) else array
    return numbers.reshape(array.shape)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or the NA of pandas."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


_FLOAT8 = frozenset(dtype for name, dtype in vars(torch).items() if name.startswith("float8_"))


_SUBSTITUTES = dict.fromkeys(_FLOAT8, torch.float32) | {
    torch.uint16: torch.int32,  # torch computes little with these three
    torch.uint32: torch.int64,
    torch.uint64: torch.float64,
}


_PLAIN_TYPES = frozenset(
    {
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8),
        *(torch.bool, torch.complex32, torch.complex64, torch.complex128),
    }
)


def _to_plain(value: Tensor, name: str) -> Tensor:
    """Return a dense tensor that every operation accepts."""
    if isinstance(value, torch.masked.MaskedTensor):
        raise _mask_error(name, "a MaskedTensor")
    if value.is_nested:
        found, fix = "a nested tensor", "cut or pad its parts to one length and stack them"
        raise InputError(expected=f"{name} as a dense tensor", found=found, fix=fix)
    if value.layout != torch.strided:
        found, fix = f"layout {value.layout}", f"pass {name}.to_dense()"
        raise InputError(expected=f"{name} as a dense tensor", found=found, fix=fix)
    if value.is_meta or type(value).__name__ == "FakeTensor":
        found, fix = "a tensor without values (meta device)", "load or compute its values first"
        raise InputError(expected=f"{name} with values", found=found, fix=fix)
    value = value.detach().resolve_neg()
    value = value.dequantize() if value.is_quantized else value
    before: Any = value  # before torch 2.15, tensors could have named dimensions
    if any(getattr(before, "names", ())):
        value = before.rename(None)
    value = value.to(_SUBSTITUTES.get(value.dtype, value.dtype))
    if value.dtype not in _PLAIN_TYPES:
        raise _type_error(name, f"dtype {value.dtype}")
    return value


def _length_error(name: str, first: int, other: int, row: int) -> InputError:
    return InputError(
        expected=f"{name} with rows of one length",
        found=f"length {first} at row 0 and {other} at row {row}",
        fix="pad or cut the rows to one length, and stack them with np.stack",
    )


def _mask_error(name: str, found: str) -> InputError:
    fix = "drop what is masked, and pass the rest as a plain array"
    return InputError(expected=f"{name} without masked entries", found=found, fix=fix)


def _type_error(name: str, found: str) -> InputError:
    fix = "pass NumPy or torch"
    if name == "labels":
        fix = "pass class indices: np.unique(labels, return_inverse=True)[1] if they are names"
    return InputError(expected=f"{name} as a numeric array", found=found, fix=fix)


def type_name(dtype: torch.dtype) -> str:
    """Return the name that a type has in torch.

    Example:
        >>> type_name(torch.float32)
        'float32'
    """
    return str(dtype).removeprefix("torch.")
