"""Tables and charts of the classes of a layer, the least separated classes first."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncscope.errors import printable
from ncscope.measurement.records import ClassTable, LayerRecord, ModelRecord
from ncscope.report.wording import join_words, round_for_json, typeset

MOST_LISTED = 50
"""At most so many classes stand in a table for readers; files hold all."""

MOST_CHARTED = 30
"""At most so many classes stand in a chart."""

_MOST_NAMED = 4
"""At most so many classes or pairs that tie are named in a sentence."""

UNDEFINED = "–"
"""Text of an undefined value, such as the cosine of a zero row."""


@dataclass(frozen=True)
class Column:
    """Column of the table of classes.

    Attributes:
        key: Name in records and files.
        title: Heading for readers.
        short: Heading in a terminal; a line break is allowed.
        formula: Definition in LaTeX; empty for a plain count.
        meaning: One sentence on the values.
    """

    key: str
    title: str
    short: str
    formula: str
    meaning: str


COLUMNS = (
    Column("samples", "Samples", "samples", "n_c", "Number of samples of the class."),
    Column(
        "accuracy",
        "Accuracy, head",
        "head\nacc.",
        r"\operatorname{share}\{\arg\max_j\langle w_j,h\rangle+b_j=c\mid y=c\}",
        "Share of the class's samples that the head assigns to the class.",
    ),
    Column(
        "ncc_accuracy",
        "Accuracy, nearest mean",
        "NCC\nacc.",
        r"\operatorname{share}\{\arg\min_j\lVert h-\mu_j\rVert=c\mid y=c\}",
        "Share of the class's samples that are nearest to the mean of the class.",
    ),
    Column(
        "nearest",
        "Nearest class",
        "nearest",
        r"c'=\arg\min_{j\ne c}\lVert\mu_c-\mu_j\rVert",
        "Class whose mean is nearest.",
    ),
    Column(
        "nearest_cdnv",
        "CDNV with nearest",
        "CDNV",
        r"\frac{\operatorname{Tr}\Sigma_c+\operatorname{Tr}\Sigma_{c'}}"
        r"{2\lVert\mu_c-\mu_{c'}\rVert^2}",
        "Variance of the two classes over their squared distance: how much they overlap; 0 at "
        "collapse.",
    ),
    Column(
        "nearest_distance",
        "Distance to nearest",
        "distance",
        r"\frac{\lVert\mu_c-\mu_{c'}\rVert}{\sqrt{\frac2{K-1}\sum_j\lVert\tilde\mu_j\rVert^2}}",
        "Distance of the two class means, over the root mean square distance of all pairs; 1 at "
        "collapse.",
    ),
    Column(
        "nearest_cosine",
        "Cosine with nearest",
        "cosine",
        r"\frac{\langle\tilde\mu_c,\tilde\mu_{c'}\rangle}"
        r"{\lVert\tilde\mu_c\rVert\,\lVert\tilde\mu_{c'}\rVert}",
        "Cosine of the two centred class means; -1/(K - 1) at collapse.",
    ),
    Column(
        "nc1_quotient",
        "NC1 of the class",
        "NC1",
        r"\frac{\operatorname{Tr}\Sigma_c}{\operatorname{Tr}\Sigma_B}",
        "Variance of the class over the variance between classes; 0 at collapse.",
    ),
    Column(
        "within_share",
        "Share of variance",
        "share",
        r"\frac{\pi_c\,\operatorname{Tr}\Sigma_c}{\operatorname{Tr}\Sigma_W}",
        "Share of the within-class variance that is the class's; the shares add to 1.",
    ),
    Column(
        "mean_norm",
        "Length of class mean",
        "mean",
        r"\lVert\tilde\mu_c\rVert",
        "Distance of the class mean from the mean of all class means; the same for all at "
        "collapse.",
    ),
    Column(
        "head_norm",
        "Length of head row",
        "head",
        r"\lVert w_c\rVert",
        "Length of the class's row of the head; the same for all at collapse.",
    ),
    Column(
        "head_cosine",
        "Cosine of mean and head row",
        "cos\nhead",
        r"\frac{\langle\tilde\mu_c,w_c\rangle}{\lVert\tilde\mu_c\rVert\,\lVert w_c\rVert}",
        "Agreement of the class mean with the head; 1 at collapse.",
    ),
)


@dataclass(frozen=True)
class ClassView:
    """Table of classes as text.

    Attributes:
        caption: Measurement that it belongs to; empty if there is one only.
        columns: Columns that were measured.
        rows: Name of the class and its cells, the least separated class first.
        classes: Number of classes with samples, shown or not.
        reading: Sentences on the classes that stand out.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Sequence[str]]]
    classes: int
    reading: Sequence[str]

    @property
    def omission(self) -> str:
        """Sentence on the classes that are not shown; empty if all are."""
        if len(self.rows) == self.classes:
            return ""
        return (
            f"The {len(self.rows)} least separated of {self.classes:,} classes. "
            "report.per_class.save('classes.csv') writes all."
        )


def name_class(label: int, class_names: Sequence[str]) -> str:
    """Return the name of a class, or its label if the names are unknown."""
    return printable(class_names[label]) if label < len(class_names) else str(label)


def build_class_view(
    table: ClassTable,
    class_names: Sequence[str] = (),
    caption: str = "",
    *,
    most: int = MOST_LISTED,
    write: Callable[[float, int], str] = typeset,
) -> ClassView:
    """Write a table of classes as text.

    Args:
        table: Values of each class.
        class_names: Names of all classes, in the order of the labels; empty if unknown.
        caption: Measurement that the table belongs to.
        most: Largest number of rows.
        write: Function that writes a number with some significant digits.
    """
    columns = [column for column in COLUMNS if getattr(table, column.key) is not None]

    def format_cell(key: str, index: int) -> str:
        value = getattr(table, key)[index]
        if key == "nearest":
            return name_class(value, class_names)
        if key == "samples":
            return f"{value:,}"
        return UNDEFINED if math.isnan(value) else write(value, 3)

    rows = [
        (
            name_class(table.classes[index], class_names),
            [format_cell(column.key, index) for column in columns],
        )
        for index in table.worst_first()[:most]
    ]
    sentences = describe_classes(table, class_names)
    return ClassView(caption, columns, rows, len(table.classes), sentences)


def describe_classes(table: ClassTable, class_names: Sequence[str] = ()) -> list[str]:
    """Name the classes that stand out: by overlap, by variance and by accuracy.

    Args:
        table: Values of each class.
        class_names: Names of all classes.
    """

    def name(label: int) -> str:
        return name_class(label, class_names) if class_names else f"class {label}"

    def name_all(indices: Sequence[int]) -> str:
        if len(indices) > _MOST_NAMED:
            return f"{len(indices)} of {len(table.classes)} classes alike"
        return join_words([name(table.classes[index]) for index in indices])

    overlaps = [math.inf if math.isnan(value) else value for value in table.nearest_cdnv]
    worst = _find_extremes(overlaps, max)
    # Two classes that are each other's nearest are one pair.
    pairs = {tuple(sorted((table.classes[index], table.nearest[index]))): index for index in worst}
    first, apart = worst[0], table.nearest_distance[worst[0]]
    names = "; ".join(f"{name(one)} and {name(other)}" for one, other in pairs)
    if len(pairs) > _MOST_NAMED:
        names = f"{len(pairs)} pairs alike"
    how = "whose class means coincide"
    if apart > 0:
        how = f"with a CDNV of {typeset(table.nearest_cdnv[first], 3)}"
        if len(pairs) == 1:
            how += f", at {typeset(apart, 3)} times the typical distance of two class means"
    sentences = [f"Least separated pair{'s' * (len(pairs) > 1)} of classes: {names}, {how}."]
    if any(map(math.isfinite, table.within_share)):
        most = _find_extremes(table.within_share, max)
        share = _format_percent(table.within_share[most[0]])
        has = f"has {share} of it" if len(most) == 1 else f"have {share} of it each"
        if len(most) == 1:
            size = _format_percent(table.samples[most[0]] / sum(table.samples))
            has += f" with {size} of the samples"
        sentences.append(f"Largest share of the within-class variance: {name_all(most)} {has}.")
    for column, rule in ((table.accuracy, "the head"), (table.ncc_accuracy, "the nearest mean")):
        if column is not None:
            least = _find_extremes(column, min)
            if column[least[0]] < 1:
                share = _format_percent(column[least[0]])
                sentences.append(f"Lowest accuracy by {rule}: {name_all(least)}, {share}.")
    return sentences


def _find_extremes(
    values: Sequence[float], choose: Callable[[Iterable[float]], float]
) -> list[int]:
    """Return the places of the greatest or the least value, but for NaN.

    They are several if values read alike in the table: the rest is rounding.
    """
    extreme = typeset(choose(value for value in values if not math.isnan(value)), 3)
    return [place for place, value in enumerate(values) if typeset(value, 3) == extreme]


def _format_percent(share: float) -> str:
    return f"{typeset(100 * share, 3)} %"


def build_class_views(
    models: Mapping[str, ModelRecord], class_names: Sequence[str] = ()
) -> list[ClassView]:
    """Write the tables of classes of some measurements, of the last layer that has one.

    Args:
        models: Measurements by caption.
        class_names: Names of all classes.
    """
    views = []
    for caption, model in models.items():
        layers = [record for record in model.layers if record.per_class is not None]
        if not layers:
            continue
        last = layers[-1]
        parts = [caption, "" if last is model.last else last.layer]
        assert last.per_class is not None
        views.append(build_class_view(last.per_class, class_names, ", ".join(filter(None, parts))))
    return views


def build_class_frame(
    record: LayerRecord, class_names: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return what the script draws of the classes of a layer; None without a table."""
    table = record.per_class
    if table is None:
        return None
    order = table.worst_first()[:MOST_CHARTED]

    def select(column: Sequence[float] | None) -> list[float | None] | None:
        return None if column is None else [round_for_json(column[index]) for index in order]

    sentences = describe_classes(table, class_names)
    if len(order) < len(table.classes):
        sentences.append(
            f"Drawn: the {len(order)} least separated of {len(table.classes):,} classes."
        )
    return {
        "names": [name_class(table.classes[index], class_names) for index in order],
        "nearest": [name_class(table.nearest[index], class_names) for index in order],
        "overlap": select(table.nearest_cdnv),
        "coincide": [row for row, i in enumerate(order) if table.nearest_cdnv[i] == math.inf],
        "spread": select(table.nc1_quotient),
        "ncc": select(table.ncc_accuracy),
        "accuracy": select(table.accuracy),
        "reading": sentences,
    }


def format_aligned_table(view: ClassView) -> str:
    """Write a table of classes for a terminal, in aligned columns."""
    heads = [["", *(part for part in column.short.split("\n"))][-2:] for column in view.columns]
    lines = [["", *(head[0] for head in heads)], ["class", *(head[1] for head in heads)]]
    lines += [[name, *cells] for name, cells in view.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = [
        "  ".join(
            [line[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        ).rstrip()
        for line in lines
    ]
    head = f"{view.classes:,} classes, the least separated first"
    return "\n".join([head, *body, *([view.omission] if view.omission else [])])


def collect_columns(views: Iterable[ClassView]) -> list[Column]:
    """Return the columns that any of the tables has, in their order."""
    present = {column.key for view in views for column in view.columns}
    return [column for column in COLUMNS if column.key in present]
