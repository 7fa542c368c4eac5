"""Alerts: conditions on a metric that are checked after each measurement of a run."""

import copy
import logging
import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ncscope.errors import InputError
from ncscope.measurement.records import LayerRecord, Measurement
from ncscope.metrics.evaluate import find_metric
from ncscope.report.wording import find_interval

AlertChoice: TypeAlias = str | Sequence[str] | Mapping[str, Callable[[Measurement], Any] | None]
"""A condition, several, or a function to call for each; without a function, a warning."""


class AlertWarning(UserWarning):
    """A warning that a condition of ``alert=`` is met."""


@dataclass(frozen=True)
class Condition:
    """Condition on a metric of the features that the head reads.

    Attributes:
        text: Condition as the user wrote it.
        key: Key of the metric.
        relation: ``"rises"``, ``"falls"``, ``"above"`` or ``"below"``.
        limit: Number to compare with, after ``"above"`` and ``"below"``.

    Example:
        >>> Condition.parse("rankme < 10")
        Condition(text='rankme < 10', key='rankme', relation='below', limit=10.0)
    """

    text: str
    key: str
    relation: str
    limit: float = math.nan

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read a condition.

        Raises:
            InputError: If the text is no condition, or no metric has the key.
        """
        words = text.replace(">", " above ").replace("<", " below ").split()
        match words:
            case [key, "rises" | "falls" as relation]:
                find_metric(key)
                return cls(text, key, relation)
            case [key, "above" | "below" as relation, number] if _is_finite(number):
                find_metric(key)
                return cls(text, key, relation, float(number))
        raise InputError(
            expected="an alert such as 'nc1 rises', 'nc1 falls', 'nc1 above 0.5' or 'rankme < 10'",
            found=repr(text),
            fix="write the key of a metric, and rises, falls, or above or below with a number",
        )

    def explain(self, new: LayerRecord, old: LayerRecord | None) -> str:
        """Return what meets the condition, in words; an empty text if it is not met.

        Args:
            new: Record of the layer.
            old: Record of the layer in the measurement before; None for the first.
        """
        value = new.metrics.get(self.key, math.nan)
        if self.relation in ("above", "below"):
            met = value > self.limit if self.relation == "above" else value < self.limit
            return f"{self.key} is {value:.4g}" if met else ""
        if old is None:
            return ""
        before = old.metrics.get(self.key, math.nan)
        # With standard errors a change counts if the intervals do not overlap: two values of one
        # network on other samples would differ too.
        low, high = find_interval(new, self.key) or (value, value)
        old_low, old_high = find_interval(old, self.key) or (before, before)
        met = low > old_high if self.relation == "rises" else high < old_low
        return f"{self.key} is {value:.4g} after {before:.4g}" if met else ""


def _is_finite(number: str) -> bool:
    try:
        return math.isfinite(float(number))
    except ValueError:
        return False


class Alerts:
    """Conditions that each new measurement of a run is checked against.

    Args:
        alert: A condition; a list of conditions; or a dictionary from condition to the function
            that is called with the measurement, or to None. Conditions without a function give a
            warning.
        keys: Keys that are measured; by default every metric may be.

    Raises:
        InputError: If a condition cannot be read, or its metric is not measured.

    Example:
        >>> from ncscope.measurement.records import ModelRecord
        >>> def of(value, step):
        ...     layer = LayerRecord("last", {"nc1": value}, (), 2, 10, 3)
        ...     return Measurement(ModelRecord((layer,)), step)
        >>> alerts = Alerts({"nc1 rises": lambda measurement: print("step", measurement.step)})
        >>> alerts.check(of(0.5, 2), of(0.4, 1))
        step 2
    """

    def __init__(
        self, alert: AlertChoice | None = None, keys: Collection[str] | None = None
    ) -> None:
        if isinstance(alert, str):
            alert = (alert,)
        actions = alert if isinstance(alert, Mapping) else dict.fromkeys(alert or ())
        self._actions = [(Condition.parse(text), action) for text, action in actions.items()]
        for condition, _ in self._actions:
            if keys is not None and condition.key not in keys:
                raise InputError(
                    expected="an alert on a metric that is measured",
                    found=f"{condition.text!r}, and {condition.key} is not in the groups",
                    fix=f"add 'key:{condition.key}' to groups, or leave the alert out",
                )
        self._done: set[tuple[str, tuple[str, str, float]]] = set()

    def __len__(self) -> int:
        return len(self._actions)

    def check(
        self,
        new: Measurement,
        old: Measurement | None,
        *,
        warn: bool = True,
        within_run: bool = False,
    ) -> None:
        """Warn of the conditions that a measurement meets, or call their functions.

        A condition is met once for each run, split and step. An error of a function becomes a
        warning, `SystemExit` too: an alert never ends a run. `KeyboardInterrupt` passes through.

        Args:
            new: The measurement, of which functions get a copy.
            old: The measurement before, of the same run and split; None for the first.
            warn: False in processes that leave the warnings to the first one.
            within_run: True if a warning that the user's filters make an error is logged instead.

        Raises:
            AlertWarning: If the user's filters make it an error, and this is not within a run. The
                other conditions are checked first.
        """
        messages = []
        for condition, action in self._actions:
            last = None if old is None else old.model_record.last
            reason = condition.explain(new.model_record.last, last)
            if not reason or (condition.text, new.key) in self._done:
                continue
            self._done.add((condition.text, new.key))
            where = f"{new.run + ', ' if new.run else ''}{new.split}, step {new.step:g}"
            if action is None:
                messages.append(f"{condition.text}: {reason} ({where})")
                continue
            try:
                action(copy.deepcopy(new))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                messages.append(
                    f"the function for the alert {condition.text!r} failed ({where}): "
                    f"{type(error).__name__}: {error}"
                )
        for message in messages if warn else ():
            try:
                warnings.warn(message, AlertWarning, stacklevel=3)
            except AlertWarning:
                if not within_run:
                    raise
                logging.getLogger("ncscope").warning(message)
