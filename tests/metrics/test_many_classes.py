"""With many classes: no value depends on the blocks, and little is held beside the statistics."""

import subprocess
import sys
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import ncscope
from ncscope.math import pairs, symmetric
from ncscope.metrics import duality
from ncscope.metrics import sources as metric_sources
from ncscope.metrics.evaluate import evaluate
from ncscope.metrics.information import _HadamardProduct
from ncscope.metrics.sources import Sources
from ncscope.stats import statistics
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import finish

from ..closeness import assert_agree


class AliveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors made inside it that are alive, and the most there were."""

    def __init__(self):
        super().__init__()
        self.sizes, self.peak = {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = {id(t.untyped_storage()) for t in tree_leaves(args) if isinstance(t, torch.Tensor)}
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if id(storage) not in self.sizes and id(storage) not in given:
                    self.sizes[id(storage)] = storage.nbytes()
                    weakref.finalize(storage, self.sizes.pop, id(storage))
        self.peak = max(self.peak, sum(self.sizes.values()))
        return out


def features_of(k, dim, generator):
    labels = torch.arange(3 * k) % k
    return torch.randn(3 * k, dim, generator=generator), labels


def keep_nothing(patch):
    """Let small matrices be treated as those of many classes, of which none is kept."""
    for module in (symmetric, statistics, metric_sources):
        patch.setattr(module, "SMALL_BYTES", 0)
    patch.setattr(duality, "_ONE_BLOCK", 0)


def test_no_value_depends_on_the_blocks(monkeypatch):
    draws = torch.Generator().manual_seed(0)
    features, labels = features_of(23, 9, draws)
    features, labels = features[:-7] + 2, labels[:-7]
    weight, bias = torch.randn(23, 9, generator=draws), torch.randn(23, generator=draws)
    at_once, by_row = [], []
    for decay in (0.0, 0.01):
        for offset in (bias, None):
            arguments = (features, labels, weight, offset)
            at_once.append(ncscope.measure(*arguments, weight_decay=decay))
            with monkeypatch.context() as patch:
                patch.setattr(pairs, "_BLOCK_BYTES", 8 * 23 * 5)
                keep_nothing(patch)
                by_row.append(ncscope.measure(*arguments, weight_decay=decay))
    for one, other in zip(at_once, by_row, strict=True):
        assert_agree(other, one, rel=1e-11, abs_tol=1e-13)


@pytest.mark.parametrize("block_bytes", [1, 8 * 7 * 11 * 2, 2**20])
def test_a_product_of_pairs_is_the_dense_one(monkeypatch, block_bytes):
    monkeypatch.setattr(pairs, "_BLOCK_BYTES", block_bytes)
    draws = torch.Generator().manual_seed(1)
    first, second = (torch.randn(13, d, generator=draws).double() for d in (7, 11))
    vectors = torch.randn(13, 3, generator=draws).double()
    a, b = (torch.nn.functional.normalize(rows) for rows in (first, second))
    expected = (a @ a.T * (b @ b.T)) @ vectors
    torch.testing.assert_close(_HadamardProduct(first, second)(vectors), expected)


@pytest.mark.slow
def test_evaluating_holds_three_matrices_of_class_means_at_once(monkeypatch):
    k, dim = 4200, 256
    monkeypatch.setattr(pairs, "_BLOCK_BYTES", 2**20)
    keep_nothing(monkeypatch)
    draws = torch.Generator().manual_seed(2)
    moments = ClassMoments(k, dim)
    moments.update(*features_of(k, dim, draws))
    sources = Sources(finish(moments), torch.randn(k, dim, generator=draws))
    with AliveBytes() as alive:
        values, _ = evaluate(sources)
    assert {"nc1", "cdnv", "nc2_etf", "nc3_etf", "mse_loss", "mir_means"} <= values.keys()
    # The class contrasts, the frame, the head's rows; blocks, probes and d x d matrices.
    assert 3 <= alive.peak / (8 * k * dim) < 4.2


_SUM_OVER_PAIRS = """
import resource, torch
from ncscope.math.pairs import sum_over_pairs
vectors = torch.ones(20_000, 2, dtype=torch.float64)
sum_over_pairs(vectors[:2], lambda gram, i, j: gram)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sum_over_pairs(vectors, lambda gram, i, j: torch.stack([gram.square(), gram.abs()]))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_sums_over_pairs_do_not_grow_the_process() -> None:
    """Where a tensor is kept after each of the 400 tiles of 4 MB, the process grows by 3 GB."""
    run = subprocess.run(
        [sys.executable, "-c", _SUM_OVER_PAIRS], capture_output=True, check=True, text=True
    )
    assert int(run.stdout) < 100
