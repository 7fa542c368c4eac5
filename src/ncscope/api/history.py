"""A history: the measurements of a run, or of several, that plots and saves itself."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, SupportsFloat, SupportsInt

import numpy as np
from numpy.typing import NDArray

from ncscope.api.alerts import AlertChoice, Alerts
from ncscope.api.per_class import PerClass
from ncscope.api.result import Report, check_metrics, choose_columns, draw_panels
from ncscope.api.tables import Table, csv_text, parse_content
from ncscope.api.writable import REPORTS, check_file, save_text, write_figure
from ncscope.arguments import Within, check_arguments
from ncscope.errors import InputError
from ncscope.files import explain_write_errors, is_folder, read_file
from ncscope.measurement.history_file import format_history, parse_history
from ncscope.measurement.naming import LogChoice, flatten_for_log
from ncscope.measurement.provenance import Provenance, record_provenance
from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.stats.processes import Processes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@check_arguments
class History(Table):
    """Measurements over training, or over a parameter, in order.

    A loop of your own adds a report at each step; the Lightning and Hugging Face callbacks fill
    one by themselves. Saved as ``.html`` it is the page with metrics over training, layers, class
    means and spectra; as ``.csv`` a table; as ``.json`` everything, which `load` reads again.

    Args:
        unit: Unit of the steps: ``"epoch"``, ``"iteration"``, or the name of a parameter.
        model: Name of the model.
        weights: Path of the weights file; its base name is kept.
        data: Name of the data set, or path of the data file; the base name is kept.
        class_names: Names of the classes, in the order of the labels; by default those of the
            first report that has some.
        seed: Seed of the run.
        alert: Condition, or several, that each measurement is checked against, for example
            ``["nc1 rises", "rankme < 10"]``: the last layer's metric rises or falls against the
            measurement before of the same run and split, by more than the two intervals where
            there are standard errors; or it is above or below a number. A condition that is met
            gives an `AlertWarning`. A dictionary from condition to function calls the function
            with the `Measurement` instead.

    Attributes:
        measurements: Measurements in the order in which they were added.
        unit: Unit of the steps.
        provenance: Model, weights, data, seed, versions and date.

    Example:
        >>> import torch, ncscope
        >>> history = ncscope.History(data="two blobs")
        >>> for epoch in range(3):
        ...     noise = torch.randn(40, 8) / (1 + epoch)
        ...     features = noise + 4 * torch.eye(8)[torch.arange(40) % 2]
        ...     history.add(ncscope.measure(features, torch.arange(40) % 2), step=epoch)
        >>> history.steps.tolist()
        [0.0, 1.0, 2.0]
        >>> bool(history["nc1_quotient"][-1] < history["nc1_quotient"][0])
        True
    """

    def __init__(
        self,
        *,
        unit: str = "epoch",
        model: str = "",
        weights: str | Path = "",
        data: str = "",
        class_names: Iterable[str | int] = (),
        seed: SupportsInt | None = None,
        alert: AlertChoice | None = None,
    ) -> None:
        self.unit = unit
        self._alerts = Alerts(alert)
        names = [class_names] if isinstance(class_names, str) else class_names
        self.provenance: Provenance = record_provenance(
            model=model,
            weights=str(weights),
            data=data,
            class_names=tuple(str(name) for name in names),
            seed=None if seed is None else int(seed),
        )
        self._measurements: dict[tuple[str, str, float], Measurement] = {}

    @property
    def measurements(self) -> list[Measurement]:
        """Measurements in the order in which they were added."""
        return list(self._measurements.values())

    def add(
        self,
        report: Report,
        *,
        step: Annotated[SupportsFloat, Within(open=True)],
        split: str = "train",
        run: str = "",
        values: Mapping[str, SupportsFloat] = {},
    ) -> None:
        """Add a report; one of the same run, split and step replaces the earlier one.

        Args:
            report: Result of `measure`, `measure_model` or `watch`.
            step: Epochs or iterations completed, 0 for the model before training; or the value of
                the parameter.
            split: Name of the samples that were measured.
            run: Name of the run, where the history holds several.
            values: Further numbers of the step, for example ``{"loss": 0.3}``.

        Raises:
            InputError: If the report is something else, the step is not a finite number, a further
                number is none, or its name is that of a metric or a column.
        """
        metrics = {key for record in report.model_record.layers for key in record.metrics}
        for key in values:
            if key in metrics or key in _COLUMNS:
                fix = "give the number another name"
                expected = "names of further numbers that no metric or column has"
                raise InputError(expected=expected, found=repr(key), fix=fix)
        number = float(step)
        # A whole step is kept as an integer: 3.0 would be written to files as another text than 3.
        number = int(number) if number.is_integer() else number
        if not self.provenance.class_names:
            self.provenance = replace(self.provenance, class_names=report.class_names)
        further = {key: float(value) for key, value in values.items()}
        self.append(Measurement(report.model_record, number, split, run, further))

    def append(self, measurement: Measurement) -> None:
        """Add a plain record; one of the same run, split and step replaces the earlier one.

        Args:
            measurement: Record of a measurement with its step, split and run.
        """
        self._measurements[measurement.key] = measurement
        if len(self._alerts):
            first = Processes().index == 0
            self._alerts.check(measurement, self.before(measurement), warn=first)

    def before(self, measurement: Measurement) -> Measurement | None:
        """Return the measurement before one of the history, of the same run and split, if any.

        Args:
            measurement: Measurement of the history.
        """
        others = iter(reversed(self._measurements.values()))
        for each in others:
            if each.key == measurement.key:
                break
        return next((each for each in others if each.key[:2] == measurement.key[:2]), None)

    def __len__(self) -> int:
        return len(self._measurements)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self._measurements.values())

    def __getitem__(self, key: str) -> NDArray[np.float64]:
        """Return one metric of the last layer at every measurement, NaN where it is missing.

        The array is in the order of `steps` and `splits`. ``history.split("test")["nc1"]`` is one
        split alone, ``history.layer("layer4")["nc1"]`` another layer.

        Raises:
            KeyError: If no measurement has the metric.
        """
        if key not in self.keys():
            message = f"no measurement has {key!r}, but {', '.join(self.keys()) or 'nothing'}"
            raise KeyError(message)
        values = [each.last_values.get(key, math.nan) for each in self]
        return np.array(values, dtype=np.float64)

    def keys(self) -> list[str]:
        """Return the names of the last layer's metrics and of the further numbers."""
        return list(dict.fromkeys(key for each in self for key in each.last_values))

    @property
    def steps(self) -> NDArray[np.float64]:
        """Step of every measurement."""
        return np.array([each.step for each in self], dtype=np.float64)

    @property
    def splits(self) -> list[str]:
        """Split of every measurement."""
        return [each.split for each in self]

    @property
    def layers(self) -> list[str]:
        """Names of all layers, in forward order of first appearance."""
        return list(
            dict.fromkeys(record.layer for each in self for record in each.model_record.layers)
        )

    def split(self, name: str) -> "History":
        """Return the measurements of one split.

        Raises:
            InputError: If there are none.
        """
        return self._select("split", name, [each for each in self if each.split == name])

    def run(self, name: str) -> "History":
        """Return the measurements of one run.

        Raises:
            InputError: If there are none.
        """
        return self._select("run", name, [each for each in self if each.run == name])

    def layer(self, name: str) -> "History":
        """Return the measurements of one layer.

        Raises:
            InputError: If there are none.
        """
        measurements = []
        for each in self:
            records = tuple(record for record in each.model_record.layers if record.layer == name)
            if records:
                model_record = ModelRecord(records)
                one_layer = Measurement(model_record, each.step, each.split, each.run, each.values)
                measurements.append(one_layer)
        return self._select("layer", name, measurements)

    def _select(self, kind: str, name: str, measurements: list[Measurement]) -> "History":
        """Return a history of some measurements; refuse a name that selects none."""
        if not measurements:
            choices = {
                "split": list(dict.fromkeys(self.splits)),
                "run": list(dict.fromkeys(each.run for each in self)),
                "layer": self.layers,
            }[kind]
            raise InputError(
                expected=f"a {kind} of the history",
                found=repr(name),
                fix=f"choose from {', '.join(map(repr, choices)) or 'none: it is empty'}",
            )
        return self._from_measurements(measurements, self.unit, self.provenance)

    @classmethod
    def _from_measurements(
        cls, measurements: Iterable[Measurement], unit: str, provenance: Provenance
    ) -> "History":
        history = cls(unit=unit)
        history.provenance = provenance
        for each in measurements:
            history.append(each)
        return history

    def per_class(self, step: float | None = None) -> PerClass | None:
        """Return the table of classes of the last layer; None if there is none.

        Args:
            step: Step of the measurement, of which the last is taken; by default the last
                measurement that has a table.
        """
        tables = [
            table
            for each in self
            if step in (None, each.step)
            if (table := each.model_record.last.per_class) is not None
        ]
        return PerClass(tables[-1], self.provenance.class_names) if tables else None

    def rows(self) -> list[dict[str, object]]:
        """Return a flat row a layer and measurement: run, split, step, layer, then every number."""
        return [
            dict(zip(_COLUMNS, (each.run, each.split, each.step, record.layer), strict=True))
            | dict(each.values)
            | dict(record.metrics)
            for each in self
            for record in each.model_record.layers
        ]

    def logs(
        self, *, prefix: str = "nc", log: LogChoice = "all"
    ) -> list[tuple[float, dict[str, float]]]:
        """Return the step of every measurement, and its numbers by the names in a flat log.

        The callbacks for Lightning and Hugging Face log under the same names, such as
        ``val/nc/nc1`` and ``val/nc/layer4/pfc1``. Further numbers are named ``val/loss``.

        Args:
            prefix: Namespace of the metrics; empty for none.
            log: ``"headline"`` for a few metrics, ``"all"`` for all.

        Example:
            >>> import torch, ncscope
            >>> history = ncscope.History()
            >>> report = ncscope.measure(torch.randn(40, 8), torch.arange(40) % 2)
            >>> history.add(report, step=1, split="val", values={"loss": 0.5})
            >>> list(history.logs(log="headline")[0][1])
            ['val/loss', 'val/nc/nc1', 'val/nc/cdnv', 'val/nc/vci', 'val/nc/nc2_etf']
        """
        return [
            (
                each.step,
                {f"{each.split}/{key}": value for key, value in each.values.items()}
                | flatten_for_log(
                    each.model_record,
                    f"{each.split}/{prefix}/" if prefix else f"{each.split}/",
                    log,
                ),
            )
            for each in self
        ]

    def to_tensorboard(
        self, folder: str | Path, *, prefix: str = "nc", log: LogChoice = "all"
    ) -> Path:
        """Write the history as a log that TensorBoard shows, with the names of `logs`.

        Numbers that are not finite are left out.

        Args:
            folder: Folder of the log, which is made if needed. Each named run has a folder inside.
            prefix: Namespace of the metrics, as in `logs`.
            log: ``"headline"`` for a few metrics, ``"all"`` for all.

        Returns:
            The folder.

        Raises:
            InputError: If TensorBoard is not installed, the history is empty, a step is no whole
                number, or the folder cannot be written.
        """
        self._check_not_empty()
        if find_spec("tensorboard") is None:
            fix = "pip install tensorboard, or save the history as .html"
            found = "that it is not installed"
            raise InputError(expected="the library tensorboard", found=found, fix=fix)
        for step in self.steps:
            if not float(step).is_integer():
                fix = "count iterations; TensorBoard has no other steps"
                raise InputError(expected="whole steps", found=f"step {step:g}", fix=fix)
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(folder)
        for run in dict.fromkeys(each.run for each in self):
            # A run may be named ../x, which would lead out of the folder.
            part = folder / re.sub(r"[^\w.=-]+", "-", run).strip(".") if run else folder
            with explain_write_errors(part, fix="choose another folder"):
                part.mkdir(parents=True, exist_ok=True)
                with SummaryWriter(str(part)) as writer:
                    for step, numbers in self.run(run).logs(prefix=prefix, log=log):
                        for name, value in numbers.items():
                            if math.isfinite(value):
                                writer.add_scalar(name, value, int(step))
        return folder

    def plot(self, metrics: str | Sequence[str] | None = None, *, axes: Any = None) -> "Figure":
        """Draw the history as a matplotlib figure.

        Args:
            metrics: ``"nc"`` draws NC1 to NC4 of the last layer, a panel each, with a line for
                every run and split, as wide as a column of a paper; a list of keys does so for
                these metrics. One key draws it for every layer too. By default, of several runs
                as ``"nc"``; of one run its main metrics, layers and class means.
            axes: Axes of your own figure, one for each panel of ``"nc"`` or of a list. Make the
                figure with ``layout="constrained"``: its layout stays as it is, and without one
                labels lie over the panels beside them.

        Returns:
            The figure; in files that ``savefig`` writes as PDF, fonts are of type 42.

        Raises:
            InputError: If the history is empty, no layer has a metric, or the axes are not as many
                as the panels.
        """
        from ncscope.report.figures import plot_metric, plot_run

        self._check_not_empty()
        if metrics is None and axes is None and len({each.run for each in self}) == 1:
            return plot_run(self.measurements, self.unit)
        known = self._keys()
        if isinstance(metrics, str) and metrics != "nc" and axes is None:
            check_metrics([metrics], known)
            return plot_metric(self.measurements, metrics, self.unit)
        return draw_panels(
            self.measurements, "nc" if metrics is None else metrics, known, axes, self.unit
        )

    def save(
        self,
        path: str | Path,
        title: str | None = None,
        *,
        metrics: str | Sequence[str] | None = None,
    ) -> Path:
        """Write the history as .html, .json, .csv, .tex, .png, .svg or .pdf.

        A ``.csv`` holds every measurement, a ``.tex`` the last layer at the last step that all runs
        and splits have: in columns, or with chosen metrics a row for each run and split.

        Args:
            path: File to write; one that is there is replaced whole or not at all.
            title: Heading of the page; by default the name of the file.
            metrics: Keys of the metrics of a figure (see `plot`), or of the columns of a ``.csv``
                or ``.tex``, in their order; by default all. Pages and ``.json`` hold all.

        Returns:
            The path written.

        Raises:
            InputError: If the suffix is none of these, the history is empty, no layer has a
                metric, the folder cannot be written, or writing fails, for example on a full disk.
        """
        path = check_file(path, REPORTS)
        self._check_not_empty()
        chosen = choose_columns(path, metrics, self._keys())
        if path.suffix == ".json":
            return save_text(path, format_history(self.measurements, self.unit, self.provenance))
        if path.suffix == ".csv":
            names = None if chosen is None else (*_COLUMNS, *chosen)
            return save_text(path, csv_text(self.rows(), names))
        if path.suffix == ".tex":
            from ncscope.report.comparison import ComparisonSource
            from ncscope.report.latex import format_sources_latex

            source = ComparisonSource("", self.measurements, self.unit, self.provenance)
            return save_text(path, format_sources_latex([source], chosen))
        if path.suffix == ".html":
            return save_text(path, self.page(title or path.stem))
        return write_figure(path, self.plot(metrics))

    def page(self, title: str) -> str:
        """Return the HTML page with a heading."""
        from ncscope.report.page import render_history_page

        return render_history_page(
            title, self.measurements, unit=self.unit, provenance=self.provenance
        )

    def _repr_html_(self) -> str:
        from ncscope.report.notebook import render_history_fragment

        if not len(self):
            return "<p>An empty history.</p>"
        return render_history_fragment(self.measurements, self.unit, self.provenance)

    def __repr__(self) -> str:
        splits = ", ".join(dict.fromkeys(self.splits)) or "none"
        return (
            f"History: {len(self)} measurements, splits {splits}, {len(self.layers)} layers, "
            f"by {self.unit}"
        )

    @classmethod
    def load(cls, path: str | Path) -> "History":
        """Read a history that `save` wrote as .json, or that a run's folder holds.

        Args:
            path: The file, or the folder of a run, whose ``history.json`` is read.

        Raises:
            InputError: If there is no such file, or it holds something else.
        """
        path = Path(path)
        is_run = is_folder(path)
        file = path / "history.json" if is_run else path
        fix = "pass a file that History.save wrote as .json, or the folder of a run"
        if is_run and (path / "finished.json").exists():
            fix = "resume the run: it writes the file when one of its parts has ended"
        expected = "a history that ncscope wrote"
        fix_content = "pass what History.save wrote as .json"
        measurements, unit, origin = parse_content(
            parse_history,
            read_file(file, expected="a history", fix=fix),
            expected=expected,
            name=str(file),
            fix=fix_content,
        )
        history = cls._from_measurements(measurements, unit, origin)
        if len(history) < len(measurements):
            found = f"{file}: several measurements of one run, split and step"
            raise InputError(expected=expected, found=found, fix=fix_content)
        return history

    def _keys(self) -> set[str]:
        """Return the keys of all metrics and further numbers."""
        layers = (record for each in self for record in each.model_record.layers)
        return {key for record in layers for key in record.metrics} | {
            key for each in self for key in each.values
        }

    def _check_not_empty(self) -> None:
        if not len(self):
            fix = "call history.add(report, step=...) first"
            raise InputError(expected="a history with a measurement", found="an empty one", fix=fix)


_COLUMNS = ("run", "split", "step", "layer")
"""Columns of the table before the numbers."""
