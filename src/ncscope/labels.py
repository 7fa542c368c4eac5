"""Labels as people hold them: class indices, names, categories; some are marks to leave out."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from ncscope.array_checks import as_tensor, check_labels, is_missing
from ncscope.errors import InputError, list_names

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


NAMES_IN_PARTS = "class_names beside labels that are names, since a part may lack classes"
"""What a part of the samples needs whose labels are names."""


def read_labels(
    labels: Any,
    samples: int,
    *,
    ignore_index: IgnoreIndex = None,
    class_names: Sequence[str] | None = None,
    dim: int | None = None,
    or_targets: bool = False,
    of_part: bool = False,
) -> ClassLabels:
    """Return the class indices that labels stand for, without the samples to leave out.

    Names are numbered in the order of ``class_names``; else in that of their categories, if the
    labels have categories, and in alphabetical order if not, as scikit-learn does.

    Args:
        labels: Integers, booleans, or names: an array or tensor, a list, a column of pandas,
            polars, pyarrow or ``datasets``, with or without categories; or a list of batches of
            these.
        samples: Number n of samples, which are the rows of the features.
        ignore_index: Label of the samples to leave out, or several.
        class_names: Names of the classes, in the order of the indices.
        dim: Number of columns of the features, if the user may have transposed them.
        or_targets: True if the user may have meant numbers to predict.
        of_part: True for a part of the samples, such as a batch of a stream: all samples of a part
            may be left out, and labels that are names need ``class_names``, because the part alone
            does not tell the number of a name.

    Raises:
        InputError: If there is not one label for each sample, labels are missing, or a name is none
            of ``class_names``.

    Example:
        >>> read_labels(["dog", "cat", "dog"], 3).labels
        tensor([1, 0, 1])
        >>> read_labels([0, 1, -1], 3, ignore_index=-1).notes
        ('1 of 3 samples left out: labelled -1',)
    """
    declared = check_names(class_names)
    parts = split_batches(labels, samples)
    if parts is None:
        numbers, found = number_names(labels, declared)
        values = as_tensor(numbers, "labels")
    else:
        found = declared or find_names(*parts)
        numbered = [as_tensor(number_names(part, found)[0], "labels") for part in parts]
        values = torch.cat(numbered)
    indices = check_labels(
        values, samples, dim=dim, or_targets=or_targets, array=_array_expression(labels, parts)
    )
    if of_part and found and not declared:
        fix = "pass class_names: all names, in the order of the classes"
        raise InputError(expected=NAMES_IN_PARTS, found=f"{found[0]!r} as a name", fix=fix)
    names = declared or found
    marks = list_marks(ignore_index)
    textual = [mark for mark in marks if str(mark) in names]
    if textual:
        raise InputError(
            expected="labels that are numbers beside ignore_index",
            found=f"the text {str(textual[0])!r}",
            fix="convert the labels to integers",
        )
    notes = () if of_part else note_alike(names)
    if not marks:
        return ClassLabels(indices, None, names, notes)
    kept = torch.nonzero(~is_ignored(indices, ignore_index)).squeeze(1)
    if len(kept) == samples:
        return ClassLabels(indices, None, names, notes)
    if not len(kept) and not of_part:
        raise nothing_left(samples, ignore_index)
    notes += note_left_out(samples - len(kept), samples, ignore_index)
    return ClassLabels(indices[kept], kept, names, notes)


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
    """Return the labels to leave out, each once, ascending."""
    return [ignore_index] if isinstance(ignore_index, int) else sorted(set(ignore_index or ()))


def nothing_left(samples: int, ignore_index: IgnoreIndex) -> InputError:
    """Return the error for samples that are all left out by their labels."""
    return InputError(
        expected="samples to measure",
        found=f"all {samples:,} labelled {_say(list_marks(ignore_index))}",
        fix="check ignore_index, which names the labels of samples to leave out",
    )


def note_left_out(left_out: int, samples: int, ignore_index: IgnoreIndex) -> tuple[str, ...]:
    """Return a sentence on the samples that were left out, or nothing if all were measured.

    Args:
        left_out: Number of samples that were left out.
        samples: Number of all samples.
        ignore_index: Label of the samples to leave out, or several.
    """
    if not left_out:
        return ()
    said = _say(list_marks(ignore_index))
    return (f"{left_out:,} of {samples:,} samples left out: labelled {said}",)


def _say(marks: Sequence[int]) -> str:
    return " or ".join(map(str, marks))


def check_names(class_names: Sequence[str] | None) -> tuple[str, ...]:
    """Check that no class name occurs twice, and return the names; none for None.

    Raises:
        InputError: If a name occurs twice.
    """
    if isinstance(class_names, str):  # else names of one letter
        class_names = (class_names,)
    names = () if class_names is None else tuple(class_names)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        fix = "name every class once"
        raise InputError(expected="different class names", found=f"{twice!r} twice", fix=fix)
    return names


def fold_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names without what two sources of one name write differently: letter case, blanks.

    The names are returned as they are if two of them would become equal.

    Args:
        names: Names of different classes.

    Example:
        >>> fold_names(["Golden retriever", "T-shirt"]), fold_names(["cat", "Cat"])
        (('golden retriever', 't shirt'), ('cat', 'Cat'))
    """
    folded = tuple(map(_fold, names))
    return folded if len(set(folded)) == len(set(names)) else tuple(names)


def _fold(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold().strip()
    return " ".join(re.split(r"[\s_-]+", plain))


def note_alike(names: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence on two names that are hardly of two classes, or nothing.

    Example:
        >>> note_alike(["Cat ", "cat", "dog"])
        ("'Cat ' and 'cat' are two classes here; write the names alike if they are one",)
    """
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(_fold(name), name)
        if other != name:
            # Letters with accents may look the same and be composed in two ways.
            pair = f"{other!a} and {name!a}"
            return (f"{pair} are two classes here; write the names alike if they are one",)
    return ()


def check_reference_names(names: Sequence[str], of_reference: Sequence[str]) -> None:
    """Refuse a reference whose classes have other names: means are matched by the class index.

    One of the two may have more classes, after those of the other.

    Args:
        names: Names of the classes that are measured; empty if unknown.
        of_reference: Names of the classes of the reference; empty if unknown.

    Raises:
        InputError: If a class has another name in the reference.
    """
    both = zip(names, of_reference, strict=False)
    found = next((f"{a!r} for its class {b!r}" for a, b in both if a != b), None)
    if found is not None:
        order = list_names(map(repr, of_reference), 5)
        raise InputError(
            expected="classes that are numbered as those of the reference",
            found=found,
            fix=f"number the labels as the reference does ({order}), with class_names= of that "
            "order, and new classes last",
        )


def find_names(*parts: Any) -> tuple[str, ...]:
    """Return the names that the labels of several parts have together; none if they are numbers.

    The names are in alphabetical order, or in that of their categories if these are the same in
    all parts.

    Args:
        parts: Labels of each part, in any form that `read_labels` takes.

    Raises:
        InputError: If labels are missing, or are names in one part and numbers in another.

    Example:
        >>> find_names(["dog", "emu"], ["cat"])
        ('cat', 'dog', 'emu')
    """
    batches: list[Any] = []
    for part in parts:
        several = isinstance(part, list | tuple) and bool(part) and all(map(_is_vector, part))
        batches += part if several else [part]
    orders = [number_names(batch, ())[1] for batch in batches if count_labels(batch)]
    if any(orders) and not all(orders):
        raise kinds_error()
    return unite_names(orders)


def kinds_error() -> InputError:
    """Return the error for labels that are names in one part and numbers in another."""
    fix = "pass the names, or the class indices, of all samples"
    return InputError(expected="labels of one kind", found="names and numbers", fix=fix)


def count_labels(labels: Any) -> int:
    """Return the number of labels, which is 1 for a single number."""
    single = not hasattr(labels, "__len__") or getattr(labels, "shape", None) == ()
    return 1 if single else len(labels)


def unite_names(orders: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names of several parts: in their order if all have the same, else alphabetically.

    Args:
        orders: Names in each part; parts without names do not count.
    """
    different = {order for order in orders if order}
    if len(different) == 1:
        return different.pop()
    return tuple(sorted({name for order in different for name in order}))


def split_batches(labels: Any, samples: int, name: str = "labels") -> Sequence[Any] | None:
    """Return the batches of a list of batches of labels; None for any other labels.

    A list of as many lists as samples is one of rows, such as one-hot rows.

    Args:
        labels: Labels, or targets, in any form.
        samples: Number of samples.
        name: Name of the labels, for the message.

    Raises:
        InputError: If the batches have another number of samples.
    """
    if not isinstance(labels, list | tuple) or not labels or not _is_vector(labels[0]):
        return None
    if not all(map(_is_vector, labels)):
        return None
    sizes = list(map(len, labels))
    if sum(sizes) == samples:
        return labels
    if len(set(sizes)) > 1 and len(sizes) != samples:
        found = f"{len(sizes)} batches of {name}, of {sum(sizes)} samples, for {samples} rows"
        fix = f"pass the {name} of the same batches"
        raise InputError(expected=f"{name} of all samples", found=found, fix=fix)
    return None


def check_pairing(features: Any, labels: Any, name: str = "labels") -> None:
    """Refuse labels in other batches than the features, or in another order of a pandas index.

    Args:
        features: Features in any form; only a list of matrices is a list of batches.
        labels: Labels, or targets, in any form.
        name: Name of the labels, for the message.

    Raises:
        InputError: If there are as many batches, of other sizes; or if both are of pandas, with the
            same index in another order.
    """
    rows: Any = getattr(features, "index", None)
    others: Any = getattr(labels, "index", None)
    of_pandas = hasattr(rows, "is_unique") and hasattr(others, "is_unique")
    # Rows are paired by their places, and pandas itself would pair them by the index.
    if (
        of_pandas
        and not rows.equals(others)
        and rows.is_unique
        and others.is_unique
        and set(rows) == set(others)
    ):
        raise InputError(
            expected=f"{name} in the order of the rows of the features",
            found="the same index in another order",
            fix=f"pass {name}.loc[features.index]",
        )
    if not all(isinstance(given, list | tuple) and given for given in (features, labels)):
        return
    are_batches = all(_is_vector(part) or _ndim(part) == 2 for part in labels)
    if not are_batches or not all(_ndim(part) == 2 for part in features):
        return
    if len(features) != len(labels) or sum(map(len, features)) == len(labels):  # rows
        return
    for at, (part, given) in enumerate(zip(features, labels, strict=True)):
        if len(part) != len(given):
            raise InputError(
                expected=f"batches of {name} of the sizes of those of the features",
                found=f"{len(given)} {name} for {len(part)} rows in batch {at}",
                fix=f"pass the {name} of the same batches, in the same order",
            )


def _is_vector(value: Any) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return value.ndim == 1
    return isinstance(value, list | tuple) or hasattr(value, "to_numpy")


def _ndim(value: Any) -> int:
    return len(getattr(value, "shape", ()))


def _array_expression(labels: Any, parts: Sequence[Any] | None) -> str:
    """Return how a message writes labels as an array that has the methods of NumPy's."""
    matrices = isinstance(labels, list | tuple) and bool(labels) and _ndim(labels[0]) == 2
    if parts is not None or matrices:  # batches
        return "np.concatenate(labels)"
    if isinstance(labels, Tensor):
        return "labels.int()" if labels.dtype == torch.bool else "labels"
    return "labels" if isinstance(labels, np.ndarray) else "np.asarray(labels)"


def read_label_sets(targets: Any, samples: int) -> Bool[Tensor, "n k"]:
    """Return which classes each sample has, of an array with a column for each class.

    Args:
        targets: n x K array-like of 0 and 1 of any type, or of booleans.
        samples: Number n of samples, which are the rows of the features.

    Raises:
        InputError: If the shape does not fit, or an entry is neither 0 nor 1; the message names it.

    Example:
        >>> read_label_sets([[1, 0, 1], [0, 0, 1]], 2).sum(1)
        tensor([2, 1])
    """
    expected = f"targets of shape ({samples}, K), 1 where a sample has the class and 0 elsewhere"
    try:
        values = as_tensor(targets, "targets")
    except InputError as error:
        if not isinstance(targets, list | tuple):
            raise
        found, fix = "lists of other values", "MultiLabelBinarizer of scikit-learn makes them"
        raise InputError(expected=expected, found=found, fix=fix) from error
    shape = tuple(values.shape)
    if len(shape) != 2 or shape[0] != samples or shape[1] < 2:
        fix = "pass one row a sample and one column a class"
        if len(shape) == 1 and len(values) == samples:
            fix = "pass a column for each class; for one label a sample call measure"
        elif shape[1:] == (samples,):
            fix = "transpose the targets: one row a sample"
        raise InputError(expected=expected, found=f"shape {shape}", fix=fix)
    if values.is_complex():
        found, fix = f"dtype {values.dtype}", "convert them first"
        raise InputError(expected=expected, found=found, fix=fix)
    broken = torch.nonzero((values != 0) & (values != 1))
    if len(broken):
        row, column = broken[0].tolist()
        value = values[row, column].item()
        fix = "pass 1 where a sample has the class and 0 elsewhere"
        if value == -1 and not bool((values == 0).any()):
            fix = "pass targets > 0 if -1 means that a sample lacks the class"
        elif value == -1:
            fix = "leave out samples with a class that is unknown: keep = (targets != -1).all(1)"
        elif 0 < value < 1:
            fix = "pass targets > 0.5 if these are probabilities"
        found = f"{value} at row {row}, column {column}"
        raise InputError(expected=expected, found=found, fix=fix)
    return values == 1


def number_names(
    labels: Any, declared: Sequence[str], if_unknown: str = ""
) -> tuple[Any, tuple[str, ...]]:
    """Return numbers in place of names, and the names in the order of the numbers.

    Labels that are numbers are returned as they are, without names.

    Args:
        labels: Labels in any form.
        declared: Names in the order of the classes; empty if the user gave none.
        if_unknown: Advice for names without ``declared`` if the labels are those of a model's
            batch, whose names do not tell the order of all.

    Raises:
        InputError: If labels are missing, or a name is none of those declared.
    """
    if isinstance(labels, Tensor):
        return labels, ()
    values, categories = _list_values(labels), None
    # The order of categories is the user's, and a category without samples is a class too. Those
    # of polars, but for its Enum, and dictionaries of pyarrow are ordered by first occurrence,
    # which says nothing.
    pandas = getattr(labels, "cat", labels)
    if hasattr(pandas, "categories") and hasattr(pandas, "codes"):
        categories = tuple(map(str, pandas.categories))
        # For pandas -1 is a missing value. In a file it is a mark of samples without a class.
        marks = getattr(pandas, "has_marks", False)
        values = [
            categories[code] if 0 <= code < len(categories) else code if marks else None
            for code in np.asarray(pandas.codes).tolist()
        ]
    elif type(getattr(labels, "dtype", None)).__name__ == "Enum":
        categories = tuple(labels.dtype.categories)
    source = getattr(labels, "source", None)  # of a column of datasets, whose numbers have names
    schema = getattr(source, "features", None) or {}
    feature = schema.get(getattr(labels, "column_name", None))
    classes = getattr(feature, "names", None)
    if values is None:
        return labels, ()
    # NumPy writes a missing value as a text, when it makes an array of texts.
    texts = isinstance(labels, np.ndarray) and labels.dtype.kind == "U"
    no_names = ("", "nan", "<NA>") if texts else ("",)
    missing = [
        row
        for row, value in enumerate(values)
        if is_missing(value) or (isinstance(value, str) and value in no_names)
    ]
    if missing:
        as_text = values[missing[0]]
        # Only NumPy and pandas compare by element, and take what to keep as an index.
        plain = isinstance(labels, np.ndarray) or hasattr(labels, "isna")
        array = "labels" if plain else "np.asarray(labels, object)"
        keep = f"{array} != {as_text!r}" if isinstance(as_text, str) else f"pandas.notna({array})"
        keep += f"; pass features[keep], {array}[keep]"
        raise InputError(
            expected="a label for each sample",
            found=f"{len(missing)} of {len(values)} missing, the first at row {missing[0]}",
            fix="leave these samples out of the loader"
            if if_unknown
            else f"drop these samples: keep = {keep}",
        )
    if classes is not None:
        categories = tuple(classes)
        if not declared or tuple(declared) == categories:
            return values, categories
        # A mark of samples without a class, such as -1, stays the number that it is.
        values = [classes[v] if 0 <= v < len(classes) else v for v in values]
    if categories is not None:
        order = categories
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
    unknown = next((v for v in values if isinstance(v, str) and v not in numbers), None)
    if unknown is not None:
        raise InputError(
            expected=f"labels of class_names ({list_names(order, 5)})",
            found=f"{unknown!r} at row {values.index(unknown)}",
            fix="name all classes, in the order of the head's rows",
        )
    return np.array([numbers.get(value, value) for value in values], np.int64), order


def _list_values(labels: Any) -> list[Any] | None:
    """Return labels as a list of Python's own values; None for an array of numbers."""
    if hasattr(labels, "to_pylist"):  # pyarrow
        return list(labels.to_pylist())
    array = labels.to_numpy() if hasattr(labels, "to_numpy") else labels
    if isinstance(array, np.ndarray):
        return array.tolist() if array.dtype.kind in "USO" and array.ndim == 1 else None
    if isinstance(labels, list | tuple):
        plain = any(value is None or isinstance(value, str | bytes) for value in labels)
        return list(labels) if plain else None
    return list(labels) if isinstance(labels, Sequence) and not isinstance(labels, str) else None
