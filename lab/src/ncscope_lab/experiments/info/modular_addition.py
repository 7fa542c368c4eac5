"""Modular addition: the sums, the transformer that learns them, and its training.

It memorises the training pairs, and much later generalises.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from lightning.fabric import Fabric
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from ncscope.data.draws import Purpose, generator
from ncscope.measurement.evaluation import estimate_by_batch
from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.measurement.samples import measure_samples
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.taps import HEAD_INPUT
from ncscope_lab.observations import Event, Observation, Recorded
from ncscope_lab.runs.resources import Resources
from ncscope_lab.runs.settings import Config
from ncscope_lab.training.learner import Learner
from ncscope_lab.training.loop import EpochEnd, log_spaced_epochs, supervised, train
from ncscope_lab.training.resumable import AfterStep, resumable_events


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


def split_pairs(modulus: int, train_share: float = 0.3, seed: int = 0) -> SumSplit:
    """Split all pairs of residues at random into training pairs and held-out pairs.

    (a, b) and (b, a) are different pairs. Source: INFO section 5.5.

    Args:
        modulus: p.
        train_share: Share of the p * p pairs to train on, rounded to a whole number of pairs.
        seed: Seed of the choice of pairs.

    Returns:
        Both parts, each in order of a and then b.

    Example:
        >>> split = split_pairs(5, 0.4)
        >>> len(split.train.pairs), len(split.test.pairs)
        (10, 15)
    """
    count = modulus**2
    shuffled = torch.randperm(count, generator=generator(seed, 0))
    taken = round(train_share * count)
    return SumSplit(*(_sums(part, modulus) for part in (shuffled[:taken], shuffled[taken:])))


def mark_mirror_images(split: SumSplit) -> Bool[Tensor, " n"]:
    """Mark the held-out pairs that are training pairs in the other order.

    A network that has learnt that addition commutes knows their sums from the training pairs.

    Example:
        >>> split = split_pairs(5, 0.4)
        >>> int(mark_mirror_images(split).sum())
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
        """Compute the logits of ``a b =`` at the equals sign."""
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
        stream = start + _weigh_rows(_tables(written, self.mix.weight), weights, uses)
        first = self.expand.weight @ self.mix.weight
        before = self.expand(start) + _weigh_rows(_tables(written, first), weights, uses)
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


def _weigh_rows(
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


class Grokking(Config):
    """One run of full-batch training on addition modulo p, and its measurements."""

    modulus: int = Field(113, ge=3, description="p: numbers are 0 to p - 1.")
    train_share: float = Field(0.3, gt=0, lt=1, description="Share of pairs to train on.")
    width: int = Field(128, ge=1, description="Width of the residual stream.")
    heads: int = Field(4, ge=1, description="Attention heads, each of width / heads.")
    hidden: int = Field(512, ge=1, description="Units of the ReLU network.")
    steps: int = Field(20_000, ge=1, description="AdamW steps, each on all training pairs.")
    learning_rate: float = Field(1e-3, gt=0, description="Constant.")
    betas: tuple[float, float] = Field((0.9, 0.98), description="Of AdamW.")
    weight_decay: float = Field(1.0, ge=0, description="Decoupled decay of all parameters.")
    measurements: int = Field(
        40, ge=2, description="Approximate number of information measurements, log-spaced."
    )
    accuracy_measurements: int = Field(
        200, ge=2, description="Approximate number of accuracy measurements, log-spaced."
    )
    batch_size: int = Field(64, ge=2, description="Batch size of batch MIR and HDR.")
    batch_every: int | None = Field(
        None, ge=1, description="Steps between further measurements of MIR and HDR by batch alone."
    )

    @model_validator(mode="after")
    def _fits(self) -> "Grokking":
        if self.width % self.heads:
            msg = "a width that the heads share evenly"
            raise ValueError(msg)
        if round(self.train_share * self.modulus**2) < 2 * self.batch_size:
            msg = "training pairs for two batches of batch_size or more"
            raise ValueError(msg)
        return self

    @property
    def information_steps(self) -> list[int]:
        """Steps at which information is measured, including the first and the last."""
        return log_spaced_epochs(self.steps, self.measurements)

    @property
    def batch_steps(self) -> list[int]:
        """Steps at which MIR and HDR are measured by batch, including those of information."""
        further = range(0, self.steps, self.batch_every) if self.batch_every else ()
        return sorted({*self.information_steps, *further})

    @property
    def accuracy_steps(self) -> list[int]:
        """Steps at which accuracy is measured, including those of information."""
        accuracy = log_spaced_epochs(self.steps, self.accuracy_measurements)
        return sorted({*self.batch_steps, *accuracy})


def grokking_events(settings: Grokking, seed: int, resources: Resources) -> Iterator[Event]:
    """Train, measuring training and held-out pairs at the steps that are due.

    An epoch is a step. The products of the ReLU network's second matrix and of the unembedding,
    forward and backward, are half the cost of a step. A measurement of information solves two
    eigenproblems of up to 4,096 rows per split.

    Args:
        settings: Settings of the run.
        seed: Seed of the choice of pairs and of the weights.
        resources: Resources of the run; see `resumable_events`.

    Yields:
        An event for every split and step that is due, and a heartbeat after every step.

    Raises:
        InputError: If the disk has no space for checkpoints.
    """
    data, learner = prepare_run(settings, seed, resources.fabric)
    accuracy_steps = settings.accuracy_steps

    def epochs(after_step: AfterStep) -> Iterator[EpochEnd]:
        return train_full_batch(resources.fabric, learner, data.train, settings.steps, after_step)

    def due(end: EpochEnd) -> list[Recorded]:
        if end.step not in accuracy_steps:
            return []
        return measure_pairs(settings, learner, data, end)

    return resumable_events(learner, epochs, due, settings.steps, resources)


def prepare_run(settings: Grokking, seed: int, fabric: Fabric) -> tuple[SumSplit, Learner]:
    """Choose the pairs and draw the weights, without training.

    Args:
        settings: Settings of the run.
        seed: Seed of the choice of pairs and of the weights.
        fabric: A launched Fabric.

    Returns:
        All pairs, on the device, and the transformer in training.
    """
    split = split_pairs(settings.modulus, settings.train_share, seed)
    data = SumSplit(*(Sums(*fabric.to_device(tuple(part))) for part in split))
    model = ModularTransformer(
        settings.modulus,
        settings.width,
        settings.heads,
        settings.hidden,
        generator(seed, Purpose.WEIGHTS),
    ).to(fabric.device)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    constant = LambdaLR(optimiser, lambda epoch: 1.0)
    return data, Learner(model, optimiser, constant)


def train_full_batch(
    fabric: Fabric,
    learner: Learner,
    pairs: Sums,
    steps: int,
    after_step: AfterStep = lambda: None,
) -> Iterator[EpochEnd]:
    """Train on all training pairs at every step, which is an epoch; see `train`.

    Args:
        fabric: A launched Fabric.
        learner: Transformer, which is trained from its current state, and optimiser.
        pairs: Training pairs.
        steps: Number of steps.
        after_step: See `train`; never called, as every step ends an epoch.
    """
    # By default glibc returns the large blocks of activations to the system, which fills each with
    # zeros before lending it again; this takes a seventh of a step. glibc keeps blocks that are
    # smaller than the largest block, up to 32 MiB, that was freed before.
    torch.empty(2**25 - 2**16, dtype=torch.uint8)
    objective = supervised(cross_entropy)
    return train(
        fabric, learner, lambda epoch, first: [pairs], objective, steps, after_step=after_step
    )


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean cross-entropy in float64.

    In float32 the loss of a memorised pair rounds to 0, and so does its gradient. AdamW divides by
    the gradient's size, so its steps would then consist of rounding errors.
    """
    return functional.cross_entropy(logits.double(), labels)


def measure_pairs(
    settings: Grokking, learner: Learner, data: SumSplit, end: EpochEnd
) -> list[Recorded]:
    """Measure accuracy and loss on both splits, and what is due of the information between both.

    The information is that between stream and unembedding, by batch and of all pairs of a split.

    Held-out accuracy is also measured without the pairs that are training pairs in the other order.

    Args:
        settings: Settings of the run.
        learner: Learner of the transformer.
        data: Pairs of the run.
        end: State of training at the end of the epoch.
    """
    events = list[Recorded]()
    model = learner.model
    assert isinstance(model, ModularTransformer)
    weight = model.head.weight.detach().double()
    for split, (pairs, labels) in zip(data._fields, data, strict=True):
        with evaluation_mode(model):
            features = model.features(pairs)
            logits = model.head(features)
            loss, right = cross_entropy(logits, labels), logits.argmax(1) == labels
        values = {"loss": float(loss), "accuracy": float(right.double().mean())}
        if split == "test":
            known = mark_mirror_images(data)
            values["accuracy_mirrored"] = float(right[known].double().mean())
            values["accuracy_unmirrored"] = float(right[~known].double().mean())
        if end.step in settings.batch_steps:
            values |= estimate_by_batch(features, labels, weight, settings.batch_size)
        if end.step in settings.information_steps:
            record, _ = measure_samples(
                HEAD_INPUT, features, labels, settings.modulus, weight, groups=("information",)
            )
            events.append(Measurement(ModelRecord((record,)), end.step, split, values=values))
        else:
            events.append(Observation(end.step, end.epoch, split, HEAD_INPUT, values=values))
    return events
