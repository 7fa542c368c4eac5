"""The front door: what is measured of which input, and what the notes say."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ncscope
from ncscope.errors import InputError
from ncscope.measurement import samples
from ncscope.metrics.evaluate import select
from ncscope.metrics.registry import GROUPS, METRICS

from ..closeness import assert_agree
from ..metrics.collapse import collapse_of
from ..pace import others_slow
from ..reference.collapse import reference_metrics
from ..reference.instances import INSTANCES, Instance, clusters

HEADED = [k for row in METRICS.values() if "head" in row.needs for k in (row.key, *row.aliases)]
NC4 = {"nc4_disagreement", "ncc_accuracy", "pfc3", "accuracy"}


def measured(instance: Instance, **options) -> ncscope.Report:
    return ncscope.measure(
        instance.features,
        instance.labels,
        instance.weight,
        instance.bias,
        **(instance.options | options),
    )


def keys_of(*groups: str) -> set[str]:
    rows = [row for row in select(None) if {row.group, *row.also} & set(groups)]
    return {name for row in rows for name in (row.key, *row.aliases)}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_selects_its_keys_and_no_more(group: str) -> None:
    instance = INSTANCES["balanced"]()
    options = {"ood": instance.features[::2]} if group == "ood" else {}
    everything, report = (
        measured(instance, **options),
        measured(instance, groups=[group], **options),
    )
    assert set(report) == keys_of(group)
    assert_agree(report, {key: everything[key] for key in report}, rel=1e-12)
    assert bool(report.spectra) == (group == "spectra")
    assert dict(measured(instance, groups=group, **options)) == dict(report)


SPEC_GROUPS = {
    "nc1": {
        *("nc1", "fuzziness", "nc1_quotient", "pfc1", "vci", "linear_probe_mse", "cdnv"),
        *("cosine_within", "class_separation", "within_in_signal", "within_off_signal"),
    },
    "nc2": {
        *(
            f"nc2_{what}_{of}"
            for what in ("equinorm", "equiangular", "maxangle")
            for of in ("means", "weights")
        ),
        *("nc2_etf", "pfc2", "nc2_of", "nc2_lognorm_std_means", "nc2_lognorm_std_weights"),
        *(f"gnc2_{what}" for what in ("log", "log_std", "riesz", "riesz_cv")),
        *("gnc2_distance", "gnc2_distance_cv", "seli_means", "seli_weights"),
        *("minority_cosine_means", "minority_cosine_weights"),
    },
    "nc3": {
        *("nc3_self_duality", "nc3_alignment", "nc3_etf", "seli_logits"),
        *("nc0", "nc0_norm", "unc3", "unc3_mean"),
    },
    "nc4": NC4,
    "pfc": {"nc1_quotient", "pfc1", "nc2_etf", "pfc2", "ncc_accuracy", "pfc3"},
    "mse": {"mse_loss", "mse_nc1", "mse_nc23", "mse_off_path"},
    "spectra": {
        "rankme",
        "effective_rank_features",
        "participation_ratio",
        "alpha_req",
        "alpha_req_r2",
    },
}


@pytest.mark.parametrize("group", SPEC_GROUPS)
def test_groups_are_those_of_the_contract(group: str) -> None:
    assert set(measured(INSTANCES["balanced"](), groups=[group])) == SPEC_GROUPS[group]


def test_groups_together_select_their_union() -> None:
    report = measured(INSTANCES["balanced"](), groups=("nc3", "pfc", "spectra"))
    assert set(report) == keys_of("nc3", "pfc", "spectra")
    assert set(report.spectra) == {"between", "within", "total", "snr_singular_values"}


def test_a_prefixed_key_is_one_metric_and_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = INSTANCES["balanced"]()
    everything = measured(instance)
    for name in ("discriminants.canonical", "variability.sum_over_pairs"):
        monkeypatch.delattr(f"ncscope.metrics.{name}")
    report = measured(instance, groups=["key:nc1"])
    assert dict(report) == {"nc1": everything["nc1"]}
    assert report.statistics.unit_means is None
    assert not report.spectra
    assert [note.partition(":")[0] for note in report.notes] == ["between-class scatter"]


@pytest.mark.parametrize("key", ["nc1_quotient", "pfc1", "accuracy"])
def test_the_prefix_changes_nothing_where_no_group_has_the_name(key: str) -> None:
    instance = INSTANCES["balanced"]()
    assert dict(measured(instance, groups=[f"key:{key}"])) == dict(measured(instance, groups=[key]))


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("key:nc1_quotent", "'key:nc1_quotent' pass key:nc1_quotient$"),
        ("key:spectra", "'key:spectra' pass spectra"),
        ("fuzzines", "'fuzzines' pass fuzziness$"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(name: str, fix: str) -> None:
    with pytest.raises(InputError, match=fix):
        measured(INSTANCES["balanced"](), groups=[name])


@pytest.mark.parametrize("name", ["key:nc5", "nc5", "key:msp_auroc", "ood"])
def test_a_key_of_ood_samples_is_refused_without_them(name: str) -> None:
    with pytest.raises(InputError, match="OOD samples for"):
        measured(INSTANCES["balanced"](), groups=[name])


def test_decisions_that_take_minutes_are_left_out_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samples, "_MOST", 0)
    few = measured(INSTANCES["balanced"](), uncertainty=True, baseline=True)
    assert set(few) >= NC4  # with few classes the scatter takes as long
    features = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    arguments = (features, torch.arange(60) % 10, torch.randn(10, 2), torch.zeros(10))
    report = ncscope.measure(*arguments, baseline=True)
    assert not NC4 & {*report, *report.baseline}
    assert any("ask for the group 'nc4'" in note for note in report.notes)
    assert set(ncscope.measure(*arguments, groups=["nc4"])) == NC4


def test_all_groups_are_the_default() -> None:
    instance = INSTANCES["balanced"]()
    ood = instance.features[::2]
    assert dict(measured(instance, groups=GROUPS, ood=ood)) == dict(measured(instance, ood=ood))


def test_without_a_head_its_metrics_are_absent() -> None:
    instance = INSTANCES["balanced"]()
    report = measured(replace(instance, weight=None, bias=None), ood=instance.features[::2])
    assert set(report) == keys_of(*GROUPS) - set(HEADED)


def test_pfc_of_wide_features_forms_no_square_matrix() -> None:
    features = torch.randn(6, 20_000)  # 20,000 squared are 3.2 GB
    report = ncscope.measure(features, [0, 1, 2] * 2, groups=["pfc"])
    assert report.statistics.within is None
    assert report["nc1_quotient"] > 0


def test_the_number_of_classes() -> None:
    features, labels = np.eye(4), [0, 1, 1, 2]
    assert ncscope.measure(features, labels).num_classes == 3
    assert ncscope.measure(features, labels, np.ones((5, 4))).num_classes == 5
    assert ncscope.measure(features, labels, num_classes=7).num_classes == 7
    assert ncscope.measure(features, labels, np.ones((5, 4)), num_classes=5).num_classes == 5


@pytest.mark.parametrize(
    ("labels", "k", "note"),
    [
        ([0, 2, 2, 3], 4, "class 1 without samples: measured over the 3 classes present"),
        ([1, 3, 3, 4], 6, "classes 0, 2, 5 without samples"),
        ([0, 1, 1, 19], 20, "classes 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 7 more without samples"),
    ],
)
@pytest.mark.parametrize("prior", ["empirical", "uniform"])
def test_classes_without_samples_are_named_and_left_out(labels, k: int, note: str, prior) -> None:
    features = np.random.default_rng(0).normal(size=(4, 3))
    report = ncscope.measure(features, labels, num_classes=k, prior=prior)
    assert note in " ".join(report.warnings)
    compact = np.unique(labels, return_inverse=True)[1]
    alone = ncscope.measure(features, compact, prior=prior)
    assert dict(report) == dict(alone)
    assert not any("without samples" in line for line in alone.warnings)


def test_ranks_and_cuts_are_noted() -> None:
    notes = " ".join(measured(INSTANCES["relu"]()).notes)
    assert "between-class scatter: 3 of 3 directions kept, eigenvalues above" in notes
    assert "total scatter: 9 of 12 directions kept, eigenvalues above" in notes
    assert not measured(INSTANCES["relu"](), groups=["nc2"]).notes


def random(n: int, d: int, k: int, seed: int = 0) -> Instance:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    return Instance(rng.normal(size=(n, d)), labels, rng.normal(size=(k, d)), rng.normal(size=k), k)


EDGES = {
    "two classes": lambda: random(20, 6, 2),
    "two classes in one dimension": lambda: random(20, 1, 2),
    "more classes than dimensions": lambda: random(60, 3, 20),
    "one sample in a class": lambda: clusters(9, [10, 1, 12, 7], 6),
    "one sample in each class": lambda: random(5, 9, 5),
    "one sample in each class, few dimensions": lambda: random(9, 2, 9),
    "two samples": lambda: random(2, 3, 2),
    "fewer samples than dimensions": lambda: random(12, 30, 3),
    "rank one": lambda: with_features(random(20, 5, 4), lambda x: x[:, :1] * np.ones((1, 5))),
    "repeated coordinates": lambda: with_features(random(20, 6, 4), lambda x: x[:, [0, 1, 2] * 2]),
    "dead coordinates": lambda: with_features(random(20, 6, 4), lambda x: x * [1, 0, 1, 0, 0, 1]),
    "coordinates of very different size": lambda: with_features(
        random(20, 3, 4), lambda x: x * [1e-8, 1, 1e8]
    ),
    "constant": lambda: with_features(random(20, 5, 4), lambda x: 0 * x + 0.1),
    "constant in one dimension": lambda: with_features(random(20, 1, 4), lambda x: 0 * x - 1 / 3),
    "constant and large": lambda: with_features(random(20, 5, 4), lambda x: 0 * x + 1e8 / 3),
    "all zero": lambda: with_features(random(20, 5, 4), lambda x: 0 * x),
    "collapsed": lambda: with_features(random(20, 5, 4), lambda x: x[np.arange(20) % 4]),
    "collapsed in one dimension": lambda: with_features(
        random(20, 1, 4), lambda x: x[np.arange(20) % 4]
    ),
    "two classes alike": lambda: with_features(
        random(20, 5, 4), lambda x: x[np.maximum(np.arange(20) % 4, 1)]
    ),
    "float32's smallest": lambda: with_features(
        random(20, 5, 4), lambda x: (1e-40 * x).astype(np.float32)
    ),
    "float32's largest": lambda: with_features(
        random(20, 5, 4), lambda x: (1e38 * np.tanh(x)).astype(np.float32)
    ),
    "float16's largest": lambda: with_features(
        random(20, 5, 4), lambda x: (65504 * np.sign(x)).astype(np.float16)
    ),
}


def with_features(instance: Instance, change) -> Instance:
    return replace(instance, features=change(instance.features))


VARIANTS = [  # bias, prior, weight decay
    (True, "empirical", 0.0),
    (False, "uniform", 0.0),
    (True, "uniform", 5e-4),
    (False, "empirical", 5e-4),
    (True, "empirical", 1e-30),
    (False, "uniform", 1e-30),
]


@pytest.mark.parametrize(
    ("with_bias", "prior", "decay"), others_slow(VARIANTS, VARIANTS[0], VARIANTS[2], VARIANTS[5])
)
def test_edges_are_defined_or_explained(with_bias: bool, prior: str, decay: float) -> None:
    keys = keys_of(*GROUPS)
    for edge, make in EDGES.items():
        instance = make()
        bias = instance.bias if with_bias else None
        edge_instance = replace(instance, bias=bias, prior=prior, weight_decay=decay)
        report = measured(edge_instance, ood=instance.features[::3])
        assert set(report) == keys, edge
        for key, value in report.items():
            if not math.isfinite(value):
                word = "undefined" if math.isnan(value) else "infinite"
                assert any(word in note and key in note for note in report.notes), (edge, key)
        for row in select(None):
            value = report[row.key]
            assert math.isnan(value) or row.low <= value <= row.high, (edge, row.key)
        assert not any(np.isnan(values).any() for values in report.spectra.values()), edge


@pytest.mark.parametrize(("d", "k"), [(1, 2), (1, 5), (3, 12), (6, 2)])
def test_small_dimensions_equal_the_reference(d: int, k: int) -> None:
    instance = random(40, d, k, seed=d)
    wanted = reference_metrics(
        instance.features, instance.labels, instance.weight, instance.bias, num_classes=k
    )
    assert_agree(collapse_of(measured(instance)), wanted)


def test_a_tiny_weight_decay_on_singular_features_is_none() -> None:
    """The decay is below the cut of every inverse, so it counts as zero."""
    base = random(20, 3, 4)
    for bias in (base.bias, None):
        instance = replace(
            base,
            features=np.hstack([base.features, base.features]) * 1e3,
            weight=np.hstack([base.weight, base.weight]) / 1e3,
            bias=bias,
        )
        with_decay, without = (
            measured(instance, groups=["mse"], weight_decay=decay) for decay in (1e-12, 0.0)
        )
        assert_agree(with_decay, dict(without), rel=1e-6)


def held_out(instance: Instance) -> tuple[Instance, Instance]:
    train = replace(instance, features=instance.features[::2], labels=instance.labels[::2])
    test = replace(instance, features=instance.features[1::2], labels=instance.labels[1::2])
    return train, test


@pytest.mark.parametrize("kind", ["report", "moments"])
def test_reference_changes_nc4_only(kind: str) -> None:
    train, test = held_out(clusters(3, [12] * 5, 4, spread=1.5))
    reference: ncscope.Report | ncscope.ClassMoments = measured(train)
    if kind == "moments":
        reference = ncscope.ClassMoments(5, 4)
        reference.update(torch.as_tensor(train.features), torch.as_tensor(train.labels))
    means = np.stack([train.features[train.labels == c].mean(0) for c in range(5)])
    wanted = reference_metrics(
        test.features, test.labels, test.weight, test.bias, reference_means=means
    )
    found, own = measured(test, reference=reference), measured(test)
    assert_agree(collapse_of(found), wanted)
    assert {key for key in own if found[key] != own[key]} == NC4 - {"accuracy"}
    assert not (NC4 - {"accuracy"}) & {key for key in own if found[key] == own[key]}


def test_reference_with_other_classes_present() -> None:
    """Classes that only the training set has can be nearest, too."""
    train, test = held_out(INSTANCES["balanced"]())
    few = test.labels < 3
    test = replace(test, features=test.features[few], labels=test.labels[few])
    means = np.stack([train.features[train.labels == c].mean(0) for c in range(5)])
    wanted = reference_metrics(
        test.features, test.labels, test.weight, test.bias, num_classes=5, reference_means=means
    )
    assert_agree(collapse_of(measured(test, reference=measured(train))), wanted)


def test_moments_report_what_was_gathered() -> None:
    instance = INSTANCES["balanced"]()
    features, labels = torch.as_tensor(instance.features), torch.as_tensor(instance.labels)
    for statistics in ((), ("scatter",), ("directions",)):
        moments = ncscope.ClassMoments(5, 8, statistics=statistics)
        moments.update(features, labels)
        report = ncscope.measure_moments(moments, instance.weight, instance.bias)
        met = {"head", "outputs", *statistics}
        rows = [row for row in select(None) if row.needs <= met]
        assert set(report) == {name for row in rows for name in (row.key, *row.aliases)}
        assert bool(report.spectra) == ("scatter" in statistics)
    only = ncscope.measure_moments(moments, groups=["pfc"])
    assert set(only) == {"nc1_quotient", "pfc1", "nc2_etf", "pfc2"}


def test_measuring_moments_leaves_them_to_go_on() -> None:
    moments = ncscope.ClassMoments(2, 2)
    moments.update(torch.eye(2), torch.arange(2))
    before = moments.state_dict()
    ncscope.measure_moments(moments)
    torch.testing.assert_close(moments.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("path", "fix"),
    [
        ("iris.csv", r"or run ncscope measure iris\.csv --label COLUMN"),
        (Path("far", "x.npz"), r"pass np\.load\('far/x\.npz'\)\['features'\]$"),
        ("x.npy", r"pass np\.load\('x\.npy'\)$"),
    ],
)
def test_a_path_is_answered_with_what_reads_it(path: str | Path, fix: str) -> None:
    with pytest.raises(InputError, match=fix):
        ncscope.measure(path, "species")
