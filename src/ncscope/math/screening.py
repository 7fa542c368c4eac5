r"""Candidates for the largest of K linear scores, from one product in bfloat16.

The product has a certified error bound, so the largest score is always among the candidates.
Usually one or two are left of thousands of classes, and only these are scored in float64.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

_GROUP = 32  # classes that are compared with the threshold by their maximum
_MOST_GROUPS = 16
_OFFSET_PARTS = 3  # numbers of 8 bits that hold an offset to float32's 24
_OFFSET_COLUMNS = 32  # with zeros beside them: products of odd widths are slower
_UNIT = 2.0**-8  # relative rounding error of bfloat16
_FEWEST_CLASSES, _FEWEST_WEIGHTS = 512, 2**18
_FEWEST_ON_ACCELERATOR = 2**24  # weights; with fewer, the host would wait more than is saved
_LEAST_LENGTH, _GREATEST_LENGTH = 2.0**-20, 2.0**20  # no underflow, no overflow between them


def pays(device: torch.device, num_classes: int, dim: int) -> bool:
    """Return whether products in bfloat16 are faster than in float32 at this size.

    On a CPU they are with instructions for bfloat16: products of 1,000 to 50,000 classes took 0.4
    to 0.5 of the time with AVX-512 BF16. On a CUDA device they are since compute capability 8.
    """
    fewest = _FEWEST_WEIGHTS if device.type == "cpu" else _FEWEST_ON_ACCELERATOR
    large = num_classes >= _FEWEST_CLASSES and num_classes * dim >= fewest
    return large and _fast_bfloat16(device)


def _fast_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        has_wide_sums = hasattr(torch.ops.aten.mm, "dtype")  # torch since 2.8
        return has_wide_sums and torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu" or not (
        torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    ):
        return False
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)


@dataclass(frozen=True)
class Candidates:
    """Classes that may have the largest score, for the rows that were screened.

    Attributes:
        rows: Index of the row of each candidate, ascending; rows with many candidates have none.
        classes: Class of each candidate, ascending within a row.
        screened: True for a row for which the bound holds.
    """

    rows: Int[Tensor, " p"]
    classes: Int[Tensor, " p"]
    screened: Tensor


class Screen:
    r"""Weights and offsets in bfloat16, with the lengths of their rounding errors.

    Offsets are split into three numbers of 8 bits, which are multiplied by 1. Classes 32 g to
    32 g + 31 are group g. The weights are stored by place in the group, and by group within a
    place, so that the scores of one place of all groups are neighbours. The maxima of all groups
    are then maxima of a few long pieces of a row; within a row, torch reduces neighbours in
    bfloat16 one by one, in four times the time.

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
        own, padding = self._places.tensor_split([num_classes])
        rest = offset.clone()
        for column in range(dim, dim + _OFFSET_PARTS):
            part = rest.to(torch.bfloat16)
            self._weight[own, column] = part
            rest -= part
        self._weight[padding, dim] = -torch.inf
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
        error = torch.linalg.vector_norm(block - low, dim=1).max()
        self._longest_error = max(self._longest_error, float(error))
        self._longest = max(
            self._longest, float(torch.linalg.vector_norm(low.to(block.dtype), dim=1).max())
        )

    def candidates(self, centred: Float[Tensor, "n d"]) -> Candidates:
        r"""Return the classes whose scores may be the largest.

        With $\tilde w,\tilde h$ rounded, the error of a score is at most
        $\lVert w-\tilde w\rVert\lVert h\rVert+\lVert\tilde w\rVert\lVert h-\tilde h\rVert$, which
        is computed from the actual rounding errors, plus the rounding of the accumulation in
        float32 and of the result in bfloat16.

        Args:
            centred: Rows in float32, with a relative rounding error of at most $2^{-24}$ in each
                entry.
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
        scores = self._product(low)
        tops, half = scores, scores.shape[1] // 2
        while half >= self._groups:
            tops, half = torch.maximum(tops[:, :half], tops[:, half:]), half // 2
        tops = tops.to(torch.float32)
        threshold = self._threshold(tops.amax(1), bound)
        near = tops >= threshold[:, None]
        near &= near.sum(1, keepdim=True) <= _MOST_GROUPS  # all pairs would not fit into memory
        row, group = torch.nonzero(near, as_tuple=True)
        values = scores.unflatten(1, (_GROUP, self._groups))[row, :, group].to(torch.float32)
        pair, member = torch.nonzero(values >= threshold[row, None], as_tuple=True)
        in_range = _LEAST_LENGTH <= self._longest <= _GREATEST_LENGTH
        in_range &= self._largest_offset <= _GREATEST_LENGTH**2
        screened = (length >= _LEAST_LENGTH) & (length <= _GREATEST_LENGTH) & in_range
        return Candidates(row[pair], group[pair] * _GROUP + member, screened)

    def _threshold(self, best: Float[Tensor, " n"], bound: Float[Tensor, " n"]) -> Tensor:
        """Return the smallest computed score that rounding may have taken from the largest."""
        unit = _UNIT / (1 - _UNIT)
        # Twice the bound with the rounding of this arithmetic, far below a unit of bfloat16.
        least = best - unit * best.abs() - 2.001 * bound - 1e-6 * best.abs()
        return torch.where(least > 0, least / (1 + unit), least / (1 - unit))

    def _product(self, low: Float[Tensor, "n e"]) -> Float[Tensor, "n g"]:
        """Return all scores, rounded to bfloat16 on a CPU."""
        if low.device.type == "cuda":  # products in bfloat16 may sum in bfloat16 there
            return torch.mm(low, self._weight.mT, out_dtype=torch.float32)
        return low @ self._weight.mT
