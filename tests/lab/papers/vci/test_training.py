"""The recipe of VCI figures 1-3, 6 and 8 on one residual network: runs, claims, figures."""

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.vci.stability import SIZES
from ncscope.lab.papers.vci.training import MANY, NARROW, RECIPE, TWENTY
from ncscope.lab.papers.vci.variability import VCIRuns, groups_of, spectra
from ncscope.models.networks.catalogue import NAMES
from tests.lab.observed import results_of
from tests.lab.papers.vci.courses import RISING, Courses, made, with_sweeps

WAYS = ["step decay", "cosine", "cosine, no decay, no warm-up"]
MORE_ON, LESS_OFF = (9.0, 1.0, 2.0, 2.0), (0.1, 9.0, 2.0, 1.0)
SMALL = RECIPE.scales["small"]
RUNS = list(SMALL.runs)
GROUPS = groups_of(RUNS)


def brief() -> VCIRuns:
    """One run of the small scale, cut to two epochs."""
    training = SMALL.runs["step decay, seed 5"]
    short = training.optimisation.model_copy(update={"epochs": 2, "warmup_epochs": 1})
    update = {"optimisation": short, "every": 1, "balanced": 200}
    return VCIRuns(runs={"step decay, seed 5": training.model_copy(update=update)})


@pytest.fixture(scope="module")
def results() -> Results:
    (part,) = RECIPE.parts(brief())
    return results_of(part)


@pytest.mark.slow
def test_a_short_run_yields_what_claims_and_figures_need(results: Results) -> None:
    claims = RECIPE.judge(brief(), results)
    assert len(claims) == 3 + 2 + 2
    assert all(claim.evidence for claim in claims)
    measured = [(row.epoch, row.split) for row in results]
    sweeps = [(2, sweep) for sweep in ("cut", "noise") for _ in SIZES]
    splits = [(epoch, split) for epoch in (0, 1, 2) for split in ("train", "test")]
    assert sorted(measured) == sorted(splits + sweeps)


@pytest.mark.slow
def test_spectra_are_those_of_the_last_measurement(results: Results) -> None:
    last = [row for row in results if row.split == "train"][-1]
    (at_end,) = [m for m in results.measurements if (m.split, m.step) == ("train", 2)]
    found = spectra(results, "step decay, seed 5")
    assert found.total == at_end.model_record.layers[-1].spectra["total"]
    assert (len(found.total), len(found.between)) == (384, 9)
    within = float(last["within_in_signal"]) + float(last["within_off_signal"])
    between = sum(found.between)
    assert between == pytest.approx(within / float(last["nc1_quotient"]), rel=1e-9)
    assert sum(found.total) == pytest.approx(within + between, rel=1e-9)


def verdicts(changed: Courses) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in RECIPE.judge(SMALL, made(RUNS, changed))}


def of(groups: list[str], split: str, key: str, course) -> Courses:
    """A course for all seeds of some groups."""
    return {(run, split, key): course for name in groups for run in GROUPS[name]}


def collapsed() -> Courses:
    """Squared distance falls further for 100 classes, and less variance is off V_B."""
    found: dict = {}
    for key in ("nc1_quotient", "cosine_within"):
        found |= of([MANY], "train", key, (9.0, 3.0, 1.0, 0.5))
    return found | of([MANY], "train", "within_off_signal", (0.1, 0.2, 0.2, 0.3))


def test_where_all_fall_only_the_paper_s_exceptions_are_missing() -> None:
    found = verdicts(collapsed())
    assert {text: verdict for text, verdict in found.items() if verdict != "held"} == {
        "there is a setting in which squared distance rises": "not held",
        "there is a setting in which cosine distance rises": "not held",
    }
    assert len(found) == 3 + 2 + 2 + 2 + 4 + 3


@pytest.mark.parametrize(
    ("groups", "split", "key", "course", "claim"),
    [
        (["cosine"], "train", "fuzziness", RISING, "fuzziness falls over training, in every s"),
        (["cosine"], "train", "vci", RISING, "VCI falls over training, in every setting"),
        (["cosine"], "test", "vci", RISING, "VCI falls on held-out images too, in every s"),
        (["cosine"], "train", "nc1_quotient", RISING, "there is a setting in which squared dis"),
        (["cosine"], "train", "cosine_within", RISING, "there is a setting in which cosine dis"),
        (WAYS[:1], "train", "within_in_signal", MORE_ON, "the variance within classes on V_B fal"),
        (WAYS[:1], "train", "within_off_signal", LESS_OFF, "the variance within classes off V_B"),
        ([TWENTY], "train", "within_in_signal", MORE_ON, "the variance within classes on V_B fal"),
        ([TWENTY], "train", "within_off_signal", LESS_OFF, "the variance within classes off V_B"),
        ([NARROW], "train", "vci", RISING, "VCI falls over training, in every network for 100"),
        ([MANY], "train", "within_off_signal", RISING, "the share of the variance off V_B, over"),
    ],
)
def test_one_group_turns_one_claim(groups, split, key, course, claim: str) -> None:
    before, after = verdicts(collapsed()), verdicts(collapsed() | of(groups, split, key, course))
    (turned,) = [text for text, verdict in after.items() if verdict != before[text]]
    assert turned.startswith(claim)


@pytest.mark.slow
def test_section_4_3_is_shown_and_not_judged(results: Results) -> None:
    eigenvalues, sweeps = RECIPE.summarise(brief(), results)
    (compared, *unevenness) = eigenvalues.lines["step decay"]
    assert compared == "9"
    assert all(float(cell) > 1 for cell in unevenness)
    (changes,) = sweeps.lines.values()
    assert all(float(cell) >= 0 for cell in changes)
    assert "VCI, section 4.3" not in {claim.source for claim in RECIPE.judge(brief(), results)}


OWN = {"shares": 1, "stability": 2}


def test_figures_have_the_paper_s_panels() -> None:
    whole = with_sweeps(made(RUNS), RUNS)
    panels = {d.name: len(d.figure.axes) for d in RECIPE.draw(SMALL, whole)}
    assert panels == {"fig-1": 12, "fig-2": 6, "fig-3": 4, "fig-6": 3, "fig-8": 9} | OWN


@pytest.mark.slow
def test_figures_of_a_short_run_have_the_panels_of_its_group(results: Results) -> None:
    short = {d.name: len(d.figure.axes) for d in RECIPE.draw(brief(), results)}
    assert short == {"fig-1": 2, "fig-2": 1, "fig-3": 4, "fig-6": 1, "fig-8": 3} | OWN


def test_the_paper_s_scale_is_the_paper_s() -> None:
    paper = RECIPE.scales["paper"]
    assert list(groups_of(paper.runs)) == [*WAYS, MANY]
    assert set(GROUPS) == {*WAYS, TWENTY, MANY, NARROW}
    assert all(len(runs) >= 3 for runs in GROUPS.values())
    for name, training in paper.runs.items():
        data = "cifar100" if name.startswith(MANY) else "cifar10"
        assert (training.data, training.network) == (data, "resnet18")
        assert training.network in NAMES
        assert training.due == list(range(0, 301, 20))
    firsts = [paper.runs[f"{name}, seed 0"].optimisation for name in WAYS]
    assert [one.schedule for one in firsts] == ["exponential", "cosine", "cosine"]
    assert (firsts[2].weight_decay, firsts[2].warmup_epochs) == (0, 0)
    assert len(RECIPE.parts(paper)) == 12
