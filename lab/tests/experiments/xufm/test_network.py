"""XUFM figures 5 and 10: levels, and the paper's scale."""

from lab.tests.experiments.xufm.stories import made

from ncscope.models.layers import match_layers
from ncscope.models.networks.catalogue import NAMES, build
from ncscope_lab.experiments.xufm.network import (
    EXPERIMENT,
    name_levels,
)

SMALL = EXPERIMENT.scales["small"]
FIRST = next(iter(SMALL.runs))


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
    for run in (*paper.runs.values(), *SMALL.runs.values()):
        assert run.bias == (run.loss == "cross-entropy")
    for run in paper.runs.values():
        assert run.network in NAMES
        chosen = run.optimisation
        assert (chosen.learning_rate, chosen.weight_decay, chosen.decay) == (0.05, 5e-4, 0.1)
        assert [share * chosen.epochs for share in chosen.milestones] == [40, 80]
    blocks = match_layers(build("resnet18", 10), paper.blocks)
    assert blocks == ["layer1", "layer2", "layer3", "layer4"]
