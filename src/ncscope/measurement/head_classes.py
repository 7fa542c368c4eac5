"""Names of the classes of a model's head, and the numbers that a loader's labels stand for."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ncscope.array_checks import as_tensor
from ncscope.errors import InputError
from ncscope.labels import check_names, fold_names, number_names

LABEL_KEYS = ("labels", "label", "targets", "target")
"""Names of the entry of the labels in a mapping, the surest first."""

_DEEPEST = 8
"""Depth at which the search in data sets of data sets ends."""


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
        check_names(given)
        self._is_option = is_option
        self._given = None if given is None else tuple(given)
        # Numbers are those of the data set; the rows of the head are in the order of the model.
        data, model = fold_names(of_data), fold_names(of_model)
        is_part = set(data) < set(model)
        self._of_numbers = tuple(given or (of_model if is_part else of_data) or of_model)
        self._of_words = tuple(given or of_model or of_data)
        self._has_words = False
        in_model = set(data) <= set(model)
        self._differ = not given and in_model and data != model[: len(data)]
        self._strange = len(of_data) if not given and not in_model else 0

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
            fix = "give batches of inputs and labels; a split_batch of yours must return both"
            raise InputError(expected="a label for each sample", found="None as labels", fix=fix)
        numbers, names = number_names(labels, self._of_words, advice)
        if names and names == self._of_words:
            check_names(names)
            self._has_words = True
        try:
            return as_tensor(numbers, "labels")
        except InputError as error:
            found = error.found
            if isinstance(labels, list | tuple | np.ndarray) and len(labels):
                kinds = sorted({type(label).__name__ for label in labels})
                found = f"{type(labels).__name__} of {', '.join(kinds)}"
            fix = "let the data set number its classes, with the same number in every batch"
            raise error.but(found=found, fix=fix) from error

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

    def warnings(self, rows: int) -> tuple[str, ...]:
        """Return a sentence on labels that may not be the numbers of the head's rows."""
        if self._has_words:
            return ()
        if self._differ:
            return (
                "the data set numbers the classes in another order than the model's configuration: "
                "if the model was not trained with these labels, number them as the model does",
            )
        if 0 < self._strange < rows:
            return (
                f"the data set has {self._strange} classes and the head {rows} rows: the labels "
                f"are taken as rows 0 to {self._strange - 1}; number them as the model does if it "
                "was not trained with these labels",
            )
        return ()


def find_data_names(loader: Any, label: str | None = None) -> tuple[str, ...]:
    """Return the names of the classes that the data set of a loader knows; empty for none.

    These are ``classes``, as of torchvision's data sets, or the names of the feature of the labels
    of the library ``datasets``.

    Args:
        loader: Loader or data set; a subset has the names of the whole.
        label: Name of the entry of the labels; None for the usual ones.

    Example:
        >>> import torch
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
