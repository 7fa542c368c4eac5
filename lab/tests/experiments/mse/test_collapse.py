"""Collapse under MSE: every claim seen held and seen not held, every figure drawn, table 1."""

from collections.abc import Mapping
from statistics import mean, median

import pytest
from lab.tests.experiments.mse.histories import Columns, history_of, small

from ncscope_lab.experiments.mse.collapse import (
    ACCURACIES,
    EXPERIMENT,
    FALLS,
    GROUPS,
    MEAN_GAIN,
    MEDIAN_GAIN,
    PAPER,
)
from ncscope_lab.experiments.mse.networks import (
    EXCEPTIONS,
    MSETrainings,
    name_network,
    paper_runs,
)
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs

CONFIG = small("mse")
KEYS = [*FALLS, "nc4_disagreement"]
COLLAPSING = dict.fromkeys(KEYS, (4, 3, 2, 0.9)) | {"nc4_disagreement": (0.9, 0.1, 0.1, 0)}
GAINING = {"accuracy": (0.1, 0.8, 0.9, 0.95)}
PREMISE, GAIN = 0, 1 + len(KEYS)


def results(changed: Mapping[str, Columns] | None = None, config: MSETrainings = CONFIG) -> Results:
    """Of networks that collapse, but for those that have other numbers."""
    found = []
    for run in Runs.of(config.runs, Results()):
        train = COLLAPSING | dict((changed or {}).get(name_network(run), {}))
        found += history_of(run.name, train, GAINING)
    return Results(found)


def verdicts(found: list[Finding]) -> list[str]:
    return [claim.verdict for claim in found]


def test_all_claims_hold_for_networks_that_collapse() -> None:
    claims = EXPERIMENT.judge(CONFIG, results())
    assert verdicts(claims) == ["held"] * (2 + len(KEYS))
    assert claims[1].source == "MSE, figure 3"
    assert claims[GAIN].interval is not None


@pytest.mark.parametrize("index", range(len(KEYS)))
def test_a_metric_that_falls_too_little_in_two_of_four_networks_fails(index: int) -> None:
    little = (1, 1, 1, 0.92 if "nc1" not in KEYS[index] else 0.6)
    one = {"digits, VGG": {KEYS[index]: little}}
    two = one | {"digits, ResNet": {KEYS[index]: little}}
    assert set(verdicts(EXPERIMENT.judge(CONFIG, results(one)))) == {"held"}
    found = verdicts(EXPERIMENT.judge(CONFIG, results(two)))
    assert [at for at, verdict in enumerate(found) if verdict == "not held"] == [1 + index]


def test_without_a_terminal_phase_no_fall_is_judged() -> None:
    late = {
        key: {"accuracy": (0, 0, 0, 1)}
        for key in ("digits, VGG", "digits, ResNet", "digits, DenseNet", "mnist-5k, VGG")
    }
    found = verdicts(EXPERIMENT.judge(CONFIG, results(late)))
    disagreement = 1 + KEYS.index("nc4_disagreement")
    assert found[PREMISE] == "not held"
    assert found[disagreement] == "held"  # of the last epoch alone
    others = [verdict for at, verdict in enumerate(found) if at not in (PREMISE, disagreement)]
    assert set(others) == {"undecided"}


def test_a_loss_of_accuracy_is_no_gain() -> None:
    falling = {"accuracy": (0, 0, 0.9, 0.88)}
    rows = [row for name in CONFIG.runs for row in history_of(name, COLLAPSING, falling)]
    assert EXPERIMENT.judge(CONFIG, Results(rows))[GAIN].verdict == "not held"


@pytest.mark.parametrize(("end", "verdict"), [(1.9, "held"), (0.9, "not held")])
def test_exceptions_are_compared_with_the_others(end: float, verdict: str) -> None:
    chosen = {n: r for n, r in paper_runs(("mse",), GROUPS).items() if r.data in ("stl10", "mnist")}
    config = MSETrainings(runs=chosen)
    changed = {key: {"nc1": (4, 3, 2, end)} for key in EXCEPTIONS}
    claims = EXPERIMENT.judge(config, results(changed, config))
    assert claims[-1].source == "MSE, appendix A.7"
    assert claims[-1].verdict == verdict
    assert {claim.verdict for claim in claims[:-1]} == {"held"}  # without the exceptions
    assert "stl10, ResNet" not in claims[1 + KEYS.index("nc1")].evidence


def test_table_1_has_our_numbers_and_the_printed_ones() -> None:
    (table,) = EXPERIMENT.summarise(CONFIG, results())
    assert table.lines["digits, VGG"] == ["90.00", "95.00", "+5.00", "", "", ""]
    assert table.lines["svhn, DenseNet"] == ["", "", "", "95.61", "95.23", "-0.38"]
    assert table.lines["median gain"] == ["", "", "+5.000", "", "", "+0.962"]
    (empty,) = EXPERIMENT.summarise(CONFIG, Results())
    assert empty.lines["digits, VGG"] == [""] * 6


def test_the_printed_accuracies_are_of_the_papers_networks_with_the_gains_of_the_caption() -> None:
    assert set(Runs.of(PAPER.runs, Results()).group(name_network)) == set(ACCURACIES)
    gains = [final - zero for zero, final in ACCURACIES.values()]
    assert median(gains) == pytest.approx(MEDIAN_GAIN, abs=0.005)
    assert mean(gains) == pytest.approx(MEAN_GAIN, abs=0.005)
