"""VCI figures 1-3, 6 and 8 on one residual network: runs, claims, tables, figures."""

import pytest

from ncscope.lab.experiment import Trainings
from ncscope.lab.experiments.vci.stability import SIZES
from ncscope.lab.experiments.vci.training import (
    EXPERIMENT,
    MANY,
    NARROW,
    PAPER,
    SMALL,
    STEP,
    TWENTY,
    WAYS,
)
from ncscope.lab.experiments.vci.variability_runs import name_setting, read_spectra
from ncscope.lab.observations import Results
from ncscope.lab.quantities import replace_fields
from ncscope.models.networks.catalogue import NAMES
from tests.lab.experiments.vci.courses import RISING, Courses, made, with_sweeps
from tests.lab.observed import results_of

MORE_ON, LESS_OFF = (9.0, 1.0, 2.0, 2.0), (0.1, 9.0, 2.0, 1.0)
RUNS = list(SMALL.runs)
NAME = "step decay, seed 5"
BRIEF = Trainings(
    runs={NAME: replace_fields(SMALL.runs[NAME], epochs=2, warmup_epochs=1, every=1, balanced=200)}
)
OWN = {"shares": 1, "stability": 2}


@pytest.fixture(scope="module")
def results() -> Results:
    return results_of(*EXPERIMENT.parts(BRIEF))


@pytest.mark.slow
def test_a_short_run_yields_what_claims_tables_and_figures_need(results: Results) -> None:
    assert len(EXPERIMENT.judge(BRIEF, results)) == 3 + 2 + 2
    rows = [(row.epoch, row.split) for row in results]
    sweeps = [(2, sweep) for sweep in ("cut", "noise") for _ in SIZES]
    splits = [(epoch, split) for epoch in (0, 1, 2) for split in ("train", "test")]
    assert sorted(rows) == sorted(splits + sweeps)
    eigenvalues, stability = EXPERIMENT.summarise(BRIEF, results)
    (compared, *unevenness) = eigenvalues.lines[STEP]
    assert compared == "9"
    assert all(float(cell) > 1 for cell in unevenness)
    assert all(float(cell) >= 0 for cell in stability.lines[STEP])
    panels = {d.name: len(d.figure.axes) for d in EXPERIMENT.draw(BRIEF, results)}
    assert panels == {"fig-1": 2, "fig-2": 1, "fig-3": 4, "fig-6": 1, "fig-8": 3} | OWN


@pytest.mark.slow
def test_spectra_are_those_of_the_last_measurement(results: Results) -> None:
    (run,) = EXPERIMENT.collect(BRIEF, results)
    between, total = read_spectra(run)
    assert (len(total), len(between)) == (384, 9)
    last = run.path()[-1]
    within = float(last["within_in_signal"]) + float(last["within_off_signal"])
    assert sum(between) == pytest.approx(within / float(last["nc1_quotient"]), rel=1e-9)
    assert sum(total) == pytest.approx(within + sum(between), rel=1e-9)


def verdicts(changed: Courses) -> dict[str, str]:
    findings = EXPERIMENT.judge(SMALL, made(RUNS, changed))
    return {finding.text: finding.verdict for finding in findings}


def of(setting: str, split: str, key: str, course) -> Courses:
    """A course for all seeds of a setting."""
    return {(run, split, key): course for run in RUNS if name_setting(run) == setting}


def collapsed() -> Courses:
    """Squared distance falls further for 100 classes, and less variance is off V_B."""
    courses: dict = {}
    for key in ("nc1_quotient", "cosine_within"):
        courses |= of(MANY, "train", key, (9.0, 3.0, 1.0, 0.5))
    return courses | of(MANY, "train", "within_off_signal", (0.1, 0.2, 0.2, 0.3))


def test_where_all_fall_only_the_paper_s_exceptions_are_missing() -> None:
    found = verdicts(collapsed())
    assert {text: verdict for text, verdict in found.items() if verdict != "held"} == {
        "there is a setting in which squared distance rises": "not held",
        "there is a setting in which cosine distance rises": "not held",
    }
    assert len(found) == 3 + 2 + 2 + 2 + 4 + 3


@pytest.mark.parametrize(
    ("setting", "split", "key", "course", "claim"),
    [
        ("cosine", "train", "fuzziness", RISING, "fuzziness falls over training, in every sett"),
        ("cosine", "train", "vci", RISING, "VCI falls over training, in every setting"),
        ("cosine", "test", "vci", RISING, "VCI falls on held-out images too, in every setting"),
        ("cosine", "train", "nc1_quotient", RISING, "there is a setting in which squared distan"),
        ("cosine", "train", "cosine_within", RISING, "there is a setting in which cosine distan"),
        (STEP, "train", "within_in_signal", MORE_ON, "the variance within classes on V_B falls"),
        (STEP, "train", "within_off_signal", LESS_OFF, "the variance within classes off V_B rise"),
        (TWENTY, "train", "within_in_signal", MORE_ON, "the variance within classes on V_B falls,"),
        (TWENTY, "train", "within_off_signal", LESS_OFF, "the variance within classes off V_B ri"),
        (NARROW, "train", "vci", RISING, "VCI falls over training, in every network for 100"),
        (MANY, "train", "within_off_signal", RISING, "the share of the variance off V_B, over"),
    ],
)
def test_one_setting_turns_one_claim(setting, split, key, course, claim: str) -> None:
    before, after = verdicts(collapsed()), verdicts(collapsed() | of(setting, split, key, course))
    (turned,) = [text for text, verdict in after.items() if verdict != before[text]]
    assert turned.startswith(claim)


@pytest.mark.slow
def test_figures_have_the_paper_s_panels() -> None:
    whole = with_sweeps(made(RUNS), RUNS)
    panels = {d.name: len(d.figure.axes) for d in EXPERIMENT.draw(SMALL, whole)}
    assert panels == {"fig-1": 12, "fig-2": 6, "fig-3": 4, "fig-6": 3, "fig-8": 9} | OWN


def test_the_paper_s_scale_is_the_paper_s() -> None:
    assert list(dict.fromkeys(map(name_setting, PAPER.runs))) == [*WAYS, MANY]
    for name, training in PAPER.runs.items():
        data = "cifar100" if name.startswith(MANY) else "cifar10"
        assert (training.data, training.network) == (data, "resnet18")
        assert training.network in NAMES
        assert training.due == list(range(0, 301, 20))
    firsts = [PAPER.runs[f"{name}, seed 0"].optimisation for name in WAYS]
    assert [each.schedule for each in firsts] == ["exponential", "cosine", "cosine"]
    assert (firsts[2].weight_decay, firsts[2].warmup_epochs) == (0, 0)
