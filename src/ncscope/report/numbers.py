"""Numbers as text, and as compact JSON."""

import math

from ncscope.measurement.records import LayerRecord
from ncscope.metrics.uncertainty import interval
from ncscope.stats.jackknife import Estimate

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def compact(value: float, digits: int = 6) -> float | None:
    """Round the value to significant digits; None, JSON's ``null``, if it is not finite."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def plain(value: float, digits: int = 4) -> str:
    """Write the value for a terminal: significant digits, ``undefined`` for NaN, ``inf``."""
    return "undefined" if math.isnan(value) else f"{value:.{digits}g}"


def typeset(value: float, digits: int = 4) -> str:
    """Write the value for a page, like :func:`plain` but with powers of ten written out.

    Example:
        >>> typeset(1.25e-7), typeset(0.5)
        ('1.25 × 10⁻⁷', '0.5')
    """
    if math.isnan(value):
        return plain(value)
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    mantissa, _, exponent = plain(value, digits).partition("e")
    mantissa = mantissa.replace("-", "−")
    if not exponent:
        return mantissa
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def in_millions(count: float) -> str:
    """Write a number of parameters for a narrow column.

    Example:
        >>> in_millions(25_557_032), in_millions(12_345)
        ('25.6M', '12,345')
    """
    return f"{count / 1e6:.3g}M" if count >= 1e5 else f"{count:,.0f}"


def interval_of(record: LayerRecord, key: str) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric; None without error or bias correction.

    Args:
        record: Record of the layer.
        key: Key of the metric in the record.
    """
    if key not in record.standard_errors or key not in record.bias_corrected:
        return None
    estimate = Estimate(record.standard_errors[key], record.bias_corrected[key])
    return interval(key, record.metrics[key], estimate)


def interval_title(record: LayerRecord, key: str = "") -> str:
    """Write the heading of intervals: which other samples they are of.

    Args:
        record: Record of the layer.
        key: Key of the metric; empty for a column of several metrics.
    """
    if not record.num_classes:
        return "95 % interval, bias corrected"
    # DeLong's errors are those of samples drawn with their classes, whatever was asked for.
    random = record.random_sizes or key.endswith("_auroc")
    return f"95 % interval, bias corrected, class sizes {'random' if random else 'held'}"


def classes_text(num_classes: int, num_present: int = 0) -> str:
    """Write the number of classes; samples without labels have none.

    Args:
        num_classes: Number of classes, with or without samples.
        num_present: Number of classes with samples; 0 if all have.

    Example:
        >>> classes_text(1000), classes_text(1000, 49), classes_text(0)
        ('1,000 classes', '49 of 1,000 classes', 'no labels')
    """
    some = f"{num_present:,} of " if num_present else ""
    return f"{some}{num_classes:,} classes" if num_classes else "no labels"


def listed(words: list[str]) -> str:
    """Write words as an enumeration: ``a, b and c``."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
