"""The shared part of the callbacks: errors, records, references, and names in the log."""

import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, Unpack

from ncscope.api.history import History
from ncscope.api.model import statistics_by_layer
from ncscope.api.result import REPORTS, ModelReport
from ncscope.errors import InputError
from ncscope.measurement.evaluation import Probed
from ncscope.measurement.naming import Logged, logged
from ncscope.measurement.options import OptionFields, Options, merge_options
from ncscope.measurement.records import Measurement, ProbeRecord
from ncscope.measurement.second_pass import check_second_pass
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

    An error of measuring does not reach the training loop. `locally` keeps an error until all
    processes meet; `together`, which all processes call at the same time, then ends the measuring
    in all of them, with one warning, so that no process waits for another one.

    Args:
        prefix: Namespace of the metrics in the log.
        log: Metrics to log: ``"headline"`` or ``"all"``.
        reference: ``"train"``, a report of the training set, or None.
        on_error: ``"warn"`` or ``"raise"``.
        save: File in which the history is written at the end, or None.
        options: Options of the measurements, without the uniform prior and its ``class_counts``.
        fields: Fields of `Options`, which replace those of ``options``.

    Attributes:
        options: Options of the measurements.
        latest: Last record of each split.
        history: History of all measurements.
        ended: True after an error: nothing is measured any more.
        processes: Processes that measure together.
    """

    def __init__(
        self,
        *,
        prefix: str,
        log: Logged,
        reference: Reference,
        on_error: OnError,
        save: str | Path | None,
        options: Options | None = None,
        **fields: Unpack[OptionFields],
    ) -> None:
        if save is not None and Path(save).suffix not in REPORTS:
            expected = f"save as a file name ending in {', '.join(REPORTS)}"
            raise InputError(expected=expected, found=str(save), fix="choose one of these suffixes")
        self.options = merge_options(options, fields)
        check_options_of_run(self.options)
        self.processes = self.options.processes
        self.latest: dict[str, ProbeRecord] = {}
        self.history = History(unit="step")
        self._prefix, self._log = prefix, log
        self._follows = reference == TRAIN
        self._given = None if self._follows else _statistics(reference)
        self._raises, self._save = on_error == "raise", save
        self._runs, self._run = 0, ""
        self._forget()

    def begin_run(self) -> None:
        """Begin a run; a second or later one has a name, and nothing remains of the one before."""
        self._runs += 1
        if self._runs > 1:
            self._run = f"fit {self._runs}"
            self._forget()

    def _forget(self) -> None:
        self.latest.clear()
        self.ended = False
        self._reference = self._given
        self._failure: Exception | None = None
        self._logged: set[str] = set()
        self._left_out: set[str] = set()

    def locally(self, action: Callable[[], object]) -> None:
        """Run an action of this process alone, unless one has failed; keep its error."""
        if self.ended or self._failure is not None:
            return
        try:
            with restore_random_states():
                action()
        except Exception as error:
            self._failure = error

    def together(self, action: Callable[[], object] = lambda: None) -> None:
        """Run an action of all processes, unless a process has failed before.

        An error, of this action or an earlier one, ends the measuring in all processes. Every
        process must call this.
        """
        if self.ended:
            return
        try:
            with self.processes.fail_together():
                if self._failure is not None:
                    raise self._failure
            with self.processes.fail_together(), restore_random_states():
                action()
        except Exception as error:
            self.ended = True
            if self._raises:
                raise
            self.warn_once_in_all(
                f"measuring neural collapse has ended, the training goes on: {error}"
            )

    def reference(self, split: str) -> Mapping[str, ClassStatistics] | None:
        """Return the statistics whose class means a measurement of a split uses, or None."""
        return None if split == TRAIN else self._reference

    def add(self, probed: Probed, step: int, split: str) -> None:
        """Store a measurement."""
        self.latest[split] = probed.record
        self.history.append(Measurement(probed.record, step, split, self._run))
        if self._follows and split == TRAIN:
            self._reference = probed.statistics

    def named(
        self, split: str, namespace: str, taken: Collection[str], users: Collection[str] = ()
    ) -> dict[str, float]:
        """Return the last measurement of a split by the names under which to log it.

        Names that the user logs are left out, with one warning. Every process must call this.

        Args:
            split: Name of the split.
            namespace: Beginning of the names, before the prefix: ``"val/"`` or ``"eval_"``.
            taken: Names in the log so far, of this callback's values too.
            users: Names in the log that are certainly not of this callback.
        """
        prefix = f"{namespace}{self._prefix}/" if self._prefix else namespace
        metrics = logged(self.latest[split], prefix, self._log)
        self.leave_out(set(metrics) & (set(taken) - self._logged | set(users)))
        kept = {key: value for key, value in metrics.items() if key not in self._left_out}
        self._logged.update(kept)
        return kept

    def leave_out_logged(self, users: Collection[str]) -> None:
        """Leave names out from now on that were logged, and that the user logs too.

        Every process must call this.
        """
        self.leave_out(self._logged & set(users))

    def leave_out(self, names: Collection[str]) -> None:
        """Leave names out from now on, with one warning. Every process must call this."""
        everywhere = {key for keys in self.processes.gather(sorted(names)) for key in keys}
        added = ", ".join(sorted(everywhere - self._left_out))
        self._left_out |= everywhere
        if added:
            self.warn_once_in_all(
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
            self.warn_once_in_all(f"the history was not saved: {error}")

    def warn_once_in_all(self, message: str) -> None:
        """Give a `MeasurementWarning` in the first process of the group."""
        if self.processes.index == 0:
            warnings.warn(message, MeasurementWarning, stacklevel=2)


def _statistics(reference: Reference) -> Mapping[str, ClassStatistics] | None:
    assert not isinstance(reference, str)
    return statistics_by_layer(reference)


def check_options_of_run(options: Options) -> None:
    """Refuse options that no measurement of a run can have.

    Raises:
        InputError: If a group does not exist, the second pass cannot be had, or the options hold
            for one split only.
    """
    select(options.groups)
    select(options.layer_groups)
    check_second_pass(options)
    if options.prior == "uniform" or options.class_counts is not None:
        raise InputError(
            expected="a callback without prior='uniform' and class_counts",
            found="one of them",
            fix="measure each split by measure_model: class counts hold for one split only",
        )
