"""Histories and reports as tables for a paper."""

from collections.abc import Mapping, Sequence

from ncscope.errors import printable
from ncscope.measurement.records import ClassTable, LayerRecord, Measurement, ProbeRecord
from ncscope.report.classes import class_view
from ncscope.report.labels import distinct_labels, value_of
from ncscope.report.numbers import plain
from ncscope.report.overview import last_probes

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$",
    # After a line's end or a rule these would begin an argument.
    "[": "{[}", "*": "{*}",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def escaped(text: str) -> str:
    r"""Return text that LaTeX sets as it is.

    Args:
        text: Any text.

    Example:
        >>> print(escaped("nc2_etf, 95 %"))
        nc2\_etf, 95 \%
    """
    return "".join(_ESCAPES.get(char, char) for char in printable(text))


def history_latex(measurements: Sequence[Measurement], unit: str) -> str:
    r"""Write the last measurement of every run and split as a ``tabular``.

    Rows are the metrics of the last layer, columns the runs and splits. The rules are those of the
    package ``booktabs``.

    Args:
        measurements: Measurements of one run or several; at least one.
        unit: Unit of their steps.
    """
    probes = last_probes(measurements, unit)
    return _tabular({caption: probe.layers[-1] for caption, probe in probes.items()})


def probe_latex(probe: ProbeRecord) -> str:
    r"""Write a measurement as a ``tabular``, like `history_latex`, with a column for each layer.

    Args:
        probe: Measurement of one or more layers.
    """
    return _tabular({record.layer: record for record in probe.layers})


def classes_latex(table: ClassTable, class_names: Sequence[str] = ()) -> str:
    r"""Write a table of classes as a ``tabular``, the least separated class first.

    Args:
        table: Values of each class.
        class_names: Names of all classes, in the order of the labels; empty if unknown.
    """
    view = class_view(table, class_names, shown=len(table.classes), write=plain)
    keys = [column.key for column in view.columns]
    lines = [
        " & ".join(["class", *(rf"\texttt{{{escaped(key)}}}" for key in keys)]) + r" \\",
        r"\midrule",
    ]
    for name, cells in view.rows:
        texts = [
            escaped(cell) if key in ("nearest", "samples") else _as_number(cell)
            for key, cell in zip(keys, cells, strict=True)
        ]
        lines.append(" & ".join([escaped(name), *texts]) + r" \\")
    return _framed(lines, len(keys))


def _tabular(columns: Mapping[str, LayerRecord]) -> str:
    labels = distinct_labels(key for record in columns.values() for key in record.metrics)
    lines = [" & ".join(["metric", *map(escaped, columns)]) + r" \\", r"\midrule"]
    for label in labels:
        values = [value_of(record.metrics, label.key) for record in columns.values()]
        cells = ["" if value is None else _number(value) for value in values]
        lines.append(" & ".join([rf"\texttt{{{escaped(label.key)}}}", *cells]) + r" \\")
    return _framed(lines, len(columns))


def _framed(lines: Sequence[str], columns: int) -> str:
    """Put a ``tabular`` around lines with a column of names and some of numbers."""
    body, places = "\n".join(lines), "l" + "r" * columns
    return (
        "% \\usepackage{booktabs}\n"
        f"\\begin{{tabular}}{{{places}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


def _number(value: float) -> str:
    return _as_number(plain(value))


def _as_number(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    if not mantissa[-1].isdigit():
        return escaped(mantissa)
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if exponent else f"${mantissa}$"
