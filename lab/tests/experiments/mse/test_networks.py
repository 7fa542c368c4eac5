"""The networks of the MSE paper, and their grouping by kind, loss and seed."""

import pytest
import torch
from lab.tests.experiments.mse.histories import small

from ncscope.data.catalogue import CATALOGUE
from ncscope.models.networks.catalogue import build
from ncscope_lab.experiments.mse.networks import (
    BOTH,
    EXCEPTIONS,
    PAPER_SEEDS,
    find_rival,
    name_network,
    paper_runs,
    select_pairs,
    select_typical,
)
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs, replace_fields
from tests.pace import others_slow

PAPER = paper_runs(BOTH, ("nc1",))
RUNS = Runs.of(PAPER, Results())
NETWORKS = sorted({(one.data, one.network) for one in PAPER.values()})
ONE_OF_EACH = {network: (data, network) for data, network in NETWORKS}.values()


def test_the_papers_networks_and_settings() -> None:
    assert len(paper_runs(("mse",), ())) == 15 * len(PAPER_SEEDS)
    assert len(PAPER) == 30 * len(PAPER_SEEDS)
    assert PAPER["fashion-mnist, densenet250, mse, seed 1"].image_size == 32
    assert PAPER["stl10, densenet201, mse, seed 1"].image_size is None
    for name, one in PAPER.items():
        assert name.endswith(f", {one.loss}, seed {one.seed}")
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


def test_pairs_differ_in_the_loss_and_in_depth_alone() -> None:
    assert "cifar10, resnet50, mse, seed 1" in PAPER
    assert "cifar10, resnet18, cross-entropy, seed 1" in PAPER
    mse = RUNS.where(loss="mse")
    for run in mse:
        rival = find_rival(run)
        assert rival is not None
        assert find_rival(rival) is run
        assert (run.settings.loss, rival.settings.loss) == BOTH
        assert (name_network(run), run.settings.seed) == (name_network(rival), rival.settings.seed)
    exceptions = {run.name for run in mse}.difference(run.name for run in select_pairs(RUNS))
    assert len(exceptions) == len(EXCEPTIONS) * len(PAPER_SEEDS)


def test_typical_networks_are_all_but_the_papers_exceptions() -> None:
    typical = {run.name for run in select_typical(RUNS)}
    left_out = [run for run in RUNS if run.name not in typical]
    assert set(map(name_network, left_out)) == set(EXCEPTIONS)
    assert len(left_out) == 2 * len(BOTH) * len(PAPER_SEEDS)


def test_runs_are_found_by_loss_and_by_network() -> None:
    runs = Runs.of(small(*BOTH).runs, Results())
    networks = runs.where(loss="mse").group(name_network)
    assert list(networks) == ["digits, VGG", "digits, ResNet", "warped-digits, VGG"]
    for seeds in networks.values():
        assert len({run.settings.seed for run in seeds}) == len(seeds) == 3


def test_a_run_whose_loss_was_changed_is_in_no_pair() -> None:
    runs = small(*BOTH).runs
    name = next(iter(runs))
    changed = {**runs, name: replace_fields(runs[name], loss="cross-entropy")}
    all_pairs, fewer = (select_pairs(Runs.of(each, Results())) for each in (runs, changed))
    assert [run.name for run in fewer] == [run.name for run in all_pairs][1:]
