"""Labels as people hold them: class indices, names, categories; some are marks to leave out."""

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ncscope.array_checks import as_tensor, check_labels
from ncscope.errors import InputError

IgnoreIndex: TypeAlias = int | Collection[int] | None
"""Label of samples to leave out, or several; None leaves none out."""


class ClassLabels(NamedTuple):
    """Class indices of the samples to measure.

    Attributes:
        labels: Class index of each sample that is measured.
        kept: Indices of these samples; None if all are measured.
        names: Names of the classes, in the order of the indices; empty if the labels were numbers
            and no names were given.
        notes: Sentence on the samples that were left out, if any.
    """

    labels: Int[Tensor, " m"]
    kept: Int[Tensor, " m"] | None
    names: tuple[str, ...]
    notes: tuple[str, ...]

    def select(self, rows: Tensor) -> Tensor:
        """Return the rows of the samples that are measured."""
        return rows if self.kept is None else rows[self.kept.to(rows.device)]


def read_labels(
    labels: Any,
    samples: int,
    *,
    ignore_index: IgnoreIndex = None,
    class_names: Sequence[str] | None = None,
    dim: int | None = None,
    or_targets: bool = False,
) -> ClassLabels:
    """Return the class indices that labels stand for, without the samples to leave out.

    Names are numbered in the order of ``class_names``; else in that of their categories, if the
    labels have categories, and in alphabetical order if not, as scikit-learn does.

    Args:
        labels: Integers, booleans, or names: an array or tensor, a list, a column of pandas,
            polars, pyarrow or ``datasets``, with or without categories.
        samples: Number n of samples, which are the rows of the features.
        ignore_index: Label of the samples to leave out, or several.
        class_names: Names of the classes, in the order of the indices.
        dim: Number of columns of the features, if the user may have transposed them.
        or_targets: True if the user may have meant numbers to predict.

    Raises:
        InputError: If there is not one label for each sample, labels are missing, or a name is none
            of ``class_names``.

    Example:
        >>> read_labels(["dog", "cat", "dog"], 3).labels
        tensor([1, 0, 1])
        >>> read_labels([0, 1, -1], 3, ignore_index=-1).notes
        ('1 of 3 samples left out: labelled -1',)
    """
    declared = tuple(class_names or ())
    if len(set(declared)) != len(declared):
        twice = next(name for name in declared if declared.count(name) > 1)
        fix = "name every class once"
        raise InputError(expected="different class names", found=f"{twice!r} twice", fix=fix)
    numbers, found = _number_names(labels, declared)
    indices = check_labels(as_tensor(numbers, "labels"), samples, dim=dim, or_targets=or_targets)
    names = declared or found
    marks = [ignore_index] if isinstance(ignore_index, int) else sorted(set(ignore_index or ()))
    kept = torch.nonzero(~torch.isin(indices, indices.new_tensor(marks))).squeeze(1)
    left_out = samples - len(kept)
    if not left_out:
        return ClassLabels(indices, None, names, ())
    said = " or ".join(map(str, marks))
    if not len(kept):
        raise InputError(
            expected="samples to measure",
            found=f"all {samples} labelled {said}",
            fix="check ignore_index, which names the labels of samples to leave out",
        )
    note = f"{left_out:,} of {samples:,} samples left out: labelled {said}"
    return ClassLabels(indices[kept], kept, names, (note,))


def _number_names(labels: Any, declared: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Return numbers in place of names, and the names in the order of the numbers.

    Labels that are numbers are returned as they are, without names.

    Args:
        labels: Labels in any form.
        declared: Names in the order of the classes; empty if the user gave none.

    Raises:
        InputError: If labels are missing, or a name is none of those declared.
    """
    if isinstance(labels, Tensor):
        return labels, ()
    # A column of pandas has its categories in `cat`, a categorical array has them itself; the
    # order of the categories is the user's, and a category without samples is a class too.
    categorical = getattr(labels, "cat", labels)
    categories = getattr(categorical, "categories", None)
    source = getattr(labels, "source", None)  # of a column of datasets, whose numbers have names
    feature = getattr(source, "features", {}).get(getattr(labels, "column_name", None))
    named = getattr(feature, "names", None)
    if named is not None:
        return _list_values(labels), tuple(named)
    if categories is None:
        values = _list_values(labels)
        if values is None:
            return labels, ()
    else:
        values = [None if code < 0 else categories[code] for code in np.asarray(categorical.codes)]
    missing = [row for row, value in enumerate(values) if _is_missing(value)]
    if missing:
        # NumPy writes a missing value as a text, when it makes an array of texts.
        as_text = values[missing[0]]
        keep = f"labels != {as_text!r}" if isinstance(as_text, str) else "pandas.notna(labels)"
        raise InputError(
            expected="a label for each sample",
            found=f"{len(missing)} of {len(values)} missing, the first at row {missing[0]}",
            fix=f"drop these samples, in features and labels: keep = {keep}",
        )
    if categories is not None:
        values, order = list(map(str, values)), tuple(map(str, categories))
    elif all(isinstance(value, str | bytes) for value in values):
        values = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in values]
        order = tuple(sorted(set(values)))
    else:
        return values, ()
    order = tuple(declared) or order
    numbers = {name: number for number, name in enumerate(order)}
    unknown = next((name for name in values if name not in numbers), None)
    if unknown is not None:
        raise InputError(
            expected=f"labels of class_names ({', '.join(order[:5])}{', ...' * (len(order) > 5)})",
            found=f"{unknown!r} at row {values.index(unknown)}",
            fix="name all classes, in the order of the head's rows",
        )
    return np.array([numbers[name] for name in values], np.int64), order


def _list_values(labels: Any) -> list[Any] | None:
    """Return labels as a list of Python's own values; None for an array of numbers."""
    if hasattr(labels, "to_pylist"):  # pyarrow
        return list(labels.to_pylist())
    array = labels.to_numpy() if hasattr(labels, "to_numpy") else labels  # pandas and polars
    if isinstance(array, np.ndarray):
        return array.tolist() if array.dtype.kind in "USO" else None
    if isinstance(labels, list | tuple):
        plain = any(value is None or isinstance(value, str | bytes) for value in labels)
        return list(labels) if plain else None
    return list(labels) if isinstance(labels, Sequence) else None


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or the NA of pandas, also as a text."""
    if isinstance(value, str):
        return value in ("nan", "<NA>")
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")
