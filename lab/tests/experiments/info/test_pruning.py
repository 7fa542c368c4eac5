"""A network pruned and fine-tuned: a real one, a stopped one, and claims on made-up results."""

from typing import Any

import pytest
import torch
from lab.tests.experiments.info import stories
from lab.tests.experiments.info.test_connectivity import IMAGES, brief, network
from lab.tests.observed import gathered, results_of
from torch import nn

from ncscope.metrics.information import pair_entropies
from ncscope_lab.experiments.info.pruning import (
    EXPERIMENT,
    PRUNED,
    TUNED,
    UNTRAINED,
    InfoPruning,
    collect_features,
    compare_features,
    measure_sparsity,
    prune_network,
    share_kept,
)
from ncscope_lab.observations import Results
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.supervised import bench_events, prepare_bench

SMALL, PAPER = EXPERIMENT.scales["small"], EXPERIMENT.scales["paper"]


def short(**given: Any) -> InfoPruning:
    name, training = next(iter(SMALL.runs.items()))
    dense = brief(training.model_copy(update={"data": "digits", "network": "small-wrn"}), **given)
    tuning = dense.optimisation.model_copy(update={"learning_rate": 0.01})
    return InfoPruning(runs={name: dense}, sparsities=(0.0, 0.8), tuning=tuning)


@pytest.fixture(scope="module")
def results() -> Results:
    (part,) = EXPERIMENT.parts(short())
    return results_of(part)


@pytest.mark.slow
def test_nothing_pruned_is_the_dense_network_beside_itself(results: Results) -> None:
    (training,) = short().runs.values()
    bench = prepare_bench(training, Resources())
    *_, dense = gathered(bench_events(bench, Resources()))
    features = collect_features(bench, bench.learner.evaluated)
    itself = pair_entropies(features, features)
    (untouched,) = [r for r in results if r.get("stage") == PRUNED and r["sparsity"] == 0]
    # The copy may have another memory format, whose convolutions round in another way.
    assert untouched["dense_mir"] == pytest.approx(itself.mir, rel=1e-6)
    assert itself.mir < 1
    assert untouched["dense_hdr"] == pytest.approx(0, abs=1e-6)
    assert untouched["dense_hdr_batch"] == pytest.approx(0, abs=1e-6)
    for key in ("accuracy", "mir", "hdr", "mir_batch"):
        assert untouched[key] == pytest.approx(dense[key], rel=1e-6)


@pytest.mark.slow
def test_each_sparsity_is_compared_before_and_after_fine_tuning(results: Results) -> None:
    found = [row for row in results if "stage" in row]
    stages = (UNTRAINED, PRUNED, TUNED)
    assert [(row["sparsity"], row["stage"]) for row in found] == [
        (sparsity, stage) for sparsity in (0.0, 0.8) for stage in stages
    ]
    assert [row["zeros"] for row in found] == pytest.approx([0] * 3 + [0.8] * 3, abs=1e-4)
    assert [row.epoch for row in found] == [0, 0, 1, 0, 0, 1]
    untrained, before, after = found[3:]
    assert before["dense_mir"] < found[1]["dense_mir"]
    assert len({row["dense_mir"] for row in (untrained, before, after)}) == 3


@pytest.mark.slow
def test_the_chance_baseline_is_the_network_before_its_training(results: Results) -> None:
    (training,) = short().runs.values()
    bench = prepare_bench(training, Resources())
    first = collect_features(bench, bench.learner.evaluated)
    *_, _ = gathered(bench_events(bench, Resources()))
    dense = collect_features(bench, bench.learner.evaluated)
    (row,) = [r for r in results if r.get("stage") == UNTRAINED and r["sparsity"] == 0]
    assert row["dense_mir"] == pytest.approx(pair_entropies(first, dense).mir, rel=1e-6)


def test_the_batch_estimate_pairs_the_same_samples() -> None:
    first = torch.randn(128, 6, generator=torch.Generator().manual_seed(0))
    second = first @ torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    order = torch.randperm(128, generator=torch.Generator().manual_seed(0))
    parts = [pair_entropies(first[chosen], second[chosen]) for chosen in order.split(64)]
    found = compare_features(first, second)
    assert found["dense_mir_batch"] == pytest.approx(sum(p.mir for p in parts) / 2)
    assert found["dense_hdr_batch"] == pytest.approx(sum(p.hdr for p in parts) / 2)
    assert found["dense_mir"] == pair_entropies(first, second).mir


def test_the_share_kept_is_1_at_the_dense_network_and_0_at_chance() -> None:
    run = EXPERIMENT.collect(SMALL, stories.pruned())[0]
    assert share_kept("dense_mir", PRUNED, 0.0)(run) == pytest.approx(1.0)
    assert share_kept("dense_mir", PRUNED, 0.9)(run) == pytest.approx(0.5)
    assert share_kept("dense_hdr", UNTRAINED, 0.9)(run) == pytest.approx(0.0)
    assert share_kept("dense_hdr_batch", TUNED, 0.9)(run) == pytest.approx(1 - 0.02 / 0.9)


def test_fine_tuning_averages_no_weights_and_sparsities_go_to_nine_tenths() -> None:
    assert PAPER.tuning.average == 0
    assert PAPER.sparsities == pytest.approx([tenth / 10 for tenth in range(10)])
    assert SMALL.sparsities[-1] == 0.9


def test_the_smallest_weights_of_all_layers_go_and_stay_away() -> None:
    dense = network(1)
    sparse = prune_network(dense, 0.7)
    weights = [module.weight for module in dense.modules() if isinstance(module, nn.Conv2d)]
    weights.append(dense.fc.weight)
    magnitudes = torch.cat([weight.detach().abs().flatten() for weight in weights])
    cut = magnitudes.kthvalue(round(0.7 * len(magnitudes))).values
    assert torch.equal(sparse.fc.weight != 0, dense.fc.weight.abs() > cut)
    assert measure_sparsity(sparse) == pytest.approx(0.7, abs=1e-4)
    optimiser = torch.optim.SGD(sparse.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(2):
        nn.functional.cross_entropy(sparse(IMAGES), torch.arange(24) % 10).backward()
        optimiser.step()
    sparse(IMAGES)
    assert measure_sparsity(sparse) == pytest.approx(0.7, abs=1e-4)
    assert not torch.equal(sparse.fc.weight, prune_network(dense, 0.7).fc.weight)
    assert measure_sparsity(dense) == 0


def test_nothing_pruned_is_the_network_itself() -> None:
    dense = network(1)
    assert torch.equal(prune_network(dense, 0.0)(IMAGES), dense(IMAGES))
