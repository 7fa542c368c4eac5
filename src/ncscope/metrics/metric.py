"""One row of the table of metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from torch import Tensor

from ncscope.metrics.sources import Sources

MOST_FOR_ENERGIES = 10_000
"""Number of classes above which the energies must be asked for: 1 s a core, growing as $K^2d$."""

MOST_FOR_PAIRS = 65_536
"""Number of classes above which others that compare all pairs must be asked for: 30 s a core each.

It is above the vocabularies of about 50,000 tokens.
"""


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Attributes:
        key: Name in reports and files.
        group: Name by which ``measure(groups=...)`` selects it.
        title: Short label for tables and axes.
        meaning: One plain sentence on what is measured, for readers who have not seen the formula.
        formula: Definition, in LaTeX.
        source: Paper and equation.
        compute: Function that computes the value from the sources.
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
    """

    key: str
    group: str
    title: str
    meaning: str
    formula: str
    source: str
    compute: Callable[[Sources], Tensor | float]
    needs: frozenset[str] = frozenset()
    low: float = 0.0
    high: float = inf
    zero: str = ""
    better: str = "low"
    log_scale: bool = False
    at_collapse: Callable[[int], float] | None = None
    two_sided: bool = False
    undefined: str = ""
    aliases: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    degree: int = 0
    most_classes: float = inf
    needs_classes: bool = True
    infinite: str = ""
