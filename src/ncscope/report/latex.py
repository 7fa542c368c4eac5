"""Histories and reports as tables for a paper."""

from collections.abc import Mapping, Sequence

from ncscope.errors import printable
from ncscope.measurement.records import ClassTable, LayerRecord, Measurement, ModelRecord
from ncscope.report.classes import build_class_view
from ncscope.report.labels import find_key, find_label, sort_labels
from ncscope.report.overview import select_ends
from ncscope.report.wording import find_interval, format_plain

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$",
    # After a line's end or a rule these would begin an argument.
    "[": "{[}", "*": "{*}",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


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

    Args:
        records: Measurements by the names to show.
        metrics: Keys of the metrics to write; None for all.
    """

    def format_cell(record: LayerRecord, key: str) -> str:
        name = find_key(record.metrics, key)
        if name is None:
            return "--"
        value, ends = format_number(format_plain(record.metrics[name])), find_interval(record, name)
        if ends is None:
            return value
        low, high = (format_number(format_plain(end, 3)).strip("$") for end in ends)
        return f"{value} $[{low}, {high}]$"

    if metrics is not None:
        titles = [escape_latex(find_label(key).title) for key in metrics]
        lines = [" & ".join(["", *titles]) + r" \\", r"\midrule"]
        for name, record in records.items():
            cells = [format_cell(record, key) for key in metrics]
            lines.append(" & ".join([escape_latex(name), *cells]) + r" \\")
        return frame_tabular(lines, "l" + "r" * len(metrics))
    labels = sort_labels(key for record in records.values() for key in record.metrics)
    lines = [" & ".join(["metric", *map(escape_latex, records)]) + r" \\", r"\midrule"]
    for label in labels:
        cells = [format_cell(record, label.key) for record in records.values()]
        lines.append(" & ".join([rf"\texttt{{{escape_latex(label.key)}}}", *cells]) + r" \\")
    return frame_tabular(lines, "l" + "r" * len(records))


def frame_tabular(lines: Sequence[str], columns: str) -> str:
    """Put a ``tabular`` around lines.

    Args:
        lines: Lines of the table.
        columns: Letter of each column, ``l`` or ``r``.
    """
    body = "\n".join(lines)
    return (
        "% \\usepackage{booktabs}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


def format_number(text: str) -> str:
    """Write a number in mathematics, its exponent as a power of ten; other text as it is.

    Args:
        text: Number as text, or another text.
    """
    mantissa, _, exponent = text.partition("e")
    if not mantissa[-1].isdigit():
        return escape_latex(mantissa)
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if exponent else f"${mantissa}$"
