"""Experiments that train and no more: INFO figures 1, 2 and 5, table 2, on made-up results."""

from collections.abc import Callable
from typing import Any

import pytest

from ncscope.data.catalogue import CATALOGUE
from ncscope.lab.experiments.info import label_smoothing, supervised, training
from ncscope.lab.experiments.info.information_runs import paper_training
from ncscope.lab.observations import Results
from ncscope.metrics.information import collapse_mir
from tests.lab.experiments.info.brief import CLASSES, made
from tests.lab.observed import with_each

MODULES = (training, label_smoothing, supervised)


def over_training(change: Callable[[float, dict[str, float]], dict[str, float]]) -> Results:
    """Results in which all is as the paper says: at `share` of the way to collapse.

    In every other epoch all values are a tenth back, so that accuracy and the ratios fall together
    as often as they rise; a third of the seeds goes back once less.
    """
    found = []
    for part, run in training.SMALL.runs.items():
        for epoch in range(0, 31, 3):
            share, back = epoch / 30, 0.1 * (epoch % 2) * (epoch < 27 or run.seed % 3 > 0)
            values = {
                "accuracy": 0.1 + 0.8 * share - back,
                "mir": 0.3 + 0.65 * share - back,
                "hdr": 0.8 - 0.79 * share + back,
                "back": back,
            }
            where = {"epoch": epoch, "split": "test"}
            found.append(made(part, where, values | change(share, values)))
    return Results(found)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda share, values: {}, []),
        (lambda share, values: {"mir": values["mir"] + 2 * values["back"]}, ["accuracy"]),
        (lambda share, values: {"mir": 0.9 + 0.05 * share - values["back"]}, ["MIR rises"]),
        (
            lambda share, values: {"mir": 0.99 - 0.1 * share - values["back"]},
            ["MIR rises", "MIR ends"],
        ),
        (lambda share, values: {"mir": 0.3 + 0.5 * share - values["back"]}, ["MIR ends"]),
        (lambda share, values: {"mir": 0.3 + 0.65 * share}, ["accuracy"]),
        (lambda share, values: {"hdr": values["hdr"] + 0.1}, ["HDR ends"]),
        (lambda share, values: {"hdr": 0.03 - 0.001 * share + values["back"]}, ["HDR falls"]),
        (lambda share, values: {"hdr": values["hdr"] - 2 * values["back"]}, ["accuracy"]),
    ],
)
def test_over_training_each_claim_can_fail(change: Any, lost: list[str]) -> None:
    results = with_each(
        over_training(change),
        lambda row: row.with_values({"mir_batch": row["mir"], "hdr_batch": row["hdr"]}),
    )
    claims = training.EXPERIMENT.judge(training.SMALL, results)
    assert len(claims) == 6
    failed = [claim.text for claim in claims if not claim.held]
    assert len(failed) == len(lost)
    assert all(text.startswith(start) for text, start in zip(failed, lost, strict=True))


def test_a_claim_is_judged_by_batch_and_tells_the_exact_verdict() -> None:
    falling = with_each(
        over_training(lambda share, values: {}),
        lambda row: row.with_values({"mir": 0.9 - row["accuracy"] / 2}),
    )
    rises, *_ = training.EXPERIMENT.judge(training.SMALL, falling)
    assert rises.text.endswith("on every data set (batches of 64)")
    assert rises.held
    assert "; not counted: on exact values not held, 0 of 2 data sets held" in rises.evidence


def smoothed(slope: float) -> Results:
    """Metrics that training raises by 0.5, and that rise by a slope with the smoothness."""
    found = []
    for part, run in label_smoothing.SMALL.runs.items():
        for epoch, rise in ((0, 0.0), (20, 0.5 + slope * run.label_smoothing)):
            values = dict.fromkeys(("accuracy", "mir", "hdr"), 0.2 + rise)
            found.append(made(part, {"epoch": epoch, "split": "test"}, values))
    return Results(found)


@pytest.mark.parametrize(("slope", "failing"), [(0.06, 0), (0.07, 3), (-0.07, 3)])
def test_a_variation_with_the_smoothness_is_found(slope: float, failing: int) -> None:
    """The levels go to 0.8, so slopes of 0.0625 make a tenth of what training changes."""
    claims = label_smoothing.EXPERIMENT.judge(label_smoothing.SMALL, smoothed(slope))
    assert len(claims) == 3
    assert {claim.source for claim in claims} == {"INFO, figure 5"}
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
        values = {
            "accuracy": 0.9 + 0.01 * (run.seed - 3) + better, "mir": 0.5 + more, "hdr": 0.2 + less
        }  # fmt: skip
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


def test_a_gain_at_some_seeds_only_is_undecided() -> None:
    rows = with_losses(0.005, 0.1, -0.1)
    mixed = [
        row.with_values({"accuracy": row["accuracy"] - 0.01})
        if "CE + MI" in row.part and "seed 4" in row.part
        else row
        for row in rows
    ]
    claims = supervised.EXPERIMENT.judge(supervised.SMALL, Results(mixed))
    assert [claim.verdict for claim in claims[:2]] == ["undecided", "held"]


def test_table_2_has_the_printed_accuracies_beside_ours() -> None:
    table, _ = supervised.EXPERIMENT.summarise(supervised.SMALL, with_losses(0.005, 0.1, -0.1))
    assert table.columns == ["warped-digits", "printed: cifar10", "printed: cifar100"]
    assert table.lines == {
        "CE": ["91.00 ± 1.00", "95.35", "80.77"],
        "CE + MI": ["91.50 ± 1.00", "95.52", "80.81"],
        "CE + ED": ["91.50 ± 1.00", "95.57", "80.96"],
    }
    paper = supervised.PAPER
    (empty,) = supervised.EXPERIMENT.summarise(paper, Results())
    assert empty.columns == ["cifar10", "cifar100", "printed: cifar10", "printed: cifar100"]
    assert empty.lines["CE"] == ["unknown", "unknown", "95.35", "80.77"]


def test_weights_of_the_supervised_losses_are_swept_when_asked() -> None:
    config = supervised.SMALL.model_copy(update={"weights": (0.1, 1.0)})
    assert len(config.swept) == 6  # the runs have weight 0.1 already
    assert len(supervised.EXPERIMENT.parts(config)) == len(config.runs) + 6
    where = {"epoch": 24, "split": "test"}
    swept = [made(name, where, {"accuracy": 0.5 + 0.01 * (run.seed - 3), "mir": 0.5, "hdr": 0.2})
             for name, run in config.swept.items()]  # fmt: skip
    results = Results([*with_losses(0.005, 0.1, -0.1), *swept])
    table = supervised.EXPERIMENT.summarise(config, results)[1]
    assert table.lines == {
        "CE": ["91.00 ± 1.00"],
        "CE + ED, weight 0.1": ["91.50 ± 1.00"],
        "CE + ED, weight 1": ["51.00 ± 1.00"],
        "CE + MI, weight 0.1": ["91.50 ± 1.00"],
        "CE + MI, weight 1": ["51.00 ± 1.00"],
    }
    plain = supervised.EXPERIMENT.judge(supervised.SMALL, results)
    assert supervised.EXPERIMENT.judge(config, results) == plain


def test_the_value_at_collapse_is_in_every_mir_panel() -> None:
    found = {
        training: over_training(lambda share, values: {}),
        label_smoothing: smoothed(0.0),
        supervised: with_losses(0.0, 0.0, 0.0),
    }
    for module, results in found.items():
        first = module.EXPERIMENT.draw(module.SMALL, results)[0].figure
        drawn = [axes for axes in first.axes if "MIR" in axes.get_title(loc="left")]
        assert drawn
        for axes in drawn:
            flat = [line.get_ydata() for line in axes.lines if len(set(line.get_ydata())) == 1]
            assert any(line[0] == collapse_mir(CLASSES) for line in flat)


def test_the_paper_s_scale_is_the_paper_s() -> None:
    for module in MODULES:
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
