"""Labels as people hold them: class indices, names, categories; some are marks to leave out."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from ncscope.array_checks import as_tensor, check_labels
from ncscope.errors import InputError

IgnoreIndex: TypeAlias = int | Collection[int] | None
"""Label of samples to leave out, or several; None leaves none out."""

LABEL_KEYS = ("labels", "label", "targets", "target")
"""Names of the entry of the labels in a mapping, the surest first."""

_DEEPEST = 8
"""Depth at which the search in data sets of data sets ends."""


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
    check_different(declared)
    numbers, found = _number_names(labels, declared)
    indices = check_labels(as_tensor(numbers, "labels"), samples, dim=dim, or_targets=or_targets)
    names = declared or found
    kept = torch.nonzero(~is_ignored(indices, ignore_index)).squeeze(1)
    left_out = samples - len(kept)
    if not left_out:
        return ClassLabels(indices, None, names, ())
    note = note_left_out(left_out, samples, ignore_index)
    return ClassLabels(indices[kept], kept, names, (note,))


def is_ignored(labels: Shaped[Tensor, "..."], ignore_index: IgnoreIndex) -> Bool[Tensor, "..."]:
    """Return which labels are those of samples to leave out.

    Args:
        labels: Labels of any shape and type.
        ignore_index: Label of samples to leave out, or several; None for none.

    Example:
        >>> is_ignored(torch.tensor([0, 156, 255], dtype=torch.uint8), (-100, 255)).tolist()
        [False, False, True]
    """
    # Bytes have no -100: there it would be 156.
    numbers = labels if labels.is_floating_point() else labels.to(torch.int64)
    return torch.isin(numbers, numbers.new_tensor(list_marks(ignore_index)))


def list_marks(ignore_index: IgnoreIndex) -> list[int]:
    """Return the labels of samples to leave out, ascending.

    Example:
        >>> list_marks(None), list_marks(-1), list_marks((255, -1))
        ([], [-1], [-1, 255])
    """
    return [ignore_index] if isinstance(ignore_index, int) else sorted(set(ignore_index or ()))


def note_left_out(left_out: int, samples: int, ignore_index: IgnoreIndex) -> str:
    """Say how many samples were left out by their labels.

    Args:
        left_out: Number of these samples.
        samples: Number of all samples.
        ignore_index: Label of samples to leave out, or several.

    Raises:
        InputError: If no sample is left.
    """
    said = " or ".join(map(str, list_marks(ignore_index)))
    if left_out == samples:
        raise InputError(
            expected="samples to measure",
            found=f"all {samples:,} labelled {said}",
            fix="check ignore_index, which names the labels of samples to leave out",
        )
    return f"{left_out:,} of {samples:,} samples left out: labelled {said}"


class HeadClasses:
    """Names of the classes of a model's head, and the numbers that labels of its batches stand for.

    Names that the user gave must be those of the head's rows. Names that were found, of a data set
    or in the model's configuration, are dropped if their number is another: the model may have been
    made for other classes.

    Args:
        given: Names in the order of the head's rows; None if the user gave none.
        of_data: Names that the data set knows, in the order of its labels; empty for none.
        of_model: Names that the model knows, in the order of the head's rows; empty for none.
        is_option: True if the user's function has the option ``class_names``.

    Example:
        >>> classes = HeadClasses(["cat", "dog"])
        >>> classes.number(["dog", "cat", "dog"]), classes.names(2)
        (tensor([1, 0, 1]), ('cat', 'dog'))
    """

    def __init__(
        self,
        given: Sequence[str] | None = None,
        *,
        of_data: Sequence[str] = (),
        of_model: Sequence[str] = (),
        is_option: bool = True,
    ) -> None:
        check_different(given or ())
        self._is_option = is_option
        self._given = None if given is None else tuple(given)
        # Numbers are those of the data set; the rows of the head are in the order of the model.
        self._of_numbers = tuple(given or of_data or of_model)
        self._of_words = tuple(given or of_model or of_data)
        self._has_words = False
        self._differ = not given and (
            set(of_data) == set(of_model) and tuple(of_data) != tuple(of_model)
        )

    def number(self, labels: Any) -> Tensor:
        """Return the numbers of the labels of a batch, which may be names.

        Raises:
            InputError: If labels are missing or no numbers, or are names that are not known.
        """
        advice = (
            "pass class_names=[...], the classes in the order of the head's rows"
            if self._is_option
            else "let the data set number its classes, with the same number in every batch"
        )
        if labels is None:
            raise InputError(expected="a label for each sample", found="None as labels", fix=advice)
        numbers, names = _number_names(labels, self._of_words, advice)
        if names and names == self._of_words:
            check_different(names)
            self._has_words = True
        try:
            return as_tensor(numbers, "labels")
        except InputError as error:
            found = error.found
            if isinstance(labels, list | tuple | np.ndarray) and len(labels):
                kinds = sorted({type(label).__name__ for label in labels})
                found = f"{type(labels).__name__} of {', '.join(kinds)}"
            fix = "let the data set number its classes, with the same number in every batch"
            raise InputError(expected=error.expected, found=found, fix=fix) from error

    def names(self, rows: int) -> tuple[str, ...]:
        """Return the names of the classes of a head; empty if they are not known.

        Args:
            rows: Number of rows of the head.

        Raises:
            InputError: If the user gave another number of names, or the labels are names of which
                another number is known.
        """
        names = self._of_words if self._has_words else self._of_numbers
        if len(names) == rows or not names:
            return names
        if self._given is None and not self._has_words:
            return ()
        raise InputError(
            expected=f"{rows} class names, as many as rows of the head",
            found=f"{len(names)}{'' if self._given else ' of the data set or the model'}",
            fix="pass class_names: the classes in the order of the head's rows",
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentence on classes that the data set and the model number in two ways, if they do."""
        if not self._differ or self._has_words:
            return ()
        return (
            "the data set numbers the classes in another order than the model's configuration: if "
            "the model was not trained with these labels, number them as the model does",
        )


def find_data_names(loader: Any, label: str | None = None) -> tuple[str, ...]:
    """Return the names of the classes that the data set of a loader knows; empty for none.

    These are ``classes``, as of torchvision's data sets, or the names of the feature of the labels
    of the library ``datasets``.

    Args:
        loader: Loader or data set; a subset has the names of the whole.
        label: Name of the entry of the labels; None for the usual ones.

    Example:
        >>> data = torch.utils.data.TensorDataset(torch.zeros(2, 1), torch.tensor([0, 1]))
        >>> data.classes = ["cat", "dog"]
        >>> find_data_names(torch.utils.data.Subset(data, [1]))
        ('cat', 'dog')
    """
    for _ in range(_DEEPEST):
        if loader is None:
            break
        features, classes = getattr(loader, "features", None), getattr(loader, "classes", None)
        if isinstance(features, Mapping):
            for key in LABEL_KEYS if label is None else (label,):
                feature = features.get(key)
                feature = getattr(feature, "feature", feature)  # of each token
                if names := _read_names(getattr(feature, "names", None)):
                    return names
        if names := _read_names(classes):
            return names
        loader = getattr(loader, "dataset", None)
    return ()


def find_model_names(model: Any) -> tuple[str, ...]:
    """Return the names of the classes in a model's configuration, as of ``transformers``.

    Args:
        model: Any model. The names ``LABEL_0`` and so on, which nobody chose, are none.
    """
    names = getattr(getattr(model, "config", None), "id2label", None)
    if not isinstance(names, Mapping) or set(names) != set(range(len(names))):
        return ()
    found = tuple(str(names[row]) for row in range(len(names)))
    return () if found == tuple(f"LABEL_{row}" for row in range(len(found))) else found


def _read_names(classes: Any) -> tuple[str, ...]:
    """Return names of classes as texts; of several names of a class, the first."""
    if not isinstance(classes, list | tuple | np.ndarray):
        return ()
    names = [each[0] if isinstance(each, list | tuple) and each else each for each in classes]
    return tuple(map(str, names)) if all(isinstance(name, str) for name in names) else ()


def check_different(names: Sequence[str]) -> None:
    """Refuse names of classes of which one stands for two classes.

    Raises:
        InputError: If a name occurs twice.
    """
    if len(set(names)) != len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        fix = "name every class once"
        raise InputError(expected="different class names", found=f"{twice!r} twice", fix=fix)


def _number_names(
    labels: Any, declared: Sequence[str], if_unknown: str = ""
) -> tuple[Any, tuple[str, ...]]:
    """Return numbers in place of names, and the names in the order of the numbers.

    Labels that are numbers are returned as they are, without names.

    Args:
        labels: Labels in any form.
        declared: Names in the order of the classes; empty if the user gave none.
        if_unknown: Advice for names without ``declared`` if the labels are those of one batch,
            whose names do not tell the order of all.

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
        raise InputError(
            expected="a label for each sample",
            found=f"{len(missing)} of {len(values)} missing, the first at row {missing[0]}",
            fix="leave these samples out of the loader"
            if if_unknown
            else "drop these samples, in features and labels: keep = pandas.notna(labels)",
        )
    if categories is not None:
        values, order = list(map(str, values)), tuple(map(str, categories))
    elif all(isinstance(value, str | bytes) for value in values):
        values = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in values]
        order = tuple(sorted(set(values)))
    else:
        return values, ()
    if if_unknown and not declared:
        found = repr(str(values[0])) if values else "no label"
        expected = "numbers as labels, or names of classes that are known"
        raise InputError(expected=expected, found=found, fix=if_unknown)
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
    """Return whether a value is None, NaN, or the NA of pandas."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")
