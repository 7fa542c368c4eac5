"""Values do not depend on the power of two that features or classifier are scaled by."""

import math

import numpy as np
import pytest
import torch

import ncscope
from ncscope.metrics.registry import METRICS

FAR = [-997, -600, -449, -300, -150, 150, 300, 449, 600, 997]
"""Exponents of 2 up to the ends of float64: 1e-300 to 1e300."""
SQUARED = ("within_in_signal", "within_off_signal")
MSE = tuple(key for key, row in METRICS.items() if row.group == "mse")
OF_WEIGHT = "nc0_norm"
"""The metric in the classifier's unit."""
BALANCED = {"minority_cosine_means", "minority_cosine_weights"}
"""Metrics that are undefined for classes of one size."""
SPECTRA = ("between", "within", "total")
N, K, D = 48, 4, 6


def coarse(values: np.ndarray) -> np.ndarray:
    """Values of few bits, none of which is lost where the exponent is near float64's end."""
    return np.round(values * 2**12) / 2**12


def samples(dim: int = D) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features with a zero-free row each, labels, weight and bias; some decisions are wrong."""
    rng = np.random.default_rng(dim)
    labels = np.arange(N) % K
    weight = rng.normal(size=(K, dim))
    features = weight[labels] + 0.8 * rng.normal(size=(N, dim))
    return coarse(features), labels, coarse(weight), coarse(rng.normal(size=K))


def same(found: float, wanted: float) -> bool:
    return found == wanted or (math.isnan(found) and math.isnan(wanted))


def changed(found: ncscope.Report, wanted: ncscope.Report, keys) -> dict[str, tuple[float, float]]:
    """Keys of different values; not the last bit may differ."""
    return {k: (found[k], wanted[k]) for k in keys if not same(found[k], wanted[k])}


def times(value: float, exponent: int) -> float:
    """The value times a power of two; NaN where float64 ends."""
    scaled = float(value) * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2)
    normal = scaled == value == 0 or 2.0**-1022 <= abs(scaled) < math.inf
    return scaled if normal else math.nan


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
@pytest.mark.parametrize("dim", [D, 2], ids=["wide", "more classes than dimensions"])
def test_features_of_any_scale(dim: int, prior: str) -> None:
    features, labels, weight, _ = samples(dim)
    plain = ncscope.measure(features, labels, weight, prior=prior)
    for exponent in FAR:
        scaled = ncscope.measure(features * 2.0**exponent, labels, weight, prior=prior)
        assert set(scaled) == set(plain)
        assert not changed(scaled, plain, set(plain) - {*SQUARED, *MSE}), exponent
        for key in SQUARED:
            assert same(scaled[key], times(plain[key], 2 * exponent)), (exponent, key)


def test_weights_of_any_scale() -> None:
    features, labels, weight, _ = samples()
    plain = ncscope.measure(features, labels, weight)
    for exponent in FAR:
        scaled = ncscope.measure(features, labels, weight * 2.0**exponent)
        assert not changed(scaled, plain, set(plain) - {*MSE, OF_WEIGHT}), exponent
        assert same(scaled[OF_WEIGHT], times(plain[OF_WEIGHT], exponent)), exponent


@pytest.mark.parametrize("biased", [False, True])
def test_the_mse_of_the_same_logits(biased: bool) -> None:
    """Features times a power of two, the classifier divided by it: the logits are the same."""
    features, labels, weight, bias = samples()
    bias = bias if biased else None
    plain = ncscope.measure(features, labels, weight, bias)
    for exponent in FAR:
        scaled = ncscope.measure(features * 2.0**exponent, labels, weight * 2.0**-exponent, bias)
        assert not changed(scaled, plain, set(plain) - {*SQUARED, OF_WEIGHT}), exponent


@pytest.mark.parametrize(("features_by", "weight_by"), [(500, 500), (-900, -90), (20, 960)])
def test_a_bias_beside_logits_of_any_scale(features_by: int, weight_by: int) -> None:
    features, labels, weight, bias = samples()
    plain = ncscope.measure(features, labels, weight, bias, groups=["nc4"])
    bias = bias * 2.0 ** (features_by + weight_by)
    scaled = ncscope.measure(
        features * 2.0**features_by, labels, weight * 2.0**weight_by, bias, groups=["nc4"]
    )
    assert dict(scaled) == dict(plain)


def test_a_bias_that_outweighs_every_logit() -> None:
    features, labels, weight, bias = samples()
    bias[2] = bias.max() + 1
    tiny = ncscope.measure(features * 2.0**-900, labels, weight * 2.0**-900, bias)
    assert tiny["accuracy"] == np.mean(labels == 2)
    huge = ncscope.measure(features * 2.0**-900, labels, weight, bias * 2.0**900)
    assert huge["accuracy"] == np.mean(labels == 2)


@pytest.mark.parametrize("exponent", FAR)
def test_spectra_carry_the_unit(exponent: int) -> None:
    features, labels, weight, _ = samples()
    plain = ncscope.measure(features, labels, weight)
    scaled = ncscope.measure(features * 2.0**exponent, labels, weight)
    np.testing.assert_array_equal(
        scaled.spectra["snr_singular_values"], plain.spectra["snr_singular_values"]
    )
    for name in SPECTRA:
        wanted = [times(value, 2 * exponent) for value in plain.spectra[name]]
        np.testing.assert_array_equal(scaled.spectra[name], wanted)
    beyond = any("spectra" in note and "float64" in note for note in scaled.notes)
    assert beyond == (abs(exponent) > 500)


@pytest.mark.parametrize("exponent", [-600, 600])
def test_a_value_beyond_float64_is_nan_with_a_note(exponent: int) -> None:
    features, labels, weight, _ = samples()
    report = ncscope.measure(features * 2.0**exponent, labels, weight)
    beyond = {*SQUARED, *(("mse_loss", "mse_off_path") if exponent > 0 else ())}
    assert {key for key in report if math.isnan(report[key])} == beyond | BALANCED
    for key in beyond:
        assert any(note.startswith(f"{key} is undefined: ") for note in report.notes)
    note = next(note for note in report.notes if note.startswith("within_in_signal is undefined"))
    assert "float64" in note


@pytest.mark.parametrize("exponent", [-400, -100, 100, 400])
def test_weight_decay_is_in_the_units_given(exponent: int) -> None:
    """A decay on W' = W / s at features s h is a decay s^2 times larger on W at features h."""
    features, labels, weight, _ = samples()
    plain = ncscope.measure(features, labels, weight, weight_decay=2.0**-6)
    scaled = ncscope.measure(
        features * 2.0**exponent,
        labels,
        weight * 2.0**-exponent,
        weight_decay=2.0 ** (2 * exponent - 6),
    )
    for key in MSE:
        assert scaled[key] == pytest.approx(plain[key], rel=1e-12)


def test_weight_decay_beside_features_that_float64_cannot_square() -> None:
    features, labels, weight, bias = samples()
    report = ncscope.measure(features * 2.0**700, labels, weight, bias, weight_decay=0.1)
    assert all(math.isnan(report[key]) for key in MSE)
    assert any("mse_nc1 is undefined" in note and "weight decay" in note for note in report.notes)


@pytest.mark.parametrize("exponent", [-600, 0, 600])
@pytest.mark.parametrize("change", [-600, 0, 600])
def test_a_reference_of_any_scale(exponent: int, change: int) -> None:
    features, labels, _, _ = samples()
    known, classes = features[:24], labels[:24]
    reference_by = max(-600, min(600, exponent + change))
    training = ncscope.measure(known * 2.0**reference_by, classes)
    found = ncscope.measure(features * 2.0**exponent, labels, reference=training)
    means = np.stack([known[classes == c].mean(0) for c in range(K)])
    if exponent == reference_by:
        distances = np.linalg.norm(features[:, None] - means, axis=2)
    elif exponent > reference_by:  # beside such features the means are near zero
        distances = -(features @ means.T)
    else:
        distances = np.linalg.norm(means, axis=1)[None]
    assert found["ncc_accuracy"] == np.mean(labels == distances.argmin(1))


def test_a_reference_that_vanishes_beside_the_features() -> None:
    features, labels, _, _ = samples()
    training = ncscope.measure(features * 2.0**-600, labels)
    with pytest.raises(ncscope.InputError, match=r"reference.*2\^-1200 times"):
        ncscope.measure(features * 2.0**600, labels, reference=training)


@pytest.mark.parametrize("exponent", [-1, -440, 440])
def test_moments_in_range_give_what_features_give(exponent: int) -> None:
    features, labels, weight, bias = samples()
    features = features * 2.0**exponent
    moments = ncscope.ClassMoments(K, D)
    moments.update(features, labels)
    wanted = ncscope.measure(features, labels, weight, bias)
    found = ncscope.measure_moments(moments, weight * 2.0**700, bias)
    assert not changed(found, wanted, set(found) - {*MSE, OF_WEIGHT})


@pytest.mark.parametrize("exponent", [-997, -600, 600, 997])
def test_a_stream_refuses_what_it_cannot_square(exponent: int) -> None:
    features, labels, _, _ = samples()
    moments = ncscope.ClassMoments(K, D)
    moments.update(features, labels)
    before = moments.state_dict()
    with pytest.raises(ncscope.InputError, match=r"magnitude.*scale them") as caught:
        moments.update(features * 2.0**exponent, labels)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(moments.state_dict()[name], before[name]) for name in before)


@pytest.mark.parametrize("exponent", [-149, -100, 100, 126])
def test_the_ends_of_float32(exponent: int) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    plain = (2 * np.eye(3)[labels] + rng.integers(0, 2, size=(60, 3))).astype(np.float32)
    features = (plain * 2.0**exponent).astype(np.float32)
    assert np.isfinite(features).all()
    moments = ncscope.ClassMoments(3, 3)
    moments.update(features, labels)
    weight = rng.integers(-2, 3, size=(3, 3)).astype(np.float32)
    wanted = ncscope.measure(plain, labels, weight)
    found = ncscope.measure(features, labels, weight)
    assert not changed(found, wanted, set(wanted) - {*SQUARED, *MSE})
    found = ncscope.measure_moments(moments, weight)
    assert not changed(found, wanted, set(found) - {*SQUARED, *MSE})


def test_zero_features_are_no_matter_of_range() -> None:
    labels = np.arange(6) % 2
    moments = ncscope.ClassMoments(2, 3)
    moments.update(np.zeros((6, 3)), labels)
    moments.update(np.ones((6, 3)), labels)
    assert moments.counts.tolist() == [6, 6]
    assert math.isnan(ncscope.measure(np.zeros((6, 3)), labels)["nc1_quotient"])


@pytest.mark.parametrize("length", [1e-160, 1e-200, 1e-290])
def test_a_short_row_beside_others_has_its_direction(length: float) -> None:
    """Its square vanishes beside one, but a direction has no length."""
    features, labels, weight, _ = samples()
    whole = ncscope.measure(features, labels, weight)
    features[5] *= length
    report = ncscope.measure(features, labels, weight)
    for key in ("cosine_within", "class_separation", "entropy_features", "mir"):
        assert report[key] == pytest.approx(whole[key], rel=1e-12)


@pytest.mark.parametrize("length", [2.0**-530, 2.0**-900])
def test_a_short_row_of_the_classifier_has_its_angles(length: float) -> None:
    features, labels, weight, _ = samples()
    whole = ncscope.measure(features, labels, weight)
    weight[1:3] *= length
    report = ncscope.measure(features, labels, weight)
    keys = ("nc2_equiangular_weights", "nc2_maxangle_weights", "entropy_weights", "mir", "unc3")
    for key in keys:
        assert report[key] == pytest.approx(whole[key], rel=1e-12)
    logs = np.log(np.linalg.norm(samples()[2], axis=1)) + np.log(length) * np.array([0, 1, 1, 0])
    assert report["nc2_lognorm_std_weights"] == pytest.approx(np.std(logs), rel=1e-12)


@pytest.mark.parametrize("exponent", [-195, -185, -150, 150, 195])
def test_near_collapse_at_the_end_of_the_range(exponent: int) -> None:
    """Squares of rounding errors of means that are themselves far from one."""
    rng = np.random.default_rng(1)
    labels, weight = np.arange(N) % K, rng.normal(size=(K, D))
    features = weight[labels] + 2.0**-50 * rng.normal(size=(N, D))
    plain = ncscope.measure(features, labels, groups=["nc1", "nc2"])
    scaled = ncscope.measure(features * 2.0**exponent, labels, groups=["nc1", "nc2"])
    assert not changed(scaled, plain, set(plain) - set(SQUARED))


@pytest.mark.parametrize("exponent", [-850, *FAR[1:]])
def test_a_value_so_small_that_it_vanishes_beside_others(exponent: int) -> None:
    """One class has spread around zero, where a spread can be far below the other means."""
    features, labels = np.eye(K)[np.arange(N) % K], np.arange(N) % K
    rng = np.random.default_rng(0)
    features[labels == 0] = 2.0**-85 * coarse(rng.normal(size=(N // K, K)))
    groups = ["nc1", "nc2"]
    plain = ncscope.measure(features, labels, groups=groups)
    assert 0 < plain["nc1_quotient"] < 1e-50
    scaled = ncscope.measure(features * 2.0**exponent, labels, groups=groups)
    assert not changed(scaled, plain, set(plain) - set(SQUARED))


@pytest.mark.parametrize("exponent", [-900, 900])
def test_information_between_features_of_any_scale(exponent: int) -> None:
    features, labels, weight, _ = samples()
    plain = ncscope.information_between(features, features @ weight.T)
    scaled = ncscope.information_between(features * 2.0**exponent, features @ weight.T)
    assert (scaled.mir, scaled.hdr) == (plain.mir, plain.hdr)
    plain = ncscope.batch_information(features, labels, weight, batch_size=12)
    scaled = ncscope.batch_information(features * 2.0**exponent, labels, weight, batch_size=12)
    assert scaled == plain
