"""VCI figures 1, 2, 4-6 and 8 on many classes: runs, claims, figures."""

import pytest

from ncscope.lab.experiment import Trainings
from ncscope.lab.experiments.vci.imagenet import EXPERIMENT, PAPER, RESIDUAL, SMALL, SQUARED
from ncscope.lab.experiments.vci.variability_runs import METRICS, name_setting
from ncscope.lab.observations import Results
from ncscope.lab.quantities import replace_fields
from ncscope.models.networks.catalogue import NAMES
from tests.lab.experiments.vci.courses import NONE, RISING, made
from tests.lab.observed import results_of

ALL = [*RESIDUAL, "DeiT-T", "DeiT-S"]


@pytest.mark.slow
def test_a_short_run_yields_what_claims_and_figures_need() -> None:
    """The small scale's transformer and a residual network, an epoch each."""
    short = {"epochs": 1, "warmup_epochs": 0, "every": 1, "balanced": 300}
    names = ("CE, seed 1", "MSE, seed 1", "transformer, seed 1")
    runs = {name: replace_fields(SMALL.runs[name], **short) for name in names}
    settings = Trainings(runs=runs)
    results = results_of(*EXPERIMENT.parts(settings))
    findings = EXPERIMENT.judge(settings, results)
    assert len(findings) == 4 + 4 + 1 + 4 + 2
    assert not any("nan" in finding.evidence for finding in findings)
    panels = {d.name: len(d.figure.axes) for d in EXPERIMENT.draw(settings, results)}
    assert panels == {"fig-1": 4, "fig-2": 1, "fig-4": 4, "fig-5": 4, "fig-6": 2, "fig-8": 6}


def lost(results: Results) -> list[str]:
    return [each.text for each in EXPERIMENT.judge(PAPER, results) if not each.held]


def of(name: str) -> list[str]:
    return [run for run in PAPER.runs if name_setting(run) == name]


def collapsed(*settings: str) -> dict[tuple[str, str, str], tuple[float, ...]]:
    """Some settings end lower by every metric."""
    lower = (8.0, 2.5, 1.5, 0.5)
    return {(run, "train", key): lower for name in settings for run in of(name) for key in METRICS}


def test_every_claim_holds_of_what_the_paper_saw() -> None:
    assert lost(made(list(PAPER.runs), collapsed(*SQUARED))) == []


@pytest.mark.parametrize(
    ("run", "split", "key", "claim"),
    [
        ("MSE", "train", "fuzziness", "fuzziness falls over training, in every residual network"),
        ("DeiT-T", "train", "nc1_quotient", "squared distance falls over training, in every tr"),
        ("DeiT-S", "test", "vci", "VCI falls on held-out images too, in every network"),
        ("CE", "train", "within_in_signal", "the variance within classes on V_B falls"),
    ],
)
def test_one_setting_turns_a_claim(run: str, split: str, key: str, claim: str) -> None:
    changed = {(each, split, key): RISING for each in of(run)}
    assert lost(made(list(PAPER.runs), collapsed(*SQUARED) | changed))[0].startswith(claim)


def test_squared_error_must_end_lower_with_both_schedules() -> None:
    texts = [
        f"squared error ends at a lower {title} than cross-entropy" for title in METRICS.values()
    ]
    assert lost(made(list(PAPER.runs), collapsed(SQUARED[0]))) == texts
    assert lost(made(list(PAPER.runs), NONE)) == texts


def test_the_paper_s_scale_is_the_paper_s() -> None:
    assert list(dict.fromkeys(map(name_setting, PAPER.runs))) == ALL
    for training in PAPER.runs.values():
        assert (training.data, training.measured) == ("imagenet", 50000)
        assert training.due == list(range(0, 301, 20))
    networks = [training.network for training in PAPER.runs.values()]
    assert networks == ["resnet50"] * 9 + ["deit-tiny"] * 3 + ["deit-small"] * 3
    assert [PAPER.runs[f"{name}, seed 0"].loss for name in ALL] == [
        *("cross-entropy", "mse", "mse", "cross-entropy", "cross-entropy")
    ]
    assert [PAPER.runs[f"{name}, seed 0"].mixing for name in ALL] == [False] * 3 + [True] * 2
    assert set(networks) <= set(NAMES)
