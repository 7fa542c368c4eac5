"""Experiments that train and no more: INFO figures 1, 2 and 5, table 2, on made-up rows."""

import pytest
from lab.tests.experiments.info import stories

from ncscope.data.catalogue import CATALOGUE
from ncscope.metrics.information import collapse_mir
from ncscope_lab.experiments.info import label_smoothing, supervised, training
from ncscope_lab.experiments.info.information_runs import paper_training
from ncscope_lab.observations import Results

LIMIT = collapse_mir(stories.CLASSES)


def test_a_claim_is_judged_by_batch_and_tells_the_exact_verdict() -> None:
    rises, *_ = training.EXPERIMENT.judge(
        training.SMALL,
        Results(
            row.with_values({"mir": 0.9 - row["accuracy"] / 2}) if "mir" in row else row
            for row in stories.over_training()
        ),
    )
    assert rises.text.endswith("on every data set (batches of 64)")
    assert rises.held
    assert "; not counted: on exact values not held, 0 of 4 data sets held" in rises.evidence


def test_table_2_has_the_printed_accuracies_beside_ours() -> None:
    few = {name: run for name, run in supervised.SMALL.runs.items() if run.seed < 13}
    small = supervised.SMALL.model_copy(update={"runs": few})
    (table,) = supervised.EXPERIMENT.summarise(small, stories.with_losses(0.005, 0.1, -0.1))
    assert table.columns == ["warped-digits-6000", "printed: cifar10", "printed: cifar100"]
    assert table.lines == {
        "CE": ["90.00 ± 1.00", "95.35", "80.77"],
        "CE + MI": ["90.50 ± 1.00", "95.52", "80.81"],
        "CE + ED": ["90.50 ± 1.00", "95.57", "80.96"],
    }
    (empty,) = supervised.EXPERIMENT.summarise(supervised.PAPER, Results())
    assert empty.columns == ["cifar10", "cifar100", "printed: cifar10", "printed: cifar100"]
    assert empty.lines["CE"] == ["unknown", "unknown", "95.35", "80.77"]


def test_the_value_at_collapse_is_in_every_mir_panel() -> None:
    first = training.EXPERIMENT.draw(training.SMALL, stories.over_training())[0].figure
    drawn = [axes for axes in first.axes if "MIR" in axes.get_title(loc="left")]
    assert drawn
    for axes in drawn:
        flat = [line.get_ydata() for line in axes.lines if len(set(line.get_ydata())) == 1]
        assert any(line[0] == LIMIT for line in flat)


@pytest.mark.parametrize(("learnt", "told"), [(1.0, ""), (0.9, "zero error: 0 of 8 seeds")])
def test_panels_show_zero_training_error_or_tell_that_seeds_do_not_reach_it(
    learnt: float, told: str
) -> None:
    results = stories.over_training(learnt=learnt)
    (drawing,) = training.EXPERIMENT.draw(training.SMALL, results)
    for axes in drawing.figure.axes:
        labels = axes.get_legend_handles_labels()[1]
        assert ("zero training error" in labels) == (learnt == 1)
        assert axes.get_title(loc="right") == told


@pytest.mark.parametrize(("slope", "fits"), [(0.12, True), (0.13, False)])
def test_the_means_over_the_levels_fit_the_band_if_the_claim_holds(
    slope: float, fits: bool
) -> None:
    results = stories.smoothed(slope)
    (drawing,) = label_smoothing.EXPERIMENT.draw(label_smoothing.SMALL, results)
    for axes in drawing.figure.axes:
        low, high = axes.patches[0].get_extents().transformed(axes.transData.inverted()).intervaly
        means = axes.lines[0].get_ydata()
        assert (low <= min(means) and max(means) <= high) == fits


def test_figure_of_table_2_draws_differences_to_cross_entropy_of_the_same_seed() -> None:
    (drawing,) = supervised.EXPERIMENT.draw(supervised.SMALL, stories.with_losses(0.005, 0.1))
    accuracy, mir, _ = drawing.figure.axes
    for axes, first in ((accuracy, 0.5), (mir, 0.11)):
        seeds = axes.lines[1].get_ydata()
        assert len(seeds) == 20
        assert list(seeds) == pytest.approx([first] * 20, rel=0.01)
    assert "20 seeds on warped-digits-6000" in drawing.caption


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
