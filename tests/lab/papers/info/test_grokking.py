"""The recipe of INFO figure 7: it runs, and every claim is seen held and seen not held."""

from collections.abc import Callable

import pytest

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.info.grokking import RECIPE, InfoGrokking
from ncscope.lab.papers.info.grokking_training import Grokking
from tests.lab.observed import observed, results_of, those
from tests.lab.papers.info.tiny_grokking import TINY

CONFIG = InfoGrokking(training=Grokking(modulus=23, steps=10_000), seeds=(0, 1))
STEPS = [0, 10, 100, 1_000, 5_000, 10_000]
COURSE = {
    "train": [0.04, 0.5, 1.0, 1.0, 1.0, 1.0],
    "test": [0.04, 0.05, 0.06, 0.30, 0.995, 1.0],
    "mir": [0.5, 0.7, 0.8, 0.6, 0.4, 0.3],
    "hdr": [0.8, 0.4, 0.2, 0.6, 0.3, 0.1],
}
"""A run as the paper tells it, on all pairs and in batches."""
BY_HEART = "when all training pairs are known by heart, held-out accuracy is near chance"
REACHES = "held-out accuracy reaches 1"
LATE = "the rule takes at least 10 times as many steps as learning by heart"
FIRST = "until the training pairs are known by heart, MIR rises and HDR falls"
SECOND = "then, until just before the rule is learnt, MIR falls and HDR rises"
END = "with the rule MIR reaches its minimum, and HDR ends at half its maximum"
NEEDS_RULE = {SECOND, END}


def made(changed: dict[str, list[float]] | None = None) -> Results:
    """Results of two runs, the second as it is changed."""
    found = []
    for seed in CONFIG.seeds:
        own = COURSE | (changed or {} if seed else {})
        for index, step in enumerate(STEPS):
            for split in ("train", "test"):
                when = {"part": f"seed {seed}", "step": step, "epoch": step, "split": split}
                information = {
                    f"{key}{suffix}": own[key][index]
                    for key in ("mir", "hdr")
                    for suffix in ("", "_batch")
                }
                row = when | {"layer": "head input", "accuracy": own[split][index]}
                row["accuracy_unmirrored"] = own[split][index] - 0.01
                found.append(row | ({} if step == 10 else information))
    return observed(found)


def failing(results: Results) -> set[str]:
    """The claims that do not hold, those on information without what it is of."""
    lost = {claim.text for claim in RECIPE.claims(CONFIG, results) if not claim.held}
    return {text.split(": ", 1)[-1] for text in lost}


def test_all_claims_hold_of_runs_as_the_paper_tells_them() -> None:
    claims = RECIPE.claims(CONFIG, made())
    assert len(claims) == 3 + 4 * 3
    assert failing(made()) == set()
    evidence = {claim.text: claim.evidence for claim in claims}
    assert "0.060 at step 100, 0.050 without" in evidence[BY_HEART]
    assert "5,000 steps against 100, 50.0 times as many" in evidence[LATE]
    assert "MIR 0.500 to 0.800, HDR 0.800 to 0.200" in evidence[f"all training pairs: {FIRST}"]
    assert (
        "lowest MIR 0.500 before and 0.300 from step 5,000 on, HDR 0.600 to 0.100"
        in evidence[f"all held-out pairs: {END}"]
    )


@pytest.mark.parametrize(
    ("key", "path", "lost"),
    [
        ("train", [0.04, 0.5, 0.99, 0.99, 0.99, 0.99], {BY_HEART, FIRST, *NEEDS_RULE}),
        ("train", [0.04, 0.5, 0.6, 1.0, 1.0, 1.0], {BY_HEART, LATE, SECOND}),
        ("test", [0.04, 0.05, 0.10, 0.30, 0.995, 1.0], {BY_HEART}),
        ("test", [0.04, 0.05, 0.06, 0.30, 0.995, 0.999], {REACHES}),
        ("test", [0.04, 0.05, 0.06, 0.30, 0.8, 0.9], {REACHES, LATE, *NEEDS_RULE}),
        ("mir", [0.9, 0.7, 0.8, 0.6, 0.4, 0.3], {FIRST}),
        ("mir", [0.5, 0.7, 0.8, 0.85, 0.9, 0.3], {SECOND}),
        ("mir", [0.5, 0.7, 0.8, 0.3, 0.4, 0.5], {END}),
        ("hdr", [0.1, 0.4, 0.2, 0.6, 0.3, 0.1], {FIRST}),
        ("hdr", [0.8, 0.4, 0.2, 0.1, 0.1, 0.05], {SECOND}),
        ("hdr", [0.8, 0.4, 0.2, 0.1, 0.3, 0.05], {SECOND}),
        ("hdr", [0.8, 0.4, 0.2, 0.6, 0.5, 0.4], {END}),
        ("hdr", [0.8, 0.4, 0.2, 0.6, 0.1, 0.4], {END}),
    ],
)
def test_one_run_that_goes_another_way_turns_its_claims(key, path, lost) -> None:
    assert failing(made({key: path})) == lost


CUTS: list[Callable[[Observation], bool]] = [
    lambda row: False,
    lambda row: row.step == 0,
    lambda row: row.part == "seed 0",
    lambda row: "mir" not in row,
]


@pytest.mark.parametrize("kept", CUTS)
def test_whatever_the_results_claims_and_figures_come_out(
    kept: Callable[[Observation], bool],
) -> None:
    results = those(made(), kept)
    claims = RECIPE.claims(CONFIG, results)
    assert all(claim.evidence for claim in claims)
    assert not any(claim.held for claim in claims)
    assert len(RECIPE.drawings(CONFIG, results)) == 2


def test_a_short_run_yields_what_claims_and_figures_need() -> None:
    part, *others = RECIPE.parts(TINY.model_copy(update={"seeds": (3,)}))
    assert not others
    results = results_of(part)
    config = TINY.model_copy(update={"seeds": (3,)})
    by_heart = RECIPE.claims(config, results)[3]
    assert by_heart.text == f"all training pairs: {FIRST}"
    assert "MIR" in by_heart.evidence
    for drawing in RECIPE.drawings(config, results):
        assert [len(axes.get_lines()) for axes in drawing.figure.axes] == [4, 4, 3]


def test_paper_scale_is_the_paper_s() -> None:
    training = RECIPE.scales["paper"].training
    assert (training.modulus, training.train_share, training.weight_decay) == (113, 0.3, 1.0)
    assert (training.width, training.heads, training.hidden) == (128, 4, 512)
    assert training.learning_rate == 1e-3
    assert len(RECIPE.scales["small"].seeds) == 3
