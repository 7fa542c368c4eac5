"""The recipe of VCI figures 1-3, 6 and 8 on one residual network: runs, claims, figures."""

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.vci.training import RECIPE
from ncscope.lab.papers.vci.variability import VCIRuns, spectra
from ncscope.models.networks.catalogue import NAMES
from tests.lab.observed import results_of
from tests.lab.papers.vci.courses import RETURNING, made

RUNS = ["step decay", "cosine", "cosine, no decay, no warm-up"]
SMALL = RECIPE.scales["small"]


def brief() -> VCIRuns:
    """One run of the small scale, cut to two epochs."""
    training = SMALL.runs["step decay"]
    short = training.optimisation.model_copy(update={"epochs": 2, "warmup_epochs": 1})
    update = {"optimisation": short, "every": 1, "balanced": 300}
    return VCIRuns(runs={"step decay": training.model_copy(update=update)})


@pytest.fixture(scope="module")
def results() -> Results:
    (part,) = RECIPE.parts(brief())
    return results_of(part)


def test_a_short_run_yields_what_claims_and_figures_need(results: Results) -> None:
    claims = RECIPE.claims(brief(), results)
    assert len(claims) == 3 + 2 + 2 + 2
    assert all(claim.evidence for claim in claims)
    measured = [(row.epoch, row.split) for row in results]
    assert measured == [(epoch, split) for epoch in (0, 1, 2) for split in ("train", "test")]


def test_spectra_are_those_of_the_last_measurement(results: Results) -> None:
    last = [row for row in results if row.split == "train"][-1]
    (at_end,) = [m for m in results.measurements if (m.split, m.step) == ("train", 2)]
    found = spectra(results, "step decay")
    assert found.total == at_end.probe.layers[-1].spectra["total"]
    assert (len(found.total), len(found.between)) == (32, 9)
    within = float(last["within_in_signal"]) + float(last["within_off_signal"])
    between = sum(found.between)
    assert between == pytest.approx(within / float(last["nc1_quotient"]), rel=1e-9)
    assert sum(found.total) == pytest.approx(within + between, rel=1e-9)


def held(results: Results) -> dict[str, bool]:
    return {claim.text: claim.held for claim in RECIPE.claims(SMALL, results)}


def test_where_all_fall_only_the_paper_s_exceptions_are_missing() -> None:
    claims = held(made(RUNS))
    assert [claim for claim, holds in claims.items() if not holds] == [
        "there is a run in which squared distance does not fall",
        "there is a run in which cosine distance does not fall",
    ]
    assert len(claims) == 3 + 2 + 3 * 4


@pytest.mark.parametrize(
    ("split", "key", "claim"),
    [
        ("train", "fuzziness", "fuzziness falls over training, in every run"),
        ("train", "vci", "VCI falls over training, in every run"),
        ("test", "vci", "VCI falls on held-out images too, in every run"),
        ("train", "nc1_quotient", "there is a run in which squared distance does not fall"),
        ("train", "cosine_within", "there is a run in which cosine distance does not fall"),
        ("train", "within_in_signal", "cosine: the variance within classes on V_B falls"),
        ("train", "within_off_signal", "cosine: the variance off V_B rises"),
    ],
)
def test_one_run_turns_one_claim(split: str, key: str, claim: str) -> None:
    before, after = held(made(RUNS)), held(made(RUNS, {("cosine", split, key): RETURNING}))
    assert [text for text, holds in after.items() if holds != before[text]] == [claim]


def test_figures_have_the_paper_s_panels(results: Results) -> None:
    panels = {d.name: len(d.figure.axes) for d in RECIPE.drawings(SMALL, made(RUNS))}
    assert panels == {"fig-1": 6, "fig-2": 3, "fig-3": 4, "fig-6": 3, "fig-8": 9}
    short = {d.name: len(d.figure.axes) for d in RECIPE.drawings(brief(), results)}
    assert short == {"fig-1": 2, "fig-2": 1, "fig-3": 4, "fig-6": 1, "fig-8": 3}


def test_the_paper_s_scale_is_the_paper_s() -> None:
    paper = RECIPE.scales["paper"]
    assert list(paper.runs) == RUNS == list(SMALL.runs)
    for training in paper.runs.values():
        assert (training.data, training.network) == ("cifar10", "resnet18")
        assert training.network in NAMES
        assert training.due == list(range(0, 301, 20))
    rates = {name: run.optimisation.schedule for name, run in paper.runs.items()}
    assert list(rates.values()) == ["exponential", "cosine", "cosine"]
    bare = paper.runs[RUNS[2]].optimisation
    assert (bare.weight_decay, bare.warmup_epochs) == (0, 0)
    assert len(RECIPE.parts(paper)) == 3
