"""Result of a measurement: a mapping from metric to value that can plot and save itself."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ncscope.api.missing import explain_missing_key
from ncscope.api.per_class import PerClass
from ncscope.api.tables import MappingTable, csv_text, parse_content
from ncscope.api.writable import REPORTS, check_file, refuse_choice, save_text, write_figure
from ncscope.arguments import check_arguments
from ncscope.errors import InputError
from ncscope.files import read_file
from ncscope.measurement.history_file import format_report, parse_report
from ncscope.measurement.provenance import Provenance, record_provenance
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.metrics.registry import GROUPS, METRICS
from ncscope.stats.statistics import ClassStatistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@check_arguments
class Report(MappingTable[float]):
    """Metrics of one set of features, by key.

    Attributes:
        spectra: Named arrays of eigenvalues and SNR singular values, descending.
        notes: Sentences for the reader: empty classes, rank cuts, why a value is NaN.
        warnings: Short sentences on values that may mislead, such as too few samples.
        baseline: Metric key to the value at chance level, on permuted labels; empty unless asked
            for with ``baseline=True``.
        standard_errors: Metric key to standard error; empty unless asked for with
            ``uncertainty=True``, or for shares estimated on a random sample by ``second_pass=n``.
            Metrics for which no standard error can be trusted are absent, and a note gives the
            reason.
        bias_corrected: Metric key to the value with its jackknife estimate of bias removed, the
            centre of `interval`.
        num_classes: Number of classes requested, present or not; 0 without labels.
        num_samples: Number of samples.
        dim: Feature dimension.
        columns: Names of the features, if they were the columns of a data frame; else empty.
        statistics: Class statistics from which the values were computed; a later call of `measure`
            uses them if this report is its ``reference``. None in a report that was read from a
            file.
        provenance: Origin of the report, which its page shows: versions and date, and what the
            caller states of model, weights, data and split.

    Example:
        >>> import ncscope
        >>> report = ncscope.measure([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
        >>> report["nc1_quotient"]
        0.0625
    """

    def __init__(
        self,
        record: LayerRecord,
        statistics: ClassStatistics | None,
        origin: Provenance | None = None,
    ) -> None:
        self.record, self.statistics = record, statistics
        self._content = record.metrics
        self.provenance = record_provenance() if origin is None else origin
        self.notes, self.warnings = list(record.notes), list(record.warnings)
        self.baseline = dict(record.baseline)
        self.standard_errors = dict(record.standard_errors)
        self.bias_corrected = dict(record.bias_corrected)
        self.spectra = {name: np.asarray(values) for name, values in record.spectra.items()}
        self.num_classes, self.num_samples = record.num_classes, record.num_samples
        self.dim = record.dim
        self.columns: tuple[Any, ...] = ()

    def _explain_absence(self, key: str) -> object:
        return explain_missing_key(key, self, labelled=self.num_classes > 0)

    def __repr__(self) -> str:
        lines = []
        for key, value in self.items():
            line = f"  {key:<26} {value:.6g}"
            if key in self.baseline:
                line = f"{line:<41} by chance {self.baseline[key]:.4g}"
            lines.append(line)
        lines += [f"  note: {note}" for note in self.notes]
        lines = [f"  warning: {warning}" for warning in self.warnings] + lines
        classes = f"{self.num_classes} classes" if self.num_classes else "no labels"
        if self.record.num_present:
            classes = f"{self.record.num_present} of {classes}"
        head = f"{self.num_samples} samples, {classes}, dimension {self.dim}"
        return "\n".join([f"{type(self).__name__}: {head}", *lines])

    @property
    def model_record(self) -> ModelRecord:
        """Plain record of the report."""
        return ModelRecord(layers=(self.record,))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels; empty if unknown."""
        return self.provenance.class_names

    @class_names.setter
    def class_names(self, names: Iterable[str]) -> None:
        new_names = tuple(map(str, names))
        if new_names and len(new_names) != self.num_classes:
            expected = f"a name for each of the {self.num_classes} classes"
            fix = "pass the names in the order of the labels"
            raise InputError(expected=expected, found=f"{len(new_names)} names", fix=fix)
        self.provenance = replace(self.provenance, class_names=new_names)

    @property
    def per_class(self) -> PerClass | None:
        """Table of the classes; None if it was not computed.

        It is computed by default for up to 1,000 classes, and for any number if ``groups`` contains
        ``"per_class"``.
        """
        table = self.record.per_class
        return None if table is None else PerClass(table, self.class_names)

    def interval(self, key: str) -> tuple[float, float] | None:
        """Return the 95 % interval of a metric; None if it has no standard error.

        The interval is the bias-corrected value plus and minus 2.16 standard errors: of the
        logarithm for metrics in 0..infinity, of the log odds for those between 0 and a bound.

        Args:
            key: Key of the metric.

        Raises:
            KeyError: If the report has no such metric.

        Example:
            >>> import torch, ncscope
            >>> features = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
            >>> report = ncscope.measure(features, torch.arange(100) % 2, uncertainty=True)
            >>> low, high = report.interval("cosine_within")
            >>> low < report["cosine_within"] < high
            True
        """
        from ncscope.report.wording import find_interval

        if key not in self:
            raise KeyError(self._explain_absence(key))
        return find_interval(self.record, key)

    def require_statistics(self) -> ClassStatistics:
        """Return the class statistics, which a later measurement takes as its reference.

        Raises:
            InputError: If the report was read from a file, which does not hold them, or measured
                without labels.
        """
        if self.statistics is None:
            fix = "measure the training set again, and pass that report"
            found = "a report read from a file, which has no class means"
            raise InputError(expected="a report with its class means", found=found, fix=fix)
        if not self.statistics.has_labels:
            found, fix = "a report of features without labels", "measure them with labels"
            raise InputError(expected="a report with its class means", found=found, fix=fix)
        return self.statistics

    def as_dict(self) -> dict[str, object]:
        """Return the values as plain types; NaN and infinities are None, and a note says why."""
        metrics = {k: v if math.isfinite(v) else None for k, v in self.items()}
        return {
            "metrics": metrics,
            "notes": self.notes,
            "warnings": self.warnings,
            "num_classes": self.num_classes,
            "num_samples": self.num_samples,
            "dim": self.dim,
        }

    def to_json(self) -> str:
        """Write one JSON object, which `from_json` reads.

        For scripts: ``metrics``, ``notes``, ``warnings``, ``num_classes``, ``num_samples``,
        ``dim``, and for a model ``layers``. Under ``probe`` and ``provenance`` stands everything
        else that a page needs.
        """
        return format_report(self.as_dict(), self.model_record, self.provenance)

    @classmethod
    def from_json(cls, source: str | Path) -> "Report":
        """Read a report that `save` wrote as .json, or `to_json` as text.

        Args:
            source: Path of the file, or the text, which begins with ``{``.

        Returns:
            A `ModelReport` if a model was measured, else a `Report`. Its ``statistics`` are None.

        Raises:
            InputError: If there is no such file, or it holds something else.
        """
        if isinstance(source, str) and source.lstrip()[:1] == "{":
            name, content = "the text", source.encode()
        else:
            fix = "pass a file that Report.save wrote as .json"
            name, content = str(source), read_file(Path(source), expected="a report", fix=fix)
        probe, origin, is_model = parse_content(
            parse_report,
            content,
            expected="a report that ncscope wrote",
            name=name,
            fix="pass what Report.save wrote as .json",
        )
        report = (
            ModelReport(probe, {}, origin) if is_model else Report(probe.layers[0], None, origin)
        )
        if not isinstance(report, cls):
            fix = "read it by Report.from_json"
            expected = "a report of a model"
            raise InputError(expected=expected, found=f"{name}: one of features", fix=fix)
        return report

    def rows(self) -> list[dict[str, object]]:
        """Return a flat row for each layer and metric: value, value at collapse, trust."""
        from ncscope.report.labels import value_at_collapse

        return [
            {
                "layer": record.layer,
                "metric": key,
                "value": value,
                "collapsed_at": value_at_collapse(key, record.k, record.dim),
                "baseline": record.baseline.get(key),
                "standard_error": record.standard_errors.get(key),
                "bias_corrected": record.bias_corrected.get(key),
            }
            for record in self.model_record.layers
            for key, value in record.metrics.items()
        ]

    def plot(self, metrics: str | Sequence[str] | None = None, *, axes: Any = None) -> "Figure":
        """Draw the measurement as a matplotlib figure.

        Args:
            metrics: Metrics to draw against the layer, a panel each, as wide as a column of a
                paper: ``"nc"`` for NC1 and NC2, and for NC3 and NC4 where several layers have them;
                a key, or a list of keys. Layers are measured with ``layer_groups``. By default,
                the main metrics, or PFC1 to PFC3 against the layer.
            axes: Axes of your own figure, one for each panel; see `History.plot`.

        Returns:
            The figure; in files that ``savefig`` writes as PDF, fonts are of type 42.

        Raises:
            InputError: If no layer has a metric, there is one layer only, or the axes are not as
                many as the panels.
        """
        from ncscope.report.figures import plot_model

        model = self.model_record
        if metrics is None and axes is None:
            return plot_model(model)
        if len(model.layers) < 2:
            raise InputError(
                expected="a report of several layers, to draw metrics against the layer",
                found="one layer",
                fix="measure a model with layers=[...]; over training, History.plot draws metrics",
            )
        of_layers = Counter(key for record in model.layers for key in record.metrics)
        several = {key for key, count in of_layers.items() if count > 1}
        return draw_panels(
            model,
            "nc" if metrics is None else metrics,
            several if metrics == "nc" else of_layers,
            axes,
        )

    def save(
        self,
        path: str | Path,
        title: str | None = None,
        *,
        metrics: str | Sequence[str] | None = None,
    ) -> Path:
        """Write the report as .html, .json, .csv, .tex, .png, .svg or .pdf.

        Args:
            path: File to write; one that is there is replaced whole or not at all.
            title: Heading of the page; by default the name of the file.
            metrics: Keys of the metrics of a figure (see `plot`), or of the columns of a ``.csv``
                or ``.tex``, which then has a row for each layer; by default all. Pages and
                ``.json`` hold all.

        Returns:
            Path of the file.

        Raises:
            InputError: If the suffix is none of these, no layer has a metric, the folder cannot be
                written, or writing fails, for example on a full disk.
        """
        path = check_file(path, REPORTS)
        layers = self.model_record.layers
        chosen = choose_columns(path, metrics, {key for each in layers for key in each.metrics})
        if path.suffix == ".json":
            return save_text(path, self.to_json() + "\n")
        if path.suffix == ".csv":
            rows = self.rows()
            if chosen is not None:
                rows = [{"layer": each.layer, **each.metrics} for each in layers]
            names = None if chosen is None else ("layer", *chosen)
            return save_text(path, csv_text(rows, names))
        if path.suffix == ".tex":
            from ncscope.report.latex import format_model_latex

            return save_text(path, format_model_latex(self.model_record, chosen))
        if path.suffix == ".html":
            return save_text(path, self.page(title or path.stem))
        return write_figure(path, self.plot(metrics))

    def page(self, title: str) -> str:
        """Return the HTML page with a heading."""
        from ncscope.report.page import render_model_page

        return render_model_page(title, self.model_record, self.provenance)

    def _repr_html_(self) -> str:
        from ncscope.report.notebook import render_model_fragment

        return render_model_fragment(self.model_record, self.provenance)


def check_metrics(metrics: Iterable[str], known: Collection[str]) -> None:
    """Refuse a metric that was not measured.

    Args:
        metrics: Keys or aliases to draw or write.
        known: Keys of the metrics that were measured.

    Raises:
        InputError: If one was not measured.
    """
    from ncscope.report.labels import NC_METRICS, find_label

    for key in metrics:
        label = find_label(key)
        if not {key, label.key, *label.aliases} & set(known):
            found = repr(key)
            near = get_close_matches(key, known, n=3) or sorted(known)
            if key in GROUPS:
                found += ", which is a group of metrics"
                of_group = [row.key for row in METRICS.values() if row.group == key]
                near = [each for each in of_group if each in known]
                if not near:
                    found += " of which none was measured"
                    near = sorted(known)
            fix = f"choose from {', '.join(near)}"
            if key == "nc":
                found += " beside other metrics"
                fix = f"pass 'nc' alone, or keys such as {', '.join(NC_METRICS.values())}"
            raise InputError(expected="a metric that was measured", found=found, fix=fix)


def choose_columns(
    path: Path, metrics: str | Sequence[str] | None, known: Collection[str]
) -> Sequence[str] | None:
    """Return the keys of the columns of a table; None for all.

    Args:
        path: File of the table; a figure chooses for itself.
        metrics: Keys, or ``"nc"`` for one of each of NC1 to NC4.
        known: Keys of the metrics that were measured.

    Raises:
        InputError: If a metric was not measured, or none was, or the file holds all metrics always.
    """
    refuse_choice(path, metrics)
    if path.suffix in (".csv", ".tex") and not known:
        raise InputError(
            expected=f"metrics for the table {path.name}",
            found="none",
            fix="measure other groups too; report.per_class.save(...) in Python writes the classes",
        )
    if metrics is None or path.suffix in (".png", ".svg", ".pdf"):
        return None
    if metrics == "nc":
        return list(choose_nc_metrics(known).values())
    chosen = [metrics] if isinstance(metrics, str) else metrics
    check_metrics(chosen, known)
    return chosen


def choose_nc_metrics(known: Collection[str], *, of_layers: bool = False) -> dict[str, str]:
    """Return the keys of NC1 to NC4 by title; without NC3 and NC4 where no classifier was measured.

    Args:
        known: Keys of the metrics that were measured.
        of_layers: True if these are the metrics of several layers.

    Raises:
        InputError: If NC1 or NC2, which need no classifier, were not measured: without them a
            figure or a table would still look complete.
    """
    from ncscope.report.labels import NC_METRICS

    lacking = [key for key in (NC_METRICS["NC1"], NC_METRICS["NC2"]) if key not in known]
    if lacking:
        groups = (
            "layer_groups=['nc1', 'nc2']" if of_layers else "groups=['nc1', 'nc2', 'nc3', 'nc4']"
        )
        usual = (*NC_METRICS.values(), "pfc1", "pfc2", "vci", "cdnv")
        near = [key for key in usual if key in known] or sorted(known)
        instead = (
            f", or pass keys that were measured, such as {', '.join(near[:4])}" if near else ""
        )
        where = " in several layers" if of_layers else ""
        raise InputError(
            expected=f"NC1 (nc1) and NC2 (nc2_etf){where}, of which 'nc' is made",
            found=f"no {' and no '.join(lacking)}{where}",
            fix=f"measure with {groups}{instead if near else ''}",
        )
    return {title: key for title, key in NC_METRICS.items() if key in known}


def draw_panels(
    source: "Sequence[Measurement] | ModelRecord",
    metrics: str | Sequence[str],
    known: Collection[str],
    axes: Any,
    unit: str = "epoch",
) -> "Figure":
    """Draw a panel for each metric; see `ncscope.report.figures.plot_panels`.

    Raises:
        InputError: If a metric was not measured, or the axes are not as many as the panels.
    """
    from ncscope.report.figures import plot_panels

    chosen: Sequence[str] | Mapping[str, str] = [metrics] if isinstance(metrics, str) else metrics
    if metrics == "nc":
        chosen = choose_nc_metrics(known, of_layers=isinstance(source, ModelRecord))
    else:
        check_metrics(chosen, known)
    if not chosen:
        fix = f"pass 'nc', or keys such as {', '.join(list(known)[:4])}"
        raise InputError(expected="metrics to draw", found="none", fix=fix)
    given = None if axes is None else list(np.ravel(axes))
    if given is not None and len(given) != len(chosen):
        raise InputError(
            expected=f"{len(chosen)} axes, one for each of {', '.join(chosen)}",
            found=str(len(given)),
            fix="pass as many axes as metrics",
        )
    return plot_panels(source, chosen, unit, given)


@check_arguments
class ModelReport(Report):
    """Metrics of a model: those of the features that its head reads, and a report for every layer.

    Attributes:
        layers: Layer name to report, in forward order; the last layer is the one that feeds the
            head.
        model_record: Plain record of all layers, with relative positions and the geodesic.
    """

    def __init__(
        self,
        model_record: ModelRecord,
        statistics: Mapping[str, ClassStatistics],
        origin: Provenance | None = None,
    ) -> None:
        last = model_record.last
        self._model_record = model_record
        # The constructor of Report sets the provenance, and the setter passes it on to the layers.
        self.layers = {
            r.layer: Report(r, statistics.get(r.layer), origin) for r in model_record.layers
        }
        super().__init__(last, statistics.get(last.layer), origin)

    @property
    def provenance(self) -> Provenance:
        """Origin of the report, which the reports of all layers share."""
        return self._provenance

    @provenance.setter
    def provenance(self, origin: Provenance) -> None:
        self._provenance = origin
        for report in self.layers.values():
            report.provenance = origin

    @property
    def model_record(self) -> ModelRecord:
        """Plain record of all layers."""
        return self._model_record

    def as_dict(self) -> dict[str, object]:
        """Return the report of the head's features, with each layer's report under ``layers``."""
        return super().as_dict() | {"layers": {n: r.as_dict() for n, r in self.layers.items()}}
