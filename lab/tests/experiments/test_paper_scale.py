"""Networks of the paper's scale take one real step on files in real formats."""

from collections.abc import Iterator

import pytest
import torch

from ncscope.data.draws import Draw
from ncscope_lab.catalogue import EXPERIMENTS, find_experiment
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.objectives import objective
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import prepare_bench
from tests.data.on_disk import WRITERS
from tests.pace import others_slow

SMALLEST = ("pfc-mnist", "pfc-fashion-mnist", "vgg11", "resnet18", "densenet40")


def trainings() -> Iterator[tuple[str, Training]]:
    """Every distinct pair of data set and network, with a name."""
    seen = set()
    for experiment in EXPERIMENTS:
        config = find_experiment(experiment).scales.get("paper")
        for run, training in getattr(config, "runs", {}).items():
            if not isinstance(training, Training):
                continue  # the transformer of modular addition, whose data are sums
            kind = (training.data, training.network)
            if kind not in seen:
                seen.add(kind)
                yield f"{experiment}-{run}", training


CASES = dict(trainings())


QUICK = {
    training.network: name
    for name, training in CASES.items()
    if training.network in SMALLEST and training.data in ("mnist", "fashion-mnist", "cifar10")
}
"""A case of each of the smallest networks."""


@pytest.mark.parametrize("name", others_slow(CASES, *QUICK.values()))
def test_one_step_on_real_files(name, tmp_path, monkeypatch) -> None:
    training = CASES[name]
    WRITERS[training.data](tmp_path, monkeypatch)
    with torch.random.fork_rng():
        every = training.model_copy(update={"balanced": None})  # of the few images there are
        bench = prepare_bench(every, Resources(data=tmp_path))
        learner, images = bench.learner, bench.data.train
        before = [parameter.detach().clone() for parameter in learner.model.parameters()]
        drawn = [images[Draw(0, 0, index)] for index in range(4)]
        batch = torch.stack([image for image, _ in drawn]), torch.tensor([y for _, y in drawn])
        learner.model.train()
        loss = objective(training, bench.data.num_classes, torch.device("cpu"))
        value = loss(learner.model, batch)
        value.backward()
        learner.optimiser.step()
    assert torch.isfinite(value)
    moved = [
        not torch.equal(old, new)
        for old, new in zip(before, learner.model.parameters(), strict=True)
    ]
    assert sum(moved) > 0.9 * len(moved)
