r"""The one-layer transformer of the grokking experiment, computed at its last position only.

It reads the three tokens ``a b =`` and answers at ``=``. A causal transformer of one layer needs
no more than the last position's output, and that position always holds the same token. So its
query is one vector a head, scores, keys and values are tables with a row for each number in each
place, and what attention adds to the stream is, in every head, a sum of two rows with weights.
Nothing is left out: logits and gradients are those of the whole causal transformer.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

_POSITIONS = 3  # of a, of b and of the equals sign


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
        generator: Draws the weights.

    Attributes:
        head: The unembedding, a row a residue, without a bias.

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
        """Logits of ``a b =`` at the equals sign.

        Args:
            pairs: a and b.
        """
        return self.head(self.features(pairs))

    def features(self, pairs: Int[Tensor, "n 2"]) -> Float[Tensor, "n d"]:
        r"""Return the residual stream at the equals sign, which the unembedding reads.

        Cost: $2n\,d\,d_{hidden}$ operations for the second matrix of the ReLU network; the first
        is applied to the tables, and takes a sum of $2\,heads$ rows of them a sample.

        Args:
            pairs: a and b.
        """
        numbers, equals = self._inputs()
        weights = self._attention(numbers, equals, pairs).flatten(1)
        uses = _uses(pairs, self.modulus, self.heads)
        # Weights sum to one: a weight on a number is taken from the equals sign.
        start = equals + self.mix(self.value(equals))
        written = self.value(numbers - equals).unflatten(1, (self.heads, -1))
        stream = start + _weighted_rows(_tables(written, self.mix.weight), weights, uses)
        first = self.expand.weight @ self.mix.weight
        before = self.expand(start) + _weighted_rows(_tables(written, first), weights, uses)
        return stream + self.contract(before.relu_())

    def _attention(
        self, numbers: Float[Tensor, "r d"], equals: Float[Tensor, " d"], pairs: Int[Tensor, "n 2"]
    ) -> Float[Tensor, "n h 2"]:
        """Weights of the last position's heads on a and on b; the equals sign has the rest."""
        query = self.query(equals).unflatten(0, (self.heads, -1))
        keys = self.key(torch.cat([numbers, equals[None]])).unflatten(1, (self.heads, -1))
        scores = (keys * query).sum(-1) / math.sqrt(query.shape[1])
        a, b = pairs.unbind(1)
        end = scores[-1].expand(len(a), -1)
        seen = functional.embedding(a, scores), functional.embedding(b + self.modulus, scores)
        return torch.stack([*seen, end]).softmax(0)[:2].permute(1, 2, 0)

    def _inputs(self) -> tuple[Float[Tensor, "r d"], Float[Tensor, " d"]]:
        """Embeddings of every number in the first place, then in the second, and of the sign."""
        tokens, places = self.tokens.weight, self.positions.weight
        numbers = (places[:2, None] + tokens[:-1]).flatten(0, 1)
        return numbers, tokens[-1] + places[-1]


def _tables(written: Float[Tensor, "r h c"], matrix: Float[Tensor, "o d"]) -> Float[Tensor, "hr o"]:
    """Apply a matrix that reads all heads to each head's rows: a row a head, place and number."""
    by_head = matrix.unflatten(1, (written.shape[1], -1))
    return torch.einsum("rhc,ohc->hro", written, by_head).flatten(0, 1)


class _Uses(NamedTuple):
    """Index from samples to the table rows that they use, and back.

    Attributes:
        rows: Observation of each sample, in the order of the sample's weights.
        users: Samples, row by row of the table.
        slots: Their weights' places among all weights.
        starts: Position at which the users of a row begin.
    """

    rows: Int[Tensor, "n u"]
    users: Int[Tensor, " m"]
    slots: Int[Tensor, " m"]
    starts: Int[Tensor, " r"]


def _uses(pairs: Int[Tensor, "n 2"], modulus: int, heads: int) -> _Uses:
    """Index the uses of a table with a row for each head, place and number."""
    device = pairs.device
    place = torch.arange(2 * heads, device=device)
    rows = pairs.repeat(1, heads) + modulus * place
    order = pairs.argsort(dim=0, stable=True).mT.repeat(heads, 1)
    slots = order * (2 * heads) + place[:, None]
    counts = torch.stack([torch.bincount(n, minlength=modulus) for n in pairs.unbind(1)])
    ends = counts.repeat(heads, 1).flatten().cumsum(0)
    starts = functional.pad(ends[:-1], (1, 0))
    return _Uses(rows, order.flatten(), slots.flatten(), starts)


def _weighted_rows(
    table: Float[Tensor, "r c"], weights: Float[Tensor, "n u"], uses: _Uses
) -> Float[Tensor, "n c"]:
    """Every sample's sum of its rows of the table, each times its weight."""
    summed = functional.embedding_bag(
        uses.rows, table.detach(), per_sample_weights=weights, mode="sum"
    )
    return _TableGradient.apply(summed, table, weights.detach(), uses)


class _TableGradient(torch.autograd.Function):
    """Weighted sums of a table's rows, with the gradient in the table, which they still lack.

    It is again a weighted sum of rows, over each row's users. PyTorch's own adds to the table use
    by use, and takes several times as long as all else in the sum.
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
