"""Names, numbers and steps as text, for tables, pages and figures."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from ncscope.errors import printable
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.metrics.intervals import interval
from ncscope.stats.jackknife import Estimate

LONGEST_TICK = 40
"""Most characters of a name beside an axis, so that enough width is left for the curves."""

_MOST_SIZES = 3
"""Most sizes that are listed in a row; of more, the least and the greatest are."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def make_printable(model: ModelRecord) -> ModelRecord:
    """Return a measurement whose names, notes and warnings are printable.

    Args:
        model: Measurement of one or more layers.
    """
    layers = [
        replace(
            record,
            layer=printable(record.layer),
            notes=tuple(map(printable, record.notes)),
            warnings=tuple(map(printable, record.warnings)),
        )
        for record in model.layers
    ]
    return replace(
        model,
        layers=tuple(layers),
        comparable=tuple(map(printable, model.comparable)),
    )


def make_all_printable(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return measurements whose names, notes and warnings are printable.

    Args:
        measurements: Measurements of one run or several.
    """
    return [
        replace(
            each,
            model_record=make_printable(each.model_record),
            split=printable(each.split),
            run=printable(each.run),
        )
        for each in measurements
    ]


def quote_number(name: str) -> str:
    """Return a layer's name as a sentence shows it: one that reads as a number is quoted.

    Example:
        >>> quote_number("5"), quote_number("layer4.1")
        ("layer '5'", 'layer4.1')
    """
    return f"layer '{name}'" if re.fullmatch(r"[\d.]+", name) else name


def format_figure_text(name: str, longest: int = LONGEST_TICK) -> str:
    r"""Convert a name to text for Matplotlib: printable, no formula, long names cut in the middle.

    Args:
        name: Any name.
        longest: Largest number of characters.

    Example:
        >>> print(format_figure_text("price in $x_1$"))
        price in \$x_1\$
    """
    text = printable(name)
    if len(text) > longest:
        half = longest // 2
        text = f"{text[: half - 1]}…{text[-half:]}"
    # Matplotlib leaves a label that begins with an underscore out of the legend.
    text = f" {text}" if text.startswith("_") else text
    return text.replace("$", r"\$")


def join_words(words: list[str]) -> str:
    """Write words as an enumeration: ``a, b and c``."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def round_for_json(value: float, digits: int = 6) -> float | None:
    """Round the value to significant digits; None, JSON's ``null``, if it is not finite."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def format_plain(value: float, digits: int = 4) -> str:
    """Write the value for a terminal: significant digits, ``undefined`` for NaN, ``inf``."""
    return "undefined" if math.isnan(value) else f"{value:.{digits}g}"


def typeset(value: float, digits: int = 4) -> str:
    """Write the value for a page, like :func:`format_plain` but with powers of ten written out.

    Example:
        >>> typeset(1.25e-7), typeset(0.5)
        ('1.25 × 10⁻⁷', '0.5')
    """
    if math.isnan(value):
        return format_plain(value)
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    mantissa, _, exponent = format_plain(value, digits).partition("e")
    mantissa = mantissa.replace("-", "−")
    if not exponent:
        return mantissa
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def format_millions(count: float) -> str:
    """Write a number of parameters for a narrow column.

    Example:
        >>> format_millions(25_557_032), format_millions(12_345)
        ('25.6M', '12,345')
    """
    return f"{count / 1e6:.3g}M" if count >= 1e5 else f"{count:,.0f}"


def find_interval(record: LayerRecord, key: str) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric; None without error or bias correction."""
    if key not in record.standard_errors or key not in record.bias_corrected:
        return None
    estimate = Estimate(record.standard_errors[key], record.bias_corrected[key])
    return interval(key, record.metrics[key], estimate)


def count_interval_digits(ends: tuple[float, float]) -> int:
    """Return the significant digits with which the ends of an interval are told apart, 3 to 7.

    Args:
        ends: Ends of the interval.

    Example:
        >>> count_interval_digits((0.31, 0.35)), count_interval_digits((1.4775, 1.4805))
        (3, 5)
    """
    low, high = ends
    size, width = max(abs(low), abs(high)), high - low
    if not (0 < width < math.inf and size < math.inf):
        return 3
    places = math.floor(math.log10(size)) - math.floor(math.log10(width))
    return min(max(3, places + 2), 7)


def format_interval_title(record: LayerRecord, key: str = "") -> str:
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


def describe_sizes(records: Sequence[LayerRecord]) -> list[str]:
    """Return the numbers of samples, classes and dimensions as phrases.

    Args:
        records: Measurements, whose order the numbers have.
    """
    return describe_numbers([list_sizes(record) for record in records])


def describe_numbers(sizes: Sequence[tuple[int, int, int]]) -> list[str]:
    """Return numbers of samples, classes and dimensions as phrases.

    Args:
        sizes: The three numbers of each measurement.
    """
    phrases = []
    for name, numbers in zip("nKd", zip(*sizes, strict=True), strict=True):
        texts = [f"{number:,}" for number in dict.fromkeys(numbers)]
        if len(texts) > _MOST_SIZES:
            texts = [f"{min(numbers):,} to {max(numbers):,}"]
        phrases.append(f"{name} = {join_words(texts)}" if any(numbers) else "no labels")
    return phrases


def list_sizes(record: LayerRecord) -> tuple[int, int, int]:
    """Return the numbers of samples, of classes present (0 without labels), and of dimensions."""
    return record.num_samples, record.k if record.num_classes else 0, record.dim


def format_class_count(num_classes: int, num_present: int = 0) -> str:
    """Write the number of classes; samples without labels have none.

    Args:
        num_classes: Number of classes, with or without samples.
        num_present: Number of classes with samples; 0 if all have.

    Example:
        >>> format_class_count(1000), format_class_count(1000, 49), format_class_count(0)
        ('1,000 classes', '49 of 1,000 classes', 'no labels')
    """
    some = f"{num_present:,} of " if num_present else ""
    return f"{some}{num_classes:,} classes" if num_classes else "no labels"


def format_step(step: float) -> str:
    """Write a step: thousands apart, no more digits than needed.

    Example:
        >>> format_step(12000), format_step(0.25)
        ('12,000', '0.25')
    """
    return f"{int(step):,}" if float(step).is_integer() else f"{step:.6g}"


def name_step(measurement: Measurement, unit: str) -> str:
    """Name the step of a measurement, for example ``epoch 1,200``."""
    return f"{unit} {format_step(measurement.step)}"


COUNTS = ("epoch", "step", "iteration")
"""Units that count how far training has come, in place of a parameter's value."""


def name_start(step: float, unit: str) -> str:
    """Name the step at which a run begins; at none completed, say that it is before training.

    Args:
        step: First step of a run with later ones.
        unit: Unit of the steps.

    Example:
        >>> name_start(0, "epoch"), name_start(0, "noise"), name_start(5, "epoch")
        ('epoch 0 (before training)', 'noise 0', 'epoch 5')
    """
    note = " (before training)" if step == 0 and unit in COUNTS else ""
    return f"{unit} {format_step(step)}{note}"
