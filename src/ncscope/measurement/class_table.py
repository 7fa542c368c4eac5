"""Table of classes: variability, class mean, head row, nearest class and accuracy of each."""

from collections.abc import Collection

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.math.pairs import nearest_rows, row_blocks
from ncscope.math.powers import rescale_rows, times_power_or_nan
from ncscope.measurement.records import ClassTable
from ncscope.metrics.names import PER_CLASS
from ncscope.metrics.sources import Sources
from ncscope.stats.statistics import ClassStatistics

MOST_CLASSES = 1000
"""Number of classes up to which the table of classes is made unasked for."""


def has_class_table(sources: Sources, groups: Collection[str] | None, unasked: bool) -> bool:
    """Return whether a layer's record has a table of classes.

    Args:
        sources: Statistics of the layer.
        groups: Groups of metrics that are asked for; None for all.
        unasked: True if the table is made unasked for, with up to `MOST_CLASSES` classes.
    """
    if groups is not None:
        return PER_CLASS in groups
    return unasked and sources.stats.k <= MOST_CLASSES


def note_absent_table(sources: Sources, groups: Collection[str] | None, unasked: bool) -> list[str]:
    """Return notes on a table, or a column, that is left out.

    Args:
        sources: Statistics of the layer.
        groups: Groups of metrics that are asked for; None for all.
        unasked: True if the table is made unasked for.
    """
    if not has_class_table(sources, groups, unasked):
        left_out = (
            f"{PER_CLASS}: the table of classes is left out with more than {MOST_CLASSES:,} "
            f"classes; ask for it by the group {PER_CLASS!r}"
        )
        return [left_out] if groups is None and unasked else []
    if sources.decisions is None or sources.decisions.by_class is not None:
        return []
    # The decisions of the second pass are estimates.
    return [
        f"{PER_CLASS}: accuracies by class that are decided on a random sample of the samples are "
        "left out"
    ]


def make_class_table(sources: Sources) -> ClassTable:
    """Compute the table of classes.

    Args:
        sources: Statistics of the layer, its head, and the decisions of the second pass.

    Cost: $K^2d$ operations for the nearest class means, in blocks, and a copy of the class means.
    """
    sources = sources.in_range
    stats, frame = sources.stats, sources.stats.frame
    nearest, distance = nearest_rows(frame)
    # Class means no farther apart than their rounding coincide.
    distance = distance.masked_fill(distance <= stats.rounding, 0.0)
    lengths = torch.linalg.vector_norm(frame, dim=1)
    typical = (2 * lengths.square().sum() / (stats.k - 1)).sqrt()
    between = stats.between_trace
    head_norm, head_cosine = _against_head(sources, frame)
    # Rounding has a variance too, but no class has a share of it.
    within = stats.within_trace.where(stats.within_trace.sqrt() > stats.rounding, torch.nan)
    variance = stats.class_traces + stats.class_traces[nearest]
    decisions = None if sources.decisions is None else sources.decisions.by_class
    hits = None if sources.hits is None else sources.hits.by_class

    def in_unit(lengths: Tensor, exponent: int) -> list[float]:
        """Return lengths in the unit of what was given; NaN where float64 cannot hold one."""
        return [times_power_or_nan(length, exponent) for length in lengths.tolist()]

    return ClassTable(
        classes=stats.classes.tolist(),
        samples=stats.counts.tolist(),
        within_share=(stats.prior * stats.class_traces / within).tolist(),
        nc1_quotient=torch.where(between > 0, stats.class_traces / between, torch.nan).tolist(),
        mean_norm=in_unit(lengths, stats.exponent),
        head_norm=None if head_norm is None else in_unit(head_norm, sources.weight_exponent),
        head_cosine=None if head_cosine is None else head_cosine.tolist(),
        nearest=stats.classes[nearest].tolist(),
        nearest_distance=(distance / typical).tolist(),
        nearest_cosine=_cosines(frame, nearest).tolist(),
        nearest_cdnv=(variance / (2 * distance.square())).tolist(),
        ncc_accuracy=None if decisions is None else _accuracy(stats, decisions[0]),
        accuracy=None if hits is None else _accuracy(stats, hits),
    )


def _accuracy(stats: ClassStatistics, hits: Int[Tensor, " all"]) -> list[float]:
    """Divide the hits of the classes present by their numbers of samples."""
    present = hits.to(stats.counts.device)[stats.classes]
    return (present.to(stats.prior) / stats.counts).tolist()


def _cosines(frame: Float[Tensor, "k d"], others: Int[Tensor, " k"]) -> Float[Tensor, " k"]:
    """Return the cosine of each row and another row; NaN if one of the two is zero."""
    rows, length = rescale_rows(frame)
    products = [torch.linalg.vecdot(rows[b], rows[others[b]]) for b in row_blocks(*rows.shape)]
    return torch.cat(products) / (length * length[others])


def _against_head(
    sources: Sources, frame: Float[Tensor, "k d"]
) -> tuple[Float[Tensor, " k"] | None, Float[Tensor, " k"] | None]:
    """Return lengths of the head's rows, and their cosines with the centred class means.

    A cosine is NaN if the row or the centred class mean is zero.
    """
    if sources.weight is None:
        return None, None
    norms, cosines = [], []
    for block in row_blocks(*frame.shape):
        rows = sources.weight[sources.stats.classes[block]].to(frame.dtype)
        norms.append(torch.linalg.vector_norm(rows, dim=1))
        (rows, length), (means, far) = rescale_rows(rows), rescale_rows(frame[block])
        cosines.append(torch.linalg.vecdot(rows, means) / (length * far))
    return torch.cat(norms), torch.cat(cosines)
