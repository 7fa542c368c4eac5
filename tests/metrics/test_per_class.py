"""Every column of the table of classes against the slow reference, and what leaves it as it is."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import ncscope
from ncscope.math import pairs
from ncscope.math.frames import simplex_etf
from ncscope.measurement.class_table import MOST_CLASSES
from ncscope.measurement.records import ClassTable

from ..reference.instances import INSTANCES, Instance, rotation
from ..reference.per_class import reference_per_class
from .degenerate import DEGENERATE

LENGTHS = ("mean_norm", "head_norm")
LABELS = ("classes", "samples", "nearest")


def table_of(instance: Instance, **options) -> ClassTable:
    arguments = instance.features, instance.labels, instance.weight, instance.bias
    table = ncscope.measure(*arguments, **(instance.options | options)).record.per_class
    assert table is not None
    return table


def reference_of(instance: Instance) -> dict[str, list[float]]:
    arguments = instance.features, instance.labels, instance.weight, instance.bias
    return reference_per_class(*arguments, **instance.options)


def assert_tables_agree(found: ClassTable, wanted, rel=1e-9, abs_tol=1e-13, but=()) -> None:
    known = {name: column for name, column in vars(found).items() if column is not None}
    assert set(known) == set(wanted)
    for name in LABELS:
        assert name in but or known[name] == wanted[name], name
    for name in set(known) - set(LABELS) - set(but):
        np.testing.assert_allclose(known[name], wanted[name], rel, abs_tol, err_msg=name)


@pytest.mark.parametrize("name", INSTANCES)
def test_equals_the_reference(name: str) -> None:
    instance = INSTANCES[name]()
    assert_tables_agree(table_of(instance), reference_of(instance))


# the reference does not take features that are all zero
@pytest.mark.parametrize("name", [name for name in DEGENERATE if name != "all_zero"])
def test_degenerate_features_equal_the_reference(name: str) -> None:
    instance = DEGENERATE[name]()
    uncertain = ("nearest",) if name == "one_sample_a_class" else ()  # all are equally near
    if name == "means_coincide_up_to_rounding":
        uncertain = tuple(set(reference_of(instance)) - {"classes", "samples", "within_share"})
    assert_tables_agree(table_of(instance), reference_of(instance), but=uncertain)


@pytest.mark.parametrize("name", INSTANCES)
def test_columns_add_up_to_the_metrics(name: str) -> None:
    instance = INSTANCES[name]()
    arguments = instance.features, instance.labels, instance.weight, instance.bias
    report = ncscope.measure(*arguments, **instance.options)
    table = report.record.per_class
    assert table is not None
    assert sum(table.samples) == report.num_samples
    assert sum(table.within_share) == pytest.approx(1, rel=1e-12)
    size = np.array(table.samples)
    prior = np.full(len(size), 1 / len(size)) if instance.prior == "uniform" else size / size.sum()
    assert prior @ table.nc1_quotient == pytest.approx(report["nc1_quotient"], rel=1e-12)
    for key in ("ncc_accuracy", "accuracy"):
        if key in report:
            hits = np.array(getattr(table, key)) * size
            assert np.array_equal(hits.round(9), hits.round())
            assert hits.round().sum() / size.sum() == report[key]


@pytest.mark.parametrize("name", ["balanced", "near_collapse", "two_classes", "absent_class"])
def test_rotation_shift_and_unit_leave_it_as_it_is(name: str) -> None:
    base = INSTANCES[name]()
    rng = np.random.default_rng(0)
    turn, shift = rotation(rng, base.features.shape[1]), rng.normal(size=base.features.shape[1])
    moved = base.features @ turn.T + shift
    weight = base.weight @ turn.T
    bias = (0 if base.bias is None else base.bias) - weight @ shift
    before = table_of(base)
    after = table_of(replace(base, features=moved, weight=weight, bias=bias))
    assert_tables_agree(after, vars(before), rel=1e-8, abs_tol=1e-12)
    larger = table_of(replace(base, features=3 * base.features, weight=base.weight / 3))
    wanted = vars(before) | {"mean_norm": [3 * v for v in before.mean_norm]}
    wanted |= {"head_norm": [v / 3 for v in before.head_norm]}
    assert_tables_agree(larger, wanted, rel=1e-8, abs_tol=1e-12)


@pytest.mark.parametrize("exponent", [-300, 200, 900])
def test_extreme_units_change_lengths_alone(exponent: int) -> None:
    base = INSTANCES["imbalanced"]()
    before = vars(table_of(replace(base, bias=None)))
    unit = 2.0**exponent
    scaled = replace(base, features=base.features * unit, weight=base.weight * unit, bias=None)
    lengths = {name: [unit * value for value in before[name]] for name in LENGTHS}
    assert_tables_agree(table_of(scaled), before | lengths, rel=1e-12)


def test_a_length_beyond_float64_is_nan() -> None:
    features = np.array([[-1.0], [-1.0], [1.0], [1.0]]) * 1.7e308
    table = table_of(Instance(features, np.array([0, 0, 1, 1])))
    assert table.mean_norm == pytest.approx([1.7e308] * 2)
    assert table.nearest_distance == pytest.approx([1, 1])


def test_a_large_offset_in_float32_leaves_the_digits_of_the_features() -> None:
    base = INSTANCES["balanced"]()
    features = (base.features + 1e6).astype(np.float32)
    instance = Instance(features.astype(np.float64), base.labels)
    assert_tables_agree(table_of(instance), reference_of(instance), rel=1e-7)


def test_at_collapse_every_class_is_as_far_as_the_others() -> None:
    etf = simplex_etf(4, dim=6).double().numpy()
    labels = np.arange(12) % 4
    table = table_of(Instance(etf[labels], labels, etf))
    assert table.nearest_distance == pytest.approx([1] * 4)
    assert table.nearest_cosine == pytest.approx([-1 / 3] * 4)
    assert table.head_cosine == pytest.approx([1] * 4)
    assert [*table.nearest_cdnv, *table.nc1_quotient] == pytest.approx([0] * 8, abs=1e-30)
    assert all(map(math.isnan, table.within_share))  # there is no variance to share


def test_coinciding_means_are_infinitely_overlapping_and_come_first() -> None:
    features = np.array([[0.0], [2.0], [-3.0], [5.0], [9.0], [9.5]])
    table = table_of(Instance(features, np.array([0, 0, 2, 2, 3, 3]), num_classes=4))
    assert (table.classes, table.nearest) == ([0, 2, 3], [2, 0, 0])
    assert table.nearest_cdnv[:2] == [math.inf] * 2
    assert table.nearest_distance[:2] == [0, 0]
    assert table.worst_first() == [0, 1, 2]


def test_means_that_differ_by_rounding_coincide() -> None:
    rows = 1e6 + np.random.default_rng(0).normal(size=(50, 3))
    features = np.vstack([rows, rows[::-1], rows + 9])
    table = table_of(Instance(features, np.arange(150) // 50))
    assert table.nearest_distance[:2] == [0, 0]
    assert table.nearest_cdnv[:2] == [math.inf] * 2


def test_collapsed_classes_that_coincide_come_first_too() -> None:
    features = np.array([[5.0], [9.0], [0.0], [0.0], [1.0], [1.0], [1.0], [1.0]])
    table = table_of(Instance(features, np.arange(8) // 2))
    assert all(map(math.isnan, table.nearest_cdnv[2:]))
    assert table.worst_first() == [2, 3, 0, 1]


def test_a_zero_head_row_and_a_mean_at_the_centre_have_no_cosine() -> None:
    features = np.array([[-1.0, 0], [-1.5, 0], [0, 0], [0, 0], [1.0, 0], [1.5, 0]])
    weight = np.array([[1.0, 0], [0, 1], [0, 0]])
    table = table_of(Instance(features, np.array([0, 0, 1, 1, 2, 2]), weight))
    assert table.head_cosine[0] == -1
    assert all(map(math.isnan, table.head_cosine[1:]))
    assert table.head_norm == [1, 1, 0]


def test_no_value_depends_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    base = INSTANCES["more_classes_than_dims"]()
    at_once = table_of(base)
    monkeypatch.setattr(pairs, "_BLOCK_BYTES", 8 * 7)
    assert_tables_agree(table_of(base), vars(at_once), rel=1e-12)


def test_many_classes_have_a_table_on_request_only() -> None:
    k = MOST_CLASSES + 1
    draws = torch.Generator().manual_seed(0)
    features, labels = torch.randn(2 * k, 4, generator=draws), torch.arange(2 * k) % k
    left_out = ncscope.measure(features, labels)
    assert left_out.per_class is None
    assert sum("table of classes is left out" in note for note in left_out.notes) == 1
    asked = ncscope.measure(features, labels, groups=["per_class"])
    assert asked.per_class is not None
    assert len(asked) == 0
    assert len(asked.per_class["class"]) == k
    assert ncscope.measure(features, labels, groups=["nc1"]).per_class is None


@pytest.mark.slow
def test_resampling_does_not_make_the_table_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(
        "ncscope.measurement.samples.make_class_table", lambda sources: made.append(0)
    )
    draws = torch.Generator().manual_seed(0)
    features, labels = torch.randn(60, 4, generator=draws), torch.arange(60) % 3
    ncscope.measure(features, labels, uncertainty=True, baseline=True)
    assert made == [0]
