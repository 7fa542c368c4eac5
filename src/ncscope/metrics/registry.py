"""Every metric ncscope reports: what it needs, what it means, where it comes from.

The table drives the measurement itself, the conformance tests, the reference in the docs,
the terminal tables and the axis labels of every figure.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Attributes:
        key: Name in reports and files.
        group: Name by which ``measure(groups=...)`` selects it.
        title: Short label for tables and axes.
        formula: Definition, in LaTeX.
        source: Paper and equation.
        low: Least possible value.
        high: Greatest possible value (may be ``inf``).
        zero: What the value 0 means, in words.
        better: ``"low"`` or ``"high"``: the end that collapse drives it to.
        log_scale: Whether figures draw it on a logarithmic axis.
        undefined: When the value is NaN, in words; empty if never.
        aliases: Other names under which the same value is reported.
    """

    key: str
    group: str
    title: str
    formula: str
    source: str
    low: float
    high: float
    zero: str
    better: str
    log_scale: bool = False
    undefined: str = ""
    aliases: tuple[str, ...] = ()
