"""The recipe of XUFM figures 5 and 10: runs, and every claim seen held and seen not held."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.xufm.network import DUALITIES, RECIPE, SURROGATES, XUFMNetwork, levels
from ncscope.models.layers import match_layers
from ncscope.models.networks.catalogue import NAMES, build
from ncscope.models.taps import HEAD_INPUT
from tests.lab.observed import observed, results_of, those

SMALL = RECIPE.scales["small"]
MSE, CE, OTHER, _ = SMALL.runs
LEVELS = ("stages.0", "stages.1", "stages.2", HEAD_INPUT)
EPOCHS = (0, 10, 60)
Paths = Mapping[str, Sequence[Sequence[float]]]

PATHS: Paths = {
    "nc1": ([9, 9, 9], [9, 4, 3], [9, 1, 0.4], [9, 0.3, 0.1]),
    "nc2_of": ([1, 1, 1], [1, 0.9, 0.9], [1, 0.5, 0.3], [1, 0.3, 0.2]),
    "nc2_etf": ([1, 1, 1], [1, 0.9, 0.9], [1, 0.5, 0.3], [1, 0.3, 0.2]),
}
"""By metric and level, values over the epochs."""


@pytest.fixture(scope="module")
def brief() -> XUFMNetwork:
    """Both losses on digits, an epoch each, and a few steps of the models."""
    runs = {}
    for name in (MSE, CE):
        short = SMALL.runs[name].optimisation.model_copy(update={"epochs": 1, "batch_size": 256})
        update = {"optimisation": short, "every": 1, "balanced": 300}
        runs[name] = SMALL.runs[name].model_copy(update=update)
    return SMALL.model_copy(update={"runs": runs, "steps": 20})


@pytest.fixture(scope="module")
def results(brief: XUFMNetwork) -> Results:
    return results_of(*RECIPE.parts(brief))


def test_a_short_run_yields_what_claims_and_figures_need(
    brief: XUFMNetwork, results: Results
) -> None:
    by_level = levels(results, MSE)
    assert list(by_level) == ["block 1", "block 2", "block 3", "classifier's input"]
    assert [[row.epoch for row in path] for path in by_level.values()] == [[0, 1]] * 4
    claims = RECIPE.claims(brief, results)
    assert len(claims) == 2 * 7 + 1
    assert all(claim.evidence for claim in claims)
    assert [d.name for d in RECIPE.drawings(brief, results)] == ["fig-5", "models"]


def test_the_loss_decides_on_the_bias() -> None:
    assert {name: (run.loss, run.bias) for name, run in SMALL.runs.items()} == {
        name: ("mse", False) if "MSE" in name else ("cross-entropy", True) for name in SMALL.runs
    }


def made(run: str = "", changed: Paths | None = None, accuracy: float = 1.0) -> Results:
    """Results of all runs, one of them as it is changed, and of the models."""
    found: list[dict[str, Any]] = []
    for name, training in SMALL.runs.items():
        paths = PATHS | {"nc2_of": _farther()} if training.loss != "mse" else PATHS
        paths = paths | (changed or {} if name == run else {})
        for at, epoch in enumerate(EPOCHS):
            for index, layer in enumerate(LEVELS):
                row: dict[str, Any] = {
                    "part": name,
                    "split": "train",
                    "epoch": epoch,
                    "layer": layer,
                }
                row |= {key: paths[key][index][at] for key in PATHS}
                if layer == HEAD_INPUT:
                    row["accuracy"] = 0.1 if epoch == 0 else accuracy if name == run else 1.0
                    falling = paths.get("duality", [[1.0, 0.5, 0.2]])[0]
                    row[DUALITIES[training.loss]] = falling[at]
                else:
                    row["block"] = index + 1
                found.append(row)
    return Results([*observed(found), *model_results()])


def _farther() -> list[list[float]]:
    """The orthogonal frame's distances under cross-entropy."""
    return [[2 * value for value in path] for path in PATHS["nc2_of"]]


def model_results(
    fall: Mapping[str, float] | None = None, structure: Mapping[str, float] | None = None
) -> Results:
    """Decades by which NC1 of H1 falls, that of H2 by 2, and the share that NC2 of H1 keeps."""
    fall = fall or {"linear": 2.0, "relu": 0.8}
    structure = structure or {"linear": 0.4, "relu": 0.8}
    return observed(
        {
            "part": part,
            "layer": layer,
            "step": step,
            "objective": 1.0,
            "minimum": 0.5,
            "nc1": 10 ** -((fall[activation] if layer == "H1" else 2.0) * share),
            "nc2_of": structure[activation] if layer == "H1" and step else 1.0,
            "nc3_alignment": 0.1,
        }
        for activation, part in SURROGATES.items()
        for step, share in ((0, 0.0), (100, 1.0))
        for layer in ("H1", "H2")
    )


def failing(found: Results) -> list[str]:
    return [claim.text for claim in RECIPE.claims(SMALL, found) if not claim.held]


def test_all_claims_hold_where_a_network_does_as_the_paper_says() -> None:
    assert len(RECIPE.claims(SMALL, made())) == 4 * 7 + 2
    assert failing(made()) == []


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (
            {"nc1": ([9, 9, 9], [9, 4, 3], [9, 1, 4], [9, 0.3, 0.1])},
            "at the end NC1 falls from every level to the next",
        ),
        (
            {"nc2_etf": ([1, 1, 1], [0.2, 0.9, 0.15], [1, 0.5, 0.1], [1, 0.3, 0.2])},
            "at the end the deepest features are nearer to their frame (nc2_etf) than the features "
            "of any block before the last",
        ),
        (
            {"nc2_etf": ([1, 1, 1], [1, 0.9, 0.4], [1, 0.5, 0.3], [1, 0.3, 0.2])},
            "training halves the distance of the deepest features to the frame, but not the "
            "distance of any block before the last",
        ),
        (
            {"nc2_etf": ([1, 1, 1], [1, 0.9, 0.9], [1, 0.5, 0.3], [0.5, 0.4, 0.3])},
            "training halves the distance of the deepest features to the frame, but not the "
            "distance of any block before the last",
        ),
        ({"duality": ([0.2, 0.5, 0.9],)}, "the classifier aligns with the class means"),
        (
            {"nc1": ([9, 4, 0.3], [9, 4, 0.2], [9, 1, 0.15], [9, 0.3, 0.1])},
            "the ratio of the decades by which NC1 falls at the first and at the last level is "
            "nearer to the ReLU model than to the linear model",
        ),
        (
            {"nc2_etf": ([1, 1, 0.55], [1, 0.9, 0.9], [1, 0.5, 0.3], [1, 0.3, 0.2])},
            "the first level keeps a share of its initial NC2 that is nearer to the ReLU model "
            "than to the linear model",
        ),
    ],
)
def test_one_run_turns_one_claim(changed: Paths, what: str) -> None:
    assert failing(made(CE, changed)) == [f"{CE}: {what}"]


def test_collapse_past_zero_error_needs_both() -> None:
    claim = f"{OTHER}: the deepest features collapse further past zero training error"
    assert failing(made(OTHER, accuracy=0.99)) == [claim]
    rising = {"nc1": ([9, 9, 9], [9, 4, 3], [9, 1, 1], [9, 0.3, 0.4])}
    assert failing(made(OTHER, rising)) == [claim]


def test_the_frames_are_told_apart_on_each_data_set() -> None:
    claim = (
        "digits: the deepest class means end nearer to an orthogonal frame under MSE than under "
        "cross-entropy, and under cross-entropy nearer to a simplex than to an orthogonal frame "
        "(remark after theorem 4.1)"
    )
    assert failing(made(CE, {"nc2_of": PATHS["nc2_of"]})) == [claim]
    near = [*PATHS["nc2_etf"][:3], [1.3, 0.5, 0.41]]
    assert claim in failing(made(CE, {"nc2_etf": near}))


def test_models_that_are_alike_hold_no_claim() -> None:
    alike = {"linear": 1.0, "relu": 1.0}
    networks = those(made(), lambda row: row.part in SMALL.runs)
    found = Results([*networks, *model_results(alike, alike)])
    assert len(failing(found)) == 2 * len(SMALL.runs)


def test_figures_have_a_row_a_loss_and_a_panel_a_metric(results: Results) -> None:
    drawn = {d.name: d.figure for d in RECIPE.drawings(SMALL, made())}
    assert {n: len(f.axes) for n, f in drawn.items()} == {"fig-5": 8, "fig-10": 8, "models": 8}
    zero_error = 1
    for name in ("fig-5", "fig-10"):
        lines = [len(axes.get_lines()) - zero_error for axes in drawn[name].axes]
        assert lines == [4, 4, 4, 1] * 2


def test_the_paper_s_scale_is_the_paper_s() -> None:
    paper = RECIPE.scales["paper"]
    assert len(RECIPE.parts(paper)) == 4 + 2
    assert [(run.data, run.loss) for run in paper.runs.values()] == [
        (data, loss) for data in ("mnist", "cifar10") for loss in ("mse", "cross-entropy")
    ]
    for run in paper.runs.values():
        assert run.network in NAMES
        chosen = run.optimisation
        assert (chosen.learning_rate, chosen.weight_decay, chosen.decay) == (0.05, 5e-4, 0.1)
        assert [share * chosen.epochs for share in chosen.milestones] == [40, 80]
    blocks = match_layers(build("resnet18", 10), paper.blocks)
    assert blocks == ["layer1", "layer2", "layer3", "layer4"]
