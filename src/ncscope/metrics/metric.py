"""One row of the table of metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from torch import Tensor

from ncscope.metrics.sources import Sources


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Attributes:
        key: Name in reports and files.
        group: Name by which ``measure(groups=...)`` selects it.
        title: Short label for tables and axes.
        formula: Definition, in LaTeX.
        source: Paper and equation.
        compute: Its value from the sources.
        needs: Statistics that must have been gathered: ``"scatter"``, ``"directions"``, ``"head"``,
            ``"decisions"``, ``"information"``.
        low: Least possible value.
        high: Greatest possible value (may be ``inf``).
        zero: Meaning of the value 0, in words.
        better: ``"low"`` or ``"high"``: the end that collapse drives it to.
        log_scale: Draw it on a logarithmic axis if True.
        at_collapse: Its value at collapse to a simplex, from the number of classes; figures draw
            it as a reference line. None where it is 0 or 1 or depends on more.
        undefined: When the value is NaN, in words; empty if never.
        aliases: Other names under which the same value is reported.
        also: Other groups that contain it.
        degree: Power of the features' unit that the value carries; 0 if it has no unit.
    """

    key: str
    group: str
    title: str
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
    undefined: str = ""
    aliases: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    degree: int = 0
