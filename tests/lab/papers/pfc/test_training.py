"""The recipe of PFC figures 2 and 3: it runs, and every claim is seen held and seen not held."""

from collections.abc import Mapping, Sequence

import pytest

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.pfc.paths import SAMPLE, WHOLE
from ncscope.lab.papers.pfc.training import RECIPE, SEEDS, PFCTraining
from ncscope.lab.papers.trained import geodesic
from ncscope.lab.training.settings import Training
from ncscope.models.layers import match_layers
from ncscope.models.networks.catalogue import NAMES, build
from ncscope.probing.records import GeodesicRecord
from tests.lab.observed import measured, measurement, results_of, with_each

SMALL = RECIPE.scales["small"]
RUNS = ["digits", "patterns"]
"""The first seeds of the networks with decay."""
TESTED = SMALL.with_decay
LAYERS = ["stem", "blocks.0", "blocks.1", "blocks.2", "blocks.3"]
PATHS = {
    "pfc1": [4.0, 3.0, 2.0, 1.0, 0.9],
    "pfc2": [1.0, 0.8, 0.6, 0.5, 0.4],
    "pfc3": [0.3, 0.5, 0.8, 1.0, 1.0],
}
"""By metric, values of the layers at the last epoch."""
SHARES = {"pairing_efficiency": 1.0, "path_even": 0.9, "path_optimality": 0.5}


def brief() -> PFCTraining:
    """The first run of the small scale, cut to two epochs."""
    training = SMALL.runs[RUNS[0]]
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
    paths = [row for row in results if (row.split, row.epoch) == (SAMPLE, 2)]
    assert [row.layer for row in paths] == [*(f"blocks.{i}" for i in range(8)), WHOLE]
    assert 0 < at_end[-1]["straightness"] < 1


def test_the_small_scale_has_three_seeds_of_every_network_and_controls_without_decay() -> None:
    assert list(SMALL.networks) == ["digits", "patterns", "digits, no decay", "patterns, no decay"]
    for name, runs in SMALL.networks.items():
        assert tuple(SMALL.runs[run].seed for run in runs) == SEEDS
        decays = {SMALL.runs[run].optimisation.weight_decay for run in runs}
        assert (decays == {0.0}) == ("no decay" in name)
    assert [run for run in SMALL.runs if "no decay" not in run] == TESTED
    alike = {
        name: {"optimisation": SMALL.runs[name].optimisation.model_copy(update={"weight_decay": 0})}
        for name in RUNS
    }
    for name, update in alike.items():
        control = SMALL.runs[f"{name}, no decay"]
        assert SMALL.runs[name].model_copy(update=update) == control


def test_four_blocks_of_one_width_and_more_are_compared_at_the_small_scale() -> None:
    for name, count in (("digits", 8), ("patterns", 5)):
        run = SMALL.runs[name]
        assert run.layers is not None
        model = build(run.network, 10, in_channels=1, image_size=16)
        assert len(match_layers(model, run.layers)) == count + 1


def test_decay_acts_as_long_as_at_the_paper_s_scale() -> None:
    """The sum of rate x decay / (1 - momentum), which is 0.3 with the paper's decay of 5e-4."""

    def acted(run: Training, images: int) -> float:
        chosen = run.optimisation
        steps = chosen.epochs * (images // chosen.batch_size)
        first, second = chosen.milestones
        mean_rate = first + (second - first) / 10 + (1 - second) / 100
        rate = chosen.learning_rate * mean_rate
        return steps * rate * chosen.weight_decay / (1 - chosen.momentum)

    paper = RECIPE.scales["paper"].runs
    assert acted(SMALL.runs["digits"], 1437) == pytest.approx(2.3, abs=0.05)
    assert acted(SMALL.runs["patterns"], 2000) == pytest.approx(2.8, abs=0.05)
    assert acted(paper["cifar10"], 50_000) == pytest.approx(2.5, abs=0.05)
    assert acted(paper["mnist"], 60_000) == pytest.approx(1.5, abs=0.05)
    assert acted(paper["stl10"], 5_000) == pytest.approx(0.25, abs=0.05)


def made(
    run: str = "", changed: dict[str, list[float]] | None = None, accuracy: float = 1.0
) -> Results:
    """Measurements of all runs: at the start, at zero error, at the end; one run as changed."""
    found = []
    for part in SMALL.runs:
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
                    straightness=0.5 + epoch / 1000,
                )
            )
    return with_paths(measured(found))


def with_paths(results: Results) -> Results:
    """The measurements, and paths of a sample through the layers."""
    paths = [
        Observation(epoch, epoch, SAMPLE, layer, part, values)
        for part in SMALL.runs
        for epoch in (0, 10, 100)
        for layer, values in (
            ("blocks.0", {"energy_constant": 2.0, "energy_bound": 60.0}),
            ("blocks.3", {"energy_constant": 5.0, "energy_bound": 90.0}),
            (WHOLE, {**SHARES, "alignment_cosine": 0.8, "relative_cost": 0.7}),
        )
    ]
    return Results([*results, *paths], results.measurements)


def line_of(paths: Mapping[str, Sequence[float]]) -> GeodesicRecord:
    """The straight line, which goes through the first, the middle and the last layer's values."""
    curves = {key: [paths[key][index] for index in (0, 2, 4)] for key in PATHS}
    return GeodesicRecord(t=[0.0, 0.5, 1.0], **curves, alignment=1.0, transport_cost=1.0)


def failing(found: Results) -> list[str]:
    return [claim.text for claim in RECIPE.claims(SMALL, found) if not claim.held]


def test_all_claims_hold_where_every_layer_collapses_further() -> None:
    assert len(RECIPE.claims(SMALL, made())) == len(TESTED) * 7
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
    panels = {"fig-2": 6, "fig-3": 6, "order": 4, "paths": 12}
    assert {name: len(figure.axes) for name, figure in drawn.items()} == panels
    vertical = 1
    assert [len(axes.get_lines()) for axes in drawn["fig-2"].axes] == [len(LAYERS) + vertical] * 6
    assert [len(axes.get_lines()) for axes in drawn["fig-3"].axes] == [2] * 6


def test_paths_and_order_are_drawn_over_training() -> None:
    found = made("digits", {"pfc1": [4.0, 3.0, 3.5, 1.0, 0.9]})
    drawn = {d.name: d.figure for d in RECIPE.drawings(SMALL, found)}
    first, second, *_ = drawn["order"].axes
    # One of three seeds breaks the order at one step.
    assert list(first.get_lines()[0].get_ydata()) == pytest.approx([1 / 3] * 3)
    assert list(second.get_lines()[0].get_ydata()) == [0, 0, 0]
    shares, constants, premises = drawn["paths"].axes[:3]
    assert list(shares.get_lines()[0].get_ydata()) == pytest.approx([0.5, 0.51, 0.6])
    assert [line.get_ydata()[-1] for line in shares.get_lines()[1:]] == list(SHARES.values())
    assert [line.get_ydata()[-1] for line in constants.get_lines()] == [2, 60, 5, 90]
    assert premises.get_lines()[0].get_ydata()[-1] == 0.8


def test_tables_show_pfc2_of_the_last_layer_beside_pfc1_and_pfc3() -> None:
    collapse, paths = RECIPE.tables(SMALL, made())
    assert collapse.columns[2:4] == ["PFC2, zero error", "PFC2, end"]
    assert collapse.lines["digits"] == ["1.8", "0.9", "0.4", "0.4", "1", "1"]
    assert list(collapse.lines) == list(paths.lines)
    assert sorted(collapse.lines) == sorted(SMALL.runs)
    assert paths.lines["digits"] == ["0.5", "0.6", "1", "0.9", "0.5", "0.8", "nan", "0.7"]


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
