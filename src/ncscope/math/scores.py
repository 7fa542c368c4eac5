"""Which linear score is largest: float64's answer at float32's price."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

_CHUNK_BYTES = 8 * 2**20
_FEWEST_ROWS = 256  # fewer, and the product is spent on reading the weights


def argmax_of_scores(
    features: Shaped[Tensor, "n d"],
    centre: Float[Tensor, " d"],
    heads: Sequence[tuple[Float[Tensor, "_k d"], Float[Tensor, " _k"]]],
) -> list[Int[Tensor, " n"]]:
    r"""For each head, the row whose score $\langle w_c,h-o\rangle+\beta_c$ is largest.

    The product runs in float32 when the features have no more digits than that. A row is settled
    if its two best scores differ by more than twice the worst rounding error,
    $\epsilon_{32}(d+4)\lVert h-o\rVert\max_c\lVert w_c\rVert+2\epsilon_{32}\max_c|\beta_c|$
    (Higham 2002, section 3.1, with the rounding of the inputs added); the few others are scored
    again in float64. The answer is float64's, whatever the input.

    Args:
        features: One sample a row, any real type.
        centre: $o$, float64 but exact in float32 (see `float32_centre`): taken off every row
            first, it keeps the scores, and so their rounding, small.
        heads: Pairs of a weight matrix and the offsets $\beta$, in float64.

    Returns:
        One index tensor for each head; the first of equal scores wins.
        Cost: $2nd\sum K$ operations, in chunks of about 8 MB.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> head = (torch.eye(2).double(), torch.zeros(2).double())
        >>> argmax_of_scores(rows, torch.zeros(2).double(), [head])[0].tolist()
        [0, 1]
    """
    wide = features.dtype in (torch.float64, torch.int32, torch.int64)
    exact = wide or _float32_is_reduced(features.device.type)
    scorers = [_Scorer(weight, offset, exact) for weight, offset in heads]
    widest = max(len(weight) for weight, _ in heads) + features.shape[1]
    rows = max(_FEWEST_ROWS, _CHUNK_BYTES // (8 * widest))
    with torch.autocast(features.device.type, enabled=False):
        chunks = [[s.argmax(chunk, centre) for s in scorers] for chunk in features.split(rows)]
    return [torch.cat(column) for column in zip(*chunks, strict=True)]


def float32_centre(vectors: Float[Tensor, "k d"]) -> Float[Tensor, " d"]:
    """The mean of the rows, rounded to a float32 value: float32 rows minus it round only once."""
    return vectors.mean(0).to(torch.float32).to(vectors.dtype)


class _Scorer:
    """One head, in float64 and in the type of the product, with its error bound."""

    def __init__(
        self, weight: Float[Tensor, "k d"], offset: Float[Tensor, " k"], exact: bool
    ) -> None:
        self.weight, self.offset = weight, offset - offset.mean()
        self.exact = exact or len(weight) == 1
        self.quick = (self.weight.to(torch.float32), self.offset.to(torch.float32))
        eps = torch.finfo(torch.float32).eps
        longest = torch.linalg.vector_norm(weight, dim=1).max()
        self.relative = float(eps * (weight.shape[1] + 4) * longest)
        self.absolute = float(2 * eps * self.offset.abs().max())

    def argmax(
        self, chunk: Shaped[Tensor, "n d"], centre: Float[Tensor, " d"]
    ) -> Int[Tensor, " n"]:
        if self.exact:
            return self._exact(chunk, centre)
        weight, offset = self.quick
        centred = chunk.to(weight.dtype) - centre.to(weight.dtype)
        best = torch.addmm(offset, centred, weight.mT).topk(2, dim=1)
        bound = self.relative * torch.linalg.vector_norm(centred, dim=1) + self.absolute
        winner = best.indices[:, 0]
        certain = best.values[:, 0] - best.values[:, 1] > 2 * bound
        certain &= best.values[:, 0].isfinite() & bound.isfinite()  # no overflow in float32
        doubtful = torch.nonzero(~certain).squeeze(1)
        if len(doubtful):
            winner[doubtful] = self._exact(chunk[doubtful], centre)
        return winner

    def _exact(self, rows: Shaped[Tensor, "n d"], centre: Float[Tensor, " d"]) -> Int[Tensor, " n"]:
        return torch.addmm(self.offset, rows.to(centre.dtype) - centre, self.weight.mT).argmax(1)


def _float32_is_reduced(device: str) -> bool:
    """Whether the user lets float32 products run in fewer bits: then the bound would not hold."""
    backend = torch.backends.cuda.matmul if device == "cuda" else torch.backends.mkldnn
    precision = getattr(getattr(backend, "matmul", backend), "fp32_precision", None)
    if precision is None:  # torch before 2.9
        return torch.get_float32_matmul_precision() != "highest"
    return precision not in ("none", "ieee")
