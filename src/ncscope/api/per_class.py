"""Table of the classes of a report: a mapping of columns that can print, plot and save itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ncscope.api.tables import MappingTable, csv_text
from ncscope.api.writable import check_file, save_text, write_figure
from ncscope.arguments import check_arguments
from ncscope.measurement.records import ClassTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".csv", ".tex", ".png", ".svg", ".pdf")
"""Suffixes of the files that a table of classes can be saved as."""

_NAME_COLUMNS = {"class": "class_name", "nearest": "nearest_name"}
"""Columns of labels, and the columns of their names."""


@check_arguments
class PerClass(MappingTable[list[float]]):
    r"""Values of each class that has samples: a mapping of a column's name to its values.

    The columns are in the order of the labels. ``rows()``, the table that is printed, the figure
    and the files begin with the class that is least separated from another class, which is the one
    with the largest CDNV with its nearest class.

    * ``class``, ``samples``: label, and number of samples $n_c$.
    * ``within_share``: $\pi_c\operatorname{Tr}\Sigma_c/\operatorname{Tr}\Sigma_W$, the share of
      the class in the numerator of ``nc1_quotient``. The shares add to 1.
    * ``nc1_quotient``: $\operatorname{Tr}\Sigma_c/\operatorname{Tr}\Sigma_B$. The mean of this
      column, weighted by $\pi_c$, is the metric ``nc1_quotient``.
    * ``mean_norm``, ``head_norm``, ``head_cosine``: lengths of the centred class mean
      $\tilde\mu_c$ and of the head's row $w_c$, and the cosine of the two. The centre is the
      unweighted mean of the class means, as in NC2 and NC3.
    * ``nearest``: label of the class with the nearest mean; ``nearest_distance`` its distance over
      the root mean square distance of all pairs of class means, ``nearest_cosine`` the cosine of
      the two centred means, and ``nearest_cdnv`` the CDNV of the two classes.
    * ``ncc_accuracy``, ``accuracy``: share of the class's samples that the nearest class mean, and
      the head, assign to the class.

    Columns that were not measured are absent. An undefined value is NaN, such as the cosine of a
    zero row. If two class means coincide, their CDNV is infinite.

    Attributes:
        class_names: Names of all classes, in the order of the labels; empty if unknown.

    Example:
        >>> import ncscope
        >>> report = ncscope.measure([[0.0], [1.0], [4.0], [6.0]], [0, 0, 1, 1])
        >>> report.per_class["within_share"], report.per_class["nearest"]
        ([0.2, 0.8], [1, 0])
    """

    def __init__(self, table: ClassTable, class_names: Sequence[str] = ()) -> None:
        self.table, self.class_names = table, tuple(class_names)
        columns = {name: values for name, values in vars(table).items() if values is not None}
        self._content = {"class": columns.pop("classes"), **columns}

    def _explain_absence(self, key: str) -> str:
        return f"{key!r}; the columns are {', '.join(self)}"

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each class, the least separated first, with the names if known."""
        rows = []
        for index in self.table.worst_first():
            row: dict[str, object] = {}
            for column, values in self.items():
                row[column] = values[index]
                if self.class_names and column in _NAME_COLUMNS:
                    label = int(values[index])
                    is_named = label < len(self.class_names)
                    row[_NAME_COLUMNS[column]] = self.class_names[label] if is_named else ""
            rows.append(row)
        return rows

    def __repr__(self) -> str:
        from ncscope.report.classes import build_class_view, format_aligned_table
        from ncscope.report.wording import format_plain

        view = build_class_view(self.table, self.class_names, write=format_plain)
        return f"{type(self).__name__}: {format_aligned_table(view)}"

    def _repr_html_(self) -> str:
        from ncscope.report.notebook import render_classes_fragment

        return render_classes_fragment(self.table, self.class_names)

    def plot(self) -> "Figure":
        """Draw overlap, variability and accuracy of the classes as a matplotlib figure."""
        from ncscope.report.figures import plot_classes

        return plot_classes(self.table, self.class_names)

    def save(self, path: str | Path) -> Path:
        """Write all classes as .csv or .tex, or the figure as .png, .svg or .pdf.

        Args:
            path: File to write; one that is there is replaced whole or not at all.

        Returns:
            Path of the file.

        Raises:
            InputError: If the suffix is none of these, or the folder cannot be written.
        """
        path = check_file(path, SUFFIXES)
        if path.suffix == ".csv":
            return save_text(path, csv_text(self.rows()))
        if path.suffix == ".tex":
            from ncscope.report.latex import format_classes_latex

            return save_text(path, format_classes_latex(self.table, self.class_names))
        return write_figure(path, self.plot())
