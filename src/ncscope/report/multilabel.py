"""Page of a measurement of multi-label collapse."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ncscope.measurement.records import LayerRecord
from ncscope.metrics.metric import Metric
from ncscope.report.labels import capitalise
from ncscope.report.overview import Details, MetricRow, build_cell
from ncscope.report.page import render_page
from ncscope.report.wording import typeset


def render_multilabel_page(
    title: str,
    record: LayerRecord,
    rows: Mapping[str, Metric],
    facts: Sequence[str],
) -> str:
    """Build one self-contained HTML page: the values by number of labels, notes and definitions.

    Args:
        title: Heading of the page.
        record: Values, notes and warnings.
        rows: Declaration of each key; keys of a multiplicity m above 1 end in ``_m2``, ``_m3``.
        facts: Short phrases on the samples.
    """
    groups: dict[str, list[MetricRow]] = {}
    for key, row in rows.items():
        label = replace(row, key=key, title=capitalise(row.title))
        _, ending, multiplicity = key.rpartition("_m")
        several = bool(ending) and multiplicity.isdecimal()
        group = f"Samples with {multiplicity} labels" if several else "Classes and classifier"
        value = row.target(record.num_classes)
        collapsed = "" if math.isnan(value) else f"{typeset(value, 4)} {label.arrow}".rstrip()
        groups.setdefault(group, []).append(
            MetricRow(label, collapsed, [build_cell(record, label)])
        )
    return render_page(
        title=title,
        facts=facts,
        warnings=record.warnings,
        details=[Details("", [record], groups, progress=[], notes=list(record.notes))],
    )
