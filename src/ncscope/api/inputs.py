"""Features, labels and a classifier that must fit each other, checked once for all functions.

What one array must be by itself is checked in `ncscope.array_checks`.
"""

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ncscope.array_checks import as_tensor, check_features, check_range, refuse_marks
from ncscope.errors import InputError, list_names
from ncscope.labels import (
    IgnoreIndex,
    check_pairing,
    check_reference_names,
    count_labels,
    find_names,
    read_labels,
)
from ncscope.measurement.ood import check_ood_features

_MOST_CLASSES_UNSAID = 100_000
"""A label above this and above the number of samples is more likely an identifier than a class."""


class Samples(NamedTuple):
    """Features and labels as tensors on one device, and the classifier in float64."""

    features: Tensor
    labels: Tensor
    num_classes: int
    weight: Tensor | None
    bias: Tensor | None
    one_logit: bool
    class_names: tuple[str, ...]
    notes: tuple[str, ...]


def check_samples(
    features: Any,
    labels: Any,
    weight: Any,
    bias: Any,
    num_classes: int | None,
    *,
    ignore_index: IgnoreIndex = None,
    class_names: Sequence[str] | None = None,
    has_ignore_index: bool = False,
    reference_names: Sequence[str] = (),
) -> Samples:
    """Check the inputs of `measure` and return them as tensors, without the samples to leave out.

    Args:
        features: Features, n x d.
        labels: Label of each sample.
        weight: Classifier weight; None for none.
        bias: Classifier bias; None for none.
        num_classes: Number of classes; None for that of the weight or the labels.
        ignore_index: Label of samples to leave out, or several.
        class_names: Names of the classes, in the order of the rows of the weight.
        has_ignore_index: True if the user's function has the option ``ignore_index``.
        reference_names: Names of the classes of the reference, which number labels that are names
            unless ``class_names`` does; empty for none.

    Raises:
        InputError: If an input does not fit; the message names it.
    """
    rows = _check_rows(features, "pass at least one sample of two classes")
    check_pairing(features, labels)
    declared = class_names
    if class_names is None and reference_names and find_names(labels):
        declared = reference_names
    try:
        read = read_labels(
            labels,
            len(rows),
            ignore_index=ignore_index,
            class_names=declared,
            dim=rows.shape[1],
            or_targets=True,
        )
    except InputError as error:
        parts = len(features) if isinstance(features, list | tuple) else 0
        if error.expected != "one label a sample" or not 1 < parts == count_labels(labels):
            raise
        fix = "if each matrix is one sample, pass its mean: [part.mean(0) for part in features]"
        raise error.but(fix=fix) from error
    rows, classes, notes = read.select(rows), read.labels.to(rows.device), read.notes
    head = None if weight is None else as_tensor(weight, "weight")
    largest = max(int(classes.max()) + 1, 1)
    if num_classes is None and head is None and read.names:
        num_classes = len(read.names)
        if largest > num_classes:
            fix = "name all classes in class_names, in the order of their numbers from 0"
            if has_ignore_index:
                fix += "; or leave samples out with ignore_index"
            found = f"{num_classes} name{'s' * (num_classes > 1)}, and label {largest - 1}"
            raise InputError(expected="a name for each class", found=found, fix=fix)
    one_row = head is not None and head.shape == (1, rows.shape[1])
    if one_row and largest > 2 and num_classes in (None, 2):
        two = len(classes.unique()) <= 2
        fix = "number the classes: labels = np.unique(labels, return_inverse=True)[1]"
        raise InputError(
            expected="labels 0 and 1 beside a weight of one row, which is one logit",
            found=f"labels up to {largest - 1}",
            fix=fix if two else "pass samples of its two classes, or a weight of a row a class",
        )
    count = _count_rows(head, rows.shape[1], largest)
    if num_classes is not None:
        if head is not None and count is not None and num_classes not in (count, *head.shape):
            fix = f"leave num_classes out, or pass the weight of {num_classes} classes"
            expected = f"a weight of num_classes={num_classes} rows"
            raise InputError(expected=expected, found=f"{count} rows", fix=fix)
        count = num_classes
    if head is None and count is None and largest > max(len(rows), _MOST_CLASSES_UNSAID):
        fix = "number the classes from 0, or pass num_classes; numbers to predict are for "
        fix += "measure_regression"
        expected = f"labels in 0..{len(rows) - 1} for {len(rows)} samples"
        raise InputError(expected=expected, found=f"label {largest - 1}", fix=fix)
    if count is None:
        refuse_marks(classes, has_ignore_index=has_ignore_index)
        count = largest
    check_range(classes, count, of_classifier=head is not None, has_ignore_index=has_ignore_index)
    classifier = check_classifier(head, bias, count, rows.shape[1], rows.device)
    check_name_count(read.names, count)
    check_reference_names(read.names, reference_names)
    if reference_names and not read.names:
        order = list_names(reference_names, 5)
        notes += (f"labels taken as the numbers of the reference's classes: {order}",)
    if head is not None and class_names is None:
        refuse_numerals(read.names)
        notes += note_order(read.names)
    return Samples(rows, classes, count, *classifier, read.names, notes)


def check_name_count(names: Sequence[str], count: int) -> None:
    """Refuse names that are not as many as the classes.

    Args:
        names: Names of the classes; empty if unknown.
        count: Number of classes.

    Raises:
        InputError: If the numbers differ.
    """
    if names and len(names) != count:
        raise InputError(
            expected=f"{count} classes, as many as rows of the weight or num_classes",
            found=f"{len(names)} names",
            fix="pass class_names: all classes, in the order of the weight's rows",
        )


def refuse_numerals(names: Sequence[str]) -> None:
    """Refuse names with numbers whose alphabetical order is not that of the numbers.

    A file of text gives such labels: "10" comes before "2", and "class_10" before "class_2". The
    rows of a weight could be in either order.

    Args:
        names: Names in the order in which they were found.

    Raises:
        InputError: If the names are in alphabetical order, and that of the numbers differs.
    """
    in_order = list(names) == sorted(names)  # other orders are those of categories
    if in_order and list(names) != sorted(names, key=_by_number):
        raise InputError(
            expected="the order of the weight's rows beside labels that are texts of numbers",
            found=", ".join(map(repr, names[:3])),
            fix="pass integers as labels, or class_names in the order of the weight's rows",
        )


def _by_number(name: str) -> list[Any]:
    """Return a key by which names are sorted as people count: "class_2" before "class_10"."""
    parts = re.split(r"((?:^\s*[-+])?\d+)", name)
    return [int(part) if at % 2 else part.strip() for at, part in enumerate(parts)]


def note_order(names: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence on the order in which names stand for the rows of a weight.

    Args:
        names: Names that the labels have, in the order of the class indices; empty for none.
    """
    order = list_names(names, 5)
    return (f"rows of the weight taken for the classes in this order: {order}",) if names else ()


def check_unlabelled(features: Any) -> Tensor:
    """Check features without labels and return them as a tensor.

    Raises:
        InputError: If they are no real n x d matrix with at least one row.
    """
    return _check_rows(features, "pass at least one sample")


def refuse_without_labels(**given: bool) -> None:
    """Refuse arguments that say nothing about samples without labels.

    Raises:
        InputError: If one was given.
    """
    named = ", ".join(name for name, there in given.items() if there)
    if named:
        fix = f"pass labels, or leave out {named}: without labels the spectra alone are measured"
        raise InputError(expected=f"labels with {named}", found="none", fix=fix)


def _check_rows(features: Any, if_empty: str) -> Tensor:
    """Return features as a tensor with at least one row.

    Args:
        features: Features to check.
        if_empty: Likely remedy if there are no rows, for the message.
    """
    if isinstance(features, str | PathLike):
        path = Path(features)
        fix = f"pass np.load({str(path)!r})" + "['features']" * (path.suffix == ".npz")
        if path.suffix not in (".npy", ".npz"):
            fix = (
                "pass columns of numbers and the column of labels of a data frame, or run "
                f"ncscope measure {path} --label COLUMN"
            )
        found = f"the path {str(features)!r}"
        raise InputError(expected="features as a numeric array", found=found, fix=fix)
    if isinstance(features, Mapping):
        fix = "pass the array of one entry, for example data['features']"
        found = type(features).__name__
        raise InputError(expected="features as a numeric array", found=found, fix=fix)
    rows = as_tensor(features, "features")
    if rows.ndim == 1:
        fix = "pass features[:, None] if a sample has one feature, features[None] for one sample"
        found = f"shape {tuple(rows.shape)}"
        raise InputError(expected="features of shape (n, d)", found=found, fix=fix)
    check_features(rows)
    if len(rows) == 0:
        found = f"features of shape {tuple(rows.shape)}"
        raise InputError(expected="samples", found=found, fix=if_empty)
    return rows


def check_ood(ood: Any, features: Tensor) -> Tensor:
    """Return the features of OOD samples as a tensor on the device of the features.

    Raises:
        InputError: If the OOD features are no m x d matrix of real numbers.
    """
    rows = as_tensor(ood, "OOD features")
    check_ood_features(rows, features.shape[1])
    return rows.to(features.device)


def _count_rows(head: Tensor | None, dim: int, least: int) -> int | None:
    """Return the number of rows of the weight; if the weight seems transposed, of columns.

    A transposed weight is then refused for its shape, with the number of classes it was meant for.
    """
    if head is None:
        return None
    if has_one_row(head) and least <= 2:
        return 2
    if head.ndim != 2:
        return None
    rows, columns = head.shape
    return columns if rows == dim != columns and columns >= least else rows


class Classifier(NamedTuple):
    """Weight and bias of a classifier in float64; all None without a classifier.

    A classifier with one output z for two classes has two rows here, which give -z/2 and z/2 and
    have the same softmax; ``one_logit`` is then true. Rows of 0 and z would not do: their mean is
    not zero, and perfect collapse would look like failure.
    """

    weight: Tensor | None = None
    bias: Tensor | None = None
    one_logit: bool = False


def check_head(weight: Any, bias: Any) -> None:
    """Refuse a bias without a weight.

    Raises:
        InputError: If a bias is given and no weight.
    """
    if bias is not None and weight is None:
        fix = "pass the weight too"
        raise InputError(expected="a weight along with the bias", found="no weight", fix=fix)


def has_one_row(weight: Any) -> bool:
    """Return whether a weight is that of one logit: 1 x d, as scikit-learn's for two classes."""
    return weight is not None and as_tensor(weight, "weight").shape[:-1].numel() == 1


def check_classifier(
    weight: Any, bias: Any, num_classes: int, dim: int, device: torch.device | str
) -> Classifier:
    """Check a classifier that is given as arrays, and return it in float64.

    Args:
        weight: Weight K x d; 1 x d or d numbers for one logit of two classes; None for none.
        bias: Bias of length K, or one number for one logit; None for none.
        num_classes: K.
        dim: d.
        device: Device of the result.

    Raises:
        InputError: If there is a bias alone, or an array has another shape, or is not real or not
            finite.

    Example:
        >>> check_classifier([[2.0, 4.0]], [1.0], 2, 2, "cpu").weight.tolist()
        [[-1.0, -2.0], [1.0, 2.0]]
    """
    check_head(weight, bias)
    if weight is None:
        return Classifier()
    if num_classes == 2 and has_one_row(weight):
        row = check_part("weight", as_tensor(weight, "weight").reshape(1, -1), (1, dim), device) / 2
        offset = None
        if bias is not None:
            half = check_part("bias", as_tensor(bias, "bias").reshape(-1), (1,), device) / 2
            offset = torch.cat([-half, half])
        return Classifier(torch.cat([-row, row]), offset, one_logit=True)
    head = check_part("weight", weight, (num_classes, dim), device)
    return Classifier(
        head, None if bias is None else check_part("bias", bias, (num_classes,), device)
    )


def check_part(
    name: str,
    value: Any,
    shape: tuple[int, ...],
    device: torch.device | str,
    rows: str = "num_classes",
) -> Tensor:
    """Check the weight or the bias of a head, and return it in float64.

    Args:
        name: Name of the part.
        value: Array-like.
        shape: Shape that the part must have, the number of rows first.
        device: Device of the result.
        rows: Name of the number of rows, for the message.

    Raises:
        InputError: If the shape is another, or a number is complex, NaN or infinite.
    """
    tensor = as_tensor(value, name)
    if tuple(tensor.shape) != shape:
        meaning = f"({rows}, dim)" if len(shape) == 2 else f"({rows},)"
        fix = f"pass the layer that reads these features (shape is {meaning})"
        if tuple(tensor.shape) == shape[::-1]:
            fix = f"transpose it (shape is {meaning})"
        elif shape[0] == 1 and tuple(tensor.shape) in (shape[1:], ()):
            fix = f"reshape it to {shape} (shape is {meaning})"
        found = f"shape {tuple(tensor.shape)}"
        raise InputError(expected=f"a {name} of shape {shape}", found=found, fix=fix)
    if tensor.is_complex():
        found, fix = f"dtype {tensor.dtype}", "pass its real part, if that is what classifies"
        raise InputError(expected=f"a real {name}", found=found, fix=fix)
    if not torch.isfinite(tensor).all():
        fix = "check that training did not diverge"
        raise InputError(expected=f"a finite {name}", found="NaN or Inf in it", fix=fix)
    return tensor.to(device, torch.float64)
