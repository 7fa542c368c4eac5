"""Experiments that train and no more: INFO figures 1, 2 and 5, table 2, on made-up rows."""

from collections.abc import Callable
from typing import Any

import pytest
from lab.tests.experiments.info.brief import CLASSES, made

from ncscope.data.catalogue import CATALOGUE
from ncscope.metrics.information import collapse_mir
from ncscope_lab.experiments.info import label_smoothing, supervised, training
from ncscope_lab.experiments.info.information_runs import paper_training
from ncscope_lab.observations import Results

LIMIT = collapse_mir(CLASSES)
Change = Callable[[float, dict[str, float]], dict[str, float]]


def over_training(change: Change = lambda share, values: {}, ratio: float = 1.0) -> Results:
    """Results in which all is as the paper says: at `share` of the way to collapse.

    In every other epoch all values are a tenth back, so that accuracy and the ratios fall together
    as often as they rise; a third of the seeds goes back once less. From 0.4 on no training image
    is wrong. Values by batch are a multiple of the exact ones.
    """
    found = []
    for part, run in training.SMALL.runs.items():
        for index in range(11):
            share, back = index / 10, 0.1 * (index % 2) * (index < 9 or run.seed % 3 > 0)
            values = {
                "accuracy": 0.1 + 0.8 * share - back,
                "mir": 0.3 + 0.6 * share - back,
                "hdr": 0.8 - 0.79 * share + back,
                "back": back,
            }
            values |= change(share, values)
            at = {"epoch": index}
            found.append(made(part, at | {"split": "train"}, {"accuracy": float(share >= 0.4)}))
            found.append(made(part, at | {"split": "test"}, values, ratio))
    return Results(found)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda share, values: {}, []),
        (lambda share, values: {"mir": values["mir"] + 2 * values["back"]}, ["accuracy"]),
        (lambda share, values: {"mir": 0.88 + 0.06 * share - values["back"]}, ["MIR rises"]),
        (
            lambda share, values: {"mir": 0.9 - 0.5 * share - values["back"]},
            ["MIR rises", "past zero training error, the distance"],
        ),
        (
            lambda share, values: {"mir": 0.3 + 0.4 * min(share, 0.4) - values["back"]},
            ["past zero training error, the distance"],
        ),
        (lambda share, values: {"hdr": values["hdr"] + 0.1}, ["HDR ends"]),
        (
            lambda share, values: {"hdr": 0.03 + 0.001 * share + values["back"]},
            ["HDR falls", "past zero training error, HDR"],
        ),
        (lambda share, values: {"hdr": values["hdr"] - 2 * values["back"]}, ["accuracy"]),
    ],
)
def test_over_training_each_claim_can_fail(change: Change, lost: list[str]) -> None:
    claims = training.EXPERIMENT.judge(training.SMALL, over_training(change))
    assert len(claims) == 7
    failed = [claim.text for claim in claims if not claim.held]
    assert len(failed) == len(lost)
    assert all(any(text.startswith(start) for text in failed) for start in lost)


def test_without_zero_training_error_what_follows_it_is_undecided() -> None:
    never = [
        row.with_values({"accuracy": 0.9}) if row.split == "train" else row
        for row in over_training()
    ]
    claims = training.EXPERIMENT.judge(training.SMALL, Results(never))
    open_ = [claim.text for claim in claims if claim.verdict == "undecided"]
    assert len(open_) == 2
    assert all(text.startswith("past zero training error") for text in open_)


def test_a_claim_is_judged_by_batch_and_tells_the_exact_verdict() -> None:
    rises, *_ = training.EXPERIMENT.judge(
        training.SMALL,
        Results(
            row.with_values({"mir": 0.9 - row["accuracy"] / 2}) if "mir" in row else row
            for row in over_training()
        ),
    )
    assert rises.text.endswith("on every data set (batches of 64)")
    assert rises.held
    assert "; not counted: on exact values not held, 0 of 4 data sets held" in rises.evidence


def smoothed(slope: float) -> Results:
    """Metrics that training raises by 0.5, and that rise by a slope with the smoothness."""
    found = []
    for part, run in label_smoothing.SMALL.runs.items():
        for epoch, rise in ((0, 0.0), (20, 0.5 + slope * run.label_smoothing)):
            values = dict.fromkeys(("accuracy", "mir", "hdr"), 0.2 + rise)
            found.append(made(part, {"epoch": epoch, "split": "test"}, values))
    return Results(found)


@pytest.mark.parametrize(("slope", "failing"), [(0.12, 0), (0.13, 3), (-0.13, 3)])
def test_a_variation_with_the_smoothness_is_found(slope: float, failing: int) -> None:
    """The levels go to 0.4, so slopes of 0.125 make a tenth of what training changes."""
    claims = label_smoothing.EXPERIMENT.judge(label_smoothing.SMALL, smoothed(slope))
    assert len(claims) == 3
    assert [claim.verdict for claim in claims].count("not held") == failing


def test_networks_that_learn_nothing_have_no_small_variation() -> None:
    at_start = [row.with_values({"epoch": 20}) for row in smoothed(0.0) if row["epoch"] == 0]
    results = Results([*smoothed(0.0)[::2], *at_start])
    claims = label_smoothing.EXPERIMENT.judge(label_smoothing.SMALL, results)
    assert {claim.verdict for claim in claims} == {"undecided"}


def with_losses(gain: float, mir: float, hdr: float) -> Results:
    gains = {"CE": (0.0, 0.0, 0.0), "CE + MI": (gain, mir, 0.0), "CE + ED": (gain, 0.0, hdr)}
    found = []
    for part, run in supervised.SMALL.runs.items():
        better, more, less = gains[supervised.loss_of(run)]
        accuracy = 0.9 + 0.01 * (run.seed % 3 - 1) + better
        values = {"accuracy": accuracy, "mir": 0.5 + more, "hdr": 0.2 + less}
        found.append(made(part, {"epoch": 24, "split": "test"}, values))
    return Results(found)


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ((0.005, 0.1, -0.1), [True, True, True, True]),
        ((0.0, 0.1, -0.1), [False, False, True, True]),
        ((-0.005, 0.1, -0.1), [False, False, True, True]),
        ((0.02, 0.1, -0.1), [False, False, True, True]),
        ((0.005, -0.1, 0.1), [True, True, False, False]),
    ],
)
def test_what_a_loss_gains_is_found(given: tuple[float, ...], held: list[bool]) -> None:
    claims = supervised.EXPERIMENT.judge(supervised.SMALL, with_losses(*given))
    assert [claim.held for claim in claims] == held
    assert [claim.source[-3:] for claim in claims] == ["6.3"] * 2 + ["6.2"] * 2


def test_table_2_has_the_printed_accuracies_beside_ours() -> None:
    few = {name: run for name, run in supervised.SMALL.runs.items() if run.seed < 13}
    small = supervised.SMALL.model_copy(update={"runs": few})
    (table,) = supervised.EXPERIMENT.summarise(small, with_losses(0.005, 0.1, -0.1))
    assert table.columns == ["warped-digits-6000", "printed: cifar10", "printed: cifar100"]
    assert table.lines == {
        "CE": ["90.00 ± 1.00", "95.35", "80.77"],
        "CE + MI": ["90.50 ± 1.00", "95.52", "80.81"],
        "CE + ED": ["90.50 ± 1.00", "95.57", "80.96"],
    }
    (empty,) = supervised.EXPERIMENT.summarise(supervised.PAPER, Results())
    assert empty.columns == ["cifar10", "cifar100", "printed: cifar10", "printed: cifar100"]
    assert empty.lines["CE"] == ["unknown", "unknown", "95.35", "80.77"]


@pytest.mark.parametrize(
    ("module", "results"),
    [
        (training, over_training),
        (label_smoothing, lambda: smoothed(0.0)),
        (supervised, lambda: with_losses(0.0, 0.0, 0.0)),
    ],
)
def test_the_value_at_collapse_is_in_every_mir_panel(
    module: Any, results: Callable[[], Results]
) -> None:
    first = module.EXPERIMENT.draw(module.SMALL, results())[0].figure
    drawn = [axes for axes in first.axes if "MIR" in axes.get_title(loc="left")]
    assert drawn
    for axes in drawn:
        flat = [line.get_ydata() for line in axes.lines if len(set(line.get_ydata())) == 1]
        assert any(line[0] == LIMIT for line in flat)


def test_the_paper_s_scale_is_the_paper_s() -> None:
    for module in (training, label_smoothing, supervised):
        for run in module.PAPER.runs.values():
            base = paper_training(run.data, run.seed)
            assert run.data in CATALOGUE
            assert (run.network, run.optimisation) == (base.network, base.optimisation)
    given = paper_training("cifar10", seed=0).optimisation
    steps = given.epochs * (50_000 // given.batch_size)
    assert steps == pytest.approx(2**20, rel=1e-3)
    assert (given.learning_rate, given.momentum, given.weight_decay) == (0.03, 0.9, 5e-4)
    losses = [supervised.loss_of(run) for run in supervised.PAPER.runs.values()]
    assert losses == 2 * (3 * ["CE"] + 3 * ["CE + MI"] + 3 * ["CE + ED"])
