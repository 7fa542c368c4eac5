"""Cells from the rows of a run, and what depends on the other networks of a target."""

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest
from lab.tests.experiments.transfer.made_cells import cell_of

from ncscope.transfer import NctiParts, ncti
from ncscope.transfer.baselines import make_accuracy_table
from ncscope.transfer.records import ALL_SCORES, BASELINES
from ncscope_lab.experiments.transfer.cells import (
    A_FEW,
    ALL,
    IMAGES,
    SOURCE,
    TUNED_ACCURACY,
    Cell,
    add_relative,
    average_others,
    collect_cells,
)
from ncscope_lab.experiments.transfer.design import TransferZoo
from ncscope_lab.experiments.transfer.judgement import ZOO_SCORES
from ncscope_lab.experiments.transfer.scores import NCTI
from ncscope_lab.observations import Observation

ZOO = TransferZoo(
    design_architectures=("small-conv",),
    held_out_architectures=("small-vgg",),
    networks=2,
    epochs=(3,),
    sources=("gratings",),
    design_targets=("transfer-clear",),
    report_targets=("digits",),
)
FACTS = {
    "pretraining_vci": 0.11,
    "pretraining_fuzziness": 0.12,
    "pretraining_nc1_quotient": 0.13,
    "pretraining_cosine_within": 0.14,
    "pretraining_cdnv": 0.15,
    "within_off_signal": 0.16,
    "source_accuracy": 0.7,
    "mir": 0.4,
    "parameters": 1000.0,
}


def source_rows(part: str) -> list[Observation]:
    """Return the rows of training: before, at the end, and the facts of the source."""
    metrics = {key.removeprefix("pretraining_"): value for key, value in FACTS.items()}
    metrics = {key: value for key, value in metrics.items() if key not in BASELINES}
    before = {key: value + 50 for key, value in metrics.items()}
    return [
        Observation(0, 0, "train", "head", part, {**before, "accuracy": 0.1, "nc4": 0.9}),
        Observation(0, 0, "test", "head", part, {**before, "accuracy": 0.2}),
        Observation(9, 3, "train", "head", part, {**metrics, "accuracy": 0.99, "nc4": 0.0}),
        Observation(9, 3, "test", "head", part, {**before, "accuracy": 0.7}),
        Observation(9, 3, SOURCE, "head", part, {"mir": 0.4, "parameters": 1000}),
    ]


def target_row(part: str, target: str, images: str, **values: float) -> Observation:
    return Observation(9, 3, target, "head", part, {IMAGES: images, **values})


def test_rows_become_cells_with_the_facts_of_their_source():
    rows = [
        *source_rows("small-conv 0"),
        target_row("small-conv 0", "digits", ALL, accuracy=0.8, log_me=2, tuned_accuracy=0.9),
        target_row("small-conv 0", "digits", A_FEW, accuracy=0.5, log_me=1),
        *source_rows("small-vgg 1"),
        target_row("small-vgg 1", "digits", ALL, accuracy=0.6, log_me=math.nan),
    ]
    whole, few, other = collect_cells(ZOO, rows, Path("runs"))
    assert (whole.network, whole.architecture, whole.source) == (
        "small-conv 0",
        "small-conv",
        "gratings",
    )
    assert (whole.target, whole.images, whole.folder) == ("digits", ALL, Path("runs/small-conv 0"))
    known = FACTS | {"accuracy": 0.8, "log_me": 2.0, TUNED_ACCURACY: 0.9}
    assert {key: whole.values[key] for key in known} == known
    assert set(whole.values) == {*known, "ncti", "other_sets"}
    assert all(isinstance(value, float) for value in whole.values.values())
    assert (few.images, few.value("accuracy"), few.value("mir")) == (A_FEW, 0.5, 0.4)
    assert math.isnan(few.value(TUNED_ACCURACY))
    assert (other.architecture, other.folder) == ("small-vgg", Path("runs/small-vgg 1"))
    assert math.isnan(other.value("log_me"))


def test_facts_are_those_of_the_end_of_training_alone():
    rows = [row for row in source_rows("small-conv 0") if row.epoch == 0]
    (cell,) = collect_cells(ZOO, [*rows, target_row("small-conv 0", "digits", ALL, accuracy=0.8)])
    assert set(cell.values) == {"accuracy", "ncti", "other_sets"}
    assert cell.folder is None


def test_each_network_has_its_facts_wherever_they_stand_in_the_rows():
    rows = [
        target_row("small-conv 1", "digits", ALL, accuracy=0.8),
        target_row("small-conv 0", "digits", ALL, accuracy=0.7),
        Observation(9, 3, SOURCE, "head", "small-conv 0", {"mir": 0.25, "parameters": 7}),
        Observation(9, 3, "test", "head", "small-conv 1", {"accuracy": 0.5}),
        Observation(9, 3, SOURCE, "head", "small-resnet 0", {"mir": 0.75, "parameters": 8}),
        target_row("small-resnet 0", "digits", ALL, accuracy=0.1),
    ]
    first, second = collect_cells(ZOO, rows)
    assert (first.network, first.value("source_accuracy")) == ("small-conv 1", 0.5)
    assert math.isnan(first.value("mir"))
    assert (second.network, second.value("mir"), second.value("parameters")) == (
        "small-conv 0",
        0.25,
        7.0,
    )


def results_of(accuracies: np.ndarray) -> list[Cell]:
    """Return a cell for each known accuracy of a table of networks x targets."""
    return [
        cell_of(f"a {row}", f"set {column}", {"accuracy": float(value)})
        for (row, column), value in np.ndenumerate(accuracies)
        if not math.isnan(value)
    ]


def table_with(kind: str) -> np.ndarray:
    accuracies = np.random.default_rng(0).random((7, 5))
    if kind != "whole":
        accuracies[[0, 1, 4], [1, 3, 0]] = math.nan
    if kind == "a set where all are equal":
        accuracies[2:6, 2], accuracies[[0, 1, 6], 2] = 0.1, math.nan
    if kind == "a set of one network":
        accuracies[1:, 2] = math.nan
    return accuracies


def slow_standing(results: Mapping[str, Mapping[str, float]], network: str, target: str) -> float:
    """Average the z-scores of a network on the other targets, one after the other."""
    found = []
    for name, by_network in results.items():
        values = list(by_network.values())
        if name != target and network in by_network and len({*values}) > 1:
            found.append((by_network[network] - fmean(values)) / pstdev(values))
    return fmean(found) if found else math.nan


@pytest.mark.parametrize(
    "kind", ["whole", "own sources left out", "a set where all are equal", "a set of one network"]
)
def test_the_mean_of_others_is_the_standing_in_a_table_of_results(kind):
    cells = results_of(table_with(kind))
    by_network: dict[str, dict[str, float]] = {}
    by_target: dict[str, dict[str, float]] = {}
    for cell in cells:
        by_network.setdefault(cell.network, {})[cell.target] = cell.value("accuracy")
        by_target.setdefault(cell.target, {})[cell.network] = cell.value("accuracy")
    table = make_accuracy_table(by_network)
    found = average_others(cells)
    assert set(found) == {(cell.network, cell.target) for cell in cells}
    for (network, target), value in found.items():
        assert value == pytest.approx(slow_standing(by_target, network, target))
        standing = table.standings(left_out=target)[table.models.index(network)]
        assert value == pytest.approx(standing)


def test_one_target_has_no_others():
    found = average_others(results_of(np.array([[0.1], [0.4], [0.3]])))
    assert len(found) == 3
    assert all(map(math.isnan, found.values()))


def with_parts(seed: int, images: str = ALL) -> list[Cell]:
    draws = np.random.default_rng(seed)
    keys = ["accuracy", *(NCTI + field for field in NctiParts._fields)]
    return [
        cell_of(f"a {number}", target, dict(zip(keys, draws.random(4), strict=True)), images=images)
        for target in ("first", "second")
        for number in range(4)
    ]


def parts_of(cell: Cell) -> NctiParts:
    return NctiParts(*(cell.value(NCTI + field) for field in NctiParts._fields))


def test_ncti_is_that_of_the_networks_on_the_same_target_with_as_many_images():
    cells = [*with_parts(0), *with_parts(1, A_FEW)]
    found = add_relative(cells)
    assert [(c.network, c.target, c.images) for c in found] == [
        (c.network, c.target, c.images) for c in cells
    ]
    for images in (ALL, A_FEW):
        for target in ("first", "second"):
            group = [c for c in found if (c.images, c.target) == (images, target)]
            assert [c.value("ncti") for c in group] == ncti([parts_of(c) for c in group])


def test_a_network_without_parts_takes_ncti_from_no_other():
    cells = with_parts(2)
    dead = {NCTI + field: math.nan for field in NctiParts._fields}
    lost = [cell.with_values(dead) if cell.network == "a 1" else cell for cell in cells]
    found = [cell for cell in add_relative(lost) if cell.target == "first"]
    known = ncti([parts_of(cell) for cell in found if cell.network != "a 1"])
    assert [cell.value("ncti") for cell in found if cell.network != "a 1"] == known
    assert math.isnan(found[1].value("ncti"))


def test_what_is_relative_follows_the_networks():
    cells = [*with_parts(3), *with_parts(4, A_FEW)]
    once = add_relative(cells)
    assert add_relative(once) == once
    halves = [add_relative(cells[start::2]) for start in (0, 1)]
    joined = {(c.network, c.target, c.images): c for half in halves for c in half}
    together = add_relative([joined[c.network, c.target, c.images] for c in cells])
    assert together == once
    assert halves[0] != once[0::2]


def test_all_scores_of_the_package_are_judged():
    assert set(ZOO_SCORES) == {*ALL_SCORES, "mir"}
    assert list(ZOO_SCORES)[-len(BASELINES) :] == list(BASELINES)
