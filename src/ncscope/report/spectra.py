"""Selection of the values of a spectrum that a logarithmic axis can show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

CURVES = {
    "between": "between classes",
    "within": "within classes",
    "total": "total",
    "snr_singular_values": "signal to noise",
}

_NOISE_FLOOR = 1e-12
_LARGEST = 1e300  # matplotlib's margin overflows for larger values
_POINTS = 240


@dataclass(frozen=True)
class Spectrum:
    """Values of one spectrum that are drawn.

    Attributes:
        index: Index of each value in the spectrum, from 1.
        values: Positive finite values.
        omitted: Sentence about values that are not drawn; empty if there are none.
    """

    index: list[int]
    values: list[float]
    omitted: str


def drawable(name: str, values: Sequence[float]) -> Spectrum:
    """Return the values that a logarithmic axis can show.

    Zeros, negative values and values below 1e-12 of the largest are rounding errors. They are not
    drawn, and neither are values above 1e300; a sentence gives their numbers. Long spectra are
    thinned evenly in the logarithm of the index.

    Args:
        name: Key of the spectrum.
        values: Eigenvalues or singular values, descending.

    Returns:
        Values to draw, and the sentence about the others.
    """
    finite = [value for value in values if math.isfinite(value)]
    least = _NOISE_FLOOR * max(finite, default=0.0)
    shown = [
        (index, value) for index, value in enumerate(values, start=1) if least < value <= _LARGEST
    ]
    kept = [shown[position] for position in _thinned(len(shown))]
    return Spectrum(
        index=[index for index, _ in kept],
        values=[value for _, value in kept],
        omitted=_omission(name, values, len(shown)),
    )


def _thinned(count: int) -> list[int]:
    if count <= _POINTS:
        return list(range(count))
    steps = [count ** (step / (_POINTS - 1)) for step in range(_POINTS)]
    return sorted({min(count - 1, round(step) - 1) for step in steps})


def _omission(name: str, values: Sequence[float], shown: int) -> str:
    infinite = sum(map(math.isinf, values))
    huge = sum(_LARGEST < value < math.inf for value in values)
    undefined = sum(map(math.isnan, values))
    noise = len(values) - shown - infinite - huge - undefined
    parts = []
    if noise:
        parts.append(f"{noise} at or below 10⁻¹² of the largest, zero to rounding")
    if huge:
        parts.append(f"{huge} above 10³⁰⁰")
    if infinite:
        parts.append(f"{infinite} infinite")
    if undefined:
        parts.append(f"{undefined} undefined")
    if not parts:
        return ""
    title = CURVES.get(name, name)
    return f"Not drawn of the {len(values)} values of “{title}”: {', '.join(parts)}."
