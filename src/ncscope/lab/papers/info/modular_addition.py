"""Modular addition: the sums, and the transformer that learns them."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from ncscope.data.draws import generator


class Sums(NamedTuple):
    r"""Pairs of numbers, and their sums.

    Attributes:
        pairs: a and b.
        labels: $a+b$ modulo $p$.
    """

    pairs: Int[Tensor, "n 2"]
    labels: Int[Tensor, " n"]


class SumSplit(NamedTuple):
    """Training pairs, and all other pairs as held-out pairs."""

    train: Sums
    test: Sums


def modular_addition(modulus: int, train_share: float = 0.3, seed: int = 0) -> SumSplit:
    """Split all pairs of residues at random into training pairs and held-out pairs.

    (a, b) and (b, a) are different pairs. Source: INFO section 5.5.

    Args:
        modulus: p.
        train_share: Share of the p * p pairs to train on, rounded to a whole number of pairs.
        seed: Seed of the choice of pairs.

    Returns:
        Both parts, each in order of a and then b.

    Example:
        >>> split = modular_addition(5, 0.4)
        >>> len(split.train.pairs), len(split.test.pairs)
        (10, 15)
    """
    count = modulus**2
    shuffled = torch.randperm(count, generator=generator(seed, 0))
    taken = round(train_share * count)
    return SumSplit(*(_sums(part, modulus) for part in (shuffled[:taken], shuffled[taken:])))


def mirrored(split: SumSplit) -> Bool[Tensor, " n"]:
    """Mark the held-out pairs that are training pairs in the other order.

    A network that has learnt that addition commutes knows their sums from the training pairs.

    Example:
        >>> split = modular_addition(5, 0.4)
        >>> int(mirrored(split).sum())
        8
    """
    (known, _), (new, _) = split
    size = 1 + int(torch.cat([known, new]).max())
    return torch.isin(new[:, 1] * size + new[:, 0], known[:, 0] * size + known[:, 1])


def _sums(chosen: Int[Tensor, " n"], modulus: int) -> Sums:
    numbers = chosen.sort().values
    pairs = torch.stack([numbers // modulus, numbers % modulus], 1)
    return Sums(pairs, pairs.sum(1) % modulus)


_POSITIONS = 3  # those of a, b and the equals sign


class ModularTransformer(nn.Module):
    r"""One layer of causal attention and a ReLU network, on the input ``a b =``; no normalisation.

    With the stream $x=e_{=}+p_2$ at the last position,
    $h=x+\operatorname{attention}(x)$, $f=h+W_2\operatorname{ReLU}(W_1h+b_1)+b_2$ and logits
    $W_Uf$. Source: INFO section 5.5, after Nanda et al. 2023. All weights start from a normal
    distribution of variance 1/width, biases from zero.

    Args:
        modulus: p; numbers are 0 to p - 1, and the equals sign is the token p.
        width: Width of the residual stream.
        heads: Number of attention heads, which share the width.
        hidden: Units of the ReLU network.
        generator: Generator of the initial weights.

    Attributes:
        head: Unembedding without bias, with one row per residue.

    Example:
        >>> model = ModularTransformer(5, width=8, heads=2, hidden=16)
        >>> model(torch.tensor([[1, 2], [4, 4]])).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        modulus: int,
        width: int = 128,
        heads: int = 4,
        hidden: int = 512,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.modulus, self.heads = modulus, heads
        self.tokens = nn.Embedding(modulus + 1, width)
        self.positions = nn.Embedding(_POSITIONS, width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)
        self.head = nn.Linear(width, modulus, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 1:
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=1 / math.sqrt(width), generator=generator)

    def forward(self, pairs: Int[Tensor, "n 2"]) -> Float[Tensor, "n p"]:
        """Compute the logits of ``a b =`` at the equals sign.

        Args:
            pairs: a and b.
        """
        return self.head(self.features(pairs))

    def features(self, pairs: Int[Tensor, "n 2"]) -> Float[Tensor, "n d"]:
        r"""Return the residual stream at the equals sign, which the unembedding reads.

        Cost: $2n\,d\,d_{hidden}$ operations for the second matrix of the ReLU network. The first
        matrix is applied to the tables, and then costs a sum of $2\,heads$ table rows per sample.

        Args:
            pairs: a and b.
        """
        numbers, equals = self._inputs()
        weights = self._attention(numbers, equals, pairs).flatten(1)
        uses = _uses(pairs, self.modulus, self.heads)
        # The attention weights sum to one, so a weight on a number reduces that of the equals
        # sign. Subtracting the sign's row from each number's row accounts for this.
        start = equals + self.mix(self.value(equals))
        written = self.value(numbers - equals).unflatten(1, (self.heads, -1))
        stream = start + _weighted_rows(_tables(written, self.mix.weight), weights, uses)
        first = self.expand.weight @ self.mix.weight
        before = self.expand(start) + _weighted_rows(_tables(written, first), weights, uses)
        return stream + self.contract(before.relu_())

    def _attention(
        self, numbers: Float[Tensor, "r d"], equals: Float[Tensor, " d"], pairs: Int[Tensor, "n 2"]
    ) -> Float[Tensor, "n h 2"]:
        """Return each head's attention weights on a and b; the equals sign has the rest."""
        query = self.query(equals).unflatten(0, (self.heads, -1))
        keys = self.key(torch.cat([numbers, equals[None]])).unflatten(1, (self.heads, -1))
        scores = (keys * query).sum(-1) / math.sqrt(query.shape[1])
        a, b = pairs.unbind(1)
        end = scores[-1].expand(len(a), -1)
        seen = functional.embedding(a, scores), functional.embedding(b + self.modulus, scores)
        return torch.stack([*seen, end]).softmax(0)[:2].permute(1, 2, 0)

    def _inputs(self) -> tuple[Float[Tensor, "r d"], Float[Tensor, " d"]]:
        """Return the embeddings of every number at the first and second position, and of ``=``."""
        tokens, positions = self.tokens.weight, self.positions.weight
        numbers = (positions[:2, None] + tokens[:-1]).flatten(0, 1)
        return numbers, tokens[-1] + positions[-1]


def _tables(written: Float[Tensor, "r h c"], matrix: Float[Tensor, "o d"]) -> Float[Tensor, "hr o"]:
    """Apply a matrix over all heads to each head's rows: one row per head, position and number."""
    by_head = matrix.unflatten(1, (written.shape[1], -1))
    return torch.einsum("rhc,ohc->hro", written, by_head).flatten(0, 1)


class _Uses(NamedTuple):
    """Index from samples to the table rows that they use, and back.

    Attributes:
        rows: Table rows of each sample, in the order of the sample's weights.
        users: Samples that use each row, row by row of the table.
        slots: Index of each use's weight among all weights.
        starts: Index at which the users of each row begin.
    """

    rows: Int[Tensor, "n u"]
    users: Int[Tensor, " m"]
    slots: Int[Tensor, " m"]
    starts: Int[Tensor, " r"]


def _uses(pairs: Int[Tensor, "n 2"], modulus: int, heads: int) -> _Uses:
    """Index the uses of a table with one row for each head, position and number."""
    device = pairs.device
    index = torch.arange(2 * heads, device=device)
    rows = pairs.repeat(1, heads) + modulus * index
    order = pairs.argsort(dim=0, stable=True).mT.repeat(heads, 1)
    slots = order * (2 * heads) + index[:, None]
    counts = torch.stack([torch.bincount(n, minlength=modulus) for n in pairs.unbind(1)])
    ends = counts.repeat(heads, 1).flatten().cumsum(0)
    starts = functional.pad(ends[:-1], (1, 0))
    return _Uses(rows, order.flatten(), slots.flatten(), starts)


def _weighted_rows(
    table: Float[Tensor, "r c"], weights: Float[Tensor, "n u"], uses: _Uses
) -> Float[Tensor, "n c"]:
    """Compute every sample's weighted sum of its rows of the table."""
    summed = functional.embedding_bag(
        uses.rows, table.detach(), per_sample_weights=weights, mode="sum"
    )
    return _TableGradient.apply(summed, table, weights.detach(), uses)


class _TableGradient(torch.autograd.Function):
    """Weighted sums of a table's rows, with a fast gradient in the table.

    The gradient of a row is a weighted sum over the samples that use the row. PyTorch's built-in
    gradient adds one use at a time, and takes several times as long as all other operations.
    """

    @staticmethod
    def forward(
        ctx: Any,
        summed: Float[Tensor, "n c"],
        table: Float[Tensor, "r c"],
        weights: Float[Tensor, "n u"],
        uses: _Uses,
    ) -> Float[Tensor, "n c"]:
        ctx.weights, ctx.uses = weights, uses
        return summed.view_as(summed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (gradient,) = gradients
        uses = ctx.uses
        back = functional.embedding_bag(
            uses.users,
            gradient,
            offsets=uses.starts,
            per_sample_weights=ctx.weights.flatten()[uses.slots],
            mode="sum",
        )
        return gradient, back, None, None
