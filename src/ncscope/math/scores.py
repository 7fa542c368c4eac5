"""Argmax of linear scores, exact to float64 at the cost of float32 or bfloat16."""

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ncscope.devices import chunk_bytes, float32_is_reduced
from ncscope.math import screening
from ncscope.math.screening import Candidates, Screen

_CHUNK_BYTES = 8 * 2**20
_FEWEST_ROWS = 256  # with fewer rows, most of the time goes into reading the weights
_FEW_CLASSES = 64  # up to here, most of the time goes into reading the rows
_CACHED_BYTES, _CACHED_ROWS = 4 * 2**20, 32
_MOST_CANDIDATES = 16  # of a row; more are scored faster in float32, all of them
_RESCORED = 64  # bytes of a chunk for a coordinate of a candidate: several buffers share the cache
_MEAN_ROUNDING = 4.0
_BLOCK = 4096  # rows of the weight that are converted to float64 at a time


class LinearScores:
    r"""K scores of a feature, $\langle w_c-s,h-o\rangle+\beta_c$.

    Args:
        weight: $w_c$, one a row, of any float type. The weight is not copied, because with many
            classes a copy would take most of the memory.
        offset: $\beta$, float64.
        centre: $o$, float64 but exact in float32 (see `float32_centre`). It is subtracted from
            every feature first, which keeps the scores and their rounding errors small.
        shift: $s$, float64; None for 0.
        rounding: Length of the rounding error of a weight, and of the offset over the longest
            weight; 0 for weights that are given. The first class within the error counts as best.

    Example:
        >>> scores = LinearScores(torch.eye(2), torch.zeros(2).double(), torch.zeros(2).double())
        >>> scores.argmax(torch.tensor([[1.0, 0.0], [0.0, 2.0]])).tolist()
        [0, 1]
    """

    def __init__(
        self,
        weight: Float[Tensor, "k d"],
        offset: Float[Tensor, " k"],
        centre: Float[Tensor, " d"],
        shift: Float[Tensor, " d"] | None = None,
        rounding: float = 0.0,
    ) -> None:
        self._weight, self._shift, self._centre = weight, shift, centre
        self._rounding = rounding
        # A common offset decides nothing, but the bound on rounding grows with the largest offset.
        self._offset = offset - offset.mean()
        self._screening = True  # until it turns out to leave too many candidates

    def argmax(self, features: Shaped[Tensor, "n d"]) -> Int[Tensor, " n"]:
        r"""Return the class with the largest score; the first of several equal ones.

        The product runs in float32 if float32 holds the features exactly. The decision for a
        feature is final if no partial sum can overflow and its two best scores differ by more than
        twice the worst error: the rounding error
        $\epsilon_{32}(d+4)\lVert h-o\rVert\max_c\lVert w_c\rVert+2\epsilon_{32}\max_c|\beta_c|$
        (Higham 2002, section 3.1, with the rounding of the inputs added) and the error of
        underflow. The few other features are scored again in float64. Where bfloat16 is faster, a
        product in bfloat16 leaves the classes within the bound of `screening`, and only these are
        scored in float64. The result is that of float64 for every input.

        Args:
            features: One sample a row, any real type.

        Cost: $2ndK$ operations, in chunks that suit the device, and one wait.
        """
        winner, doubtful = self.first_choice(features)
        self.settle_(winner, features, torch.nonzero(doubtful).squeeze(1))
        return winner

    def first_choice(
        self, features: Shaped[Tensor, "n d"]
    ) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
        """Return the class that seems best, and the features that `settle_` must score again.

        No value is read on the host, so that an accelerator is not waited for, unless there are so
        many classes that screening in bfloat16 pays.

        Args:
            features: One sample a row, any real type.
        """
        k, d = self._weight.shape
        wide = features.dtype in (torch.float64, torch.int32, torch.int64)
        if wide or k == 1 or float32_is_reduced(features.device.type):
            choose: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = self._surely
        elif self._screening and screening.pays(features.device, k, d):
            choose = self._screened
        else:
            choose = self._quick
        rows = self._chunk_rows(features.device)
        if k <= _FEW_CLASSES and features.device.type == "cpu" and choose == self._quick:
            rows = max(_CACHED_ROWS, _CACHED_BYTES // (4 * d))
        # One buffer for all chunks: new memory would cost more in page faults than the arithmetic.
        space = torch.empty(
            min(rows, len(features)), d, dtype=torch.float32, device=features.device
        )
        with torch.autocast(features.device.type, enabled=False):
            choices = [choose(chunk, space) for chunk in features.split(rows)]
        winners, doubtful = zip(*choices, strict=True)
        return torch.cat(winners), torch.cat(doubtful)

    def settle_(
        self,
        winner: Int[Tensor, " n"],
        features: Shaped[Tensor, "n d"],
        doubtful: Int[Tensor, " m"],
    ) -> None:
        """Decide the doubtful features in float64, in place.

        Args:
            winner: Classes that `first_choice` returned.
            features: Features that they were chosen for.
            doubtful: Indices of the doubtful features.
        """
        if not len(doubtful):
            return
        with torch.autocast(features.device.type, enabled=False):
            for rows in doubtful.split(self._chunk_rows(features.device)):
                winner[rows] = self._exact(features[rows])

    def _chunk_rows(self, device: torch.device) -> int:
        size = max(_CHUNK_BYTES, chunk_bytes(device))
        return max(_FEWEST_ROWS, size // (8 * sum(self._weight.shape)))

    def _centre_in(
        self, space: Float[Tensor, "rows d"], chunk: Shaped[Tensor, "n d"]
    ) -> Float[Tensor, "n d"]:
        """Subtract the centre in float32, into a buffer."""
        centre, centred = self._centre.to(torch.float32), space[: len(chunk)]
        if chunk.dtype == torch.float32:
            return torch.sub(chunk, centre, out=centred)
        return centred.copy_(chunk).sub_(centre)

    def _quick(
        self, chunk: Shaped[Tensor, "n d"], space: Float[Tensor, "rows d"]
    ) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
        """Decide by scores in float32; a decision within their error bound is doubtful."""
        weight, offset, bounds = self._in_float32
        centred = self._centre_in(space, chunk)
        best = torch.addmm(offset, centred, weight.mT).topk(2, dim=1)
        length = torch.linalg.vector_norm(centred, dim=1).to(torch.float64)
        bound = bounds.relative * length + bounds.absolute
        winner, gap = best.indices[:, 0], best.values.to(torch.float64).diff().neg()[:, 0]
        certain = (gap > 2 * bound) & (bounds.longest * length < bounds.largest_product)
        return winner, ~certain

    def _screened(
        self, chunk: Shaped[Tensor, "n d"], space: Float[Tensor, "rows d"]
    ) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
        """Decide by the candidates that a product in bfloat16 leaves."""
        found = self._screen.candidates(self._centre_in(space, chunk))
        count = torch.bincount(found.rows, minlength=len(chunk))
        few = found.screened & (count <= _MOST_CANDIDATES) & (count > 0)
        winner = torch.empty(len(chunk), dtype=torch.int64, device=chunk.device)
        winner[found.rows] = found.classes  # final for a row with a single candidate
        several = (few & (count > 1))[found.rows]
        self._rescore(chunk, Candidates(found.rows[several], found.classes[several], few), winner)
        others, doubtful = torch.nonzero(~few).squeeze(1), torch.zeros_like(few)
        if len(others):
            winner[others], doubtful[others] = self._quick(chunk[others], space)
            # Scores that are nearly equal for all features: screening would only add to the cost.
            self._screening = 2 * len(others) <= len(chunk)
        return winner, doubtful

    def _rescore(
        self, chunk: Shaped[Tensor, "n d"], found: Candidates, winner: Int[Tensor, " n"]
    ) -> None:
        """Score candidates in float64, and write the best of each row into `winner`."""
        if not len(found.rows):
            return
        at_once = max(1, chunk_bytes(chunk.device) // (_RESCORED * chunk.shape[1]))
        scores = [
            self._pair_scores(chunk.index_select(0, rows), classes)
            for rows, classes in zip(
                found.rows.split(at_once), found.classes.split(at_once), strict=True
            )
        ]
        score = torch.cat(scores)
        largest = score.new_full((len(chunk),), -torch.inf)
        largest.scatter_reduce_(0, found.rows, score, "amax")
        if self._rounding:
            largest -= self._error(chunk.to(torch.float64) - self._centre)
        best = score >= largest[found.rows]
        rows, classes = found.rows[best], found.classes[best]
        winner[rows] = len(self._weight)
        winner.scatter_reduce_(0, rows, classes, "amin")

    def _pair_scores(
        self, rows: Shaped[Tensor, "p d"], classes: Int[Tensor, " p"]
    ) -> Float[Tensor, " p"]:
        """Return the score of one class for each row, in float64."""
        weight = self._weight.index_select(0, classes).to(torch.float64)
        weight = weight if self._shift is None else weight.sub_(self._shift)
        centred = rows.to(torch.float64).sub_(self._centre)
        return weight.mul_(centred).sum(1) + self._offset[classes]

    def _surely(
        self, chunk: Shaped[Tensor, "n d"], space: Float[Tensor, "rows d"]
    ) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
        """Decide in float64, without a doubt."""
        winner = self._exact(chunk)
        return winner, torch.zeros_like(winner, dtype=torch.bool)

    def _exact(self, rows: Shaped[Tensor, "n d"]) -> Int[Tensor, " n"]:
        centred = rows.to(self._centre.dtype) - self._centre
        error = self._error(centred)
        largest = centred.new_full((len(rows),), -torch.inf)
        winner = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        for first, block in _in_float64(self._weight, self._shift):
            offset = self._offset[first : first + len(block)]
            scores = torch.addmm(offset, centred, block.mT)
            best = scores.amax(1)
            # Means that coincide differ by the rounding of their sums, which the order of the
            # samples decides: without the error, it would decide the class too.
            near = scores >= (best - error)[:, None]
            better = best > largest + error
            largest = torch.maximum(best, largest)
            winner = torch.where(better, first + near.to(torch.uint8).argmax(1), winner)
        return winner

    def _error(self, centred: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return twice a bound on the error of each row's scores; 0 for weights that are given."""
        if not self._rounding:
            return centred.new_zeros(len(centred))
        length, eps = torch.linalg.vector_norm(centred, dim=1), torch.finfo(torch.float64).eps
        products = eps * (centred.shape[1] + 4) * self._longest + self._rounding
        return 2 * (products * length + self._rounding * self._longest + 2 * eps * self._largest)

    @cached_property
    def _longest(self) -> float:
        """Length of the longest weight."""
        blocks = _in_float64(self._weight, self._shift)
        return max(float(torch.linalg.vector_norm(block, dim=1).max()) for _, block in blocks)

    @cached_property
    def _largest(self) -> float:
        """Largest offset, without its sign."""
        return float(self._offset.abs().max())

    @cached_property
    def _screen(self) -> Screen:
        """Weight and offset in bfloat16."""
        classes, dim = self._weight.shape
        screen = Screen(classes, dim, self._offset)
        for first, block in _in_float64(self._weight, self._shift):
            screen.add(first, block)
        return screen

    @cached_property
    def _in_float32(self) -> "tuple[Float[Tensor, 'k d'], Float[Tensor, ' k'], _Bounds]":
        """Weight and offset for the product in float32, and bounds on its error."""
        weight = self._weight
        if weight.dtype != torch.float32 or self._shift is not None:
            weight = torch.empty_like(weight, dtype=torch.float32)
        if weight is not self._weight:
            for first, block in _in_float64(self._weight, self._shift):
                weight[first : first + len(block)] = block
        bounds = _Bounds.of(self._longest, self._largest, weight.shape[1])
        return weight, self._offset.to(torch.float32), bounds


class _Bounds(NamedTuple):
    """Bounds on the error of a score in float32, and on lengths without overflow.

    Attributes:
        relative: Largest error per unit of the feature's length.
        absolute: Largest error in addition.
        longest: Length of the longest weight.
        largest_product: Largest product of the two lengths without overflow; if negative, every
            product may overflow.
    """

    relative: float
    absolute: float
    longest: float
    largest_product: float

    @classmethod
    def of(cls, longest: float, largest: float, dim: int) -> "_Bounds":
        """Compute the bounds from the errors of rounding and of underflow.

        Underflow changes each product, each coordinate of the weight and of the centred feature,
        and each square in the feature's length by up to the smallest normal number, tiny.

        Args:
            longest: Length of the longest weight.
            largest: Largest offset.
            dim: Feature dimension.
        """
        info, root = torch.finfo(torch.float32), math.sqrt(dim)
        relative = info.eps * (dim + 4) * longest + root * info.tiny
        unseen = root * math.sqrt(info.tiny)  # length of a feature all of whose squares underflow
        absolute = 2 * info.eps * largest + relative * unseen
        absolute += (dim + 4) * info.tiny * (1 + longest)
        return cls(relative, absolute, longest, info.max / 4 - largest)


def nearest_mean_scores(means: Float[Tensor, "k d"], centre: Float[Tensor, " d"]) -> LinearScores:
    r"""Return scores $\langle\mu_c-o,h-o\rangle-\frac12\lVert\mu_c-o\rVert^2$, of distances.

    The largest score is that of the nearest mean.

    Args:
        means: $\mu_c$, float64.
        centre: $o$; see `LinearScores`.
    """
    lengths = [block.square().sum(1) for _, block in _in_float64(means, centre)]
    # A mean is a sum of samples, rounded in units of its own length, not of that from the centre.
    longest = max(float(torch.linalg.vector_norm(b, dim=1).max()) for _, b in _in_float64(means))
    rounding = _MEAN_ROUNDING * torch.finfo(torch.float64).eps * longest
    return LinearScores(means, -torch.cat(lengths) / 2, centre, centre, rounding)


def head_scores(
    weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"] | None, centre: Float[Tensor, " d"]
) -> LinearScores:
    r"""Return a classifier's scores $\langle w_c,h\rangle+b_c$, written in terms of $h-o$.

    Args:
        weight: $w_c$, one a row.
        bias: $b$; None for 0.
        centre: $o$; see `LinearScores`.
    """
    offset = torch.cat([block @ centre for _, block in _in_float64(weight)])
    return LinearScores(weight, offset if bias is None else offset + bias, centre)


def float32_centre(vectors: Float[Tensor, "k d"]) -> Float[Tensor, " d"]:
    """Return the mean of the rows, rounded to the digits of float32.

    The difference of a float32 row and this centre is then rounded only once. The rounding does not
    depend on the scale, so that scores of scaled rows are scaled scores.
    """
    mean = vectors.mean(0)
    split = mean * (2.0**29 + 1)  # Veltkamp's splitting, which leaves 53 - 29 bits
    return split - (split - mean)


def _in_float64(
    rows: Float[Tensor, "k d"], shift: Float[Tensor, " d"] | None = None
) -> Iterator[tuple[int, Float[Tensor, "_b d"]]]:
    """Yield blocks of rows minus the shift in float64, with the index of their first row."""
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK].to(torch.float64)
        yield first, block if shift is None else block - shift
