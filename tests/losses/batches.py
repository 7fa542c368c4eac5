"""The batches every loss must live with: one table drives the suite."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ncscope.math.frames import orthogonal_frame, simplex_etf


@dataclass(frozen=True)
class Batch:
    features: Tensor
    labels: Tensor
    weight: Tensor

    @property
    def heads(self) -> Tensor:
        return self.weight[self.labels]


def _random(n: int, d: int, k: int, present: int | None = None, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    labels = torch.arange(n) % (present or k)
    return Batch(normal(n, d), labels[torch.randperm(n, generator=generator)], normal(k, d))


def _duplicated() -> Batch:
    batch = _random(5, 7, 3)
    return Batch(batch.features.repeat(2, 1), batch.labels.repeat(2), batch.weight)


def _collapsed(frame: Callable[..., Tensor]) -> Batch:
    turned = frame(4, 6, torch.Generator().manual_seed(1))
    return Batch(3 * turned.repeat_interleave(3, 0), torch.arange(4).repeat_interleave(3), turned)


BATCHES: dict[str, Batch] = {
    "fewer dimensions than samples": _random(12, 4, 3),
    "more dimensions than samples": _random(6, 9, 3),
    "duplicated rows": _duplicated(),
    "one class in the batch": _random(7, 5, 3, present=1),
    "fewer heads than samples": _random(9, 12, 2),
    "one dimension": _random(6, 1, 2),
    "two samples": _random(2, 3, 2),
    "features on one line": Batch(
        torch.outer(torch.linspace(1, 2, 6), torch.arange(1, 5)).double(),
        torch.arange(6) % 3,
        _random(6, 4, 3).weight,
    ),
    "simplex collapse": _collapsed(simplex_etf),
    "orthogonal collapse": _collapsed(orthogonal_frame),
}
