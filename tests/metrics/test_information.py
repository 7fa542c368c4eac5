"""MIR and HDR: brute force over n x n matrices, closed forms at collapse, degenerate cases."""

import math
from dataclasses import astuple

import numpy as np
import pytest
import torch

import ncscope
from ncscope.math.entropy import EntropyEstimate, estimate_entropy
from ncscope.math.frames import orthogonal_frame, simplex_etf
from ncscope.metrics import information
from ncscope.metrics.batch_information import BatchInformation, batch_entropies, batch_estimate
from ncscope.metrics.information import (
    Entropies,
    collapse_mir,
    dataset_entropies,
    means_entropies,
    pair_entropies,
    reads_often,
    takes_long,
)


def brute_entropy(gram):
    values = np.linalg.eigvalsh(gram / len(gram))
    values = values[values > 0]
    return -(values * np.log(values)).sum()


def brute(first, second):
    """H(K1), H(K2), H(K1 o K2) of n x n Gram matrices, in plain NumPy."""
    a = first / np.linalg.norm(first, axis=1, keepdims=True)
    b = second / np.linalg.norm(second, axis=1, keepdims=True)
    one, two = a @ a.T, b @ b.T
    return brute_entropy(one), brute_entropy(two), brute_entropy(one * two)


def ratios(h1, h2, joint):
    return (h1 + h2 - joint) / min(h1, h2), abs(h1 - h2) / max(h1, h2)


def gaussian(n, d, k, spread, seed, imbalanced=False):
    rng = np.random.default_rng(seed)
    share = rng.random(n) ** 2 if imbalanced else rng.random(n)
    labels = np.minimum((k * share).astype(int), k - 1)
    labels[:k] = np.arange(k)
    means = rng.normal(size=(k, d)) + 0.5
    return means[labels] + spread * rng.normal(size=(n, d)), labels, means + rng.normal(size=(k, d))


CASES = {
    "balanced": gaussian(600, 12, 4, 1.0, 0),
    "imbalanced": gaussian(400, 10, 5, 1.0, 1, imbalanced=True),
    "more classes than dims": gaussian(400, 5, 12, 0.5, 2),
    "fewer samples than the joint side": gaussian(120, 20, 9, 0.5, 3),
    "near collapse": gaussian(400, 16, 5, 1e-4, 4, imbalanced=True),
}


@pytest.mark.parametrize("name", CASES)
def test_dataset_values_equal_brute_force(name):
    features, labels, weight = CASES[name]
    report = ncscope.measure(features, labels, weight, groups=["information"])
    raw = brute(features, weight[labels])
    centred = brute(features - features.mean(0), weight[labels])
    found = [report[key] for key in ("mir", "hdr", "mir_centered", "hdr_centered")]
    np.testing.assert_allclose(found, [*ratios(*raw), *ratios(*centred)], rtol=1e-9, atol=1e-11)
    parts = [report[k] for k in ("entropy_features", "entropy_weights", "mutual_information")]
    expected = [raw[0], raw[1], raw[0] + raw[1] - raw[2]]
    np.testing.assert_allclose(parts, expected, rtol=1e-9)
    assert report["effective_rank"] == pytest.approx(math.exp(raw[0]), rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_class_means_equal_brute_force(name):
    features, labels, weight = CASES[name]
    means = np.stack([features[labels == c].mean(0) for c in range(len(weight))])
    expected = ratios(*brute(means - means.mean(0), weight))
    report = ncscope.measure(features, labels, weight, groups=["information"])
    found = [report["mir_means"], report["hdr_means"]]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("classes", [3, 10, 100, pytest.param(1000, marks=pytest.mark.slow)])
def test_collapse_to_a_simplex_takes_the_closed_form(classes):
    etf = simplex_etf(classes)
    found = means_entropies(etf, etf)
    assert found.mir == pytest.approx(collapse_mir(classes), rel=1e-9)
    assert found.hdr == pytest.approx(0, abs=1e-12)
    labels = torch.arange(classes).repeat(2 if classes == 1000 else 5)
    whole = dataset_entropies([(etf[labels], labels)], torch.bincount(labels), etf)
    assert whole.mir == pytest.approx(collapse_mir(classes), rel=1e-9)
    assert whole.hdr == pytest.approx(0, abs=1e-9)


def test_only_centred_features_take_the_collapse_value_when_the_mean_is_not_zero():
    etf = simplex_etf(5, dim=6)
    labels = torch.arange(5).repeat(10)
    report = ncscope.measure((etf + 1.0)[labels], labels, etf, groups=["information"])
    assert report["mir_centered"] == pytest.approx(collapse_mir(5), rel=1e-9)
    assert abs(report["mir"] - collapse_mir(5)) > 0.01


def test_collapse_values_are_those_of_the_paper_and_no_bound():
    assert collapse_mir(10) == pytest.approx(0.952351, abs=5e-7)
    assert collapse_mir(100) == pytest.approx(0.997813, abs=5e-7)
    assert collapse_mir(3) == pytest.approx(0.5)
    frame = orthogonal_frame(6)
    assert means_entropies(frame, frame).mir == pytest.approx(1.0)


def test_two_collapsed_classes_are_nan_with_a_note():
    etf = simplex_etf(2, dim=3)
    labels = torch.arange(2).repeat(20)
    report = ncscope.measure(etf[labels], labels, etf, groups=["information"])
    assert math.isnan(report["mir"])
    assert math.isnan(report["mir_means"])
    assert math.isnan(collapse_mir(2))
    assert any(note.startswith("mir is undefined: an entropy is 0") for note in report.notes)


def test_zero_rows_are_nan_and_named():
    features, labels, weight = CASES["balanced"]
    features = features.copy()
    features[[7, 30]] = 0
    report = ncscope.measure(features, labels, weight, groups=["information"])
    assert math.isnan(report["mir"])
    assert not math.isnan(report["mir_centered"])
    assert any("2 rows have no direction: 7, 30" in note for note in report.notes)


def test_zero_heads_are_nan_and_named():
    features, labels, weight = CASES["balanced"]
    weight = weight.copy()
    weight[2] = 0
    report = ncscope.measure(features, labels, weight, groups=["information"])
    keys = ("mir", "hdr", "mir_centered", "hdr_centered", "mir_means", "hdr_means")
    assert all(math.isnan(report[key]) for key in (*keys, "entropy_weights"))
    assert not math.isnan(report["entropy_features"])
    assert any("the heads of classes 2 are zero" in note for note in report.notes)
    assert not any("joint entropy exact" in note for note in report.notes)


def test_a_zero_row_of_either_representation_is_nan():
    rows = torch.eye(4)[[0, 1, 2, 2]].clone()
    rows[3] = 0
    for pair in ((rows, torch.eye(4)), (torch.eye(4), rows)):
        found = pair_entropies(*pair)
        assert math.isnan(found.mir)
        assert math.isnan(found.hdr)


def test_a_class_on_the_mean_up_to_rounding_has_no_direction():
    points = torch.tensor([[0.1, 0.7], [0.3, 0.1], [0.2, 0.4]], dtype=torch.float64)
    labels = torch.arange(3).repeat(7)
    report = ncscope.measure(points[labels], labels, torch.eye(3, 2) + 1, groups=["information"])
    assert math.isnan(report["hdr_centered"])
    assert any(note.startswith("mir_centered: 7 rows have no direction") for note in report.notes)


def test_the_features_entropy_takes_the_smaller_side():
    rows = torch.randn(30, 500, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 3
    report = ncscope.measure(rows, labels, rows[:3], groups=["information"])
    expected = brute(rows.double().numpy(), rows[:3].double().numpy()[labels])
    assert report["entropy_features"] == pytest.approx(expected[0], rel=1e-10)


def test_absent_classes_change_nothing():
    features, labels, weight = CASES["balanced"]
    more = np.vstack([weight, np.ones((2, weight.shape[1]))])
    found = ncscope.measure(features, labels, more, groups=["information"])
    expected = ncscope.measure(features, labels, weight, groups=["information"])
    for key in ("mir", "hdr", "mir_means"):
        assert found[key] == pytest.approx(expected[key], rel=1e-11)


@pytest.mark.parametrize("shape", [(150, 6, 9), (60, 30, 20)])
def test_pairs_of_features_equal_brute_force(shape):
    n, d1, d2 = shape
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(n, d1)), rng.normal(size=(n, d2))
    found = pair_entropies(torch.tensor(first), torch.tensor(second))
    np.testing.assert_allclose(
        [found.mir, found.hdr], ratios(*brute(first, second)), rtol=1e-9, atol=1e-12
    )


def test_features_against_themselves_have_the_entropy_of_their_squared_cosines():
    rows = torch.randn(80, 5, generator=torch.Generator().manual_seed(0)).double()
    unit = torch.nn.functional.normalize(rows).numpy()
    found = pair_entropies(rows, rows)
    joint = brute_entropy((unit @ unit.T) ** 2)
    assert found.joint.mean == pytest.approx(joint, rel=1e-10)


def test_a_batch_estimate_is_the_brute_force_of_each_batch():
    features, labels, weight = (torch.as_tensor(part) for part in CASES["balanced"])
    found = batch_entropies(features, labels, weight, 64, torch.Generator().manual_seed(3))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))
    assert len(found) == 600 // 64
    part = order[64:128]
    expected = ratios(*brute(features[part].numpy(), weight[labels[part]].numpy()))
    assert found[1].mir == pytest.approx(expected[0], rel=1e-9)


@pytest.mark.parametrize(
    "moment_bytes", [2**30, pytest.param(0, marks=pytest.mark.slow)], ids=["moments", "stored rows"]
)
def test_quadrature_covers_the_exact_value(monkeypatch, moment_bytes):
    features, labels, weight = gaussian(1500, 24, 20, 0.5, 5)
    rows, y, heads = torch.tensor(features), torch.tensor(labels), torch.tensor(weight)
    counts = torch.bincount(y)
    exact = dataset_entropies([(rows, y)], counts, heads).joint
    assert exact.probes == 0
    monkeypatch.setattr(information, "DENSE_LIMIT", 10)
    monkeypatch.setattr(information, "MOMENT_BYTES", moment_bytes)
    split = [(rows[:100], y[:100]), (rows[100:], y[100:])]
    scores = []
    for seed in range(20):
        found = dataset_entropies(split, counts, heads, seed=seed).joint
        assert found.probes > 0
        assert found.standard_error <= 0.0101 * exact.mean
        scores.append((found.mean - exact.mean) / found.standard_error)
    assert sum(abs(score) <= 2 for score in scores) >= 16
    assert 0.5 < np.sqrt(np.mean(np.square(scores))) < 1.5
    again = dataset_entropies(split, counts, heads, seed=19).joint
    assert again == found


def test_an_estimated_joint_entropy_stays_within_its_bounds(monkeypatch):
    """Features that hardly vary and tell nothing about the heads: MIR is 0, never below."""
    monkeypatch.setattr(information, "DENSE_LIMIT", 10)
    draws = torch.Generator().manual_seed(0)
    rows = 1 + 0.3 * torch.randn(3000, 6, generator=draws, dtype=torch.float64)
    heads = torch.randn(20, 6, generator=draws, dtype=torch.float64)
    labels = torch.arange(3000) % 20
    estimates = [
        dataset_entropies([(rows, labels)], torch.bincount(labels), heads, seed=seed)
        for seed in range(20)
    ]
    assert all(each.joint.probes > 0 for each in estimates)
    assert min(each.mir for each in estimates) == 0  # some draws come to the bound
    assert all(0 <= each.mir <= 1 for each in estimates)


def test_pairs_beyond_the_dense_limit_are_estimated(monkeypatch):
    rng = np.random.default_rng(1)
    first, second = (torch.tensor(rng.normal(size=(300, d))) for d in (20, 25))
    exact = pair_entropies(first, second).joint.mean
    monkeypatch.setattr(information, "DENSE_LIMIT", 100)
    found = pair_entropies(first, second).joint
    assert found.probes > 0
    assert abs(found.mean - exact) <= 4 * found.standard_error


@pytest.mark.parametrize("moment_bytes", [2**30, 0], ids=["moments", "stored rows"])
def test_the_bound_on_the_largest_eigenvalue_holds(monkeypatch, moment_bytes):
    told = []

    def spied(product, size, trace, error, generator, dominant, largest):
        told.append(largest)
        return estimate_entropy(product, size, trace, error, generator, dominant, largest)

    monkeypatch.setattr(information, "estimate_entropy", spied)
    monkeypatch.setattr(information, "DENSE_LIMIT", 10)
    monkeypatch.setattr(information, "MOMENT_BYTES", moment_bytes)
    features, labels, weight = gaussian(300, 12, 9, 0.5, 6)
    rows, heads, y = torch.tensor(features), torch.tensor(weight), torch.tensor(labels)
    dataset_entropies([(rows, y)], torch.bincount(y), heads)
    pair_entropies(rows, heads[y])
    a, b = (torch.nn.functional.normalize(each) for each in (rows, heads[y]))
    first, second = a @ a.T, b @ b.T
    share = [float(torch.linalg.eigvalsh(gram)[-1]) / 300 for gram in (first, second)]
    joint = float(torch.linalg.eigvalsh(first * second)[-1]) / 300
    assert told == pytest.approx([min(share)] * 2)
    assert joint < told[0]


def test_what_takes_long_is_computed_only_if_asked_for(monkeypatch):
    monkeypatch.setattr(information, "MOST_UNASKED", 0)
    monkeypatch.setattr(information, "DENSE_LIMIT", 20)
    features, labels, weight = gaussian(300, 6, 4, 0.5, 7)
    silent = ncscope.measure(features, labels, weight)
    asked = ncscope.measure(features, labels, weight, groups=["information"])
    assert "mir" not in silent
    assert "mir_means" in silent
    assert any("ask for the group 'information'" in note for note in silent.notes)
    assert "mir" in asked


def exactly(joint: float) -> EntropyEstimate:
    return EntropyEstimate(joint, standard_error=0.0, probes=0, depth=0, size=9)


def test_ratios_of_entropies_by_hand():
    found = Entropies(2.0, 0.5, exactly(2.25))
    assert (found.mutual_information, found.mir, found.hdr) == (0.25, 0.5, 0.75)
    found = Entropies(0.5, 2.0, exactly(2.25))
    assert (found.mir, found.hdr) == (0.5, 0.75)
    assert Entropies(1.0, 1.0, exactly(2.0 + 1e-12)).mutual_information == 0  # rounding
    assert Entropies(1.0, 1.0, exactly(2.5)).mutual_information == -0.5
    assert math.isnan(Entropies(0.0, 1.0, exactly(1.0)).mir)
    assert Entropies(0.0, 1.0, exactly(1.0)).hdr == 1
    assert math.isnan(Entropies(1e-9, 1e-9, exactly(1e-9)).hdr)  # as good as 0
    assert Entropies(1e-8, 1e-8, exactly(1e-8)).hdr == 0


def test_a_batch_estimate_is_the_mean_and_spread_of_its_batches_by_hand():
    # MIR 1/2 and 1, HDR 3/4 and 0
    found = [Entropies(2.0, 0.5, exactly(2.25)), Entropies(1.0, 1.0, exactly(1.0))]
    expected = BatchInformation(0.75, 0.125**0.5, 0.375, 0.28125**0.5, 64, 2)
    assert astuple(batch_estimate(found, 64)) == pytest.approx(astuple(expected), rel=1e-14)
    alone = batch_estimate(found[:1], 32)
    assert (alone.mir, alone.hdr, alone.batch_size, alone.batches) == (0.5, 0.75, 32, 1)
    assert math.isnan(alone.mir_spread)
    assert math.isnan(alone.hdr_spread)
    none = batch_estimate([], 64)
    assert math.isnan(none.mir)
    assert none.batches == 0


@pytest.mark.parametrize("shape", [(1, 6, 9), (60, 30, 20), (150, 6, 9)])
def test_an_exact_entropy_has_no_error_and_no_probes(shape):
    n, d1, d2 = shape
    first, second = (torch.arange(n * d).view(n, d) ** 2 % 7 + 1.0 for d in (d1, d2))
    joint = pair_entropies(first, second).joint
    assert joint == EntropyEstimate(joint.mean, 0.0, 0, 0, min(n, d1 * d2))


def test_it_takes_long_where_an_estimate_reads_many_moments():
    """128 classes of 512 x 512 numbers are 2^25."""
    fit, more, small = (torch.empty(*s, device="meta") for s in ((128, 512), (129, 512), (1, 8192)))
    assert not takes_long(5000, fit)
    assert takes_long(5000, more)
    assert not takes_long(4096, more)
    assert takes_long(5000, small)
    # From 4,096 x 4,096 the entropy is exact, if the moments of the classes fit.
    assert not takes_long(5000, torch.empty(2**15, 64, device="meta"))
    assert takes_long(5000, torch.empty(2**15 + 1, 64, device="meta"))


def test_it_reads_often_where_many_samples_meet_moments_beyond_their_bytes():
    """128 classes of 1,024 x 1,024 float64 numbers are 2^30 bytes."""
    fit, more, tall = (
        torch.empty(*s, device="meta") for s in ((128, 1024), (129, 1024), (1024, 128))
    )
    assert not reads_often(5000, fit)
    assert not reads_often(5000, tall)
    assert reads_often(5000, more)
    assert reads_often(4097, more)
    assert not reads_often(4096, more)


@pytest.mark.parametrize(("samples", "size"), [(6, 6), (60, 12)])
def test_the_joint_entropy_is_taken_from_the_smallest_side(samples, size):
    """Of features in 4 dimensions and heads of rank 3."""
    rows = torch.randn(samples, 4, generator=torch.Generator().manual_seed(0)).double()
    labels, weight = torch.arange(samples) % 5, torch.eye(5, 4).double()[:, [0, 1, 2, 2]] + 1
    joint = dataset_entropies([(rows, labels)], torch.bincount(labels), weight).joint
    expected = brute(rows.numpy(), weight[labels].numpy())[2]
    assert joint == EntropyEstimate(joint.mean, 0.0, 0, 0, size)
    assert joint.mean == pytest.approx(expected, rel=1e-10)
    rows[1] = 0
    unknown = dataset_entropies([(rows, labels)], torch.bincount(labels), weight).joint
    assert math.isnan(unknown.mean)
    assert unknown.size == 12


@pytest.mark.parametrize("samples", [6, 60], ids=["from samples", "from moments"])
@pytest.mark.parametrize("what", ["a feature", "a head"])
def test_what_depends_on_a_zero_vector_is_nan(samples, what):
    rows = torch.randn(samples, 3, generator=torch.Generator().manual_seed(0)).double()
    labels, weight = torch.arange(samples) % 3, torch.eye(3).double() + 1
    (rows if what == "a feature" else weight)[1] = 0
    found = dataset_entropies([(rows, labels)], torch.bincount(labels), weight)
    assert math.isnan(found.joint.mean)
    assert math.isnan(found.first) == (what == "a feature")
    assert math.isnan(found.second) == (what == "a head")
    assert found.zeros == (what == "a feature")
    assert found.zero_rows == ((1,) if what == "a feature" else ())
    assert found.zero_heads == ((1,) if what == "a head" else ())


def test_the_first_ten_zero_vectors_are_named():
    rows, weight, labels = torch.ones(20, 3), torch.eye(3), torch.arange(20) % 3
    rows[4:16] = 0
    ten = tuple(range(4, 14))
    found = pair_entropies(rows, torch.ones(20, 2))
    assert (found.zeros, found.zero_rows) == (12, ten)
    found = pair_entropies(torch.ones(20, 2), rows)
    assert (found.zeros, found.zero_rows) == (12, ten)
    batches, counts = [(rows, labels)], torch.bincount(labels)
    found = dataset_entropies(batches, counts, weight)
    assert (found.zeros, found.zero_rows) == (12, ten)
    features, labels, heads = torch.eye(20), torch.arange(20), torch.ones(20, 20)
    heads[4:16] = 0
    found = dataset_entropies([(features, labels)], torch.ones(20).long(), heads)
    assert (found.zeros, found.zero_heads) == (0, ten)
    features[4:16] = 0
    found = dataset_entropies([(features, labels)], torch.ones(20).long(), torch.ones(20, 20))
    assert (found.zeros, found.zero_rows) == (12, ten)


@pytest.mark.parametrize(("limit", "exact"), [(12, True), (11, False)])
def test_a_side_up_to_the_limit_is_decomposed(monkeypatch, limit, exact):
    monkeypatch.setattr(information, "DENSE_LIMIT", limit)
    draws = torch.Generator().manual_seed(0)
    one, other = torch.randn(30, 4, generator=draws), torch.randn(30, 4, generator=draws)
    for first, second in ((one[:12], other[:12]), (one[:, :3], other)):
        joint = pair_entropies(first, second).joint
        assert (joint.probes == 0) == exact
    labels, full = torch.arange(30) % 4, torch.randn(4, 4, generator=draws).double()
    flat = torch.cat([full[:, :3], full[:, :3].sum(1, keepdim=True)], 1)  # of rank 3
    rows = torch.randn(30, 4, generator=draws).double()
    for part, weight in ((slice(0, 12), full), (slice(0, 30), flat)):
        batches, counts = [(rows[part], labels[part])], torch.bincount(labels[part])
        assert (dataset_entropies(batches, counts, weight).joint.probes == 0) == exact
