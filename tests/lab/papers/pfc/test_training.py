"""The recipe of PFC figures 2 and 3: it runs, and every claim is seen held and seen not held."""

from collections.abc import Mapping, Sequence

import pytest

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.pfc.training import RECIPE, PFCTraining
from ncscope.lab.papers.trained import geodesic
from ncscope.models.layers import match_layers
from ncscope.models.networks.catalogue import NAMES, build
from ncscope.probing.records import GeodesicRecord
from tests.lab.observed import measured, measurement, results_of, with_each

SMALL = RECIPE.scales["small"]
RUNS = ["digits", "patterns"]
LAYERS = ["stem", "blocks.0", "blocks.1", "blocks.2", "blocks.3"]
PATHS = {
    "pfc1": [4.0, 3.0, 2.0, 1.0, 0.9],
    "pfc2": [1.0, 0.8, 0.6, 0.5, 0.4],
    "pfc3": [0.3, 0.5, 0.8, 1.0, 1.0],
}
"""By metric, values of the layers at the last epoch."""


def brief() -> PFCTraining:
    """The first run of the small scale, cut to two epochs."""
    training = SMALL.runs["digits"]
    short = training.optimisation.model_copy(update={"epochs": 2})
    update = {"optimisation": short, "measurements": 2, "balanced": 300}
    return PFCTraining(runs={"digits": training.model_copy(update=update)})


@pytest.fixture(scope="module")
def results() -> Results:
    (part,) = RECIPE.parts(brief())
    return results_of(part)


def test_a_short_run_yields_what_claims_and_figures_need(results: Results) -> None:
    claims = RECIPE.claims(brief(), results)
    assert len(claims) == 1 + 3 + 3
    assert all(claim.evidence for claim in claims)
    at_end = [row for row in results if row.split == "train" and row.epoch == 2]
    assert [row.layer for row in at_end] == ["stem", *(f"blocks.{i}" for i in range(8))]
    assert [row["relative_position"] for row in at_end][:: len(at_end) - 1] == [0, 1]
    line = geodesic(results, "digits")
    assert line is not None
    assert [len(points) for points in (line.t, line.pfc1, line.pfc2, line.pfc3)] == [21] * 4


def made(
    run: str = "", changed: dict[str, list[float]] | None = None, accuracy: float = 1.0
) -> Results:
    """Measurements of both runs: at the start, at zero error, at the end; one run as changed."""
    found = []
    for part in RUNS:
        last = PATHS | (changed or {} if part == run else {})
        reached = accuracy if part == run else 1.0
        positions = tuple(index / 4 for index in range(len(LAYERS)))
        for epoch, factor in ((0, 3.0), (10, 2.0), (100, 1.0)):
            layers = {
                layer: {
                    "accuracy": 0.1 if epoch == 0 else reached,
                    "pfc1": factor * last["pfc1"][index],
                    "pfc2": last["pfc2"][index],
                    "pfc3": last["pfc3"][index],
                }
                for index, layer in enumerate(LAYERS)
            }
            found.append(
                measurement(
                    part,
                    epoch,
                    layers,
                    comparable=tuple(LAYERS),
                    relative_position=positions,
                    geodesic=line_of(last) if epoch == 100 else None,
                )
            )
    return measured(found)


def line_of(paths: Mapping[str, Sequence[float]]) -> GeodesicRecord:
    """The straight line, which goes through the first, the middle and the last layer's values."""
    curves = {key: [paths[key][index] for index in (0, 2, 4)] for key in PATHS}
    return GeodesicRecord(t=[0.0, 0.5, 1.0], **curves, alignment=1.0, transport_cost=1.0)


def failing(found: Results) -> list[str]:
    return [claim.text for claim in RECIPE.claims(SMALL, found) if not claim.held]


def test_all_claims_hold_where_every_layer_collapses_further() -> None:
    assert len(RECIPE.claims(SMALL, made())) == 2 * 7
    assert failing(made()) == []


@pytest.mark.parametrize(
    ("key", "path", "what"),
    [
        ("pfc1", [4.0, 3.0, 3.5, 1.0, 0.9], "PFC1 falls at every layer"),
        ("pfc2", [1.0, 0.8, 0.6, 0.7, 0.4], "PFC2 falls at every layer"),
        ("pfc3", [0.3, 0.5, 0.4, 1.0, 1.0], "PFC3 rises at every layer"),
    ],
)
def test_a_layer_out_of_order_turns_one_claim(key: str, path: list[float], what: str) -> None:
    assert failing(made("patterns", {key: path})) == [
        f"patterns: {what} before the effective depth"
    ]


def test_behind_the_effective_depth_the_order_is_free() -> None:
    assert failing(made("digits", {"pfc2": [1.0, 0.8, 0.6, 0.5, 0.55]})) == []


@pytest.mark.parametrize(("key", "verb"), [("pfc1", "falls"), ("pfc2", "falls"), ("pfc3", "rises")])
def test_a_point_of_the_line_out_of_order_turns_one_claim(key: str, verb: str) -> None:
    found = made()
    line = geodesic(found, "digits")
    assert line is not None
    getattr(line, key)[1] = 9.0 if verb == "falls" else 0.1
    assert failing(found) == [f"digits: {key.upper()} {verb} along the straight line"]


@pytest.mark.parametrize("accuracy", [0.99, 1.0])
def test_collapse_past_zero_error_needs_both(accuracy: float) -> None:
    claim = "digits: the last layer collapses while training goes past zero error"
    found = made("digits", accuracy=accuracy)
    if accuracy == 1:

        def risen(row: Observation) -> Observation:
            last = (row.part, row.epoch, row.layer) == ("digits", 100, LAYERS[-1])
            # PFC1 falls from the start, and rises from zero error on.
            return row.with_values({"pfc1": 2.5}) if last else row

        assert claim in failing(with_each(found, risen))
    else:
        assert failing(found) == [claim]


def test_figures_have_a_row_a_network_and_a_panel_a_metric() -> None:
    drawn = {d.name: d.figure for d in RECIPE.drawings(SMALL, made())}
    assert {name: len(figure.axes) for name, figure in drawn.items()} == {"fig-2": 6, "fig-3": 6}
    vertical = 1
    assert [len(axes.get_lines()) for axes in drawn["fig-2"].axes] == [len(LAYERS) + vertical] * 6
    assert [len(axes.get_lines()) for axes in drawn["fig-3"].axes] == [2] * 6


def test_the_paper_s_scale_is_the_paper_s() -> None:
    paper = RECIPE.scales["paper"]
    assert list(paper.runs) == ["mnist", "fashion-mnist", "cifar10", "stl10", "cifar100"]
    assert len(RECIPE.parts(paper)) == 5
    for name, run in paper.runs.items():
        assert (run.data, run.network) == (name, f"pfc-{name}")
        assert run.network in NAMES
        chosen = run.optimisation
        assert (chosen.epochs, chosen.batch_size, chosen.weight_decay) == (350, 128, 5e-4)
        assert [round(share * 350) for share in chosen.milestones] == [117, 233]
        assert chosen.learning_rate == (0.005 if name == "mnist" else 0.01)


@pytest.mark.parametrize(
    ("name", "count"),
    [("mnist", 11), ("fashion-mnist", 5), ("cifar10", 5), ("stl10", 6), ("cifar100", 5)],
)
def test_the_paper_s_layers_are_h0_and_the_last_stage_s_blocks(name: str, count: int) -> None:
    run = RECIPE.scales["paper"].runs[name]
    assert run.layers is not None
    model = build(run.network, 10, in_channels=1, image_size=28)
    assert len(match_layers(model, run.layers)) == count
