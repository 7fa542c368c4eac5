"""XUFM figures 5 and 10: every claim seen held, not held, and seldom held of noise."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from lab.tests.experiments.chance import not_held, often_held
from lab.tests.observed import nudged, observed, those, with_each

from ncscope.models.layers import match_layers
from ncscope.models.networks.catalogue import NAMES, build
from ncscope.models.taps import HEAD_INPUT
from ncscope_lab.experiments.xufm.network import (
    DUALITIES,
    EXPERIMENT,
    SURROGATES,
    name_levels,
)
from ncscope_lab.observations import Observation, Results

SMALL = EXPERIMENT.scales["small"]
MSE, CE = "digits, MSE, no bias", "digits, CE, bias"
FIRST = next(iter(SMALL.runs))
LEVELS = ("stages.0", "stages.1", "stages.2", HEAD_INPUT)
EPOCHS = (0, 10, 60)
Paths = Mapping[str, Sequence[Sequence[float]]]

PATHS: Paths = {
    "nc1": ([9, 9, 9], [9, 4, 3], [9, 1, 0.02], [9, 0.3, 0.02]),
    "nc2_of": ([1, 1, 1], [1, 0.9, 0.9], [1, 0.5, 0.3], [1, 0.3, 0.2]),
    "nc2_etf": ([1, 1, 1], [1, 0.9, 0.9], [1, 0.5, 0.3], [1, 0.3, 0.1]),
}
"""By metric and level, values over the epochs."""


def test_the_loss_decides_on_the_bias() -> None:
    assert {name: (run.loss, run.bias) for name, run in SMALL.runs.items()} == {
        name: ("mse", False) if "MSE" in name else ("cross-entropy", True) for name in SMALL.runs
    }


def made(network: str = "", changed: Paths | None = None, accuracy: float = 1.0) -> Results:
    """Results of all runs, those of one network as it is changed, and of the models."""
    found: list[dict[str, Any]] = []
    for name, training in SMALL.runs.items():
        ours = bool(network) and name.startswith(network)
        paths = PATHS | {"nc2_of": _farther()} if training.loss != "mse" else PATHS
        paths = paths | (changed or {} if ours else {})
        off = 1 + 0.01 * training.seed
        for at, epoch in enumerate(EPOCHS):
            for index, layer in enumerate(LEVELS):
                row: dict[str, Any] = {
                    "part": name,
                    "split": "train",
                    "epoch": epoch,
                    "layer": layer,
                }
                row |= {key: float(paths[key][index][at]) * off ** (at + 1) for key in PATHS}
                if layer == HEAD_INPUT:
                    row["accuracy"] = 0.1 if epoch == 0 else accuracy if ours else 1.0
                    falling = paths.get("duality", [[1.0, 0.5, 0.2]])[0]
                    row[DUALITIES[training.loss]] = falling[at] * off**at
                else:
                    row["block"] = index + 1
                found.append(row)
    return Results([*with_each(observed(found), nudged), *model_results()])


def _farther() -> list[list[float]]:
    """The orthogonal frame's distances under cross-entropy."""
    return [[1, 1, 1], [1, 0.9, 0.9], [1, 0.8, 0.7], [1, 0.6, 0.5]]


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
    return [claim.text for claim in EXPERIMENT.judge(SMALL, found) if not claim.held]


def test_all_claims_hold_where_a_network_does_as_the_paper_says() -> None:
    claims = EXPERIMENT.judge(SMALL, made())
    assert len(claims) == 2 * 7 + 2
    assert failing(made()) == []
    assert all(claim.source.startswith("XUFM, ") for claim in claims)


FAR = ([2, 2, 2], [2, 1.8, 1.8], [2, 1.5, 1.4], [2, 1.2, 1.2])
LEVEL = "at the end every level has a lower NC1 than the level before"
NEAREST = (
    "at the end the deepest features are nearer to their frame (nc2_etf) than the features of any "
    "block before the last"
)
HALVED = "training at least halves the distance of the deepest features to their frame"
ONLY = (
    "only the deepest features approach their frame: in every block before the last, training "
    "reduces the distance to the frame by less than half as many decades as in the deepest"
)
RATES = (
    "the fall of NC1 at the first level over the fall at the last, both in decades, is nearer "
    "to that of the ReLU model than to that of the linear model"
)
PAST = "past zero training error NC1 of the deepest features falls to less than a tenth"


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"nc1": ([9, 9, 2.9], [9, 4, 3], [9, 1, 0.02], [9, 0.3, 0.02])}, [LEVEL]),
        ({"nc1": ([9, 9, 9], [9, 4, 3], [9, 1, 0.02], [9, 0.15, 0.02])}, [PAST]),
        ({"nc2_etf": ([1, 1, 1], [0.16, 0.9, 0.1], *PATHS["nc2_etf"][2:])}, [NEAREST]),
        ({"nc2_etf": (*PATHS["nc2_etf"][:3], [1, 0.5, 0.52]), "nc2_of": FAR}, [HALVED]),
        ({"nc2_etf": ([1, 1, 1], [1, 0.9, 0.2], *PATHS["nc2_etf"][2:])}, [ONLY]),
        (
            {"duality": ([0.2, 0.5, 0.15],)},
            ["training at least halves the distance of the classifier from the class means"],
        ),
        ({"nc1": ([9, 4, 0.08], [9, 4, 0.05], [9, 1, 0.03], [9, 0.3, 0.02])}, [RATES]),
    ],
)
def test_one_network_turns_one_claim(changed: Paths, what: list[str]) -> None:
    assert failing(made(CE, changed)) == [f"{CE}: {text}" for text in what]


def test_an_untrained_network_holds_no_claim() -> None:
    start = {key: [[path[0]] * 3 for path in paths] for key, paths in PATHS.items()}
    found = made(CE, start | {"duality": [[1.0, 1.0, 1.0]]})
    own = [claim for claim in EXPERIMENT.judge(SMALL, found) if claim.text.startswith(CE)]
    assert len(own) == 7
    assert not any(claim.held for claim in own)


def test_collapse_past_zero_error_needs_zero_error() -> None:
    found = made(MSE, accuracy=0.99)
    assert failing(found) == [f"{MSE}: {PAST}"]


def test_the_map_of_the_last_block_is_not_a_level() -> None:
    first = EXPERIMENT.collect(SMALL, made()).named(FIRST)
    assert name_levels(first) == ["block 1", "block 2", "classifier's input"]


def test_the_frames_are_told_apart() -> None:
    nearer, simplex = (
        "digits: of the distance between the deepest class means and an orthogonal frame, training "
        "leaves a smaller share under MSE than under cross-entropy",
        "digits: under cross-entropy training leaves a smaller share of the distance between the "
        "deepest class means and a simplex than of their distance to an orthogonal frame",
    )
    assert failing(made(CE, {"nc2_of": PATHS["nc2_of"]})) == [nearer]
    assert failing(made(CE, {"nc2_of": [*_farther()[:3], [1, 0.3, 0.08]]})) == [nearer, simplex]


def test_models_that_are_alike_decide_nothing() -> None:
    alike = {"linear": 1.0, "relu": 1.0}
    networks = those(made(), lambda row: row.part in SMALL.runs)
    found = Results([*networks, *model_results(alike, alike)])
    claims = [claim for claim in EXPERIMENT.judge(SMALL, found) if not claim.held]
    assert [(claim.text.split(": ")[1], claim.verdict) for claim in claims] == [
        (RATES, "undecided")
    ] * 2


@pytest.mark.slow
def test_figures_have_a_row_a_loss_and_a_panel_a_metric() -> None:
    drawn = {d.name: d.figure for d in EXPERIMENT.draw(SMALL, made())}
    assert {n: len(f.axes) for n, f in drawn.items()} == {"fig-5": 8, "models": 8}
    zero_error = 1
    lines = [len(axes.get_lines()) - zero_error for axes in drawn["fig-5"].axes]
    assert lines == [4, 4, 4, 1] * 2


def test_the_paper_s_scale_is_the_paper_s() -> None:
    paper = EXPERIMENT.scales["paper"]
    assert len(EXPERIMENT.parts(paper)) == 4 * 3 + 2
    assert [(run.data, run.loss) for run in paper.runs.values()] == [
        (data, loss)
        for data in ("mnist", "cifar10")
        for loss in ("mse", "cross-entropy")
        for _ in range(3)
    ]
    assert [run.seed for run in paper.runs.values()] == [0, 1, 2] * 4
    for run in paper.runs.values():
        assert run.network in NAMES
        chosen = run.optimisation
        assert (chosen.learning_rate, chosen.weight_decay, chosen.decay) == (0.05, 5e-4, 0.1)
        assert [share * chosen.epochs for share in chosen.milestones] == [40, 80]
    blocks = match_layers(build("resnet18", 10), paper.blocks)
    assert blocks == ["layer1", "layer2", "layer3", "layer4"]


KEYS = (*PATHS, "nc3_alignment", "nc3_self_duality")


def permuted(results: Results, generator: torch.Generator) -> Results:
    """The results with each metric's values exchanged among epochs, levels and seeds of a loss."""
    rows = list(results)
    for network in {name.rsplit(",", 1)[0] for name in SMALL.runs}:
        for key in KEYS:
            own = [i for i, row in enumerate(rows) if network in row.part and key in row]
            order = torch.randperm(len(own), generator=generator).tolist()
            values = [rows[own[index]][key] for index in order]
            for index, value in zip(own, values, strict=True):
                rows[index] = rows[index].with_values({key: value})
    return Results(rows)


def untrained(results: Results, generator: torch.Generator) -> Results:
    """The results with each metric after training as at the start, but for a few per cent."""

    def changed(row: Observation) -> Observation:
        first = starts[row.part, row.layer]
        noise = {key: float(first[key]) * spread() for key in KEYS if key in row}
        return row.with_values(noise) if row.part in SMALL.runs else row

    def spread() -> float:
        return float(torch.exp(0.05 * torch.randn((), generator=generator)))

    starts: dict[tuple[str, str], Observation] = {}
    for row in results:
        starts.setdefault((row.part, row.layer), row)
    return Results(map(changed, results))


@pytest.mark.slow
@pytest.mark.parametrize("change", [permuted, untrained])
def test_claims_of_noise_seldom_hold(change) -> None:
    generator = torch.Generator().manual_seed(0)
    real = made()
    assert not_held(EXPERIMENT.judge(SMALL, real)) == []
    assert often_held(lambda _: EXPERIMENT.judge(SMALL, change(real, generator))) == {}
