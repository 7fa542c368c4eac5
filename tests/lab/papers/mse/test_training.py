"""The runs of the MSE paper, and their grouping by network, loss and seed."""

import pytest
import torch

from ncscope.data.catalogue import CATALOGUE
from ncscope.lab.papers.mse.training import (
    BOTH,
    DEPTHS,
    EXCEPTIONS,
    SEEDS,
    SMALL_SEEDS,
    MSETraining,
    by_network,
    network_of,
    paper_runs,
    rivals,
    small_runs,
    typical,
    under,
)
from ncscope.models.networks.catalogue import build
from tests.lab.papers.mse.histories import small
from tests.pace import others_slow

PAPER = paper_runs(BOTH, ("nc1",))
NETWORKS = sorted({(one.data, one.network) for one in PAPER.values()})
ONE_OF_EACH = {network: (data, network) for data, network in NETWORKS}.values()


def test_the_papers_networks_and_settings() -> None:
    assert len(paper_runs(("mse",), ())) == 15 * len(SEEDS)
    assert len(PAPER) == 30 * len(SEEDS)
    assert PAPER["fashion-mnist, densenet250, mse, seed 1"].image_size == 32
    assert PAPER["stl10, densenet201, mse, seed 1"].image_size is None
    for name, one in PAPER.items():
        assert name.endswith(f", {one.loss}, seed {one.seed}")
        assert one.data in CATALOGUE
        assert one.augmentation == "none"
        assert one.balanced == {"mnist": 50_000, "svhn": 46_000}.get(one.data)
        how = one.optimisation
        assert (how.epochs, how.batch_size, how.momentum, how.weight_decay) == (350, 128, 0.9, 5e-4)
        assert (how.optimiser, how.schedule, how.milestones) == ("sgd", "steps", (1 / 3, 2 / 3))


@pytest.mark.parametrize(("data", "network"), others_slow(NETWORKS, *ONE_OF_EACH))
def test_the_papers_networks_build(data: str, network: str) -> None:
    one = next(x for x in PAPER.values() if (x.data, x.network) == (data, network))
    size = one.image_size or CATALOGUE[data].native
    with torch.device("meta"):
        build(network, 10, in_channels=1 if "mnist" in data else 3, image_size=size or 0)


def test_cross_entropy_has_its_own_depths() -> None:
    assert "cifar10, resnet50, mse, seed 1" in PAPER
    assert "cifar10, resnet18, cross-entropy, seed 1" in PAPER
    assert {network for one in DEPTHS["cross-entropy"].values() for network in one} >= {"vgg13"}
    pairs = rivals(MSETraining(runs=PAPER))
    assert len(pairs) == 15 * len(SEEDS)
    for pair in pairs.values():
        mse, entropy = (PAPER[name] for name in pair)
        assert (mse.loss, entropy.loss) == BOTH
        assert network_of(mse) == network_of(entropy)
        assert mse.seed == entropy.seed


def test_the_small_scale_has_all_kinds_and_the_comparison_a_harder_set() -> None:
    one, two = small_runs(("mse",), ()), small_runs(BOTH, ())
    assert (len(one), len(two)) == (3 * 3, 3 * 3 * len(BOTH))
    assert {run.optimisation.epochs for run in one.values()} == {150}
    epochs = {run.data: run.optimisation.epochs for run in two.values()}
    assert epochs == {"digits": 100, "warped-digits": 50}
    assert {run.optimisation.batch_size for run in two.values()} == {128}


def test_runs_are_found_by_loss_and_by_network() -> None:
    config = small(*BOTH)
    mse = under(config, "mse")
    assert mse == [name for name in config.runs if ", mse, " in name]
    seeds = by_network(config, {name: config.runs[name].seed for name in mse})
    assert list(seeds) == ["digits, VGG", "digits, ResNet", "warped-digits, VGG"]
    assert set(map(tuple, seeds.values())) == {SMALL_SEEDS}


def test_a_run_whose_loss_was_changed_has_no_rival() -> None:
    config = small(*BOTH)
    name, one = next(iter(config.runs.items()))
    changed = {**config.runs, name: one.model_copy(update={"loss": "cross-entropy"})}
    assert list(rivals(MSETraining(runs=changed))) == list(rivals(config))[1:]


def test_typical_networks_are_all_but_the_papers_exceptions() -> None:
    config = MSETraining(runs=PAPER)
    left_out = set(PAPER).difference(typical(config))
    assert {network_of(PAPER[name]) for name in left_out} == set(EXCEPTIONS)
    assert len(left_out) == 2 * len(BOTH) * len(SEEDS)
    assert typical(small("mse")) == list(small("mse").runs)
