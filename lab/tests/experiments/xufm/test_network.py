"""XUFM figures 5 and 10: levels, an untrained network, and the paper's scale."""

from lab.tests.experiments.xufm.stories import CE, PATHS, made

from ncscope.models.layers import match_layers
from ncscope.models.networks.catalogue import NAMES, build
from ncscope_lab.experiments.xufm.network import (
    EXPERIMENT,
    name_levels,
)

SMALL = EXPERIMENT.scales["small"]
FIRST = next(iter(SMALL.runs))


def test_the_loss_decides_on_the_bias() -> None:
    assert {name: (run.loss, run.bias) for name, run in SMALL.runs.items()} == {
        name: ("mse", False) if "MSE" in name else ("cross-entropy", True) for name in SMALL.runs
    }


def test_an_untrained_network_holds_no_claim() -> None:
    start = {key: [[path[0]] * 3 for path in paths] for key, paths in PATHS.items()}
    found = made(CE, start | {"duality": [[1.0, 1.0, 1.0]]})
    own = [claim for claim in EXPERIMENT.judge(SMALL, found) if claim.text.startswith(CE)]
    assert len(own) == 7
    assert not any(claim.held for claim in own)


def test_the_map_of_the_last_block_is_not_a_level() -> None:
    first = EXPERIMENT.collect(SMALL, made()).find(FIRST)
    assert name_levels(first) == ["block 1", "block 2", "classifier's input"]


def test_the_paper_s_scale_is_the_paper_s() -> None:
    paper = EXPERIMENT.scales["paper"]
    assert len(EXPERIMENT.parts(paper)) == 4 * 3 + 2
    assert [(run.data, run.loss) for run in paper.runs.values()] == [
        (data, loss)
        for data in ("mnist", "cifar10")
        for loss in ("mse", "cross-entropy")
        for _ in range(3)
    ]
    assert [run.seed for run in paper.runs.values()] == [0, 1, 2] * 4
    for run in paper.runs.values():
        assert run.network in NAMES
        chosen = run.optimisation
        assert (chosen.learning_rate, chosen.weight_decay, chosen.decay) == (0.05, 5e-4, 0.1)
        assert [share * chosen.epochs for share in chosen.milestones] == [40, 80]
    blocks = match_layers(build("resnet18", 10), paper.blocks)
    assert blocks == ["layer1", "layer2", "layer3", "layer4"]
