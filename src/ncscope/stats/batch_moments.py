"""Moments of one batch over the classes present in it, and their range."""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ncscope.array_checks import refuse_nonfinite
from ncscope.devices import is_asynchronous
from ncscope.math.powers import exponent_of
from ncscope.math.symmetric import without_zeros
from ncscope.stats.batch import Workspace, square_norms
from ncscope.stats.classes import BatchClasses
from ncscope.stats.scatter import ScatterSum

_PILOT_ROWS = 64  # at most so many rows show that there is no common offset
_FEWEST_ROWS = 8  # a class, on average, with which traces from the first read are likely to do


def batch_moments(
    features: Shaped[Tensor, "n d"],
    classes: BatchClasses,
    *,
    directions: bool = False,
    scatter: ScatterSum | None = None,
    weights: Float[Tensor, " k"] | None = None,
    pilot: Float[Tensor, " d"] | None = None,
) -> dict[str, Tensor]:
    """Compute the moments of a batch, by the names of the state of `ClassMoments`.

    Args:
        features: Features of a real dtype, n at least 1.
        classes: Classes of the rows, on the device of the features.
        directions: Compute the moments of the directions too if True.
        scatter: Scatter to which the centred rows are added; None for no scatter.
        weights: Factor of each class's scatter; None for 1.
        pilot: Vector that the class means are computed about; None for 0.
    """
    present, counts, labels = classes.present, classes.counts, classes.index
    dim, device = features.shape[1], features.device
    space = Workspace(len(features), dim, device)
    means = torch.zeros(len(present), dim, dtype=torch.float64, device=device)
    batch = {"counts": counts, "offsets": means, "traces": means.new_zeros(len(present))}
    if directions:
        batch["unit_means"] = torch.zeros_like(means)
        batch["unit_traces"] = means.new_zeros(len(present))
        batch["zero_vectors"] = torch.zeros((), dtype=torch.int64, device=device)
    # Where the means are all that the first read gives, it may give the traces too.
    alone = scatter is None and not directions and not is_asynchronous(device)
    squared = alone and len(features) >= _FEWEST_ROWS * len(present)
    for chunk, y in space.iterate_chunks(features, labels):
        rows = space.subtract_pilot(chunk, pilot)
        means.index_add_(0, y, rows)
        if squared:
            batch["traces"].index_add_(0, y, square_norms(rows))
        if directions:
            unit, length = space.normalise_rows(chunk)
            batch["unit_means"].index_add_(0, y, unit)
            batch["zero_vectors"] += (length == 0).sum()
    means /= counts[:, None]
    if directions:
        batch["unit_means"] /= counts[:, None]
    if squared:
        share = counts * square_norms(means)
        traces = (batch["traces"] - share).masked_fill_(counts == 1, 0.0)
        # The subtraction loses two bits at most. Where it would lose more, because the class means
        # are far larger than the spread, the spread is read again, about the means.
        if bool(((share <= 3 * traces) | (counts == 1)).all()):
            batch["traces"] = traces
            return batch
        batch["traces"].zero_()
    root = None if weights is None else weights[present].sqrt()
    # A chunk suits the cache, but a product of so few rows would read and write all of a large
    # scatter. The centred rows are therefore collected in a panel of several chunks.
    panel = None if scatter is None else space.panel(len(features))
    first = 0
    for chunk, y in space.iterate_chunks(features, labels):
        end = first + len(chunk)
        if panel is None:
            spread = space.subtract_means(chunk, means, y, pilot)
        else:
            low = first % len(panel)
            spread = space.subtract_means(chunk, means, y, pilot, panel[low : low + len(chunk)])
        batch["traces"].index_add_(0, y, square_norms(spread))
        if scatter is not None and panel is not None:
            if root is not None:
                spread *= root[y][:, None]
            if end % len(panel) == 0 or end == len(features):
                rows = panel[: low + len(chunk)]
                # A row alone in its class is the class mean: its centred row is exactly zero.
                scatter.add(without_zeros(rows, counts[labels[end - len(rows) : end]] == 1))
        if directions:
            # Last, because it overwrites the chunk and the workspace's differences.
            turn = space.subtract_means(space.normalise_rows(chunk)[0], batch["unit_means"], y)
            batch["unit_traces"].index_add_(0, y, square_norms(turn))
        first = end
    return batch


def choose_pilot(features: Shaped[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """Return a vector to subtract from all features, so that a common offset costs no digits.

    A coordinate of the pilot is the value nearest to 0, if all are of one sign and within a factor
    of two: the differences are then exact (Sterbenz), and as small as the spread. It is 0
    elsewhere, where there is no offset to remove and a difference would be rounded.

    Args:
        features: Features of a real dtype, n at least 1.
    """
    step = -(-len(features) // _PILOT_ROWS)
    if step > 1 and features.device.type == "cpu":
        # What some of the rows exclude, all of them do: most features cost no read of their own.
        pilot = pilot_between(*_find_ends(features[::step]))
        if not pilot.numpy().any():
            return pilot
    return pilot_between(*_find_ends(features))


def _find_ends(rows: Shaped[Tensor, "n d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Return the smallest and the largest value of each coordinate."""
    # Not aminmax, which along the rows takes eight times as long on a CPU.
    return rows.amin(0).to(torch.float64), rows.amax(0).to(torch.float64)


def pilot_between(low: Float[Tensor, " d"], high: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """Return the pilot of rows, or of pilots, between two bounds."""
    above, below = (low > 0) & (high <= 2 * low), (high < 0) & (low >= 2 * high)
    return torch.where(above, low, torch.where(below, high, 0.0))


def common_pilot(one: Float[Tensor, " d"], other: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """Return the pilot of two sets of rows, from theirs; the first if they are alike.

    A pilot far larger than a row would take the row's digits: of two that differ, the smaller one
    counts, and 0 if they differ in sign. No later batch can therefore be worse off than without.
    """
    same = one.sign() == other.sign()
    smaller = torch.where(one.abs() <= 2 * other.abs(), one, other)
    return torch.where(same, smaller, 0.0)


def approximate_magnitude(
    batch: Mapping[str, Tensor], pilot: Float[Tensor, " d"] | None = None
) -> Float[Tensor, ""]:
    """Return the magnitude of a batch up to a factor of the square root of nd, NaN for NaN.

    Args:
        batch: Moments of the batch.
        pilot: Vector that the class means are given about; None for 0.
    """
    size = torch.linalg.vector_norm(batch["offsets"], ord=math.inf)
    size = size.maximum(batch["traces"].max().sqrt())
    return size if pilot is None else size.maximum(torch.linalg.vector_norm(pilot, ord=math.inf))


def exponent_out_of_range(
    features: Shaped[Tensor, "n d"],
    batch: Mapping[str, Tensor],
    limit: int,
    pilot: Float[Tensor, " d"] | None = None,
) -> int:
    """Return the exponent of the largest magnitude if it is out of range, else 0.

    The class means and traces give the magnitude up to a factor of the square root of nd. The
    features are therefore read again only if means and traces are extreme, or all zero.

    Args:
        features: Features of the batch.
        batch: Moments of the batch.
        limit: Largest exponent of 2, of either sign, that is in range.
        pilot: Vector that the class means are given about; None for 0.

    Raises:
        InputError: If a feature is NaN or infinite.
    """
    size = float(approximate_magnitude(batch, pilot))
    if 2.0**-limit <= size <= 2.0**limit:  # False for NaN too, so that NaN is refused below
        return 0
    refuse_nonfinite(features)
    return exponent_of(features, limit)
