"""Table of classes of a layer, made from its statistics and the decisions by class."""

from collections.abc import Collection, Sequence

from torch import Tensor

from ncscope.math.powers import times_power_or_nan
from ncscope.measurement.records import ClassTable
from ncscope.metrics.class_columns import GROUP, MOST_CLASSES, class_columns
from ncscope.metrics.sources import Sources

LEFT_OUT = (
    f"{GROUP}: the table of classes is left out with more than {MOST_CLASSES:,} classes; ask for "
    f"it by the group {GROUP!r}"
)
"""Note where the table is made for fewer classes, unasked for."""

NOT_COUNTED = (
    f"{GROUP}: accuracies by class that are decided on a random sample of the samples are left out"
)
"""Note where the decisions of the second pass are estimates."""


def wanted(sources: Sources, groups: Collection[str] | None, unasked: bool) -> bool:
    """Return whether a layer's record has a table of classes.

    Args:
        sources: Statistics of the layer.
        groups: Groups of metrics that are asked for; None for all.
        unasked: True if the table is made unasked for, with up to `MOST_CLASSES` classes.
    """
    if groups is not None:
        return GROUP in groups
    return unasked and sources.stats.k <= MOST_CLASSES


def notes_on(sources: Sources, groups: Collection[str] | None, unasked: bool) -> list[str]:
    """Return notes on a table, or a column, that is left out.

    Args:
        sources: Statistics of the layer.
        groups: Groups of metrics that are asked for; None for all.
        unasked: True if the table is made unasked for.
    """
    if not wanted(sources, groups, unasked):
        return [LEFT_OUT] if groups is None and unasked else []
    estimated = sources.decisions is not None and sources.decisions.by_class is None
    return [NOT_COUNTED] if estimated else []


def class_table(sources: Sources) -> ClassTable:
    """Compute the table of classes.

    Args:
        sources: Statistics of the layer, its head, and the decisions of the second pass.
    """
    sources = sources.in_range
    stats, columns = sources.stats, class_columns(sources)
    return ClassTable(
        classes=stats.classes.tolist(),
        samples=stats.counts.tolist(),
        within_share=columns.within_share.tolist(),
        nc1_quotient=columns.nc1_quotient.tolist(),
        mean_norm=_in_unit(columns.mean_norm, stats.exponent),
        head_norm=_known(columns.head_norm, sources.weight_exponent),
        head_cosine=_known(columns.head_cosine),
        nearest=stats.classes[columns.nearest].tolist(),
        nearest_distance=columns.nearest_distance.tolist(),
        nearest_cosine=columns.nearest_cosine.tolist(),
        nearest_cdnv=columns.nearest_cdnv.tolist(),
        ncc_accuracy=_known(columns.ncc_accuracy),
        accuracy=_known(columns.accuracy),
    )


def _known(values: Tensor | None, exponent: int = 0) -> list[float] | None:
    return None if values is None else _in_unit(values, exponent)


def _in_unit(values: Tensor, exponent: int) -> list[float]:
    """Return lengths in the unit of what was given; NaN where float64 cannot hold one."""
    numbers: Sequence[float] = values.tolist()
    return [times_power_or_nan(number, exponent) for number in numbers]
