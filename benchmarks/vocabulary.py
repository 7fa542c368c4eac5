"""Peak memory of a vocabulary of classes: streamed, accuracy from logits, NC4 by recomputing.

Run as a module, it prints seconds, and the peak memory beyond the model in class states: what
`ClassMoments` keeps, means and mean directions of K classes in d dimensions, in float64. NC1 is
measured without the pairs of classes (CDNV). The model embeds a token and classifies it by one
linear layer, as a language model's last layer does.

Each class has a token, because pages of the class state that nobody touches would not count. The
products then take 8 K^2 d operations: minutes for the default K=32,000, 25 minutes on two cores
for ``--classes 128000``. The share of each part of the peak hardly depends on K.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import ncscope
from benchmarks.measure import own_peak_gigabytes
from ncscope.metrics.registry import METRICS

GROUPS = ("nc1", "nc4")
PAIRS = {"cdnv", "nc1"}
"""CDNV, and the name of the group that holds it; fuzziness is K times the metric of this name."""
DIRECTIONS = {"cosine_within", "class_separation"}


class Vocabulary(nn.Module):
    """Embedding of a token, and a linear head on the token."""

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(1024, dim), nn.Linear(dim, classes, bias=False)
        self.register_buffer("directions", torch.randn(64, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of each token."""
        features: Tensor = self.embed(tokens % 1024) + self.directions[tokens % 61]
        logits: Tensor = self.head(features)
        return logits


class Texts:
    """Each class once, and further random ones, in batches of one sequence."""

    def __init__(self, classes: int, tokens: int, length: int) -> None:
        self.classes, self.tokens, self.length = classes, tokens, length

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        draws = torch.Generator().manual_seed(0)
        for start in range(0, self.tokens, self.length):
            index = torch.arange(start, min(start + self.length, self.tokens))
            drawn = torch.randint(self.classes, index.shape, generator=draws)
            label = torch.where(index < self.classes, self.classes - 1 - index, drawn)
            yield index[None], label[None]


def resident_gigabytes() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


def main() -> None:
    """Measure, and print seconds and the peak in class states."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vocabulary")
    parser.add_argument("--classes", type=int, default=32_000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=0, help="by default 2 % more than classes")
    parser.add_argument("--no-directions", action="store_true", help="leave half of a state out")
    parser.add_argument("--length", type=int, default=256, help="tokens of a batch")
    arguments = parser.parse_args()
    classes, dim = arguments.classes, arguments.dim
    texts = Texts(classes, arguments.tokens or classes + classes // 50, arguments.length)
    torch.manual_seed(0)
    model = Vocabulary(classes, dim)
    left_out = PAIRS | (DIRECTIONS if arguments.no_directions else set())
    keys = [row.key for row in METRICS.values() if row.group in GROUPS and row.key not in left_out]
    model(next(iter(texts))[0])  # threads and libraries are there before
    before = resident_gigabytes()
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the present memory
    start = time.perf_counter()
    report = ncscope.measure_model(
        model, texts, layers=[], groups=keys, second_pass="recompute", progress=False
    )
    seconds = time.perf_counter() - start
    state = (1 if arguments.no_directions else 2) * classes * dim * 8 / 2**30
    assert {"vci", "accuracy", "nc4_disagreement"} <= report.keys()
    print(seconds, (own_peak_gigabytes() - before) / state)


if __name__ == "__main__":
    main()
