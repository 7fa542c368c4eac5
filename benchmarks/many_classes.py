"""K=50,000, d=1024, 200,000 samples streamed: all metrics but those of covariance eigenpairs.

Run as a module, it prints its seconds and the peak memory of its process in GB.
"""

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.measure import own_peak_gigabytes
from ncscope.metrics.evaluate import evaluate
from ncscope.metrics.sources import Sources
from ncscope.stats.decisions import Decider
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import finish

K, D, SAMPLES, BATCH = 50_000, 1024, 200_000, 4096


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Token-like features, drawn batch by batch: the same at every pass."""
    means = torch.randn(K, D, generator=torch.Generator().manual_seed(0), dtype=torch.float16)
    generator = torch.Generator().manual_seed(1)
    for start in range(0, SAMPLES, BATCH):
        labels = torch.arange(start, min(start + BATCH, SAMPLES)) % K
        noise = torch.randn(len(labels), D, generator=generator)
        yield noise + means[labels].float(), labels


def main() -> None:
    """Stream, look again, evaluate, and print seconds and peak."""
    start = time.perf_counter()
    moments = ClassMoments(K, D, statistics=("directions",))
    for features, labels in batches():
        moments.update(features, labels)
    stats = finish(moments)
    del moments
    weight = torch.randn(K, D, generator=torch.Generator().manual_seed(2)).double()
    decide = Decider(stats.classes, stats.means, weight)
    looks = [decide(features, labels) for features, labels in batches()]
    total = looks[0]
    for counts in looks[1:]:
        total = total + counts
    del decide
    groups = ("nc1", "nc2", "nc3", "nc4")
    values, _ = evaluate(Sources(stats, weight, None, total), groups)
    assert len(values) > 15
    print(time.perf_counter() - start, own_peak_gigabytes())


if __name__ == "__main__":
    main()
