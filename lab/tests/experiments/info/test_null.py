"""Null tests: of permuted or untrained results a claim of INFO holds in at most 4 of 40 draws.

Every test begins with results of which all claims hold. Training accuracies that claims take for
granted stay as they are, because without them a claim is undecided whatever the other values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp
from random import Random
from typing import Any

import pytest
from lab.tests.experiments.chance import not_held, often_held
from lab.tests.experiments.info.test_connectivity import TOLD, made_up
from lab.tests.experiments.info.test_grokking import CONFIG, made
from lab.tests.experiments.info.test_pruning import made_up as pruned
from lab.tests.experiments.info.test_semi_supervised import CONFIG as FEW_LABELS
from lab.tests.experiments.info.test_semi_supervised import made as few_labels
from lab.tests.experiments.info.test_supervised_runs import over_training, smoothed, with_losses

from ncscope_lab.experiment import Experiment
from ncscope_lab.experiments.info import (
    connectivity,
    grokking,
    label_smoothing,
    pruning,
    semi_supervised,
    supervised,
    training,
)
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Observation, Results

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
RATIOS = ("mir", "hdr", "mir_batch", "hdr_batch")
KEYS = ("accuracy", *RATIOS)


def exchanged(
    rows: Sequence[Observation],
    keys: Sequence[str],
    group: Callable[[Observation], object],
    random: Random,
) -> Results:
    """Exchange the values of each metric among the rows of a group, and change them a little."""
    found = list(rows)
    for key in keys:
        groups: dict[object, list[int]] = {}
        for index, row in enumerate(rows):
            if key in row:
                groups.setdefault(group(row), []).append(index)
        for own in groups.values():
            moved = [float(rows[index][key]) for index in own]
            random.shuffle(moved)
            for index, value in zip(own, moved, strict=True):
                new = value * exp(random.gauss(0, 0.02))
                found[index] = found[index].with_values({key: new})
    return Results(found)


@pytest.mark.parametrize(
    ("experiment", "config", "results"),
    [
        (training.EXPERIMENT, training.SMALL, over_training),
        (connectivity.EXPERIMENT, connectivity.SMALL, lambda: made_up(TOLD)),
        (grokking.EXPERIMENT, CONFIG, made),
    ],
    ids=lambda given: getattr(given, "id", ""),
)
def test_the_results_bear_out_every_claim(
    experiment: Experiment, config: Any, results: Callable[[], Results]
) -> None:
    assert not_held(experiment.judge(config, results())) == []


def test_training_of_permuted_epochs() -> None:
    learned = [row for row in over_training() if row.split == "train"]
    rows = [row for row in over_training() if row.split == "test"]

    def claims(random: Random) -> list[Finding]:
        drawn = exchanged(rows, KEYS, lambda row: row.part, random)
        return training.EXPERIMENT.judge(training.SMALL, Results([*learned, *drawn]))

    assert often_held(claims) == {}


def test_training_of_untrained_networks() -> None:
    rows = over_training()
    start = {key: float(rows[1][key]) for key in KEYS}

    def claims(random: Random) -> list[Finding]:
        drawn = Results(
            row.with_values({key: start[key] * exp(random.gauss(0, 0.02)) for key in KEYS})
            if row.split == "test"
            else row
            for row in rows
        )
        return training.EXPERIMENT.judge(training.SMALL, drawn)

    assert often_held(claims) == {}


def test_connectivity_of_permuted_networks_and_rates() -> None:
    rows = made_up(TOLD)
    runs = [row for row in rows if "omega" not in row]
    others = [row for row in rows if "omega" in row]

    def claims(random: Random) -> list[Finding]:
        drawn = [*runs, *exchanged(others, KEYS, lambda row: "all", random)]
        return connectivity.EXPERIMENT.judge(connectivity.SMALL, Results(drawn))

    assert often_held(claims) == {}


def test_connectivity_of_untrained_networks_between_trained_runs() -> None:
    """All networks between the runs are alike, and guess.

    So the claim that accuracy falls to random guessing is true of them: the test of permuted
    networks and rates is its null test.
    """
    flat = {"accuracy": 0.1, "mir": 0.05, "hdr": 0.9, "mir_batch": 0.3, "hdr_batch": 0.9}

    def changed(row: Observation, random: Random) -> Observation:
        values = {key: flat[key] * exp(random.gauss(0, 0.02)) for key in KEYS if key in row}
        return row.with_values(values) if 0 < float(row.get("omega", 0)) < 1 else row

    def claims(random: Random) -> list[Finding]:
        drawn = Results(changed(row, random) for row in made_up(TOLD))
        return connectivity.EXPERIMENT.judge(connectivity.SMALL, drawn)

    assert [text for text in often_held(claims) if "random guessing" not in text] == []


def test_grokking_of_permuted_steps() -> None:
    """Accuracies are exchanged too, but those of training pairs are known by heart at step 100."""
    rows = list(made())

    def claims(random: Random) -> list[Finding]:
        by_run = exchanged(rows, RATIOS, lambda row: (row.part, row.split), random)
        order = {part: random.sample(range(6), 6) for part in {row.part for row in rows}}
        accuracies = {
            part: [row["accuracy"] for row in rows if (row.part, row.split) == (part, "test")]
            for part in order
        }
        steps = {part: sorted({row.step for row in rows if row.part == part}) for part in order}
        drawn = Results(
            row.with_values({"accuracy": accuracies[row.part][order[row.part][index]]})
            if row.split == "test"
            else row
            for row in by_run
            for index in [steps[row.part].index(row.step)]
        )
        return grokking.EXPERIMENT.judge(CONFIG, drawn)

    assert often_held(claims) == {}


def test_grokking_of_permuted_ratios() -> None:
    """The accuracies of runs that learn the rule, with ratios exchanged among steps."""
    rows = list(made())

    def claims(random: Random) -> list[Finding]:
        drawn = exchanged(rows, RATIOS, lambda row: (row.part, row.split), random)
        return grokking.EXPERIMENT.judge(CONFIG, drawn)

    assert [text for text in often_held(claims) if "MIR" in text or "HDR" in text] == []


def test_grokking_of_untrained_ratios() -> None:
    """The accuracies of runs that learn the rule, with ratios that stay as before training."""
    flat = {"mir": 0.5, "hdr": 0.8, "mir_batch": 0.7, "hdr_batch": 0.8}

    def claims(random: Random) -> list[Finding]:
        drawn = Results(
            row.with_values(
                {key: flat[key] * exp(random.gauss(0, 0.02)) for key in RATIOS if key in row}
            )
            for row in made()
        )
        return grokking.EXPERIMENT.judge(CONFIG, drawn)

    found = often_held(claims)
    assert [text for text in found if "MIR" in text or "HDR" in text] == []
    assert len(found) == 3  # the claims on accuracies, which are those of the runs


def test_grokking_of_untrained_accuracies() -> None:
    """Training pairs are known by heart, and held-out accuracies stay as before training."""

    def claims(random: Random) -> list[Finding]:
        drawn = Results(
            row.with_values({"accuracy": 0.04 * exp(random.gauss(0, 0.02))})
            if row.split == "test"
            else row
            for row in made()
        )
        return grokking.EXPERIMENT.judge(CONFIG, drawn)

    # True of them: the test of permuted steps is the null test of this claim.
    kept = "held-out accuracy exceeds chance by less"
    of_accuracy = [text for text in often_held(claims) if "MIR" not in text and "HDR" not in text]
    assert [text for text in of_accuracy if kept not in text] == []


AXES = ("sparsity", "num_classes", "epoch")
GROUPS = {name: str(run.labels) for name, run in FEW_LABELS.runs.items()}
"""Number of labels of each run with few labels; values are exchanged within a setting."""

BEFORE: Mapping[str, float] = {"accuracy": 0.1, "error": 0.9, "mir": 0.06, "hdr": 0.88}
"""Values of networks before training, of the small scales."""


RESULTS: Mapping[Any, Callable[[], Results]] = {
    pruning: pruned,
    label_smoothing: lambda: smoothed(0.04),
    supervised: lambda: with_losses(0.005, 0.1, -0.1),
    semi_supervised: few_labels,
}
"""Results of the small scale in which all claims hold."""


def metrics(rows: Iterable[Observation]) -> list[str]:
    """Keys of the metrics in the rows."""
    keys = {k for row in rows for k, value in row.values.items() if isinstance(value, float)}
    return sorted(keys - set(AXES))


def permuted(results: Results, random: Random) -> Results:
    """The results, each metric's values exchanged among runs, epochs and stages."""
    rows = list(results)
    for group in {GROUPS.get(row.part, "") for row in rows}:
        for key in metrics(rows):
            own = [
                i for i, row in enumerate(rows) if GROUPS.get(row.part, "") == group and key in row
            ]
            values = [rows[i][key] * exp(random.gauss(0, 0.01)) for i in own]
            random.shuffle(values)
            for i, value in zip(own, values, strict=True):
                rows[i] = rows[i].with_values({key: value})
    return Results(rows)


def untrained(results: Results, random: Random) -> Results:
    """The results, each network as before training but for a few per cent.

    The dense network beside itself, which pruned networks are compared with, is left as it is.
    """
    chance = {
        key: float(row[key])
        for row in results
        for key in metrics(results)
        if row.get("stage") == pruning.UNTRAINED and key in row
    }

    def changed(row: Observation) -> Observation:
        if row.get("stage") == pruning.PRUNED and row["sparsity"] == 0:
            return row
        values = {
            key: chance.get(key, BEFORE.get(key.removesuffix("_batch"), 0.5))
            * exp(random.gauss(0, 0.05))
            for key in metrics([row])
        }
        return row.with_values(values)

    return Results(map(changed, results))


@pytest.mark.parametrize("change", [permuted, untrained])
@pytest.mark.parametrize("module", RESULTS, ids=lambda module: module.EXPERIMENT.id)
def test_noise_seldom_bears_out_a_claim(
    module: Any, change: Callable[[Results, Random], Results]
) -> None:
    judge = module.EXPERIMENT.judge
    small = FEW_LABELS if module is semi_supervised else module.SMALL
    real = Results(row for row in RESULTS[module]() if "threshold" not in row)
    assert not_held(judge(small, real)) == []
    assert often_held(lambda random: judge(small, change(real, random))) == {}
