"""The experiment of INFO figure 7: it runs, and every claim is seen held and seen not held."""

import pytest
from lab.tests.experiments.info.tiny_grokking import TINY
from lab.tests.observed import nudged, observed, results_of, with_each

from ncscope_lab.experiments.info.grokking import EXPERIMENT, InfoGrokking
from ncscope_lab.experiments.info.modular_addition import Grokking
from ncscope_lab.observations import Results

CONFIG = InfoGrokking(training=Grokking(modulus=23, steps=10_000), seeds=(0, 1, 2))
STEPS = [0, 10, 100, 1_000, 5_000, 10_000]
COURSE = {
    "train": [0.04, 0.5, 1.0, 1.0, 1.0, 1.0],
    "test": [0.04, 0.05, 0.06, 0.30, 0.995, 1.0],
    "mir": [0.5, 0.7, 0.8, 0.6, 0.4, 0.3],
    "hdr": [0.8, 0.4, 0.2, 0.6, 0.3, 0.1],
}
"""A run as the paper tells it, on all pairs and in batches."""
BY_HEART = "when all training pairs are known by heart, held-out accuracy exceeds chance by less "
REACHES = "held-out accuracy is 1 at the end"
LATE = "learning the rule takes at least 10 times as many steps"
MIR_FIRST = "until the training pairs are known by heart, MIR rises"
HDR_FIRST = "until the training pairs are known by heart, HDR falls"
MIR_SECOND = "then, until just before the rule is learnt, MIR falls"
HDR_SECOND = "then, until just before the rule is learnt, HDR rises"
MIR_END = "with the rule MIR reaches its minimum"
HDR_END = "with the rule HDR falls to less than half of its value just before"
CLAIMS = {
    *(BY_HEART, REACHES, LATE, MIR_FIRST, HDR_FIRST),
    *(MIR_SECOND, HDR_SECOND, MIR_END, HDR_END),
}
NEEDS_RULE = {MIR_SECOND, HDR_SECOND, MIR_END, HDR_END}


def made(changed: dict[str, list[float]] | None = None) -> Results:
    """Results of three runs, as they are changed, up to a hundredth."""
    found = []
    for seed in CONFIG.seeds:
        own = COURSE | (changed or {})
        for index, step in enumerate(STEPS):
            for split in ("train", "test"):
                when = {
                    "part": f"seed {seed}",
                    "step": step + seed * (step > 0),
                    "epoch": step + seed * (step > 0),
                    "split": split,
                }
                information = {
                    f"{key}{suffix}": own[key][index] * (1 + 0.01 * seed)
                    for key in ("mir", "hdr")
                    for suffix in ("", "_batch")
                }
                row = when | {"layer": "head input", "accuracy": own[split][index]}
                row["accuracy_unmirrored"] = own[split][index] - 0.01
                found.append(row | ({} if step == 10 else information))
    return with_each(observed(found), nudged)


def failing(results: Results) -> set[str]:
    """The claims that do not hold, those on information without what it is of."""
    lost = {claim.text for claim in EXPERIMENT.judge(CONFIG, results) if not claim.held}
    return {claim for claim in CLAIMS if any(claim in text for text in lost)}


def test_all_claims_hold_of_runs_as_the_paper_tells_them() -> None:
    claims = EXPERIMENT.judge(CONFIG, made())
    assert len(claims) == 3 + 6
    assert failing(made()) == set()
    told = {part: claim.evidence for claim in claims for part in CLAIMS if part in claim.text}
    assert "held-out accuracy 0.06, chance 0.0435 in the mean" in told[BY_HEART]
    assert "accuracy on pairs held out in both orders 0.05" in told[BY_HEART]
    assert "held-out pairs 5e+03, steps to an accuracy of 0.99 on training pairs 101" in told[LATE]
    assert "2 of 2 splits held" in told[MIR_FIRST]
    assert "not counted: on exact values held, 2 of 2 splits held" in told[MIR_FIRST]


def test_the_batches_decide_as_in_the_paper() -> None:
    flat = dict.fromkeys(("mir", "hdr"), 0.5)
    rows = with_each(made(), lambda row: row.with_values(flat) if "mir" in row else row)
    assert failing(rows) == set()
    batches = {f"{key}_batch": 0.5 for key in flat}
    rows = with_each(made(), lambda row: row.with_values(batches) if "mir" in row else row)
    assert failing(rows) == {MIR_FIRST, HDR_FIRST, *NEEDS_RULE}


@pytest.mark.parametrize(
    ("key", "path", "lost"),
    [
        (
            *("train", [0.04, 0.5, 0.991, 0.991, 0.991, 0.991]),
            {BY_HEART, MIR_FIRST, HDR_FIRST, *NEEDS_RULE},
        ),
        ("train", [0.04, 0.5, 0.6, 1.0, 1.0, 1.0], {BY_HEART, LATE, MIR_SECOND, HDR_SECOND}),
        ("test", [0.04, 0.05, 0.10, 0.30, 0.995, 1.0], {BY_HEART}),
        ("test", [0.04, 0.05, 0.06, 0.30, 1.0, 0.999], {REACHES}),
        ("test", [0.04, 0.05, 0.06, 0.30, 0.8, 0.9], {REACHES, LATE, *NEEDS_RULE}),
        ("mir", [0.76, 0.7, 0.8, 0.6, 0.4, 0.3], {MIR_FIRST}),
        ("mir", [0.5, 0.7, 0.8, 0.76, 0.9, 0.3], {MIR_SECOND}),
        ("mir", [0.5, 0.7, 0.8, 0.3, 0.4, 0.5], {MIR_END}),
        ("hdr", [0.1, 0.4, 0.2, 0.6, 0.3, 0.1], {HDR_FIRST}),
        ("hdr", [0.8, 0.4, 0.2, 0.1, 0.1, 0.04], {HDR_SECOND}),
        ("hdr", [0.8, 0.4, 0.2, 0.24, 0.3, 0.1], {HDR_SECOND}),
        ("hdr", [0.8, 0.4, 0.2, 0.6, 0.5, 0.4], {HDR_END}),
    ],
)
def test_runs_that_go_another_way_turn_their_claims(key, path, lost) -> None:
    assert failing(made({key: path})) == lost


def test_a_short_run_yields_what_claims_and_figures_need() -> None:
    part, *others = EXPERIMENT.parts(TINY.model_copy(update={"seeds": (3,)}))
    assert not others
    results = results_of(part)
    config = TINY.model_copy(update={"seeds": (3,)})
    by_heart = EXPERIMENT.judge(config, results)[3]
    assert by_heart.text.startswith(f"batches of pairs: {MIR_FIRST}")
    assert "training pairs" in by_heart.evidence
    for drawing in EXPERIMENT.draw(config, results):
        assert [len(axes.get_lines()) for axes in drawing.figure.axes] == [4, 4, 3]
