"""Texts and tables of a page: first and last values, all values, notes."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.metrics.metric import Metric
from ncscope.metrics.registry import METRICS
from ncscope.report.curves import group_by_run, group_by_split
from ncscope.report.labels import (
    PFC_METRICS,
    capitalise,
    choose_key_metrics,
    find_key,
    find_label,
    find_value,
    group_labels,
    is_fixed,
    list_nc_metrics,
    sort_labels,
    value_at_collapse,
)
from ncscope.report.wording import (
    count_interval_digits,
    find_interval,
    format_class_count,
    format_interval_title,
    format_step,
    join_words,
    name_start,
    name_step,
    quote_number,
    typeset,
)

Write = Callable[[float, int], str]
"""Function that writes a number with some significant digits."""

Change = tuple[str, str, str]
"""A metric at the first and at the last measurement, and its trend; empty texts without one."""


@dataclass(frozen=True)
class Headline:
    """A metric that a page shows first.

    Attributes:
        metric: Label of the metric.
        tag: ``"NC1"`` to ``"NC4"``; empty for other metrics.
        collapsed: Value at collapse, with an arrow; empty if unknown.
        ends: First and last value of every run and split, by the name of the run and split. The
            name has the steps where runs or splits are measured at others. The last value is empty
            where there is one measurement only.
        trend: Sentence on the way from the first values to the last.
    """

    metric: Metric
    tag: str = ""
    collapsed: str = ""
    ends: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    trend: str = ""

    @property
    def changes(self) -> bool:
        """True if there is a last value beside a first."""
        return any(last for _, last in self.ends.values())

    @property
    def name(self) -> str:
        """Title of the metric without the tag."""
        return capitalise(self.metric.title.removeprefix(f"{self.tag}: "))


@dataclass(frozen=True)
class Cell:
    """A metric of one column, as text; empty where it is unknown.

    Attributes:
        value: Value, with its standard error where there is room.
        interval: 95 % interval.
        chance: Value at chance level.
        interval_title: Heading of the interval.
        is_best: True if the value is nearer to collapse than the others of its row.
    """

    value: str
    interval: str = ""
    chance: str = ""
    interval_title: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class MetricRow:
    """One metric in all columns of a table: layers, or measurements side by side.

    Attributes:
        metric: Label of the metric.
        collapsed: Value at collapse; empty if unknown, or not the same for all columns.
        cells: One cell for each column.
        difference: Second value minus first, where two measurements are compared and differ.
        differs: True if the values differ in four digits, in the terminal as on a page.
    """

    metric: Metric
    collapsed: str
    cells: Sequence[Cell]
    difference: str = ""
    differs: bool = True


@dataclass(frozen=True)
class Details:
    """All metrics of one measurement.

    Attributes:
        caption: Measurement that they belong to; empty if there is one only.
        layers: Layers of the table, the last layer first.
        groups: Rows by the title of their group.
        progress: PFC1-3 of the layers that hold nothing else, the last of them first.
        notes: Notes, with the layers that they concern.
    """

    caption: str
    layers: list[LayerRecord]
    groups: dict[str, list[MetricRow]]
    progress: list[tuple[LayerRecord, list[Cell]]]
    notes: list[str]

    @property
    def interval_title(self) -> str:
        """Heading of the intervals."""
        return format_interval_title(self.layers[0])

    def any(self, part: str) -> bool:
        """Return whether a cell has a part: ``interval`` or ``chance``."""
        cells = (cell for rows in self.groups.values() for row in rows for cell in row.cells)
        return any(getattr(cell, part) for cell in cells)


_ACCURACIES = ("ncc_accuracy", "accuracy")

_LOSSES = ("loss", "error", "accuracy")
"""Words in the names of further numbers that a page shows first."""

_MOST_HEADLINES = 8
_MOST_ENDS = 4
"""Most lines of first and last values below a chart of a grid."""


def choose_headlines(
    keys: Collection[str], record: LayerRecord, values: Collection[str] = ()
) -> list[Headline]:
    """Return the metrics that a page shows first, without their values.

    NC1 to NC4 and the accuracies; without any of them, the metrics of a summary, or all.

    Args:
        keys: Keys of the metrics that were measured.
        record: Last layer, whose sizes set the values at collapse.
        values: Keys of further numbers of a step, such as the loss.
    """
    tags: dict[str, str] = {}
    for tag, candidates in list_nc_metrics(record.k, record.dim).items():
        present = [key for key in candidates if find_key(keys, key) is not None]
        tags |= dict.fromkeys(present[:1], tag)
    tags |= {key: "" for key in _ACCURACIES if find_key(keys, key) is not None}
    if not tags:
        summary = [key for key in choose_key_metrics(keys) if find_key(keys, key) is not None]
        chosen = summary or [label.key for label in sort_labels(keys)]
        # What two classes fix leads only where there is nothing else.
        varied = [key for key in chosen if not is_fixed(key, record.k)]
        tags = dict.fromkeys(varied or chosen, "")
    losses = [key for key in values if any(word in key for word in _LOSSES)]
    tags |= {key: "" for key in losses if key not in tags}
    return [
        Headline(label, tag, format_collapse_value(label, record))
        for label, tag in [(find_label(key), tag) for key, tag in tags.items()][:_MOST_HEADLINES]
    ]


def build_headlines(measurements: Sequence[Measurement], unit: str) -> list[Headline]:
    """Compare the last layer's headline metrics at the first and last step of every run and split.

    Args:
        measurements: Measurements of one run or several; at least one.
        unit: Unit of their steps.
    """
    runs = group_by_run(measurements)
    lines = {
        ", ".join(filter(None, (run if len(runs) > 1 else "", split))): of_split
        for run, of_run in runs.items()
        for split, of_split in group_by_split(of_run).items()
    }
    if len({(at[0].step, at[-1].step) for at in lines.values()}) > 1:
        # Without the steps, a run that was trained longer would seem to be ahead.
        together = len({at[0].step for at in lines.values()}) == 1
        lines = {f"{name}, {_name_span(at, unit, together)}": at for name, at in lines.items()}
    last = measurements[-1].model_record.last
    keys = {key for each in measurements for key in each.model_record.last.metrics}
    values = list(dict.fromkeys(key for each in measurements for key in each.values))
    headlines = []
    for headline in choose_headlines(keys, last, values):
        changes = {
            name: change
            for name, of_split in lines.items()
            if (change := _describe_change(headline.metric, of_split, unit))
        }
        trends = Counter(trend for *_, trend in changes.values())
        trend = next(iter(trends), "")
        if len(trends) > 1:
            trend = "; ".join(
                f"{each} in {count} of {len(changes)}" for each, count in trends.items() if each
            )
        ends = {name: (first, end) for name, (first, end, _) in changes.items()}
        if len(ends) > _MOST_ENDS:
            # The lines of many runs are on the chart; their last values are in the tables below.
            ends = {}
        headlines.append(replace(headline, ends=ends, trend=trend))
    return headlines


def _name_span(measurements: Sequence[Measurement], unit: str, together: bool) -> str:
    """Name the first and the last step, or, if all start together, the last one alone."""
    first, last = measurements[0], measurements[-1]
    if together:
        return f"to {name_step(last, unit)}" if last.step != first.step else name_step(last, unit)
    to = f" to {format_step(last.step)}" if last.step != first.step else ""
    return f"{name_step(first, unit)}{to}"


def _describe_change(
    metric: Metric, measurements: Sequence[Measurement], unit: str
) -> Change | None:
    """Compare the first and the last value of a metric, and the last with the farthest between.

    Nothing is judged without 95 % intervals: a change alone does not tell how much of it is noise.
    """
    values = [find_value(each.last_values, metric.key) for each in measurements]
    start, end = values[0], values[-1]
    if start is None or end is None:
        return None
    first, last = measurements[0], measurements[-1]
    if first is last:
        return typeset(start), "", ""
    trend, texts = "", (typeset(start), typeset(end))
    apart = _are_apart(metric, first, last)
    # A comparison with NaN is False both ways, so an undefined end has no trend.
    if apart is not None and metric.better and (start < end or end < start):
        rose = end > start
        trend = "↑" if rose else "↓"
        if not apart:
            trend = "within the 95 % interval" if texts[0] != texts[1] else ""
        elif not metric.two_sided:
            nearer = rose == (metric.better == "high")
            trend += " towards collapse"
            if not nearer:
                # The first network is often untrained, with means that spread evenly as noise does:
                # farther than there is not on the way away.
                trend = f"{trend[0]} farther from collapse than at {name_start(first.step, unit)}"
                choose = min if metric.better == "high" else max
                pairs = zip(values, measurements, strict=True)
                known = [(v, at) for v, at in pairs if v is not None and not math.isnan(v)]
                _, worst = choose(known, key=lambda pair: pair[0])
                if _are_apart(metric, worst, last):
                    trend += f", nearer than at {name_step(worst, unit)}"
    return *texts, trend


def _are_apart(metric: Metric, one: Measurement, other: Measurement) -> bool | None:
    """Return whether a metric's 95 % intervals at two measurements leave a gap; None without."""
    ranges = []
    for record in (each.model_record.last for each in (one, other)):
        key = find_key(record.metrics, metric.key)
        ends = None if key is None else find_interval(record, key)
        if key is None or ends is None:
            return None
        # An interval is corrected for bias, and may leave its value out.
        value = record.metrics[key]
        ranges.append((min(*ends, value), max(*ends, value)))
    (_, end), (start, _) = sorted(ranges)
    return end < start


_PROGRESS = {find_label(key).key for key in PFC_METRICS}


def build_details(
    model: ModelRecord, caption: str, write: Write = typeset, leading: Collection[str] = ()
) -> Details:
    """Collect all metrics of one measurement at each layer, and its notes.

    Args:
        model: Measurement of one or more layers.
        caption: Name of the measurement.
        write: Function that writes a number.
        leading: Keys of the last layer's metrics that the page shows before; left out of the table
            where no other layer has them.
    """
    layers: list[LayerRecord] = []
    progress: list[LayerRecord] = []
    for record in reversed(model.layers):
        # The last layer's table is never one of PFC1-3 alone.
        slim = layers and all(find_label(key).key in _PROGRESS for key in record.metrics)
        (progress if slim else layers).append(record)
    metrics = [
        metric
        for metric in sort_labels(key for record in layers for key in record.metrics)
        if metric.key not in leading
        or sum(find_key(record.metrics, metric.key) is not None for record in layers) > 1
    ]
    groups = {
        title: [
            MetricRow(
                metric,
                format_collapse_value(metric, model.last, write),
                [build_cell(record, metric, write) for record in layers],
            )
            for metric in group
        ]
        for title, group in group_labels(metrics).items()
    }
    cells = [
        (record, [build_cell(record, find_label(key), write) for key in PFC_METRICS])
        for record in progress
    ]
    return Details(caption, layers, groups, cells, collect_sentences(model, "notes"))


def build_cell(
    record: LayerRecord,
    metric: Metric,
    write: Write = typeset,
    *,
    digits: int = 4,
    error: bool = True,
) -> Cell:
    """Write a metric at one layer with its standard error, interval and value at chance level.

    Args:
        record: Record of the layer.
        metric: Metric to write.
        write: Function that writes a number with so many digits.
        digits: Number of digits of the value.
        error: Write the standard error beside the value if True.
    """
    key = find_key(record.metrics, metric.key)
    if key is None:
        return Cell("")
    value, ends = write(record.metrics[key], digits), find_interval(record, key)
    if ends is not None and error:
        value = f"{value} ± {write(record.standard_errors[key], 2)}"
    interval = ""
    if ends is not None:
        interval = " to ".join(write(end, count_interval_digits(ends)) for end in ends)
    chance = record.baseline.get(key)
    title = format_interval_title(record, key) if interval else ""
    return Cell(value, interval, "" if chance is None else write(chance, 3), title)


def format_collapse_value(metric: Metric, record: LayerRecord, write: Write = typeset) -> str:
    """Write the value of a metric at collapse, with an arrow towards it; empty if unknown."""
    value = value_at_collapse(metric.key, record.k, record.dim)
    return "" if value is None else f"{write(value, 4)} {metric.arrow}".rstrip()


def collect_warnings(models: Mapping[str, ModelRecord]) -> list[str]:
    """Return each warning once, with the measurements and layers that it concerns.

    Args:
        models: Measurements by caption; captions are left out where a warning concerns all.
    """
    sentences = {caption: collect_sentences(model, "warnings") for caption, model in models.items()}
    return [
        sentence if len(names) == len(models) else f"{join_words(names)}: {sentence}"
        for sentence, names in merge_sentences(sentences)
    ]


def name_metrics(sentence: str) -> list[str]:
    """Return the keys of the metrics that a sentence names.

    Args:
        sentence: Warning or note.

    Example:
        >>> name_metrics("too high: ncc_accuracy, mir; measure 600 samples")
        ['ncc_accuracy', 'mir']
    """
    return [word for word in re.findall(r"\w+", sentence) if word in METRICS]


def collect_sentences(model: ModelRecord, kind: Literal["notes", "warnings"]) -> list[str]:
    """Return each note or warning once, with its layers unless it concerns all layers.

    Args:
        model: Measurement of one or more layers.
        kind: Kind of the sentences.
    """
    order = [record.layer for record in model.layers]
    by_layer = {record.layer: merge_undefined(getattr(record, kind)) for record in model.layers}
    merged = merge_sentences(by_layer)
    if kind == "warnings":  # the numbers of the last layer lead the page
        merged.sort(key=lambda pair: order[-1] not in pair[1])
    return [
        sentence if len(names) == len(order) else f"{_join_layers(names, order)}: {sentence}"
        for sentence, names in merged
    ]


def merge_sentences(by_name: Mapping[str, Sequence[str]]) -> list[tuple[str, list[str]]]:
    """Return each sentence with the names that it concerns; those that differ in numbers are one.

    Example:
        >>> merge_sentences({"a": ["8% is noise"], "b": ["5% is noise", "few"], "c": ["few"]})
        [('5 to 8% is noise', ['a', 'b']), ('few', ['b', 'c'])]
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for name, sentences in by_name.items():
        for sentence in sentences:
            alike.setdefault(_NUMBER.sub("#", sentence), []).append((sentence, name))
    merged: list[tuple[str, list[str]]] = []
    for entries in alike.values():
        names: dict[str, list[str]] = {}
        for sentence, name in entries:
            names.setdefault(sentence, []).append(name)
        # Two sentences of one name are two facts.
        is_one = len({name for _, name in entries}) == len(entries) and len(names) > 1
        whole = _join_numbers(list(names)) if is_one else None
        if whole is None:
            merged += names.items()
        else:
            merged.append((whole, list(dict.fromkeys(name for _, name in entries))))
    return merged


_NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")
"""A number that is no part of a name."""


def _join_numbers(sentences: Sequence[str]) -> str | None:
    """Write sentences that differ in numbers as one; None if the numbers are names of classes."""
    columns = list(zip(*(_NUMBER.finditer(sentence) for sentence in sentences), strict=True))
    first = sentences[0]
    parts, end = [], 0
    for matches in columns:
        texts = sorted(
            {match[0] for match in matches}, key=lambda text: float(text.replace(",", ""))
        )
        start = matches[0].start()
        is_name = re.search(r"(class|classes|layer|,) $", first[:start])
        if len(texts) > 1 and (is_name or first[matches[0].end() :].startswith(", ")):
            return None
        parts += [first[end:start], texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"]
        end = matches[0].end()
    return "".join([*parts, first[end:]])


def merge_undefined(sentences: Sequence[str]) -> list[str]:
    """Write the notes on metrics that are undefined for one reason as one note.

    Example:
        >>> merge_undefined(["a is undefined: no head", "few", "b is undefined: no head"])
        ['a and b are undefined: no head', 'few']
    """
    merged: dict[str, list[str]] = {}
    for sentence in sentences:
        metrics, undefined, reason = sentence.partition(" is undefined: ")
        if undefined:
            merged.setdefault(reason, []).extend(metrics.split(", "))
        else:
            merged.setdefault(sentence, [])
    return [
        f"{join_words(metrics)} {'is' if len(metrics) == 1 else 'are'} undefined: {reason}"
        if metrics
        else reason
        for reason, metrics in merged.items()
    ]


def _join_layers(names: Sequence[str], order: Sequence[str]) -> str:
    """Write names of layers as an enumeration; three or more neighbours by their first and last."""
    places = sorted(map(order.index, names))
    spans: list[list[int]] = []
    for place in places:
        if spans and spans[-1][-1] == place - 1:
            spans[-1].append(place)
        else:
            spans.append([place])
    words = []
    for span in spans:
        texts = [quote_number(order[place]) for place in span]
        words += texts if len(span) < 3 else [f"{texts[0]} to {texts[-1]}"]
    return join_words(words)


def describe_history(measurements: Sequence[Measurement], unit: str) -> list[str]:
    """Describe the measurements in short phrases; layers and samples are those of the last run."""
    runs = group_by_run(measurements)
    last_run = next(reversed(runs.values()))
    model = last_run[-1].model_record
    facts = [
        *name_layers(model),
        format_class_count(model.last.num_classes, model.last.num_present),
    ]
    if len(runs) > 1:
        facts.insert(0, f"{len(runs)} runs")
    facts += [
        f"{at[-1].model_record.last.num_samples:,} {name} samples"
        for name, at in group_by_split(last_run).items()
    ]
    steps = sorted({measurement.step for measurement in measurements})
    span = f"{unit} {format_step(steps[0])}"
    if len(steps) > 1:
        span = f"{unit}s {format_step(steps[0])} to {format_step(steps[-1])}"
    return [*facts, f"{span} ({len(steps)} measured)"]


def select_last(measurements: Sequence[Measurement], unit: str) -> dict[str, ModelRecord]:
    """Return the last measurement of each run and split, by caption.

    Args:
        measurements: Measurements of one run or several.
        unit: Unit of their steps.
    """
    lasts = [
        (run, split, of_split[-1])
        for run, of_run in group_by_run(measurements).items()
        for split, of_split in group_by_split(of_run).items()
    ]
    return {
        ", ".join(filter(None, (run, split, name_step(last, unit)))): last.model_record
        for run, split, last in lasts
    }


def describe_origin(origin: Provenance) -> list[str]:
    """Name model, weights, data and split, as far as they are known."""
    return [text for text in (origin.model, origin.weights, origin.data, origin.split) if text]


def describe_model(model: ModelRecord) -> list[str]:
    """Describe the measurement in short phrases."""
    last = model.last
    return [
        *name_layers(model),
        f"{last.num_samples:,} samples",
        format_class_count(last.num_classes, last.num_present),
        f"{last.dim:,} features",
    ]


def name_layers(model: ModelRecord) -> list[str]:
    """Return the number of layers, or the name of the only one; nothing for features of a table."""
    if len(model.layers) > 1:
        return [f"{len(model.layers)} layers"]
    name = model.layers[0].layer
    return [] if name == "features" else [f"layer: {name}"]


def split_config(
    configs: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Split configurations into entries that all share and the other entries of each, as text.

    Args:
        configs: Configurations of one or more runs; with one, all entries are shared.

    Example:
        >>> split_config([{"seed": 0, "steps": 9}, {"seed": 1, "steps": 9}])
        ({'steps': '9'}, [{'seed': '0'}, {'seed': '1'}])
    """
    flat = [flatten_config(config) for config in configs]
    alike = {
        name: text
        for name, text in (flat[0] if flat else {}).items()
        if all(config.get(name) == text for config in flat)
    }
    others = [{name: text for name, text in one.items() if name not in alike} for one in flat]
    return alike, others


def flatten_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten a nested configuration to dotted names and text."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat |= flatten_config(value, f"{key}.")
        elif isinstance(value, list | tuple):
            flat[key] = ", ".join(map(str, value))
        else:
            flat[key] = str(value)
    return flat
