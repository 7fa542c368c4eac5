"""VCI figures 1-3, 6 and 8 on one residual network: claims, and spectra of a short run."""

import pytest
from lab.tests.experiments.vci.courses import FALLING, RISING, Courses, made
from lab.tests.observed import results_of

from ncscope_lab.experiment import Trainings
from ncscope_lab.experiments.vci.stability import SIZES
from ncscope_lab.experiments.vci.training import EXPERIMENT, MANY, NARROW, SMALL, STEP, TEN
from ncscope_lab.experiments.vci.variability_runs import name_setting, read_spectra
from ncscope_lab.quantities import replace_fields

RUNS = list(SMALL.runs)


@pytest.mark.slow
def test_a_short_run_has_spectra_and_sweeps() -> None:
    name = RUNS[0]
    short = replace_fields(SMALL.runs[name], epochs=2, warmup_epochs=1, balanced=200)
    brief = Trainings(runs={name: short})
    results = results_of(*EXPERIMENT.parts(brief))
    rows = [(row.epoch, row.split) for row in results]
    sweeps = [(2, sweep) for sweep in ("cut", "noise") for _ in SIZES]
    splits = [(epoch, split) for epoch in (0, 1, 2) for split in ("train", "test")]
    assert sorted(rows) == sorted(splits + sweeps)
    (run,) = EXPERIMENT.collect(brief, results)
    between, total = read_spectra(run)
    assert (len(total), len(between)) == (384, 19)
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
        courses |= of(MANY, "train", key, (9.0, 3.0, 2.0, 1.0, 0.5))
    return courses | of(MANY, "train", "within_off_signal", (0.1, 0.2, 0.22, 0.25, 0.3))


def test_where_all_fall_only_the_paper_s_exceptions_are_missing() -> None:
    found = verdicts(collapsed())
    assert {text: verdict for text, verdict in found.items() if verdict != "held"} == {
        "there is a setting in which squared distance rises": "not held",
        "there is a setting in which cosine distance rises": "not held",
    }
    assert len(found) == 3 + 2 + 4 + 4 + 3


@pytest.mark.parametrize(
    ("setting", "split", "key", "course", "claim"),
    [
        ("cosine", "train", "fuzziness", RISING, "fuzziness falls over training, in every sett"),
        ("cosine", "train", "vci", RISING, "VCI falls over training, in every setting"),
        ("cosine", "test", "vci", RISING, "VCI falls on held-out images too, in every setting"),
        ("cosine", "train", "nc1_quotient", RISING, "there is a setting in which squared distan"),
        ("cosine", "train", "cosine_within", RISING, "there is a setting in which cosine distan"),
        (STEP, "train", "within_in_signal", RISING, "step decay: the variance within classes on"),
        (TEN, "train", "within_off_signal", FALLING, "10 classes: the variance within classes o"),
        (NARROW, "train", "vci", RISING, "VCI falls over training, in every network for 100"),
        (MANY, "train", "within_off_signal", RISING, "the share of the variance off V_B, over"),
        (MANY, "train", "nc1_quotient", FALLING, "squared distance, over the untrained networ"),
    ],
)
def test_one_setting_turns_one_claim(setting, split, key, course, claim: str) -> None:
    before, after = verdicts(collapsed()), verdicts(collapsed() | of(setting, split, key, course))
    turned = [text for text, verdict in after.items() if verdict != before[text]]
    assert turned[0].startswith(claim)
