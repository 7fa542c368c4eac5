"""Every row of the metric table, on every named instance, against the slow reference."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import ncscope
from ncscope.metrics.metric import metrics_of_module
from ncscope.metrics.registry import GROUPS, METRICS
from ncscope.metrics.sources import Sources
from ncscope.stats.decisions import Decider
from ncscope.stats.statistics import finish

from ..closeness import assert_agree, assert_arrays_agree, mismatches
from ..pace import others_slow
from ..reference.collapse import (
    reference_metrics,
    reference_mse,
    reference_on_request,
    reference_spectra,
)
from ..reference.instances import CLOSED_FORMS, CLOSED_SPECTRA, INSTANCES, Instance
from .collapse import ALIASES, COLLAPSE, ON_REQUEST, collapse_of
from .degenerate import DEGENERATE

each_instance = pytest.mark.parametrize("name", INSTANCES)
each_closed_form = pytest.mark.parametrize("name", CLOSED_FORMS)
# The reference takes 50 digits, and much longer than the metrics.
a_few_instances = pytest.mark.parametrize(
    "name",
    others_slow(
        INSTANCES, "imbalanced", "more_classes_than_dims", "near_collapse", "no_bias", "relu"
    ),
)
LOOKS = {key for key, row in COLLAPSE.items() if {"decisions", "hits"} & row.needs} | {"pfc3"}


def measured(instance: Instance, **options) -> ncscope.Report:
    return ncscope.measure(
        instance.features,
        instance.labels,
        instance.weight,
        instance.bias,
        **(instance.options | options),
    )


def expected(instance: Instance) -> dict[str, float]:
    return reference_metrics(
        instance.features, instance.labels, instance.weight, instance.bias, **instance.options
    )


def with_requested(instance: Instance) -> dict[str, float]:
    """All metrics, also those that are measured on request only."""
    return {**measured(instance), **measured(instance, groups=ON_REQUEST)}


@cache
def report_of(name: str) -> ncscope.Report:
    return measured(INSTANCES[name]())


@cache
def reference_of(name: str) -> dict[str, float]:
    return expected(INSTANCES[name]())


@each_instance
def test_equals_the_reference(name: str) -> None:
    wanted = {key: value for key, value in reference_of(name).items() if key in COLLAPSE}
    assert wanted.keys() == COLLAPSE.keys()
    assert not mismatches(report_of(name), wanted, rel=1e-9, abs_tol=1e-13)


@each_instance
def test_equals_the_reference_on_request(name: str) -> None:
    instance = INSTANCES[name]()
    options = {"num_classes": instance.num_classes, "prior": instance.prior}
    wanted = reference_on_request(instance.features, instance.labels, instance.weight, **options)
    assert set(wanted) == set(ON_REQUEST)
    assert_agree(measured(instance, groups=ON_REQUEST), wanted, rel=1e-9)


@each_instance
def test_reports_every_key_and_every_alias(name: str) -> None:
    report = report_of(name)
    assert set(collapse_of(report)) == set(reference_of(name)) == set(COLLAPSE) | set(ALIASES)
    default = {key for key, row in METRICS.items() if row.group != "ood" and not row.on_request}
    assert default <= set(report)
    assert not set(report) & set(ON_REQUEST)
    assert {alias: report[alias] for alias in ALIASES} == {a: report[k] for a, k in ALIASES.items()}


@each_instance
def test_keeps_to_the_range(name: str) -> None:
    assert_in_range(with_requested(INSTANCES[name]()))


@each_closed_form
def test_keeps_to_the_range_at_collapse(name: str) -> None:
    assert_in_range(with_requested(CLOSED_FORMS[name][0]()))


def assert_in_range(report: Mapping[str, float]) -> None:
    """Where it is defined: see the test after this one."""
    rows = [METRICS[k] for k, value in report.items() if k in METRICS and not np.isnan(value)]
    outside = {r.key: report[r.key] for r in rows if not r.low <= report[r.key] <= r.high}
    assert outside == {}


@pytest.mark.parametrize("name", [*INSTANCES, *DEGENERATE])
def test_nan_where_a_note_says_so(name: str) -> None:
    report = measured({**INSTANCES, **DEGENERATE}[name]())
    undefined = {key for key, value in report.items() if np.isnan(value)}
    endless = {note.split(" is infinite: ")[0] for note in report.notes if "is infinite" in note}
    assert endless == {key for key, value in report.items() if value == np.inf}
    explained = [note.split(" is undefined: ") for note in report.notes if "is undefined" in note]
    named = {key for note in explained for key in note[0].replace(",", " ").split()}
    assert undefined == named & set(report)
    assert all(reason.strip() for _, reason in explained)


@pytest.mark.parametrize("name", DEGENERATE)
def test_equal_reports_are_equal_dictionaries_where_values_are_undefined(name: str) -> None:
    first, second = (dict(measured(DEGENERATE[name]())) for _ in range(2))
    assert first == second  # as an object NaN equals itself only


@pytest.mark.parametrize("name", DEGENERATE)
def test_keeps_to_the_range_of_degenerate_features(name: str) -> None:
    assert_in_range(with_requested(DEGENERATE[name]()))


# the reference does not take features that are all zero
@pytest.mark.parametrize("name", [name for name in DEGENERATE if name != "all_zero"])
def test_degenerate_features_equal_the_reference_where_defined(name: str) -> None:
    instance = DEGENERATE[name]()
    report, wanted = measured(instance), expected(instance)
    # where class means coincide, the nearest is a matter of rounding
    uncertain = LOOKS if name == "means_coincide_up_to_rounding" else set()
    defined = {k: v for k, v in wanted.items() if k not in uncertain and not np.isnan(report[k])}
    assert not mismatches(report, defined, rel=1e-9, abs_tol=1e-13)
    unexplained = [k for k in wanted if np.isnan(report[k]) and np.isfinite(wanted[k])]
    assert set(unexplained) <= {"cosine_within", "class_separation", "vci"}  # 0 / 0


@each_closed_form
def test_closed_forms(name: str) -> None:
    build, wanted = CLOSED_FORMS[name]
    report = with_requested(build())
    assert_agree({key: report[key] for key in wanted}, wanted, rel=1e-13, abs_tol=1e-15)


@each_instance
def test_spectra_equal_the_reference(name: str) -> None:
    instance = INSTANCES[name]()
    wanted = reference_spectra(
        instance.features, instance.labels, num_classes=instance.num_classes, prior=instance.prior
    )
    assert_spectra_agree(report_of(name), wanted, len(np.unique(instance.labels)))


@pytest.mark.parametrize("name", CLOSED_SPECTRA)
def test_closed_spectra(name: str) -> None:
    instance = CLOSED_FORMS[name][0]()
    wanted = {key: np.array(values) for key, values in CLOSED_SPECTRA[name].items()}
    assert_spectra_agree(measured(instance), wanted, len(np.unique(instance.labels)), rel=1e-14)


def assert_spectra_agree(
    report: ncscope.Report, wanted: dict[str, np.ndarray], k: int, rel: float = 1e-11
) -> None:
    """Of the between-class scatter and the SNR only what can differ from zero is reported."""
    rank = min(report.dim, k - 1)
    for name, values in wanted.items():
        short = name in ("between", "snr_singular_values")
        kept, rest = np.split(values, [rank if short else report.dim])
        assert_arrays_agree(report.spectra[name], kept, rel=rel)
        assert (np.abs(rest) <= 1e-15 * values[0]).all()
        assert (report.spectra[name][1:] <= report.spectra[name][:-1]).all()


@each_instance
def test_the_parts_sum_to_the_loss(name: str) -> None:
    for bias, decay in product((INSTANCES[name]().bias, None), (0.0, 1e-8, 5e-3, 10.0)):
        report = measured(replace(INSTANCES[name](), bias=bias), weight_decay=decay, groups=["mse"])
        parts = report["mse_nc1"] + report["mse_nc23"] + report["mse_off_path"]
        assert parts == pytest.approx(report["mse_loss"], rel=1e-10, abs=0)


@pytest.mark.parametrize("decay", others_slow([1e-8, 1e-4, 1.0, 1e6], 1e-4, 1e6))
@pytest.mark.parametrize("name", ["balanced", "no_bias", "near_collapse", "relu", "uniform_prior"])
def test_decomposition_with_weight_decay(name: str, decay: float) -> None:
    instance = replace(INSTANCES[name](), weight_decay=decay)
    report = measured(instance, groups=["mse"])
    wanted = reference_mse(
        instance.features, instance.labels, instance.weight, instance.bias, **instance.options
    )
    assert_agree(dict(report), {key: wanted[key] for key in report})


# A zero of features of size 1e4 is known to 1e4 times less.
OFFSET_FLOOR = 1e-12


def shifted(instance: Instance, offset: float) -> Instance:
    """Features moved by an offset on every coordinate, which the bias takes up."""
    bias = None if instance.bias is None else instance.bias - instance.weight.sum(1) * offset
    return replace(instance, features=instance.features + offset, bias=bias)


@a_few_instances
def test_float32_features_with_a_large_mean(name: str) -> None:
    """Only the rounding of the input is lost: the reference reads the same rounded numbers."""
    base = shifted(INSTANCES[name](), 1e4)
    rounded = base.features.astype(np.float32)
    wanted = expected(replace(base, features=rounded.astype(np.float64)))
    report = measured(replace(base, features=rounded))
    assert_agree(collapse_of(report), wanted, abs_tol=OFFSET_FLOOR)
    for key in ("accuracy", "ncc_accuracy", "nc4_disagreement"):
        assert report[key] == wanted[key]


@a_few_instances
def test_an_offset_costs_no_digits(name: str) -> None:
    instance = shifted(INSTANCES[name](), 1e4)
    assert_agree(collapse_of(measured(instance)), expected(instance), abs_tol=OFFSET_FLOOR)


@pytest.mark.parametrize(
    ("spread", "offset"),
    others_slow([(1e-4, 1.0), (1e-4, 100.0), (1e-6, 1.0), (1e-6, 100.0)], (1e-6, 100.0)),
)
def test_near_collapse_with_an_offset_keeps_nine_digits(offset: float, spread: float) -> None:
    base = INSTANCES["near_collapse"]()
    means = np.stack([base.features[base.labels == c].mean(0) for c in range(5)])[base.labels]
    features = means + (base.features - means) * spread / 1e-4
    instance = shifted(replace(base, features=features), offset)
    assert_agree(collapse_of(measured(instance)), expected(instance), abs_tol=OFFSET_FLOOR)


@pytest.mark.parametrize("distance", others_slow([1e-3, 1e-6, 1e-9], 1e-9))
def test_cdnv_of_means_that_nearly_coincide_keeps_its_digits(distance: float) -> None:
    base = INSTANCES["balanced"]()
    features = base.features.copy()
    move = features[base.labels == 0].mean(0) - features[base.labels == 1].mean(0)
    features[base.labels == 1] += move + distance
    instance = replace(base, features=features)
    wanted = expected(instance)["cdnv"]
    # the distance itself is known to a rounding of the means
    rel = max(1e-9, 1e-14 / distance)
    assert measured(instance)["cdnv"] == pytest.approx(wanted, rel=rel, abs=0)


FLOATS = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("name", ["imbalanced", "more_classes_than_dims"])
def test_every_type_of_the_same_numbers_is_the_same(name: str, dtype: torch.dtype) -> None:
    instance = INSTANCES[name]()
    scale = 1 if dtype.is_floating_point else 20
    features = (torch.as_tensor(instance.features) * scale).abs().to(dtype)
    narrow = measured(replace(instance, features=features))
    wide = measured(replace(instance, features=features.double()))
    assert dict(narrow) == dict(wide)


def embedded(features: np.ndarray, folder: Path) -> np.ndarray:
    n, d = features.shape
    padded = np.zeros((2 * n, d + 3))
    padded[::2, 1 : d + 1] = features
    return padded[::2, 1 : d + 1]


def mapped(features: np.ndarray, folder: Path) -> np.ndarray:
    np.save(folder / "features.npy", features)
    return np.load(folder / "features.npy", mmap_mode="r")


def frozen(features: np.ndarray, folder: Path) -> np.ndarray:
    copied = features.copy()
    copied.flags.writeable = False
    return copied


LAYOUTS = {
    "slice": embedded,
    "Fortran order": lambda features, _: np.asfortranarray(features),
    "negative stride": lambda features, _: features[::-1].copy()[::-1],
    "memory-mapped": mapped,
    "read-only": frozen,
    "nested lists": lambda features, _: features.tolist(),
    "big-endian": lambda features, _: features.astype(">f8"),
    "transposed tensor": lambda features, _: torch.as_tensor(features.T.copy()).T,
    "tensor with gradient": lambda features, _: torch.tensor(features, requires_grad=True),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_the_same_numbers_is_the_same(layout: str, tmp_path: Path) -> None:
    instance = INSTANCES["imbalanced"]()
    before = instance.features.copy()
    features = LAYOUTS[layout](instance.features, tmp_path)
    # another layout may sum in another order
    assert_agree(measured(replace(instance, features=features)), report_of("imbalanced"), rel=1e-12)
    np.testing.assert_array_equal(instance.features, before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_a_head_is_the_same(layout: str, tmp_path: Path) -> None:
    instance = INSTANCES["imbalanced"]()
    weight = LAYOUTS[layout](instance.weight, tmp_path)
    assert_agree(measured(replace(instance, weight=weight)), report_of("imbalanced"), rel=1e-12)


@each_instance
def test_moments_give_what_features_give(name: str) -> None:
    instance = INSTANCES[name]()
    wanted = reference_of(name)
    found = ncscope.measure_moments(
        moments_of(instance, batches=3),
        instance.weight,
        instance.bias,
        weight_decay=instance.weight_decay,
    )
    assert_agree(collapse_of(found), {k: wanted[k] for k in wanted if k not in LOOKS})
    for key, values in report_of(name).spectra.items():
        assert_arrays_agree(found.spectra[key], values, rel=1e-11)


def moments_of(instance: Instance, batches: int = 1, **options) -> ncscope.ClassMoments:
    features, labels = torch.as_tensor(instance.features), torch.as_tensor(instance.labels)
    k = instance.num_classes or int(labels.max()) + 1
    counts = torch.bincount(labels, minlength=k)
    moments = ncscope.ClassMoments(
        k, features.shape[1], prior=instance.prior, class_counts=counts, **options
    )
    for rows, y in zip(features.chunk(batches), labels.chunk(batches), strict=True):
        moments.update(rows, y)
    return moments


@pytest.mark.parametrize("key", [*COLLAPSE, *ON_REQUEST])
def test_needs_no_more_than_it_names(key: str) -> None:
    instance, row = INSTANCES["imbalanced"](), METRICS[key]
    gather = row.needs & {"scatter", "directions"}
    stats = finish(moments_of(instance, statistics=gather))
    weight, bias = torch.as_tensor(instance.weight), torch.as_tensor(instance.bias)
    head = (weight, bias) if "head" in row.needs else (None, None)
    decide = Decider(stats.classes, stats.means, *head)
    features, labels = torch.as_tensor(instance.features), torch.as_tensor(instance.labels)
    decisions = decide(features, labels).read()
    sources = Sources(
        stats,
        *head,
        decisions=decisions if "decisions" in row.needs else None,
        hits=decisions.hits if "hits" in row.needs else None,
        one_logit="outputs" not in row.needs,
    )
    assert sources.available == row.needs
    wanted = measured(instance, groups=[f"key:{key}"])[key]
    assert float(row.compute(sources)) == pytest.approx(wanted, rel=1e-12, abs=0)


def test_the_table_is_consistent() -> None:
    aliases = [alias for row in METRICS.values() for alias in row.aliases]
    assert len({*METRICS, *aliases}) == len(METRICS) + len(aliases)
    modules = {row.function.__module__ for row in METRICS.values()}
    assert sum(len(metrics_of_module(name)) for name in modules) == len(METRICS)  # no key twice
    for key, row in METRICS.items():
        assert row.key == key
        assert {row.group, *row.also} <= set(GROUPS)
        assert row.better in ("low", "high")
        assert row.low < row.high
        assert row.title
        assert row.formula
        assert row.zero or row.low > 0
