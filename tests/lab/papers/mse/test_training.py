"""The runs of the MSE paper, and what is read off their results."""

import pytest
import torch
from matplotlib.axes import Axes

from ncscope.data.catalogue import CATALOGUE
from ncscope.lab.papers.mse import training as mse_training
from ncscope.lab.papers.mse.training import (
    BOTH,
    changes,
    compare,
    falls,
    grid,
    paper_runs,
    rivals,
    small_runs,
    terminal_phase,
    under,
    zero_error,
)
from ncscope.models.networks.catalogue import build
from tests.lab.papers.mse.histories import history_of, small

PAPER = paper_runs(("mse",), ("nc1",))


def test_the_papers_networks_and_settings() -> None:
    assert len(PAPER) == 15
    assert PAPER["fashion-mnist, densenet250, mse"].image_size == 32
    assert PAPER["stl10, densenet201, mse"].image_size is None
    for one in PAPER.values():
        assert one.data in CATALOGUE
        assert one.augmentation == "none"
        assert one.balanced == {"mnist": 50_000, "svhn": 46_000}.get(one.data)
        how = one.optimisation
        assert (how.epochs, how.batch_size, how.momentum, how.weight_decay) == (350, 128, 0.9, 5e-4)
        assert (how.optimiser, how.schedule, how.milestones) == ("sgd", "steps", (1 / 3, 2 / 3))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_networks_build(name: str) -> None:
    one = PAPER[name]
    size = one.image_size or CATALOGUE[one.data].native
    with torch.device("meta"):
        build(one.network, 10, in_channels=1 if "mnist" in one.data else 3, image_size=size or 0)


def test_two_losses_double_the_runs_and_at_the_small_scale_halve_the_epochs() -> None:
    assert len(paper_runs(BOTH, ())) == 30
    one, two = small_runs(("mse",), ()), small_runs(BOTH, ())
    assert (len(one), len(two)) == (5, 14)
    assert [run.seed for run in two.values() if run.network == "small-vgg"] == [
        *(0, 0, 1, 1, 2, 2),  # on digits
        *(0, 0),
    ]
    assert {run.optimisation.epochs for run in one.values()} == {80}
    assert {run.optimisation.epochs for run in two.values()} == {40}


def test_runs_are_found_by_loss_and_in_pairs() -> None:
    config = small(*BOTH)
    assert under(config, "mse") == [name for name in config.runs if name.endswith(", mse")]
    pairs = rivals(config)
    assert len(pairs) == 3
    assert pairs["digits, small-vgg"] == [
        ("digits, small-vgg, mse", "digits, small-vgg, cross-entropy")
    ]


def test_a_run_whose_loss_was_changed_has_no_rival() -> None:
    config = small(*BOTH)
    name, one = next(iter(config.runs.items()))
    changed = {**config.runs, name: one.model_copy(update={"loss": "cross-entropy"})}
    assert list(rivals(mse_training.MSETraining(runs=changed))) == list(rivals(config))[1:]


@pytest.mark.parametrize(("lower", "held"), [(True, False), (False, True)])
def test_losses_are_compared_over_networks_and_each_over_its_seeds(lower: bool, held: bool) -> None:
    """Ratios 1/2 three times of one network and 4 of another: their mean is above 1."""
    runs = small_runs(BOTH, ())
    vgg, resnet = (
        {name: run for name, run in runs.items() if name.startswith(f"digits, small-{kind}")}
        for kind in ("vgg", "resnet")
    )
    found = {n: 4.0 if r.loss == "mse" else 1.0 for n, r in resnet.items()}
    found |= {n: 1.0 if r.loss == "mse" else 2.0 for n, r in vgg.items()}
    config = mse_training.MSETraining(runs=vgg | resnet)
    claim = compare("", config, found, lower=lower)
    assert claim.held is held
    assert claim.evidence.startswith("ratio 1.41, " + ("below" if lower else "above"))
    assert claim.evidence.count("1 against 2") == 3


def test_the_terminal_phase_runs_from_the_first_epoch_of_zero_training_error() -> None:
    results = history_of("a", {"nc1": (4, 3, 2, 1)}, {"nc1": (8, 7, 6, 5)})
    found = [(row.epoch, row["nc1"]) for row in terminal_phase(results, "a", "test")]
    assert found == [(8, 6), (12, 5)]
    never = history_of("a", {"accuracy": (0, 0.5, 0.9, 0.9989)})
    assert terminal_phase(never, "a") == []
    effectively = history_of("a", {"accuracy": (0, 0.999, 0.9, 1)})
    assert terminal_phase(effectively, "a") == effectively[1:]


FALLING = {"nc1": (4, 3, 2, 1)}


@pytest.mark.parametrize(
    ("columns", "held"),
    [
        (FALLING, True),
        ({"nc1": (4, 3, 0, 0)}, True),
        ({"nc1": (4, 3, 2, 2)}, False),
        (FALLING | {"accuracy": (0, 0, 0, 0)}, False),
    ],
)
def test_a_metric_falls_in_every_network_or_the_claim_does(
    columns: dict[str, tuple[float, ...]], held: bool
) -> None:
    results = history_of("a", FALLING) + history_of("b", columns)
    claim = falls("it falls", changes(results, ["a", "b"], "nc1"))
    assert claim.held is held
    assert "a: 2 to 1" in claim.evidence


@pytest.mark.parametrize(
    ("accuracy", "held"),
    [((0, 0, 1, 1), True), ((0, 0, 0, 1), False), ((0, 0, 0, 0.9), False)],
)
def test_zero_error_must_come_before_the_end(accuracy: tuple[float, ...], held: bool) -> None:
    results = history_of("a", FALLING) + history_of("b", {"accuracy": accuracy})
    assert zero_error(results, ["a", "b"]).held is held


def test_the_grid_has_a_column_a_data_set_and_a_row_a_kind_of_network() -> None:
    config = mse_training.MSETraining(runs=small_runs(BOTH, ()))
    drawn: list[list[str]] = []

    def draw(panel: Axes, names: object) -> None:
        drawn.append(list(names))  # type: ignore[call-overload]
        panel.plot([1, 2], label="curve")
        panel.set_xlabel("epoch")

    figure = grid(config, list(config.runs), "quantity", draw)
    assert len(drawn) == 5
    assert [len(names) for names in drawn] == [6, 2, 2, 2, 2]  # three seeds of the first
    assert [axes.get_visible() for axes in figure.axes] == [True] * 5 + [False]
    named = [axes.get_xlabel() for axes in figure.axes[:5]]
    assert named == ["", "", "", "epoch", "epoch"]  # the lower right cell is empty
    assert figure.axes[3].get_title(loc="left") == "ResNet, warped-digits"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["curve"]
