"""Names of layers, parts and checkpoints, made fit for tables, pages and figures."""

from dataclasses import replace

from ncscope.errors import printable
from ncscope.probing.records import ProbeRecord

LONGEST_TICK = 40
"""Characters of a name beside an axis, where longer ones would leave no room for the curves."""


def printable_probe(probe: ProbeRecord) -> ProbeRecord:
    """Return a measurement whose names and notes are printable.

    Args:
        probe: Measurement of one or more layers.
    """
    layers = [
        replace(record, layer=printable(record.layer), notes=tuple(map(printable, record.notes)))
        for record in probe.layers
    ]
    return replace(probe, layers=tuple(layers), comparable=tuple(map(printable, probe.comparable)))


def figure_text(name: str, longest: int = LONGEST_TICK) -> str:
    r"""Return a name as text for Matplotlib: printable, no formula, the middle of a long one cut.

    Args:
        name: Any name.
        longest: Characters to leave.

    Example:
        >>> print(figure_text("price in $x_1$"))
        price in \$x_1\$
    """
    shown = printable(name)
    if len(shown) > longest:
        half = longest // 2
        shown = f"{shown[: half - 1]}…{shown[-half:]}"
    return shown.replace("$", r"\$")
