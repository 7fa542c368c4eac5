"""Declaration of a metric, which stands as a decorator beside the function that computes it."""

import inspect
from collections.abc import Callable, Set
from dataclasses import KW_ONLY, dataclass, replace
from math import inf
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

from ncscope.metrics.names import TITLES

MOST_FOR_ENERGIES = 10_000
"""Number of classes above which the energies must be asked for: 1 s a core, growing as $K^2d$."""

MOST_FOR_PAIRS = 65_536
"""Number of classes above which others that compare all pairs must be asked for: 30 s a core each.

It is above the vocabularies of about 50,000 tokens.
"""

_P = ParamSpec("_P")
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Metric:
    """Declaration of a metric: how it is computed, and what tables, charts and pages say about it.

    Attributes:
        function: Function that computes the metric, or the record that holds it.
        key: Name in reports and files.
        group: Name by which ``measure(groups=...)`` selects it.
        title: Short label for tables and axes; by default that of `names.TITLES`, which completion
            shows before torch is there.
        meaning: One plain sentence on what is measured, for readers who have not seen the formula.
        formula: Definition, in LaTeX.
        source: Paper and equation.
        reads: Attributes of `Sources` that are the function's arguments, such as ``"stats.frame"``;
            by default those with the names of its parameters.
        arguments: Further arguments of the function.
        result: Attribute of `Sources` that is the value, if several metrics are computed at once;
            `reads` is then empty.
        needs: Required statistics: ``"scatter"``, ``"directions"``, ``"head"``, ``"outputs"`` (a
            head with an output for each class), ``"decisions"``, ``"hits"``, ``"information"``,
            ``"ood"``, ``"scores"``.
        low: Least possible value.
        high: Greatest possible value (may be ``inf``).
        zero: Meaning of the value 0, in words.
        better: ``"low"`` or ``"high"``, the direction in which collapse drives the value.
        log_scale: Draw the metric on a logarithmic axis if True.
        at_collapse: Function of the number of classes that returns the value at collapse to a
            simplex, which figures draw as a reference line. None if the value is 0 or 1.
        for_two_classes: Value that any two classes have, whatever the features are, so that it says
            nothing of them; None if it varies.
        two_sided: True if the value before collapse may be on either side of the value at collapse,
            so that no arrow points to collapse.
        undefined: Condition under which the value is NaN, in words; empty if there is none.
        aliases: Other names under which the value is reported.
        also: Other groups that contain the metric.
        degree: Power of the features' unit in the value; 0 for a value without unit.
        most_classes: Number of classes above which the metric is left out by default, because it
            takes long.
        needs_classes: False if the metric compares no classes, and so needs no labels.
        infinite: Condition under which the value is infinite, in words; empty if it never is.
        on_request: True if only its key selects the metric: neither the default nor its group does.
        no_interval: Reason why no standard error is offered of any value; empty if there is none.
        chance_level: False if no permutation of the labels changes the value.
        noisy: True if noise in the class means biases the value, as it biases all of NC2 and NC3:
            of noisy class means no standard error is offered.
        inverts: True if the value takes the inverse of the scatter within classes, of which
            products in float32 leave few digits.
    """

    function: Callable[..., Any]
    _: KW_ONLY
    key: str
    group: str
    meaning: str
    formula: str
    source: str
    title: str = ""
    reads: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    result: str = ""
    needs: Set[str] = frozenset()
    low: float = 0.0
    high: float = inf
    zero: str = ""
    better: str = "low"
    log_scale: bool = False
    at_collapse: Callable[[int], float] | None = None
    for_two_classes: float | None = None
    two_sided: bool = False
    undefined: str = ""
    aliases: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    degree: int = 0
    most_classes: float = inf
    needs_classes: bool = True
    infinite: str = ""
    on_request: bool = False
    no_interval: str = ""
    chance_level: bool = True
    noisy: bool = False
    inverts: bool = False

    @property
    def arrow(self) -> str:
        """Direction in which collapse drives the metric, as an arrow; empty if it has none."""
        return "" if self.two_sided else {"low": "↓", "high": "↑"}.get(self.better, "")

    @property
    def direction(self) -> str:
        """Direction in which collapse drives the metric, as text; empty if it has none."""
        if self.two_sided:
            return ""
        directions = {"low": "lower is more collapsed", "high": "higher is more collapsed"}
        return directions.get(self.better, "")

    def target(self, num_classes: int) -> float:
        """Return the value at collapse to a simplex; NaN if it is undefined there.

        Args:
            num_classes: Number of classes.
        """
        if self.at_collapse is not None:
            return float(self.at_collapse(num_classes))
        return 1.0 if self.better == "high" else 0.0

    def compute(self, sources: Any) -> Any:
        """Return the value, a tensor without dimensions or a number.

        Args:
            sources: Statistics of a layer, `Sources`. That module imports the modules of metrics,
                so this one cannot import it.
        """
        if self.result:
            return attrgetter(self.result)(sources)
        read = (attrgetter(path)(sources) for path in self.reads)
        return self.function(*read, *self.arguments)


_DECLARED: dict[str, list[Metric]] = {}


def metrics_of_module(module: str) -> list[Metric]:
    """Return the metrics of a module that has been imported, in the order of its text."""
    return list(_DECLARED[module])


def _decorator_of(
    cls: Callable[Concatenate[Callable[..., Any], _P], Metric],
) -> Callable[_P, Callable[[_Function], _Function]]:
    """Make a class whose first argument is a function a decorator with its other arguments."""

    def metric(*args: _P.args, **kwargs: _P.kwargs) -> Callable[[_Function], _Function]:
        def declare(function: _Function) -> _Function:
            row = cls(function, *args, **kwargs)
            if not row.reads and not row.result:
                row = replace(row, reads=tuple(inspect.signature(function).parameters))
            if not row.title:
                row = replace(row, title=TITLES[row.key])
            rows = _DECLARED.setdefault(function.__module__, [])
            # Python applies the lowest decorator first: each goes before those of its function.
            at = len(rows)
            while at and rows[at - 1].function is function:
                at -= 1
            rows.insert(at, row)
            return function

        return declare

    return metric


metric = _decorator_of(Metric)
"""Declare a metric that the decorated function computes; its keywords are `Metric`'s attributes."""
