"""Statistics of the same samples in two layers, for the geodesic and the relative position."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.devices import move_to
from ncscope.stats.classes import BatchClasses
from ncscope.stats.locking import ThreadSafe
from ncscope.stats.merging import MergeParts


class CrossMoments(ThreadSafe):
    r"""Per class $\sum_i\langle h^0_i-\mu^0_c,h^1_i-\mu^1_c\rangle$ of two layers, in one pass.

    State: ``counts`` (k), ``first`` and ``last`` class means (k x d), ``cross`` (k). Several
    threads may update it.

    Args:
        num_classes: Number of classes; labels are 0..k-1.
        dim: Dimension of both layers.
        device: Device to accumulate on, in float64.

    Example:
        >>> pair = CrossMoments(num_classes=1, dim=1)
        >>> h = torch.tensor([[1.0], [3.0]])
        >>> pair.update(h, 2 * h, torch.tensor([0, 0]))
        >>> pair.cross.tolist()  # (-1)(-2) + (1)(2)
        [4.0]
    """

    def __init__(self, num_classes: int, dim: int, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.counts = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self.first = torch.zeros(num_classes, dim, dtype=torch.float64, device=device)
        self.last = torch.zeros_like(self.first)
        self.cross = torch.zeros(num_classes, dtype=torch.float64, device=device)

    def update(
        self,
        first: Shaped[Tensor, "n d"],
        last: Shaped[Tensor, "n d"],
        labels: Int[Tensor, " n"],
    ) -> None:
        """Add a batch: features of the same samples in both layers, and their labels."""
        self.take(first, last, BatchClasses.from_labels(labels, len(self.counts)))

    def take(
        self, first: Shaped[Tensor, "n d"], last: Shaped[Tensor, "n d"], classes: BatchClasses
    ) -> None:
        """Add a batch whose classes are known. Cost: no wait.

        Args:
            first: Features in the first layer.
            last: Features of the same samples in the last layer.
            classes: Classes of the samples.
        """
        classes = classes.to(self.cross.device)
        present, counts, index = classes.present, classes.counts, classes.index
        ends = (move_to(h, self.cross.device).to(torch.float64) for h in (first, last))
        means, centred = zip(*(_centre(h, index, counts) for h in ends), strict=True)
        cross = torch.zeros(len(present), dtype=self.cross.dtype, device=self.cross.device)
        cross.index_add_(0, index, (centred[0] * centred[1]).sum(1))
        with self.lock:
            self._merge_rows(present, counts, means[0], means[1], cross)

    def ends(self) -> "LineEnds":
        """Return the class means at both ends of the line. Cost: one wait."""
        with self.lock:
            present = torch.nonzero(self.counts).squeeze(1)
            return LineEnds(present, self.first[present], self.last[present])

    def merge(self, other: "CrossMoments") -> "CrossMoments":
        """Add the samples of another accumulator of the same shapes, and return these moments."""
        state = other.state_dict()
        present = torch.nonzero(state["counts"]).squeeze(1)
        rows = (state[name] for name in ("counts", "first", "last", "cross"))
        counts, first, last, cross = (value[present].to(self.cross.device) for value in rows)
        with self.lock:
            self._merge_rows(present.to(self.cross.device), counts, first, last, cross)
        return self

    def split_for_merge(self) -> MergeParts:
        """Return the statistics for a merge with those of other processes, not copied."""
        form = {"classes": len(self.counts), "dimension": self.first.shape[1]}
        means = {"first": self.first, "last": self.last}
        return MergeParts(form, self.counts, means, {"cross": self.cross}, self._refer)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the accumulated statistics as named tensors."""
        names = ("counts", "first", "last", "cross")
        with self.lock:
            return {name: getattr(self, name).clone() for name in names}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore statistics that `state_dict` returned for state of the same shapes."""
        with self.lock:
            for name, value in state.items():
                getattr(self, name).copy_(value)

    def _refer(self, rows: slice, shift: Mapping[str, Tensor]) -> None:
        """Refer the cross moments to other means: see `MergeParts.refer`."""
        # The terms of first order vanish, because deviations from a mean sum to zero.
        products = shift["first"].mul_(shift["last"]).sum(1)
        self.cross[rows] += self.counts[rows] * products

    def _merge_rows(
        self,
        present: Int[Tensor, " p"],
        counts: Int[Tensor, " p"],
        first: Float[Tensor, "p d"],
        last: Float[Tensor, "p d"],
        cross: Float[Tensor, " p"],
    ) -> None:
        # By the update of Chan, Golub and LeVeque, for a product of two layers. A class has either
        # the samples before, or these, or both: the share is 1 for a class that is new.
        mine = self.counts[present]
        share = counts.to(self.cross.dtype) / (mine + counts)
        shift = (first - self.first[present], last - self.last[present])
        gained = cross + mine * share * (shift[0] * shift[1]).sum(1)
        self.cross.index_add_(0, present, gained)
        self.first.index_add_(0, present, share[:, None] * shift[0])
        self.last.index_add_(0, present, share[:, None] * shift[1])
        self.counts.index_add_(0, present, counts)


class LineEnds(NamedTuple):
    """Means of the classes present in two layers.

    Attributes:
        classes: Labels of the classes.
        first: Class means in the first layer.
        last: Class means in the last layer.
    """

    classes: Int[Tensor, " p"]
    first: Float[Tensor, "p d"]
    last: Float[Tensor, "p d"]


def step_length(earlier: Shaped[Tensor, "n d"], later: Shaped[Tensor, "n d"]) -> Float[Tensor, ""]:
    r"""Sum $\lVert h_i^{j+1}-h_i^j\rVert$ over a batch, in float64; additive over batches."""
    step = later.to(torch.float64) - earlier.to(later.device, torch.float64)
    return torch.linalg.vector_norm(step, dim=1).sum()


def nearest_hits_on_line(
    first: Shaped[Tensor, "n d"],
    last: Shaped[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    ends: LineEnds,
    positions: Float[Tensor, " t"],
) -> Int[Tensor, " t"]:
    r"""Count samples nearest to the mean of their class, at points of a line between two layers.

    $\lVert h^{(t)}-\mu_c^{(t)}\rVert^2$ is a quadratic in $t$ whose three coefficients are products
    of the end layers, so no interpolated feature is formed.

    Args:
        first: The first layer's features.
        last: The last layer's features of the same samples.
        labels: Class of each sample.
        ends: Class means of the two layers over all samples, not only this batch.
        positions: Values of $t$ in [0, 1].

    Returns:
        Hits at each position; additive over batches. Cost: four $2ndK$ products, T passes of nK.
    """
    present, m0, m1 = ends
    # About the centre of the means, so that an offset common to all samples costs no digits.
    o0, o1 = m0.mean(0), m1.mean(0)
    m0, m1 = m0 - o0, m1 - o1
    h0, h1 = first.to(m0) - o0, last.to(m1) - o1
    # The squared length of the sample itself is left out: it is the same for all classes.
    at_first = torch.addmm(m0.square().sum(1), h0, m0.mT, alpha=-2)
    at_last = torch.addmm(m1.square().sum(1), h1, m1.mT, alpha=-2)
    mixed = (m0 * m1).sum(1) - h0 @ m1.mT - h1 @ m0.mT
    labels = labels.to(present.device)
    hits = [
        (present[(u * u * at_first + 2 * t * u * mixed + t * t * at_last).argmin(1)] == labels)
        for t, u in zip(positions.tolist(), (1 - positions).tolist(), strict=True)
    ]
    return torch.stack([hit.sum() for hit in hits])


def _centre(
    rows: Float[Tensor, "n d"], index: Int[Tensor, " n"], counts: Int[Tensor, " p"]
) -> tuple[Float[Tensor, "p d"], Float[Tensor, "n d"]]:
    """Return the class means of a batch, and its rows centred by them."""
    sums = torch.zeros(len(counts), rows.shape[1], dtype=rows.dtype, device=rows.device)
    means = sums.index_add_(0, index, rows) / counts[:, None]
    return means, rows - means[index]
