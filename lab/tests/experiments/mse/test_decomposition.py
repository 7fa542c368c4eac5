"""The parts of the MSE loss: every claim both ways, their weight decay, and training mode."""

import pytest
import torch
from lab.tests.experiments.mse.histories import Columns, history_of, small, tiny
from lab.tests.observed import results_of

from ncscope.models.networks.catalogue import build
from ncscope_lab.experiments.mse import collapse
from ncscope_lab.experiments.mse.decomposition import (
    CURVES,
    EXPERIMENT,
    TRAINING_MODE,
    copy_with_batch_statistics,
    mean_share,
    measure_shares,
    measure_training_mode,
)
from ncscope_lab.experiments.mse.networks import MSETrainings
from ncscope_lab.observations import Results
from ncscope_lab.quantities import replace_fields
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import prepare_bench, training_events

CONFIG = MSETrainings(  # the rate falls after epochs 4 and 8
    runs={name: replace_fields(one, epochs=12) for name, one in small("mse").runs.items()}
)
ON_PATH = {
    "mse_nc1": (0.1, 0.2, 0.1, 0.01),
    "mse_nc23": (0.4, 0.1, 1e-3, 1e-4),
    "mse_off_path": (0.3, 0.04, 8e-3, 8e-4),
}
NEARER = ON_PATH | {"mse_off_path": (0.3, 0.02, 3e-3, 2e-4)}
EARLY = ON_PATH | {"accuracy": (0.1, 1, 1, 1), "mse_off_path": (0.3, 0.6, 8e-3, 8e-4)}
EVEN = {"mse_nc1": (0.1, 0.2, 0.1, 1.5e-4), "mse_off_path": (0.3, 0.02, 1e-3, 2e-6)}


def results(evaluation: Columns = ON_PATH, training: Columns = NEARER) -> Results:
    """Of networks near the central path, three of four with other numbers."""
    found = []
    for name in CONFIG.runs:
        own = "densenet" not in name
        train, mode = (evaluation, training) if own else (ON_PATH, NEARER)
        found += history_of(name, train, training_mode=mode)
    return Results(found)


def failing(found: Results) -> set[int]:
    return {at for at, claim in enumerate(EXPERIMENT.judge(CONFIG, found)) if not claim.held}


def test_all_claims_hold_near_the_path() -> None:
    assert len(EXPERIMENT.judge(CONFIG, results())) == 7
    assert failing(results()) == set()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (results(ON_PATH | {"accuracy": (0, 0, 0, 0.9)}), {2, 3, 6}),
        (results(ON_PATH | {"mse_off_path": (0.3, 0.04, 2e-2, 2e-2)}), set()),  # a remark
        (results(training=NEARER | {"mse_off_path": (0.3, 0.02, 1e-3, 1.2e-3)}), {0, 3}),
        (results(training=NEARER | {"mse_off_path": (0.3, 0.2, 2e-2, 2e-4)}), {1, 2, 3}),
        (results(EARLY, NEARER | {"mse_off_path": (0.3, 0.2, 3e-3, 2e-4)}), {2}),
        (results(training=NEARER | {"mse_off_path": (0.3, 0.04, 6e-3, 6e-4)}), {3}),
        (results(training=NEARER | {"mse_off_path": (0.3, 0.003, 3e-3, 2e-4)}), {4}),
        (results(training=NEARER | EVEN), {5}),
        (results(training=NEARER | {"mse_nc23": (0.02, 0.01, 1e-2, 1e-4)}), {6}),
    ],
)
def test_each_claim_can_fail(found: Results, expected: set[int]) -> None:
    assert failing(found) == expected


def test_the_share_is_averaged_over_epochs_and_not_over_measurements() -> None:
    path = [row for row in results(ON_PATH) if row.part == next(iter(CONFIG.runs))]
    path = [row for row in path if row.split == "train"]
    assert measure_shares(path) == pytest.approx([0.6, 0.04 / 0.3, 8e-3 / 0.101, 8e-4 / 0.0101])
    uneven = [path[0], path[1], path[3]]  # epochs 0, 4 and 12
    first, second, third = measure_shares(uneven)
    expected = (4 * (first + second) / 2 + 8 * (second + third) / 2) / 12
    assert mean_share(uneven) == pytest.approx(expected)


def test_it_runs_and_the_parts_are_those_of_the_loss() -> None:
    config = tiny(EXPERIMENT.scales["small"])
    found = results_of(*EXPERIMENT.parts(config))
    assert {row.split for row in found} == {"train", "test", TRAINING_MODE}
    assert EXPERIMENT.scales["small"] == collapse.SMALL  # whose run it could be, but for the mode
    for row in found:
        assert sum(float(row[curve.key]) for curve in CURVES) == pytest.approx(
            row["mse_loss"], rel=1e-9
        )


@pytest.mark.slow
def test_the_decay_of_the_loss_is_that_of_training() -> None:
    def loss(decay: float) -> float:
        how = Optimisation(epochs=1, weight_decay=decay)
        one = Training(
            data="digits", network="small-vgg", layers=(), groups=("mse",), optimisation=how
        )
        first = next(training_events(one, Resources()))  # before the first step
        return first.model_record.layers[-1].metrics["mse_loss"]

    bare = loss(0.0)
    assert loss(0.2) - bare == pytest.approx(2 * (loss(0.1) - bare), rel=1e-6)
    assert loss(0.1) > bare


def test_a_decoupled_decay_is_no_part_of_the_loss() -> None:
    assert Optimisation(weight_decay=0.1).decay_of_loss == 0.1
    assert Optimisation(weight_decay=0.1, optimiser="adamw").decay_of_loss == 0


@pytest.mark.parametrize("network", ["small-vgg", "small-resnet", "small-densenet"])
def test_outputs_in_evaluation_mode_are_those_of_a_step(network: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, images = build(network, 10, in_channels=1, image_size=8), torch.randn(32, 1, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    copy = copy_with_batch_statistics(model).eval()
    assert torch.equal(copy(images), copy(images))
    assert not torch.allclose(copy(images), model.eval()(images))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.allclose(copy(images), model.train()(images), atol=1e-6)


def test_batches_are_those_of_the_next_epoch_and_the_run_is_left_alone() -> None:
    (run,) = tiny(small("mse")).runs.values()
    bench = prepare_bench(run, Resources())
    before = {name: value.clone() for name, value in bench.learner.model.state_dict().items()}
    first, again, other = (
        measure_training_mode(bench, EpochEnd(epoch, 0, 0.0))[0] for epoch in (0, 0, 1)
    )
    assert first == again
    assert first.split == TRAINING_MODE
    assert first["mse_off_path"] == pytest.approx(other["mse_off_path"], rel=0.1)
    assert first["mse_off_path"] != other["mse_off_path"]
    after = bench.learner.model.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())
