"""Values of each class by itself: variability, class mean, head row, nearest class, accuracy."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.math.pairs import nearest_rows, row_blocks
from ncscope.math.powers import rescale_rows
from ncscope.metrics.sources import Sources
from ncscope.stats.statistics import ClassStatistics

MOST_CLASSES = 1000
"""Number of classes up to which the table of classes is made unasked for."""

GROUP = "per_class"
"""Name that asks for the table of classes beside the groups of metrics."""


@dataclass(frozen=True)
class ClassColumns:
    r"""A value of each class present; lengths are in the unit of the sources.

    Attributes:
        within_share: $\pi_c\operatorname{Tr}\Sigma_c/\operatorname{Tr}\Sigma_W$; NaN if the samples
            vary by rounding only.
        nc1_quotient: $\operatorname{Tr}\Sigma_c/\operatorname{Tr}\Sigma_B$.
        mean_norm: $\lVert\tilde\mu_c\rVert$.
        head_norm: $\lVert w_c\rVert$; None without a classifier.
        head_cosine: Cosine of $\tilde\mu_c$ and $w_c$; None without a classifier.
        nearest: Index of the class whose mean is nearest.
        nearest_distance: Distance to the nearest class mean over the root mean square of the
            distances of all pairs.
        nearest_cosine: Cosine of the centred class mean and the nearest class's.
        nearest_cdnv: CDNV of the class and its nearest class.
        ncc_accuracy: Share of the class's samples whose nearest class mean is the class's; None if
            not counted by class.
        accuracy: Share of the class's samples that the classifier assigns to it; None likewise.
    """

    within_share: Float[Tensor, " k"]
    nc1_quotient: Float[Tensor, " k"]
    mean_norm: Float[Tensor, " k"]
    head_norm: Float[Tensor, " k"] | None
    head_cosine: Float[Tensor, " k"] | None
    nearest: Int[Tensor, " k"]
    nearest_distance: Float[Tensor, " k"]
    nearest_cosine: Float[Tensor, " k"]
    nearest_cdnv: Float[Tensor, " k"]
    ncc_accuracy: Float[Tensor, " k"] | None
    accuracy: Float[Tensor, " k"] | None


def class_columns(sources: Sources) -> ClassColumns:
    """Compute the values of each class present.

    Args:
        sources: Statistics and classifier in range (see `Sources.in_range`).

    Cost: $K^2d$ operations for the nearest class means, in blocks, and a copy of the class means.
    """
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
    return ClassColumns(
        within_share=stats.prior * stats.class_traces / within,
        nc1_quotient=torch.where(between > 0, stats.class_traces / between, torch.nan),
        mean_norm=lengths,
        head_norm=head_norm,
        head_cosine=head_cosine,
        nearest=nearest,
        nearest_distance=distance / typical,
        nearest_cosine=_cosines(frame, nearest),
        # Infinite for class means that coincide, NaN if neither of the two classes varies.
        nearest_cdnv=variance / (2 * distance.square()),
        ncc_accuracy=_accuracy(stats, None if decisions is None else decisions[0]),
        accuracy=_accuracy(stats, None if sources.hits is None else sources.hits.by_class),
    )


def _accuracy(
    stats: ClassStatistics, hits: Int[Tensor, " all"] | None
) -> Float[Tensor, " k"] | None:
    """Divide the hits of the classes present by their numbers of samples."""
    if hits is None:
        return None
    present = hits.to(stats.counts.device)[stats.classes]
    return present.to(stats.prior) / stats.counts


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
