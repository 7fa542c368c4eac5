"""Histories and reports as tables for a paper."""

from collections.abc import Mapping, Sequence

from ncscope.errors import printable
from ncscope.measurement.records import ClassTable, LayerRecord, ModelRecord
from ncscope.metrics.registry import METRICS
from ncscope.report.classes import build_class_view
from ncscope.report.comparison import ComparisonSource, build_columns
from ncscope.report.labels import SHORT_NAMES, find_key, find_label, is_fixed, sort_labels
from ncscope.report.wording import (
    count_interval_digits,
    describe_numbers,
    find_interval,
    format_plain,
    format_step,
    list_sizes,
)

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$",
    # After a line's end or a rule these would begin an argument.
    "[": "{[}", "*": "{*}",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


_MISSING, _UNDEFINED = "--", "undef."
"""Cells of what was not measured, and of what has no value."""

_NOTE_WIDTH = 60
"""Letters of a note, which would widen the table if it were longer."""


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX sets as it is.

    Example:
        >>> print(escape_latex("nc2_etf, 95 %"))
        nc2\_etf, 95 \%
    """
    return "".join(_ESCAPES.get(char, char) for char in printable(text))


def format_sources_latex(
    sources: Sequence[ComparisonSource], metrics: Sequence[str] | None = None
) -> str:
    r"""Write every report, and every run and split of histories at its last step, as a ``tabular``.

    Rows are the metrics of the last layer, columns the measurements; with chosen metrics rows are
    the measurements. A 95 % interval stands behind a value that has one. The rules are those of the
    package ``booktabs``. The step is the last that all runs and splits have measured.

    Args:
        sources: Reports and histories; at least one.
        metrics: Keys of the metrics to write; None for all.
    """
    columns, apart, sentence = build_columns(sources)
    units = list(dict.fromkeys(source.unit for source in sources if source.unit))
    records: dict[tuple[str, ...], LayerRecord] = {}
    for column in columns:
        step = column.place[-1]
        alone = "" if step is None else format_step(step)
        name = (column.run, column.split, column.step if len(units) > 1 else alone)
        records[name] = column.last
    places = ("run", "split", "step" if len(units) != 1 else units[0])
    return _format_records(records, places, metrics, " ".join([*apart, sentence]).strip())


def format_model_latex(model: ModelRecord, metrics: Sequence[str] | None = None) -> str:
    r"""Write a measurement as a ``tabular``, a column for each layer; see `format_sources_latex`.

    Args:
        model: Measurement of one or more layers.
        metrics: Keys of the metrics to write, with a row for each layer; None for all.
    """
    return _format_records({(record.layer,): record for record in model.layers}, ["layer"], metrics)


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


def _format_records(
    records: Mapping[tuple[str, ...], LayerRecord],
    places: Sequence[str],
    metrics: Sequence[str] | None,
    sentence: str = "",
) -> str:
    r"""Write metrics as a ``tabular``: a column for each record, or a row if metrics are chosen.

    The numbers of samples, classes and dimensions are the last rows, or a note below; further notes
    say what short names and the signs of the cells mean.

    Args:
        records: Measurements by the parts of their names, such as run and split.
        places: Heads of these parts; one that no name has is left out.
        metrics: Keys of the metrics to write; None for all.
        sentence: Sentence below the table.
    """

    def format_cell(record: LayerRecord, key: str) -> str:
        name = find_key(record.metrics, key)
        if name is None:
            return _MISSING
        value, ends = format_number(format_plain(record.metrics[name])), find_interval(record, name)
        if ends is None:
            return value
        digits = count_interval_digits(ends)
        low, high = (format_number(format_plain(end, digits)).strip("$") for end in ends)
        return f"{value} $[{low}, {high}]$"

    def format_head(key: str) -> str:
        short = SHORT_NAMES.get(key) if metrics is not None else None
        return short or rf"\texttt{{{escape_latex(key)}}}"

    measured = [
        label.key for label in sort_labels(key for r in records.values() for key in r.metrics)
    ]
    keys = measured if metrics is None else metrics
    used = [place for place, _ in enumerate(places) if any(name[place] for name in records)]
    lines = [[*(escape_latex(places[place]) for place in used), *map(format_head, keys)]]
    lines += [
        [
            *(escape_latex(name[place]) for place in used),
            *(format_cell(record, key) for key in keys),
        ]
        for name, record in records.items()
    ]
    cells = {cell for line in lines for cell in line}
    notes = []
    if metrics is None:
        for name, *numbers in zip("nKd", *map(list_sizes, records.values()), strict=True):
            if any(numbers):
                lines[0].append(f"${name}$")
                for line, number in zip(lines[1:], numbers, strict=True):
                    line.append(f"{number:,}")
        lines = list(map(list, zip(*lines, strict=True)))
        columns = "l" + "r" * len(records)
    else:
        columns = "l" * len(used) + "r" * len(keys)
        labels = [(format_head(key), METRICS.get(find_label(key).key)) for key in keys]
        meanings = [
            (head, row.title.removeprefix(f"{head}: ")) for head, row in labels if row is not None
        ]
        notes += _fill_notes([f"{head}: {escape_latex(title)}" for head, title in meanings])
        notes.append(format_sizes([list_sizes(record) for record in records.values()]))
    fixed = [key for key in keys if any(is_fixed(key, each.k) for each in records.values())]
    if fixed and metrics is not None:
        notes.append(f"two classes fix {', '.join(map(format_head, fixed))}: no sign of collapse")
    legend = {
        "two classes fix some values, see the report's notes": bool(fixed) and metrics is None,
        r"$[\;]$: 95 \% interval, bias corrected": any("$[" in cell for cell in cells),
        f"{_MISSING}: not measured": _MISSING in cells,
        f"{_UNDEFINED}: without a value, see the report's notes": _UNDEFINED in cells,
        escape_latex(sentence): bool(sentence),
    }
    notes += [note for note, applies in legend.items() if applies]
    head = 1 if metrics is not None else len(used)
    rows = [" & ".join(line) + r" \\" for line in lines]
    return frame_tabular([*rows[:head], r"\midrule", *rows[head:]], columns, notes)


def _fill_notes(definitions: Sequence[str]) -> list[str]:
    """Put definitions beside each other in lines that widen no table."""
    lines: list[str] = []
    for definition in definitions:
        if lines and len(lines[-1]) + len(definition) < _NOTE_WIDTH:
            lines[-1] += f"; {definition}"
        else:
            lines.append(definition)
    return lines


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
