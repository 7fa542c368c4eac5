"""Choice of the entries or columns that are features and labels: by name, pattern or custom."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

import numpy as np

from ncscope.api.sample_file import name_labels
from ncscope.array_checks import identifies_rows
from ncscope.errors import InputError, list_names

FEATURES = ("features", "embeddings", "embedding", "x")
LABELS = ("labels", "label", "targets", "target", "y")
"""Names, in any case, under which files hold features and labels; the first is never doubted."""

Cells = Literal["numbers", "lists", "other"]
"""What a column of a table holds: a number, a list of numbers, or something else in each row."""

MORE_LABELS = ("class", "classes", "category", "class_name", "label_name", "target_name")
"""Further names of columns that are hardly those of features."""

_FEWEST_OF_IDENTIFIERS = 20
"""Integers that identify the rows if all are different."""


class Choice(NamedTuple):
    """Names of the features (one entry, or columns) and of the labels, and a note on them.

    Attributes:
        features: Names of the columns of the features; a single one may hold lists.
        labels: Name of the labels; None if none were wanted and there are none.
        notes: Sentence that says what was taken, if the names do not go without saying.
        is_rest: True if the columns of the features are those that were left over.
    """

    features: tuple[str, ...]
    labels: str | None
    notes: tuple[str, ...] = ()
    is_rest: bool = False


def choose_entries(
    names: Collection[Any],
    file: str,
    features: str | None = None,
    labels: str | None = None,
    *,
    labelled: bool = True,
    shapes: Callable[[], Mapping[str, Sequence[int]]] = dict,
) -> Choice:
    """Choose the entries of a file of arrays that hold the features and the labels.

    Args:
        names: Names of all entries.
        file: Name of the file, for messages.
        features: Name or pattern of the features; None to find them by a customary name.
        labels: Name or pattern of the labels, or None.
        labelled: False if the features alone are wanted.
        shapes: Function that returns the shape of each entry, for the remedy in a message.

    Raises:
        InputError: If there is no such entry, or several could be meant.

    Example:
        >>> choose_entries(["X", "y", "ids"], "a.npz")[:2]
        (('X',), 'y')
    """
    texts = [name for name in names if isinstance(name, str)]
    required = [(features, FEATURES), *([(labels, LABELS)] if labelled else [])]
    found = [_find_entry(texts, given, custom) for given, custom in required]
    if any(len(each) != 1 for each in found):
        wanted = [custom[0] if given is None else given for given, custom in required]
        quoted = " and ".join(map(repr, wanted))
        raise InputError(
            expected=f"{'entries' if len(wanted) > 1 else 'the entry'} {quoted} in {file}",
            found=f"entries {list_names(names, 20)}",
            fix=_propose_entries(found, shapes(), labelled=labelled),
        )
    taken = tuple(each[0] for each in found)
    pairs = zip(taken, required, strict=True)
    default = all(name in (given, custom[0]) for name, (given, custom) in pairs)
    return Choice(taken[:1], taken[1] if labelled else None, () if default else (_note(taken),))


def _find_entry(names: Sequence[str], given: str | None, custom: Sequence[str]) -> list[str]:
    """Return the names that are meant by a name, a pattern, or custom."""
    if given is None:
        if custom[0] in names:
            return [custom[0]]
        return [name for name in names if name.casefold() in custom]
    if given in names:
        return [given]
    # In HDF5 the first slash of a path may be left out.
    bare = given.strip("/")
    return [name for name in names if fnmatchcase(name, given) or name.strip("/") == bare]


def _propose_entries(
    found: Sequence[Sequence[str]], shapes: Mapping[str, Sequence[int]], *, labelled: bool
) -> str:
    """Return the remedy: a pair of entries that fit each other, if there is one."""
    matrices = [name for name, shape in shapes.items() if len(shape) == 2 and shape[1] > 1]
    if not labelled:
        return f"choose one: {_options(matrices[0])}" if matrices else "save them under this name"
    for matrix in sorted(matrices, key=lambda name: name not in found[0]):
        rows = shapes[matrix][0]
        flat = [name for name, shape in shapes.items() if [*shape] in ([rows], [rows, 1])]
        # Another entry, such as numbers of the samples, may fit too.
        known = [name for name in flat if name in found[1]]
        words = [n for n in flat if {*re.split(r"[^a-z]+", n.casefold())} & {*LABELS}]
        rest = [name for name in flat if not identifies_rows(name, lambda: False)]
        for likely in (known, words, rest):
            if len(likely) == 1:
                return f"choose them, for example {_options(matrix, likely[0])}"
        if flat:
            return f"choose them: {_options(matrix, 'ENTRY')}, with the entry of the labels"
    if found[0] and not found[1]:
        return "save the labels too, or the features alone as .npy for spectra without labels"
    return "save the arrays under these names"


def choose_columns(
    columns: Mapping[str, Cells],
    file: str,
    features: str | None = None,
    labels: str | None = None,
    *,
    labelled: bool = True,
    first: Callable[[str], Sequence[Any]] = lambda name: (),
    example: Callable[[str], str] = lambda name: "",
) -> Choice:
    """Choose the columns of a table that hold the features and the labels.

    Args:
        columns: Content of each column, in the order of the table.
        file: Name of the file, for messages.
        features: Names or patterns, separated by commas; those after ``!`` are left out. None takes
            the column of lists, or else all columns but that of the labels.
        labels: Name or pattern of the labels; None to find them by a customary name.
        labelled: False if the features alone are wanted.
        first: Function that returns the first values of a column; none if they are no integers, for
            a column that is not that of the labels.
        example: Function that returns what a column holds, for messages.

    Raises:
        InputError: If there are no such columns, or a column of features holds no numbers; or,
            unless it was chosen by its name, identifies the rows or is named like labels.

    Example:
        >>> columns = {"a": "numbers", "b": "numbers", "kind": "other"}
        >>> choose_columns(columns, "a.csv", None, "kind")[:2]
        (('a', 'b'), 'kind')
    """
    # Other samples, without classes, may still have a column of labels.
    matches = _find_entry(list(columns), labels, LABELS)
    if labelled and len(matches) != 1:
        raise _label_error(columns, matches, file, labels, first)
    label = matches[0] if matches else None
    others = {name: cells for name, cells in columns.items() if name != label}
    notes: list[str] = []
    if features is not None:
        chosen = _match_columns(others, features, file, label)
        what = _say_columns(chosen)
        # Columns that are left over were not chosen by their names.
        is_rest = all(part.strip().startswith("!") for part in features.split(","))
    else:
        lists = [name for name, cells in others.items() if cells == "lists"]
        known = [name for name in lists if name.casefold() in FEATURES]
        chosen = [FEATURES[0]] if FEATURES[0] in known else known or lists
        if len(chosen) > 1:
            raise InputError(
                expected=f"one column of lists in {file}",
                found=f"columns {list_names(chosen, 20)}",
                fix=f"choose one: {_options(chosen[0])}",
            )
        what = chosen[0] if chosen else ""
        is_rest = not chosen
        if not chosen and others:
            chosen = list(others)
            what = _say_columns(chosen)
    if what != FEATURES[0]:
        notes = [_note((what, *([label] if labelled and label else [])))]
    suspects = {}
    if is_rest and len(chosen) > 1:
        doubts = {name: _find_doubt(name, first, columns, labelled) for name in chosen}
        suspects = {name: doubt for name, doubt in doubts.items() if doubt}
    if not chosen:
        found = f"columns {list_names(columns, 20)}"
        raise InputError(
            expected=f"columns of features in {file}", found=found, fix="save them as columns"
        )
    several = len(chosen)
    wrong = [n for n in chosen if columns[n] == "other" or (several > 1 and columns[n] == "lists")]
    unfit = [name for name in chosen if name in suspects or name in wrong]
    if unfit:
        worst = unfit[0]
        what = suspects.get(worst, "")
        if worst in wrong:
            what = example(worst) or "other content"
        before = None if features in columns else features
        raise _unfit_error(unfit, what, file, before, or_all=not wrong, rest=len(unfit) < several)
    return Choice(tuple(chosen), label if labelled else None, tuple(notes), is_rest and several > 1)


def _unfit_error(
    unfit: Sequence[str], what: str, file: str, features: str | None, *, or_all: bool, rest: bool
) -> InputError:
    """Return the error for columns that cannot be features.

    Args:
        unfit: Names of these columns, the worst first.
        what: Content of the first of them.
        file: Name of the file.
        features: Columns that the user chose; None for none.
        or_all: True if they may be features after all.
        rest: True if there are others.
    """
    left = ",".join(f"!{name.replace(',', '?')}" for name in unfit)
    fix = f"leave it out: {_options(f'{features},{left}' if features else left)}"
    if or_all:
        fix += "; or name all features, such as '*'"
    if not rest:
        fix = "write numbers, or one fixed-size list for each sample; or choose by --features"
    return InputError(
        expected=f"numbers in the columns of features of {file}",
        found=f"{what} in the column {unfit[0]!r}",
        fix=fix,
    )


def refuse_repeats(
    batches: Iterable[tuple[Any, Any]], choice: Choice, file: str, features: str | None
) -> Iterator[tuple[Any, Any]]:
    """Yield batches of a table; refuse, after the last, columns of features that repeat the labels.

    Such a column holds one whole number in each class, and another one in each. Only the last row
    tells: the rows may be in the order of their classes. Columns that the user named are trusted.

    Args:
        batches: Features and labels of each batch; the features are None if they are not wanted.
        choice: Columns of features and labels.
        file: Name of the file, for messages.
        features: Columns that the user chose, as for `choose_columns`.

    Raises:
        InputError: If a column repeats the labels; the message names it.
    """
    places = np.arange(len(choice.features) if choice.is_rest and choice.labels else 0)
    seen: dict[Any, Any] = {}  # by class, its value in each column that may repeat the labels
    count = 0
    for rows, labels in batches:
        if rows is not None and len(rows) and len(places):
            classes, firsts, inverse = np.unique(
                name_labels(labels), return_index=True, return_inverse=True
            )
            part = rows[:, places]
            for name, first in zip(classes.tolist(), firsts, strict=True):
                seen.setdefault(name, part[first])
            values = np.stack([seen[name] for name in classes.tolist()])
            may = (values == np.round(values)).all(0)
            places, values = places[may], values[:, may]
            same = (rows[:, places] == values[inverse]).all(0)
            places = places[same]
            seen = {name: value[may][same] for name, value in seen.items()}
            count += len(rows)
        yield rows, labels
    repeats = [
        choice.features[place]
        for at, place in enumerate(places)
        if len({value[at] for value in seen.values()}) == len(seen)
    ]
    if repeats and 1 < len(seen) < count:
        what = "a column that repeats the labels"
        rest = len(repeats) < len(choice.features)
        raise _unfit_error(repeats, what, file, features, or_all=True, rest=rest)


def _find_doubt(
    name: str, first: Callable[[str], Sequence[Any]], columns: Collection[str], labelled: bool
) -> str:
    """Return why a column that was not chosen by its name is hardly a feature; else nothing.

    Args:
        name: Name of the column.
        first: Function that returns the first values of a column.
        columns: Names of all columns.
        labelled: True if the labels are another column.
    """
    values = first(name)

    def counts_rows() -> bool:
        start = values[0] if len(values) > 2 else None
        return start in (0, 1) and all(v == start + row for row, v in enumerate(values))

    if (
        identifies_rows(name, counts_rows)
        or len(set(values)) == len(values) >= _FEWEST_OF_IDENTIFIERS
    ):
        return "a column that identifies the rows"
    plain = name.casefold()
    is_coordinate = plain == "y" and {"x", "X"} & {*columns}
    if labelled and plain in (*LABELS, *MORE_LABELS) and not is_coordinate:
        return "a column named like labels"
    return ""


def _say_columns(names: Sequence[str]) -> str:
    if len(names) < 2:
        return names[0] if names else ""
    return f"{len(names)} columns, {names[0]} to {names[-1]}"


def _match_columns(
    columns: Mapping[str, Cells], wanted: str, file: str, label: str | None
) -> list[str]:
    """Return the columns that names and patterns choose, in the order of the table."""
    if wanted in columns:
        return [wanted]
    parts = [part.strip() for part in wanted.split(",") if part.strip()]
    without = [part[1:] for part in parts if part.startswith("!")]
    within = [part for part in parts if not part.startswith("!")]
    for part in within + without:
        if not any(_matches(name, part) for name in columns):
            found = f"columns {list_names(columns, 20)}"
            if part == label:
                found = "the column of the labels"
            raise InputError(
                expected=f"columns that match {part!r} in {file}",
                found=found,
                fix="correct --features",
            )
    return [
        name
        for name in columns
        if (not within or any(_matches(name, part) for part in within))
        and not any(_matches(name, part) for part in without)
    ]


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _label_error(
    columns: Mapping[str, Cells],
    matches: Sequence[str],
    file: str,
    labels: str | None,
    first: Callable[[str], Sequence[Any]],
) -> InputError:
    """Return the error for a table whose labels are not found, with a column to choose."""
    others = [name for name, cells in columns.items() if cells == "other"]
    names = [name for name in others if not identifies_rows(name, lambda: False)]
    numbers = [n for n, cells in columns.items() if cells == "numbers" and n not in FEATURES]
    # Labels are in the last column or in the first, and most of them occur several times.
    ends = [*numbers[:1], *numbers[-1:]]
    few = [
        name for name in names or ends if 1 < len({*first(name)}) <= max(2, len(first(name)) // 4)
    ]
    likely = matches or few or names or [name for name in ends if first(name)]
    wanted = "'label'" if labels is None else repr(labels)
    found = f"columns {list_names(columns, 20)}"
    if len(matches) > 1:
        found = f"several: {list_names(matches, 20)}"
    return InputError(
        expected=f"the column of labels, {wanted}, in {file}",
        found=found,
        fix=f"choose it, for example {_options(labels=likely[-1])}"
        if likely
        else "save the labels too",
    )


def _options(features: str | None = None, labels: str | None = None) -> str:
    """Return the options that choose features and labels, as on the command line."""
    words = []
    if features is not None:
        words += ["--features", shlex.quote(features)]
    if labels is not None:
        words += ["--labels", shlex.quote(labels)]
    python = ", ".join(f"{word[2:]}=" for word in words[::2])
    return f"{' '.join(words)} (in Python {python})"


def _note(taken: Sequence[str]) -> str:
    labels = f", labels: {taken[1]}" if len(taken) > 1 else ""
    return f"read from the file: features: {taken[0]}{labels}"
