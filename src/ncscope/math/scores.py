"""Argmax of linear scores, exact to float64 at the cost of float32 or bfloat16.

A product in low precision has a certified bound on its error, so that most decisions need no other.
The few that are within the bound are decided again in float64.
"""

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ncscope.devices import chunk_bytes, float32_is_reduced

_CHUNK_BYTES = 8 * 2**20
_FEWEST_ROWS = 256  # with fewer rows, most of the time goes into reading the weights
_FEW_CLASSES = 64  # up to here, most of the time goes into reading the rows
_CACHED_BYTES, _CACHED_ROWS = 4 * 2**20, 32
_MEAN_ROUNDING = 4.0
_BLOCK = 4096  # rows of the weight that are converted to float64 at a time

_FEWEST_SCREENED, _FEWEST_WEIGHTS = 512, 2**18  # classes, and classes times dimension
_FEWEST_ON_ACCELERATOR = 2**24  # weights; with fewer, the host would wait more than is saved
_MOST_CANDIDATES = 16  # of a row; more are scored faster in float32, all of them
_PAIR_BYTES = 64  # of a chunk, for a coordinate of a candidate: several buffers share the cache
_GROUP = 32  # classes that are compared with the threshold by their maximum
_MOST_GROUPS = 16
_OFFSET_PARTS = 3  # numbers of 8 bits that hold an offset to float32's 24
_OFFSET_COLUMNS = 32  # with zeros beside them: products of odd widths are slower
_UNIT = 2.0**-8  # relative rounding error of bfloat16
_LEAST_LENGTH, _GREATEST_LENGTH = 2.0**-20, 2.0**20  # no underflow, no overflow between them


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
            weight; 0 for weights without error. The first class within the error counts as best.

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
        self._may_screen = True  # until screening turns out to leave too many candidates

    def argmax(self, features: Shaped[Tensor, "n d"]) -> Int[Tensor, " n"]:
        r"""Return the class with the largest score; the first of several equal ones.

        The product runs in float32 if float32 holds the features exactly. The decision for a
        feature is final if no partial sum can overflow and its two best scores differ by more than
        twice the worst error: the rounding error
        $\epsilon_{32}(d+4)\lVert h-o\rVert\max_c\lVert w_c\rVert+2\epsilon_{32}\max_c|\beta_c|$
        (Higham 2002, section 3.1, with the rounding of the inputs added) and the error of
        underflow. The few other features are scored again in float64. Where bfloat16 is faster, a
        product in bfloat16 leaves the classes within the bound of `Screen`, and only these are
        scored in float64. The result is that of float64 for every input.

        Args:
            features: One sample a row, any real type.

        Cost: $2ndK$ operations, in chunks that suit the device, and one wait.
        """
        winner, doubtful = self.choose(features)
        self.settle_(winner, features, torch.nonzero(doubtful).squeeze(1))
        return winner

    def choose(
        self, features: Shaped[Tensor, "n d"]
    ) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
        """Return the class that seems best, and the features that `settle_` must score again.

        No value is read on the host, so that an accelerator is not waited for, unless there are so
        many classes that screening in bfloat16 pays.

        Args:
            features: One sample a row, any real type.
        """
        k, d = self._weight.shape
        # float32 does not hold these types, and a product with fewer bits breaks its bound.
        wide = features.dtype in (torch.float64, torch.int32, torch.int64)
        in_float64 = wide or k == 1 or float32_is_reduced(features.device.type)
        screened = not in_float64 and self._may_screen and should_screen(features.device, k, d)
        decide = self._decide_by_screening if screened else self._decide_in_float32
        rows = self._chunk_rows(features.device)
        if k <= _FEW_CLASSES and features.device.type == "cpu" and not (in_float64 or screened):
            rows = max(_CACHED_ROWS, _CACHED_BYTES // (4 * d))
        # Under the caller's autocast, the products would be in half precision, beyond all bounds.
        with torch.autocast(features.device.type, enabled=False):
            if in_float64:
                winner = torch.cat([self._decide_in_float64(part) for part in features.split(rows)])
                return winner, torch.zeros_like(winner, dtype=torch.bool)
            # One buffer for all chunks: new memory would cost more in page faults than the
            # arithmetic.
            space = torch.empty(
                min(rows, len(features)), d, dtype=torch.float32, device=features.device
            )
            choices = [decide(part, space) for part in features.split(rows)]
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
            winner: Classes that `choose` returned.
            features: Features that they were chosen for.
            doubtful: Indices of the doubtful features.
        """
        if not len(doubtful):
            return
        with torch.autocast(features.device.type, enabled=False):
            for rows in doubtful.split(self._chunk_rows(features.device)):
                winner[rows] = self._decide_in_float64(features[rows])

    def _chunk_rows(self, device: torch.device) -> int:
        # A chunk has its features and its scores in memory: d + K numbers a row.
        size = max(_CHUNK_BYTES, chunk_bytes(device))
        return max(_FEWEST_ROWS, size // (8 * sum(self._weight.shape)))

    def _subtract_centre(
        self, chunk: Shaped[Tensor, "n d"], space: Float[Tensor, "rows d"]
    ) -> Float[Tensor, "n d"]:
        """Subtract the centre in float32, into a buffer."""
        centre, centred = self._centre.to(torch.float32), space[: len(chunk)]
        if chunk.dtype == torch.float32:
            return torch.sub(chunk, centre, out=centred)
        return centred.copy_(chunk).sub_(centre)

    def _decide_in_float32(
        self, chunk: Shaped[Tensor, "n d"], space: Float[Tensor, "rows d"]
    ) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
        """Decide by scores in float32; a decision within their error bound is doubtful."""
        weight, offset, (relative, absolute, reach) = self._float32_form
        centred = self._subtract_centre(chunk, space)
        best = torch.addmm(offset, centred, weight.mT).topk(2, dim=1)
        length = torch.linalg.vector_norm(centred, dim=1).to(torch.float64)
        bound = relative * length + absolute
        winner, gap = best.indices[:, 0], best.values.to(torch.float64).diff().neg()[:, 0]
        # Both scores may be off by the bound, in opposite directions. A sum that overflows has no
        # bound. A gap of NaN compares as False, and so is doubtful too.
        certain = (gap > 2 * bound) & (self._longest * length < reach)
        return winner, ~certain

    def _decide_by_screening(
        self, chunk: Shaped[Tensor, "n d"], space: Float[Tensor, "rows d"]
    ) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
        """Decide by the candidates that a product in bfloat16 leaves."""
        centred = self._subtract_centre(chunk, space)
        rows, classes, in_range = self._screen.find_candidates(centred)
        count = torch.bincount(rows, minlength=len(chunk))
        # A row without candidates had too many groups of them, and none was listed.
        few = in_range & (count <= _MOST_CANDIDATES) & (count > 0)
        winner = torch.empty(len(chunk), dtype=torch.int64, device=chunk.device)
        winner[rows] = classes  # final for a row with a single candidate
        several = (few & (count > 1))[rows]
        self._rescore(chunk, rows[several], classes[several], winner)
        others, doubtful = torch.nonzero(~few).squeeze(1), torch.zeros_like(few)
        if len(others):
            winner[others], doubtful[others] = self._decide_in_float32(chunk[others], space)
            # Scores that are nearly equal for all features: screening would only add to the cost.
            self._may_screen = 2 * len(others) <= len(chunk)
        return winner, doubtful

    def _rescore(
        self,
        chunk: Shaped[Tensor, "n d"],
        rows: Int[Tensor, " p"],
        classes: Int[Tensor, " p"],
        winner: Int[Tensor, " n"],
    ) -> None:
        """Score candidates in float64, and write the best of each row into `winner`.

        Args:
            chunk: All rows.
            rows: Row of each candidate.
            classes: Class of each candidate.
            winner: Class of each row.
        """
        if not len(rows):
            return
        parts = []
        at_once = max(1, chunk_bytes(chunk.device) // (_PAIR_BYTES * chunk.shape[1]))
        for row, c in zip(rows.split(at_once), classes.split(at_once), strict=True):
            weight = self._weight.index_select(0, c).to(torch.float64)
            weight = weight if self._shift is None else weight.sub_(self._shift)
            centred = chunk.index_select(0, row).to(torch.float64).sub_(self._centre)
            parts.append(weight.mul_(centred).sum(1) + self._offset[c])
        score = torch.cat(parts)
        largest = score.new_full((len(chunk),), -torch.inf)
        largest.scatter_reduce_(0, rows, score, "amax")
        # The same rule as in `_decide_in_float64`: the first class within the error is the best.
        if self._rounding:
            largest -= self._error(chunk.to(torch.float64) - self._centre)
        best = score >= largest[rows]
        rows, classes = rows[best], classes[best]
        winner[rows] = len(self._weight)  # the minimum is taken with what is there
        winner.scatter_reduce_(0, rows, classes, "amin")

    def _decide_in_float64(self, rows: Shaped[Tensor, "n d"]) -> Int[Tensor, " n"]:
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
            # As bytes, because argmax takes no bools; of equal values it takes the first.
            winner = torch.where(better, first + near.to(torch.uint8).argmax(1), winner)
        return winner

    def _error(self, centred: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return twice a bound on the error of each row's scores; 0 for weights without error."""
        if not self._rounding:
            return centred.new_zeros(len(centred))
        length, eps = torch.linalg.vector_norm(centred, dim=1), torch.finfo(torch.float64).eps
        products = eps * (centred.shape[1] + 4) * self._longest + self._rounding
        offsets = self._rounding * self._longest + 2 * eps * self._largest_offset
        return 2 * (products * length + offsets)

    @cached_property
    def _longest(self) -> float:
        """Length of the longest weight."""
        blocks = _in_float64(self._weight, self._shift)
        return max(float(torch.linalg.vector_norm(block, dim=1).max()) for _, block in blocks)

    @cached_property
    def _largest_offset(self) -> float:
        """Largest offset, without its sign."""
        return float(self._offset.abs().max())

    @cached_property
    def _screen(self) -> "Screen":
        """Weight and offset in bfloat16."""
        k, d = self._weight.shape
        screen = Screen(k, d, self._offset)
        for first, block in _in_float64(self._weight, self._shift):
            screen.add(first, block)
        return screen

    @cached_property
    def _float32_form(
        self,
    ) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"], tuple[float, float, float]]:
        """Weight and offset for the product in float32, and the bounds of `find_float32_bounds`."""
        weight = self._weight
        if weight.dtype != torch.float32 or self._shift is not None:
            weight = torch.empty_like(weight, dtype=torch.float32)
            # The shift is subtracted in float64: two close vectors would cancel digits in float32.
            for first, block in _in_float64(self._weight, self._shift):
                weight[first : first + len(block)] = block
        bounds = find_float32_bounds(self._longest, self._largest_offset, weight.shape[1])
        return weight, self._offset.to(torch.float32), bounds


def find_float32_bounds(
    longest: float, largest_offset: float, dim: int
) -> tuple[float, float, float]:
    """Find bounds on the error of a score in float32, and on lengths that cannot overflow.

    Underflow changes each product, each coordinate of the weight and of the centred feature, and
    each square in the feature's length by up to the smallest normal number, tiny.

    Args:
        longest: Length of the longest weight.
        largest_offset: Largest offset, without its sign.
        dim: Feature dimension.

    Returns:
        Largest error per unit of the feature's length; largest error in addition; and largest
        product of the two lengths without overflow, negative if every product may overflow.
    """
    info, root = torch.finfo(torch.float32), math.sqrt(dim)
    relative = info.eps * (dim + 4) * longest + root * info.tiny
    unseen = root * math.sqrt(info.tiny)  # length of a feature all of whose squares underflow
    absolute = 2 * info.eps * largest_offset + relative * unseen
    absolute += (dim + 4) * info.tiny * (1 + longest)
    # A quarter of the range leaves room for partial sums, the offset and rounding.
    return relative, absolute, info.max / 4 - largest_offset


def should_screen(device: torch.device, num_classes: int, dim: int) -> bool:
    """Return whether products in bfloat16 are faster than in float32 at this size.

    With AMX instructions, decisions among 1,000 classes take 0.8 to 1 of the time of float32, and
    0.3 to 0.5 among 10,000 to 50,000, the vocabularies of language models.

    Args:
        device: Device of the features.
        num_classes: Number of scores.
        dim: Feature dimension.
    """
    fewest = _FEWEST_WEIGHTS if device.type == "cpu" else _FEWEST_ON_ACCELERATOR
    large = num_classes >= _FEWEST_SCREENED and num_classes * dim >= fewest
    return large and _has_fast_bfloat16(device)


def _has_fast_bfloat16(device: torch.device) -> bool:
    # Without instructions for bfloat16, products are emulated: they took ten times as long as those
    # in float32.
    if device.type == "cuda":
        has_wide_sums = hasattr(torch.ops.aten.mm, "dtype")  # torch since 2.8
        return has_wide_sums and torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu" or not (
        torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    ):
        return False
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)


class Screen:
    r"""Weights and offsets in bfloat16, which leave the candidates for the largest score.

    The product has a certified error bound, so the largest score is always among the candidates.
    Usually one or two are left of thousands of classes.

    Classes 32 g to 32 g + 31 are group g. The weights are stored by place in the group, and by
    group within a place, so that the scores of one place of all groups are neighbours. The maxima
    of all groups are then maxima of a few long pieces of a row; within a row, torch reduces
    neighbours in bfloat16 one by one, in four times the time.

    Args:
        num_classes: Number of scores.
        dim: Feature dimension.
        offset: $\beta$, float64.
    """

    def __init__(self, num_classes: int, dim: int, offset: Float[Tensor, " k"]) -> None:
        groups = -(-num_classes // _GROUP)
        rows, width = groups * _GROUP, dim + _OFFSET_COLUMNS
        self._weight = torch.zeros(rows, width, dtype=torch.bfloat16, device=offset.device)
        every = torch.arange(rows, device=offset.device)
        self._places = every % _GROUP * groups + every // _GROUP
        classes, padding = self._places.tensor_split([num_classes])
        # An offset of 8 bits would be as coarse as the weights are, without a feature's length to
        # scale its error. So each offset is split into three numbers, which are multiplied by 1.
        rest = offset.clone()
        for column in range(dim, dim + _OFFSET_PARTS):
            part = rest.to(torch.bfloat16)
            self._weight[classes, column] = part
            rest -= part
        self._weight[padding, dim] = -torch.inf  # scores that fill the last group never win
        self._dim, self._groups = dim, groups
        self._missing = float(rest.abs().max())
        self._largest_offset = float(offset.abs().max())
        self._longest = self._longest_error = 0.0

    def add(self, first: int, block: Float[Tensor, "b d"]) -> None:
        """Round a block of weights.

        Args:
            first: Class of the first row of the block.
            block: Weights in float64.
        """
        low = block.to(torch.bfloat16)
        self._weight[self._places[first : first + len(block)], : self._dim] = low
        # The actual error is about half of the worst, which leaves fewer candidates.
        error = torch.linalg.vector_norm(block - low, dim=1).max()
        self._longest_error = max(self._longest_error, float(error))
        self._longest = max(
            self._longest, float(torch.linalg.vector_norm(low.to(block.dtype), dim=1).max())
        )

    def find_candidates(
        self, centred: Float[Tensor, "n d"]
    ) -> tuple[Int[Tensor, " p"], Int[Tensor, " p"], Bool[Tensor, " n"]]:
        r"""Find the classes whose scores may be the largest.

        With $\tilde w,\tilde h$ rounded, the error of a score is at most
        $\lVert w-\tilde w\rVert\lVert h\rVert+\lVert\tilde w\rVert\lVert h-\tilde h\rVert$, which
        is computed from the actual rounding errors, plus the rounding of the accumulation in
        float32 and of the result in bfloat16.

        Args:
            centred: Rows in float32, with a relative rounding error of at most $2^{-24}$ in each
                entry.

        Returns:
            Row of each candidate, ascending (rows with many candidates have none); class of each
            candidate, ascending within a row; and for each row whether the bound holds.
        """
        low = centred.new_ones(len(centred), self._weight.shape[1], dtype=torch.bfloat16)
        low[:, : self._dim] = centred
        rounded = low[:, : self._dim].to(torch.float32)  # of two types, torch subtracts slowly
        slack = 1 + (self._dim + 4) * 2.0**-22  # of lengths and sums that are computed in float32
        length = slack * torch.linalg.vector_norm(centred, dim=1)
        error = slack * torch.linalg.vector_norm(rounded.sub_(centred), dim=1) + 2.0**-23 * length
        reach = self._longest + self._longest_error
        accumulated = (self._dim + _OFFSET_PARTS + 4) * 2.0**-22
        bound = slack * (
            self._longest_error * length
            + self._longest * error
            + accumulated * (reach * length + self._largest_offset)
            + self._missing
        )
        if low.device.type == "cuda":  # products in bfloat16 may sum in bfloat16 there
            scores = torch.mm(low, self._weight.mT, out_dtype=torch.float32)
        else:  # sums in float32, rounded to bfloat16 at the end
            scores = low @ self._weight.mT
        # The maxima of groups exclude most scores in one read; pairs of a row and a class are
        # formed for the few groups that are left.
        tops, half = scores, scores.shape[1] // 2
        while half >= self._groups:
            tops, half = torch.maximum(tops[:, :half], tops[:, half:]), half // 2
        tops = tops.to(torch.float32)
        threshold = _least_score(tops.amax(1), bound)
        near = tops >= threshold[:, None]
        near &= near.sum(1, keepdim=True) <= _MOST_GROUPS  # all pairs would not fit into memory
        row, group = torch.nonzero(near, as_tuple=True)
        values = scores.unflatten(1, (_GROUP, self._groups))[row, :, group].to(torch.float32)
        pair, member = torch.nonzero(values >= threshold[row, None], as_tuple=True)
        in_range = _LEAST_LENGTH <= self._longest <= _GREATEST_LENGTH
        in_range &= self._largest_offset <= _GREATEST_LENGTH**2
        holds = (length >= _LEAST_LENGTH) & (length <= _GREATEST_LENGTH) & in_range
        return row[pair], group[pair] * _GROUP + member, holds


def _least_score(best: Float[Tensor, " n"], bound: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return the smallest score in bfloat16 that may belong to the class of the largest score."""
    unit = _UNIT / (1 - _UNIT)
    # Twice the bound with the rounding of this arithmetic, far below a unit of bfloat16.
    least = best - unit * best.abs() - 2.001 * bound - 1e-6 * best.abs()
    # The other score was rounded as well, by a share of itself: away from zero that makes a
    # positive score larger and a negative one smaller than it should be.
    return torch.where(least > 0, least / (1 + unit), least / (1 - unit))


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
