"""A history as a table for a paper."""

from collections.abc import Sequence

from ncscope.errors import printable
from ncscope.probing.records import Measurement
from ncscope.report.labels import distinct_labels, value_of
from ncscope.report.numbers import plain
from ncscope.report.timeline import by_run, by_split, moment

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$",
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
    last = {
        ", ".join(filter(None, (run, split, moment(own[-1], unit)))): own[-1].probe.layers[-1]
        for run, measured in by_run(measurements).items()
        for split, own in by_split(measured).items()
    }
    labels = distinct_labels(key for record in last.values() for key in record.metrics)
    lines = [" & ".join(["metric", *map(escaped, last)]) + r" \\", r"\midrule"]
    for label in labels:
        values = [value_of(record.metrics, label.key) for record in last.values()]
        cells = ["" if value is None else _number(value) for value in values]
        lines.append(" & ".join([rf"\texttt{{{escaped(label.key)}}}", *cells]) + r" \\")
    body = "\n".join(lines)
    columns = "l" + "r" * len(last)
    return (
        "% \\usepackage{booktabs}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


def _number(value: float) -> str:
    mantissa, _, exponent = plain(value).partition("e")
    if not mantissa[-1].isdigit():
        return escaped(mantissa)
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if exponent else f"${mantissa}$"
