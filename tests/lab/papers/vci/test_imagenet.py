"""The recipe of VCI figures 1, 2, 4-6 and 8 on many classes: runs, claims, figures."""

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.vci.imagenet import RECIPE, VCIImageNet
from ncscope.lab.papers.vci.variability import groups_of
from ncscope.models.networks.catalogue import NAMES
from tests.lab.observed import results_of
from tests.lab.papers.vci.courses import RISING, made

RESIDUAL, ALL = ["CE", "MSE", "MSE + cosine"], ["CE", "MSE", "MSE + cosine", "DeiT-T", "DeiT-S"]
PAPER, SMALL = RECIPE.scales["paper"], RECIPE.scales["small"]
LOWER = (8.0, 2.5, 1.5, 0.5)


def brief() -> VCIImageNet:
    """The small scale's transformer and a residual network on its data, an epoch each."""
    name = SMALL.transformers[0]
    update = {"every": 1, "balanced": 300}
    transformer, residual = (
        training.model_copy(
            update=update
            | {
                "optimisation": training.optimisation.model_copy(
                    update={"epochs": 1, "warmup_epochs": 0}
                )
            }
            | {"data": "digits", "normalisation": "own"}
        )
        for training in (SMALL.runs[name], SMALL.runs["MSE, seed 1"])
    )
    cross_entropy = residual.model_copy(update={"loss": "cross-entropy"})
    runs = {"CE": cross_entropy, "MSE": residual, name: transformer}
    return VCIImageNet(runs=runs)


@pytest.fixture(scope="module")
def results() -> Results:
    return results_of(*RECIPE.parts(brief()))


def test_a_short_run_yields_what_claims_and_figures_need(results: Results) -> None:
    claims = RECIPE.judge(brief(), results)
    assert len(claims) == 4 + 4 + 1 + 4 + 2
    assert all(claim.evidence for claim in claims)
    panels = {d.name: len(d.figure.axes) for d in RECIPE.draw(brief(), results)}
    assert panels == {"fig-1": 4, "fig-2": 1, "fig-4": 4, "fig-5": 4, "fig-6": 2, "fig-8": 6}


def held(results: Results) -> dict[str, bool]:
    return {claim.text: claim.held for claim in RECIPE.judge(PAPER, results)}


def of(name: str) -> list[str]:
    return [run for run in PAPER.runs if run.startswith(f"{name}, seed")]


def collapsed() -> dict[tuple[str, str, str], tuple[float, ...]]:
    """Squared error ends lower by every metric."""
    keys = ("fuzziness", "nc1_quotient", "cosine_within", "vci")
    return {(run, "train", key): LOWER for name in RESIDUAL[1:] for run in of(name) for key in keys}


def test_every_claim_holds_of_what_the_paper_saw() -> None:
    claims = held(made(list(PAPER.runs), collapsed()))
    assert all(claims.values())
    assert len(claims) == 15


@pytest.mark.parametrize(
    ("run", "split", "key", "claim"),
    [
        ("MSE", "train", "fuzziness", "fuzziness falls over training, in every residual network"),
        ("DeiT-T", "train", "nc1_quotient", "squared distance falls over training, in every tr"),
        ("DeiT-S", "test", "vci", "VCI falls on held-out images too, in every network"),
        ("CE", "train", "within_in_signal", "the variance within classes on V_B falls"),
    ],
)
def test_one_run_turns_a_claim(run: str, split: str, key: str, claim: str) -> None:
    changed = {(one, split, key): RISING for one in of(run)}
    after = held(made(list(PAPER.runs), collapsed() | changed))
    assert next(text for text, holds in after.items() if not holds).startswith(claim)


@pytest.mark.parametrize("key", ["fuzziness", "nc1_quotient", "cosine_within", "vci"])
def test_squared_error_must_end_lower_in_both_runs(key: str) -> None:
    changed = collapsed()
    for run in of("MSE + cosine"):
        del changed[run, "train", key]
    results = made(list(PAPER.runs), changed)
    (failed,) = [text for text, holds in held(results).items() if not holds]
    assert failed.startswith("squared error ends at a lower")


def test_the_paper_s_scale_is_the_paper_s() -> None:
    assert list(groups_of(PAPER.runs)) == ALL
    assert list(groups_of(PAPER.under("mse"))) == RESIDUAL[1:]
    for training in PAPER.runs.values():
        assert (training.data, training.measured) == ("imagenet", 50000)
        assert training.due == list(range(0, 301, 20))
    networks = [training.network for training in PAPER.runs.values()]
    assert networks == ["resnet50"] * 9 + ["deit-tiny"] * 3 + ["deit-small"] * 3
    assert [PAPER.runs[f"{name}, seed 0"].mixing for name in ALL] == [False] * 3 + [True] * 2
    assert set(networks) <= set(NAMES)
