"""VCI figures 1, 2, 4-6 and 8 on many classes: claims."""

import pytest
from lab.tests.experiments.vci.courses import NONE, RISING, made

from ncscope_lab.experiments.vci.imagenet import EXPERIMENT, PAPER, SQUARED
from ncscope_lab.experiments.vci.variability_runs import METRICS, name_setting
from ncscope_lab.observations import Results

RUNS = list(PAPER.runs)


def lost(results: Results) -> list[str]:
    return [each.text for each in EXPERIMENT.judge(PAPER, results) if not each.held]


def of(setting: str, split: str, key: str, course) -> dict:
    return {(run, split, key): course for run in RUNS if name_setting(run) == setting}


def collapsed(*settings: str) -> dict:
    """Some settings end lower by every metric."""
    courses: dict = {}
    for setting in settings:
        for key in METRICS:
            courses |= of(setting, "train", key, (8.0, 2.5, 1.5, 1.0, 0.5))
    return courses


def test_every_claim_holds_of_what_the_paper_saw() -> None:
    assert lost(made(RUNS, collapsed(*SQUARED))) == []


@pytest.mark.parametrize(
    ("setting", "split", "key", "claim"),
    [
        ("MSE", "train", "fuzziness", "fuzziness falls over training, in every residual network"),
        ("DeiT-T", "train", "nc1_quotient", "squared distance falls over training, in every tr"),
        ("DeiT-S", "test", "vci", "VCI falls on held-out images too, in every network"),
        ("CE", "train", "within_in_signal", "CE: the variance within classes on V_B falls"),
    ],
)
def test_one_setting_turns_a_claim(setting: str, split: str, key: str, claim: str) -> None:
    changed = of(setting, split, key, RISING)
    assert lost(made(RUNS, collapsed(*SQUARED) | changed))[0].startswith(claim)


def test_squared_error_must_end_lower_with_both_schedules() -> None:
    texts = [
        f"squared error ends at a lower {title} than cross-entropy" for title in METRICS.values()
    ]
    assert lost(made(RUNS, collapsed(SQUARED[0]))) == texts
    assert lost(made(RUNS, NONE)) == texts
