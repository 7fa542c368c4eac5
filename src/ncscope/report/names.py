"""Names of layers, parts and checkpoints, made safe for tables, pages and figures."""

import re
from dataclasses import replace

from ncscope.errors import printable
from ncscope.measurement.records import ProbeRecord

LONGEST_TICK = 40
"""Most characters of a name beside an axis, so that enough width is left for the curves."""


def printable_probe(probe: ProbeRecord) -> ProbeRecord:
    """Return a measurement whose names, notes and warnings are printable.

    Args:
        probe: Measurement of one or more layers.
    """
    layers = [
        replace(
            record,
            layer=printable(record.layer),
            notes=tuple(map(printable, record.notes)),
            warnings=tuple(map(printable, record.warnings)),
        )
        for record in probe.layers
    ]
    return replace(probe, layers=tuple(layers), comparable=tuple(map(printable, probe.comparable)))


def quoted(name: str) -> str:
    """Return a layer's name as a sentence shows it: one that reads as a number is quoted.

    Args:
        name: Name of a layer.

    Example:
        >>> quoted("5"), quoted("layer4.1")
        ("layer '5'", 'layer4.1')
    """
    return f"layer '{name}'" if re.fullmatch(r"[\d.]+", name) else name


def figure_text(name: str, longest: int = LONGEST_TICK) -> str:
    r"""Convert a name to text for Matplotlib: printable, no formula, long names cut in the middle.

    Matplotlib leaves labels that begin with an underscore out of legends; a space is put before.

    Args:
        name: Any name.
        longest: Largest number of characters.

    Example:
        >>> print(figure_text("price in $x_1$"))
        price in \$x_1\$
    """
    shown = printable(name)
    if len(shown) > longest:
        half = longest // 2
        shown = f"{shown[: half - 1]}…{shown[-half:]}"
    shown = f" {shown}" if shown.startswith("_") else shown
    return shown.replace("$", r"\$")
