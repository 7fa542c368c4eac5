"""When a training run measures, on which images, and the batches it mixes."""

import math

import pytest
import torch
from torch import nn

from ncscope.data.loaders import make_measurement_loader
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.objectives import mix_images, objective
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import measure_splits, prepare_bench


def settings(**given) -> Training:
    return Training(data="digits", network="small-resnet", **given)


def test_measured_at_even_distances_and_at_the_end() -> None:
    run = Optimisation(epochs=50)
    assert settings(optimisation=run, every=20).due == [0, 20, 40, 50]
    assert settings(optimisation=run, every=25).due == [0, 25, 50]
    assert settings(optimisation=run, measurements=3).due == [0, 1, 50]


def test_the_objective_of_mixed_batches_is_cross_entropy_with_the_shares() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 3))
    images, labels = torch.rand(4, 1, 1, 3), torch.tensor([0, 1, 2, 0])
    mixing = objective(settings(mixing=True, seed=7), 3, torch.device("cpu"))
    torch.manual_seed(5)
    loss = mixing(model, (images, labels))
    blend, shares = mix_images(images, labels, 3, 7, 5)
    expected = -(shares * model(blend).log_softmax(1)).sum(1).mean()
    assert torch.allclose(loss, expected)
    torch.manual_seed(6)
    assert not torch.allclose(mixing(model, (images, labels)), expected)


@pytest.mark.slow
def test_a_balanced_run_trains_on_and_measures_the_subset_of_its_seed() -> None:
    with torch.random.fork_rng():
        first, second = (
            prepare_bench(settings(balanced=50, seed=seed), Resources()) for seed in (1, 2)
        )
    assert first.data.train.labels.bincount().tolist() == [5] * 10
    assert not torch.equal(first.data.train[0][0], second.data.train[0][0])
    options = {"layers": (), "groups": ("nc1",)}
    with torch.random.fork_rng():
        bench = prepare_bench(settings(balanced=50, **options), Resources())
    whole = measure_layers(
        bench.learner.evaluated,
        make_measurement_loader(bench.data.train, 50),
        Options(layers=(), groups=("nc1",)),
    )
    first = measure_splits(bench, EpochEnd(0, 0, math.nan))[0]
    assert first.split == "train"
    assert first.model_record.layers[0].metrics["nc1"] == pytest.approx(
        whole.record.layers[-1].metrics["nc1"], rel=1e-12
    )
