"""The shared part of the callbacks: errors, records, references, and names in the log."""

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias, Unpack

from ncscope.api.alerts import AlertChoice, Alerts
from ncscope.api.history import History
from ncscope.api.model import statistics_by_layer
from ncscope.api.result import ModelReport
from ncscope.api.writable import REPORTS
from ncscope.errors import InputError
from ncscope.labels import check_reference_names
from ncscope.measurement.evaluation import ModelResult
from ncscope.measurement.naming import LogChoice, flatten_for_log
from ncscope.measurement.options import OptionFields, Options, merge_options
from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.measurement.sample_stores import check_second_pass
from ncscope.metrics.evaluate import select
from ncscope.models.evaluation_mode import restore_random_states
from ncscope.stats.statistics import ClassStatistics

OnError: TypeAlias = Literal["warn", "raise"]
Reference: TypeAlias = Literal["train"] | ModelReport | None

TRAIN = "train"
"""Name of the training samples in the records."""


class MeasurementWarning(UserWarning):
    """A warning of a callback: measuring has ended, or a metric was not logged."""


class Recorder:
    """Records of the measurements of a run, and the rules by which a callback cannot harm the run.

    An error of measuring does not reach the training loop. `run_locally` holds an error back until
    all processes meet; `run_in_all`, which all processes call at the same time, then ends the
    measuring in all of them, with one warning, so that no process waits for another one.

    Args:
        prefix: Namespace of the metrics in the log.
        log: Metrics to log: ``"headline"`` or ``"all"``.
        reference: ``"train"``, a report of the training set, or None.
        on_error: ``"warn"`` or ``"raise"``.
        save: File in which the history is written at the end, or None.
        alert: Conditions that each measurement is checked against; see `History`.
        options: Options of the measurements, without the uniform prior and its ``class_counts``.
        fields: Fields of `Options`, which replace those of ``options``.

    Attributes:
        options: Options of the measurements.
        latest: Last record of each split.
        history: History of all measurements.
        has_ended: True after an error: nothing is measured any more.
        processes: Processes that measure together.
    """

    def __init__(
        self,
        *,
        prefix: str,
        log: LogChoice,
        reference: Reference,
        on_error: OnError,
        save: str | Path | None,
        alert: AlertChoice | None = None,
        options: Options | None = None,
        **fields: Unpack[OptionFields],
    ) -> None:
        if save is not None and Path(save).suffix not in REPORTS:
            expected = f"save as a file name ending in {', '.join(REPORTS)}"
            raise InputError(expected=expected, found=str(save), fix="choose one of these suffixes")
        # Options that no measurement of a run can have are refused here, where the callback is
        # made: within the run, an error would only end the measuring, after hours perhaps.
        self.options = merge_options(options, fields)
        keys = [
            key
            for row in select(self.options.groups)
            if not row.needs & {"ood", "scores"}  # a run has no OOD samples
            for key in (row.key, *row.aliases)
        ]
        select(self.options.layer_groups)
        self._alerts = Alerts(alert, keys)
        check_second_pass(self.options)
        if self.options.prior == "uniform" or self.options.class_counts is not None:
            raise InputError(
                expected="a callback without prior='uniform' and class_counts",
                found="one of them",
                fix="measure each split by measure_model: class counts hold for one split only",
            )
        self.processes = self.options.processes
        self.latest: dict[str, ModelRecord] = {}
        self.history = History(unit="step")
        self._prefix, self._log = prefix, log
        self._follows_train = reference == TRAIN
        self._fixed_reference: Mapping[str, ClassStatistics] | None = None
        self._reference_names = getattr(reference, "class_names", ())
        if not isinstance(reference, str):
            self._fixed_reference = statistics_by_layer(reference)
        self._raises, self._save = on_error == "raise", save
        self._runs, self._run_name = 0, ""
        self._forget()

    def begin_run(self) -> None:
        """Begin a run; a second or later one has a name, and nothing remains of the one before."""
        self._runs += 1
        if self._runs > 1:
            self._run_name = f"fit {self._runs}"
            self._forget()

    def _forget(self) -> None:
        self.latest.clear()
        self.has_ended = False
        self._reference = self._fixed_reference
        self._failure: Exception | None = None
        self._logged: set[str] = set()
        self._left_out: set[str] = set()
        self._unchecked: list[Measurement] = []

    def run_locally(self, action: Callable[[], object]) -> None:
        """Run an action of this process alone, unless one has failed; hold its error back.

        Raised here, the error would leave the other processes waiting in their next collective.
        """
        if self.has_ended or self._failure is not None:
            return
        try:
            # Even an action that fails halfway must leave the run's random numbers as they were.
            with restore_random_states():
                action()
        except Exception as error:
            self._failure = error

    def run_in_all(self, action: Callable[[], object] = lambda: None) -> None:
        """Run an action of all processes, unless a process has failed before.

        An error, of this action or an earlier one, ends the measuring in all processes. Every
        process must call this.
        """
        if self.has_ended:
            return
        try:
            # Two contexts: every process learns of an error of any before one starts the action,
            # whose collectives would wait for the process that failed.
            with self.processes.fail_together():
                if self._failure is not None:
                    raise self._failure
            with self.processes.fail_together(), restore_random_states():
                action()
        except Exception as error:
            self.has_ended = True
            if self._raises:
                raise
            self.warn_once(f"measuring neural collapse has ended, the training goes on: {error}")
            return
        # Outside of the guard: an alert is no error of measuring, and every process is here.
        with restore_random_states():
            while self._unchecked:
                new = self._unchecked.pop(0)
                first = self.processes.index == 0
                before = self.history.before(new)
                self._alerts.check(new, before, warn=first, within_run=True)

    def reference_for(self, split: str) -> Mapping[str, ClassStatistics] | None:
        """Return the statistics whose class means a measurement of a split uses, or None."""
        return None if split == TRAIN else self._reference

    def add(self, result: ModelResult, step: int, split: str) -> None:
        """Store a measurement.

        Raises:
            InputError: If a class has another name in the reference that the user gave.
        """
        check_reference_names(result.class_names, self._reference_names)
        self.latest[split] = result.record
        if not self.history.provenance.class_names:
            names = result.class_names
            self.history.provenance = replace(self.history.provenance, class_names=names)
        measurement = Measurement(result.record, step, split, self._run_name)
        self.history.append(measurement)
        self._unchecked.append(measurement)
        if self._follows_train and split == TRAIN:
            self._reference = result.statistics

    def name_metrics(
        self, split: str, namespace: str, in_log: Collection[str], users: Collection[str] = ()
    ) -> dict[str, float]:
        """Return the last measurement of a split by the names under which to log it.

        Names that the user logs are left out, with one warning. Every process must call this.

        Args:
            split: Name of the split.
            namespace: Beginning of the names, before the prefix: ``"val/"`` or ``"eval_"``.
            in_log: Names in the log so far, of this callback's values too.
            users: Names in the log that are certainly the user's.
        """
        prefix = f"{namespace}{self._prefix}/" if self._prefix else namespace
        metrics = flatten_for_log(self.latest[split], prefix, self._log)
        self.leave_out(set(metrics) & (set(in_log) - self._logged | set(users)))
        metrics = {key: value for key, value in metrics.items() if key not in self._left_out}
        self._logged.update(metrics)
        return metrics

    def leave_out_logged(self, users: Collection[str]) -> None:
        """Leave names out from now on that were logged, and that the user logs too.

        Every process must call this.
        """
        self.leave_out(self._logged & set(users))

    def leave_out(self, names: Collection[str]) -> None:
        """Leave names out from now on, with one warning. Every process must call this."""
        # The processes may see different logs, but must log the same names: Lightning reduces each
        # value over all of them.
        everywhere = {key for keys in self.processes.gather(sorted(names)) for key in keys}
        added = ", ".join(sorted(everywhere - self._left_out))
        self._left_out |= everywhere
        if added:
            self.warn_once(
                f"the module or another callback logs {added}; these values stay as they are, "
                "pass another prefix to log both"
            )

    def finish(self) -> None:
        """Write the history in the first process; a file that cannot be written only warns."""
        if self._save is None or not len(self.history) or self.processes.index:
            return
        try:
            self.history.save(self._save)
        except Exception as error:
            if self._raises:
                raise
            self.warn_once(f"the history was not saved: {error}")

    def warn_once(self, message: str) -> None:
        """Give a `MeasurementWarning` in the first process of the group."""
        if self.processes.index == 0:
            warnings.warn(message, MeasurementWarning, stacklevel=2)
