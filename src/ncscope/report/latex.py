"""Histories and reports as tables for a paper."""

from collections.abc import Mapping, Sequence

from ncscope.errors import printable
from ncscope.measurement.records import ClassTable, LayerRecord, Measurement, ModelRecord
from ncscope.report.classes import build_class_view
from ncscope.report.labels import NC_METRICS, find_key, find_label, sort_labels
from ncscope.report.overview import select_ends
from ncscope.report.wording import describe_numbers, find_interval, format_plain, list_sizes

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$",
    # After a line's end or a rule these would begin an argument.
    "[": "{[}", "*": "{*}",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


_MISSING, _UNDEFINED = "--", "undef."
"""Cells of what was not measured, and of what has no value."""


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX sets as it is.

    Args:
        text: Any text.

    Example:
        >>> print(escape_latex("nc2_etf, 95 %"))
        nc2\_etf, 95 \%
    """
    return "".join(_ESCAPES.get(char, char) for char in printable(text))


def format_history_latex(
    measurements: Sequence[Measurement], unit: str, metrics: Sequence[str] | None = None
) -> str:
    r"""Write the first and the last measurement of every run and split as a ``tabular``.

    Rows are the metrics of the last layer, columns the measurements; with chosen metrics rows are
    the measurements. A 95 % interval stands behind a value that has one. The rules are those of the
    package ``booktabs``.

    Args:
        measurements: Measurements of one run or several; at least one.
        unit: Unit of their steps.
        metrics: Keys of the metrics to write; None for all.
    """
    models = select_ends(measurements, unit)
    return format_records({name: model.layers[-1] for name, model in models.items()}, metrics)


def format_model_latex(model: ModelRecord, metrics: Sequence[str] | None = None) -> str:
    r"""Write a measurement as a ``tabular``, a column for each layer; see `format_history_latex`.

    Args:
        model: Measurement of one or more layers.
        metrics: Keys of the metrics to write, with a row for each layer; None for all.
    """
    return format_records({record.layer: record for record in model.layers}, metrics)


def format_classes_latex(table: ClassTable, class_names: Sequence[str] = ()) -> str:
    r"""Write a table of classes as a ``tabular``, the least separated class first.

    Args:
        table: Values of each class.
        class_names: Names of all classes, in the order of the labels; empty if unknown.
    """
    view = build_class_view(table, class_names, most=len(table.classes), write=format_plain)
    keys = [column.key for column in view.columns]
    lines = [
        " & ".join(["class", *(rf"\texttt{{{escape_latex(key)}}}" for key in keys)]) + r" \\",
        r"\midrule",
    ]
    for name, cells in view.rows:
        texts = [
            escape_latex(cell) if key in ("nearest", "samples") else format_number(cell)
            for key, cell in zip(keys, cells, strict=True)
        ]
        lines.append(" & ".join([escape_latex(name), *texts]) + r" \\")
    return frame_tabular(lines, "l" + "r" * len(keys))


def format_records(records: Mapping[str, LayerRecord], metrics: Sequence[str] | None = None) -> str:
    r"""Write metrics as a ``tabular``: a column for each record, or a row if metrics are chosen.

    The numbers of samples, classes and dimensions are the last rows, or a note below; further notes
    say what the signs of the cells mean.

    Args:
        records: Measurements by the names to show.
        metrics: Keys of the metrics to write; None for all.
    """

    def format_cell(record: LayerRecord, key: str) -> str:
        name = find_key(record.metrics, key)
        if name is None:
            return _MISSING
        value, ends = format_number(format_plain(record.metrics[name])), find_interval(record, name)
        if ends is None:
            return value
        low, high = (format_number(format_plain(end, 3)).strip("$") for end in ends)
        return f"{value} $[{low}, {high}]$"

    def format_head(key: str) -> str:
        title = find_label(key).title
        for tag, chosen in NC_METRICS.items():
            if key == chosen and not title.startswith(tag):
                title = f"{tag}: {title[0].lower()}{title[1:]}"
        return escape_latex(title)

    names = [escape_latex(name) for name in records]
    sizes = format_sizes([list_sizes(record) for record in records.values()])
    if metrics is None:
        labels = sort_labels(key for record in records.values() for key in record.metrics)
        of_each = zip(*(list_sizes(record) for record in records.values()), strict=True)
        lines = [["metric", *names]]
        lines += [
            [
                rf"\texttt{{{escape_latex(label.key)}}}",
                *(format_cell(record, label.key) for record in records.values()),
            ]
            for label in labels
        ]
        lines += [
            [f"${name}$", *(f"{number:,}" for number in numbers)]
            for name, numbers in zip("nKd", of_each, strict=True)
            if any(numbers)
        ]
    else:
        lines = [["", *map(format_head, metrics)]]
        lines += [
            [name, *(format_cell(record, key) for key in metrics)]
            for name, record in zip(names, records.values(), strict=True)
        ]
    cells = {cell for line in lines for cell in line}
    legend = {
        sizes: metrics is not None,
        r"$[\;]$: 95 \% interval": any("$[" in cell for cell in cells),
        f"{_MISSING}: not measured": _MISSING in cells,
        f"{_UNDEFINED}: without a value, see the report's notes": _UNDEFINED in cells,
    }
    head, *rows = [" & ".join(line) + r" \\" for line in lines]
    notes = [note for note, applies in legend.items() if applies]
    return frame_tabular([head, r"\midrule", *rows], "l" + "r" * (len(lines[0]) - 1), notes)


def format_sizes(sizes: Sequence[tuple[int, int, int]]) -> str:
    """Write the numbers of samples, classes and dimensions of the rows of a table.

    Args:
        sizes: The three numbers of each measurement.
    """
    phrases = [size.partition(" = ") for size in describe_numbers(sizes)]
    return ", ".join(f"${name}$ = {text}" if text else name for name, _, text in phrases)


def frame_tabular(lines: Sequence[str], columns: str, notes: Sequence[str] = ()) -> str:
    """Put a ``tabular`` around lines.

    Args:
        lines: Lines of the table.
        columns: Letter of each column, ``l`` or ``r``.
        notes: Lines below the table, in small letters.
    """
    of_notes = [
        rf"\multicolumn{{{len(columns)}}}{{l}}{{\footnotesize {note}}} \\" for note in notes
    ]
    body = "\n".join([r"\toprule", *lines, r"\bottomrule", *of_notes])
    return (
        f"% \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}\n"
    )


def format_number(text: str) -> str:
    """Write a number in mathematics, its exponent as a power of ten; other text as it is.

    Args:
        text: Number as text, or another text.
    """
    if text == "undefined":
        return _UNDEFINED
    mantissa, _, exponent = text.partition("e")
    if not mantissa[-1].isdigit():
        return escape_latex(text)
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if exponent else f"${mantissa}$"
