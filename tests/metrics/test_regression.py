"""Neural regression collapse: reference, closed forms, training, invariances, bad input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ncscope
from ncscope.errors import InputError
from ncscope.metrics.regression import gram_distance

from ..closeness import assert_agree
from ..reference import regression as reference
from ..reference.exact import mean, mp, outer_sum, subtract, vectors


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def data(n: int, d: int, t: int, *, offset: float = 0.0, noise: float = 1.0, seed: int = 0):
    """Features that hold correlated targets and noise, and a head that half fits them."""
    mixing = normal(t, t, seed=seed + 1) + 2 * torch.eye(t)
    targets = normal(n, t, seed=seed) @ mixing + 3
    rows = normal(t, d, seed=seed + 2)
    features = (targets - 3) @ rows + noise * normal(n, d, seed=seed + 3) + offset
    weight = torch.linalg.pinv(rows).mT + 0.1 * normal(t, d, seed=seed + 4)
    return features, targets, weight, normal(t, seed=seed + 5)


def minimiser(n: int, d: int, t: int, decays: tuple[float, float], seed: int = 0):
    """The paper's theorem: global minimum of the unconstrained features model with both decays.

    Of 1/(2n) ||WH + b 1' - Y||^2 + decays[0]/(2n) ||H||^2 + decays[1]/2 ||W||^2.
    """
    mixing = normal(t, t, seed=seed + 1) / 2 + 2 * torch.eye(t)
    targets = normal(n, t, seed=seed) @ mixing + 1
    centred = targets - targets.mean(0)
    values, axes = torch.linalg.eigh(centred.mT @ centred / n)
    root = math.sqrt(decays[0] * decays[1])
    kept = (values.sqrt() - root).clamp(min=0).sqrt()
    frame = torch.linalg.qr(normal(d, t, seed=seed + 2)).Q.mT  # R with R R' = I
    ratio = (decays[0] / decays[1]) ** 0.25
    weight = ratio * (axes * kept) @ axes.mT @ frame
    features = centred @ (axes * (kept / values.sqrt())) @ axes.mT @ frame / ratio
    return features, targets, weight, targets.mean(0)


@pytest.mark.parametrize(
    ("n", "d", "t", "offset", "noise"),
    [
        (30, 6, 2, 0.0, 1.0),
        (30, 5, 3, 1e6, 1.0),
        (40, 4, 1, 0.0, 0.1),
        (25, 6, 2, 0.0, 1e-6),
        (12, 8, 4, -5.0, 3.0),
    ],
)
def test_reference(n: int, d: int, t: int, offset: float, noise: float) -> None:
    features, targets, weight, bias = data(n, d, t, offset=offset, noise=noise)
    expected = reference.regression(features.numpy(), targets.numpy(), weight.numpy(), bias.numpy())
    found = ncscope.measure_regression(features, targets, weight, bias)
    assert_agree(dict(found), expected)
    moments = sum_of(features, targets, 3)
    found = ncscope.measure_regression_moments(moments, weight, bias)
    near = {key: pytest.approx(value, rel=1e-6, abs=1e-14) for key, value in expected.items()}
    assert dict(found) == near
    without = reference.regression(features.numpy(), targets.numpy())
    assert_agree(dict(ncscope.measure_regression(features, targets)), without)


def sum_of(features, targets, parts: int) -> ncscope.RegressionMoments:
    """Moments added from parts of different sizes, each updated by batches."""
    total = []
    for index in torch.arange(len(features)).tensor_split([1, *range(7, len(features), parts * 3)]):
        part = ncscope.RegressionMoments()
        for rows in index.split(4):
            part.update(features[rows], targets[rows])
        total.append(part)
    return sum(total)


@pytest.mark.parametrize("t", [2, 3])
def test_gamma_is_the_minimiser_wherever_it_lies(t: int) -> None:
    """Inside of the interval, at its ends, and for Gram matrices that point the other way."""
    places = set()
    for seed in range(4):
        targets = normal(20, t, seed=seed) @ (normal(t, t, seed=seed + 50) + torch.eye(t))
        weight = normal(t, 5, seed=seed + 100)
        if seed % 3 == 0:  # near the form that the theorem predicts
            _, targets, weight, _ = minimiser(20, 5, t, (0.2, 0.3), seed=seed)
            weight = weight + 0.01 * normal(t, 5, seed=seed + 100)
        value, gamma = reference_distance(targets, weight)
        found = ncscope.measure_regression(normal(20, 5), targets, weight)
        assert found["nrc3"] == pytest.approx(value, rel=1e-11)
        assert found["nrc3_gamma"] == pytest.approx(gamma, rel=1e-9, abs=1e-18)
        places.add(any("infimum" in note for note in found.notes))
    assert places == {True, False}


def reference_distance(targets, weight) -> tuple[float, float]:
    rows = vectors(targets.numpy())
    spread = [subtract(row, mean(rows)) for row in rows]
    covariance = outer_sum([mp.one / len(rows)] * len(rows), spread)
    value, gamma = reference.gram_distance(vectors(weight.numpy()), covariance)
    return float(value), float(gamma)


@pytest.mark.parametrize("decays", [(0.3, 0.2), (1e-3, 2e-2), (0.01, 0.01)])
def test_minimum_of_the_unconstrained_features_model(decays: tuple[float, float]) -> None:
    n, d, t = 60, 8, 3
    features, targets, weight, bias = minimiser(n, d, t, decays)
    report = ncscope.measure_regression(features, targets, weight, bias)
    for key in ("nrc1", "nrc1_unexplained", "nrc2", "nrc3"):
        assert 0 <= report[key] < 1e-26
    gamma = decays[0] * decays[1]
    assert report["nrc3_gamma"] == pytest.approx(gamma, rel=1e-9)
    assert report["mse"] == pytest.approx(gamma, rel=1e-9)  # the residuals have covariance gamma I
    assert report["mse_least_squares"] < 1e-25
    rest = features @ weight.mT + bias - targets
    assert (rest.mT @ features / n + decays[1] * weight).abs().max() < 1e-13
    assert (rest @ weight + decays[0] * features).abs().max() < 1e-13
    streamed = ncscope.measure_regression_moments(sum_of(features, targets, 5), weight, bias)
    assert all(streamed[key] < 1e-13 for key in ("nrc1", "nrc1_unexplained", "nrc2", "nrc3"))


def test_strong_decay_drops_weak_directions_of_the_targets() -> None:
    """The theorem's other case: a decay between the eigenvalues leaves fewer dimensions."""
    features, targets, weight, bias = minimiser(200, 8, 3, (1.5, 1.5))
    scales = (targets - targets.mean(0)).T.cov(correction=0)
    kept = int((torch.linalg.eigvalsh(scales) > 1.5**2).sum())
    assert 0 < kept < 3
    report = ncscope.measure_regression(features, targets, weight, bias)
    assert report["nrc1"] < 1e-26
    assert report["nrc2"] < 1e-26
    assert any(f"span {kept} dimensions" in note for note in report.notes)
    assert any(f"rank {kept} of 3" in note for note in report.notes)


def trained(decay: float, steps: int) -> ncscope.RegressionReport:
    """Gradient descent on features, weight and bias of an unconstrained features model."""
    n, d, t = 40, 10, 2
    targets = normal(n, t, seed=3) @ torch.tensor([[2.0, 0.5], [0.0, 1.0]]).double()
    features, weight = (0.3 * normal(n, d, seed=4)), 0.3 * normal(t, d, seed=5)
    bias = torch.zeros(t, dtype=torch.float64)
    for _ in range(steps):
        rest = features @ weight.mT + bias - targets
        change = rest @ weight + decay * features
        weight = weight - 0.2 * (rest.mT @ features / n + decay * weight)
        features, bias = features - 0.2 * change, bias - 0.2 * rest.mean(0)
    return ncscope.measure_regression(features, targets, weight, bias)


def test_training_with_decay_collapses_and_without_it_does_not() -> None:
    report = trained(decay=0.1, steps=2000)
    assert all(report[key] < 1e-9 for key in ("nrc1", "nrc2", "nrc3"))
    assert report["nrc3_gamma"] == pytest.approx(0.01, rel=1e-4)
    free = trained(decay=0.0, steps=2000)
    assert free["r2"] > 0.999999
    assert free["nrc1"] > 0.01
    assert free["nrc2"] > 0.01


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.floats(0.1, 10.0), st.integers(1, 3))
def test_invariances(seed: int, factor: float, t: int) -> None:
    features, targets, weight, bias = data(30, 5, t, seed=seed)
    plain = ncscope.measure_regression(features, targets, weight, bias)
    turn = torch.linalg.qr(normal(5, 5, seed=seed + 9)).Q
    mix = torch.linalg.qr(normal(t, t, seed=seed + 10)).Q
    turned = ncscope.measure_regression(
        factor * features @ turn, targets @ mix + 2, mix.mT @ weight @ turn / factor,
        bias @ mix + 2,
    )  # fmt: skip
    assert dict(turned) == {
        key: pytest.approx(value, rel=1e-7, abs=1e-12) for key, value in plain.items()
    }
    moved = ncscope.measure_regression(features + 7, targets)
    assert moved["nrc1_unexplained"] == pytest.approx(plain["nrc1_unexplained"], rel=1e-9)
    assert plain["mse"] >= plain["mse_least_squares"]


def test_types_and_sizes() -> None:
    features, targets, weight, bias = data(40, 6, 2, offset=4.0)
    wide = ncscope.measure_regression(features.float().double(), targets, weight, bias)
    narrow = ncscope.measure_regression(features.float(), targets, weight, bias)
    assert dict(narrow) == dict(wide)
    few = ncscope.measure_regression(features[:5], targets[:5], weight, bias)
    assert few["mse_least_squares"] < 1e-20
    assert any("can fit any targets" in note for note in few.notes)
    single = ncscope.measure_regression(features, targets[:, 0], weight[:1])
    assert "nrc3" not in single
    assert any("one dimension" in note for note in single.notes)
    whole = ncscope.measure_regression(features[:, :2], targets, weight[:, :2])
    assert whole["nrc1"] < 1e-28
    assert any("0 for any features" in note for note in whole.notes)


def outside_components(features: torch.Tensor, t: int) -> float:
    """NRC1 by the formula, without the zero features."""
    axes = torch.linalg.svd(features - features.mean(0)).Vh[:t]
    kept = features[features.any(1)]
    unit = kept / kept.norm(dim=1, keepdim=True)
    return (unit - unit @ axes.mT @ axes).square().sum(1).mean().item()


def test_fewer_components_than_targets_leave_the_rest_of_the_mean_outside() -> None:
    along = normal(30)
    features = torch.zeros(30, 6, dtype=torch.float64)
    features[:, 2], features[:, 4] = along, 5.0
    for flipped in (features, features.flip(1)):
        report = ncscope.measure_regression(flipped, normal(30, 3))
        assert report["nrc1"] == pytest.approx((25 / (25 + along.square())).mean().item())
        assert any("span 1 dimensions" in note for note in report.notes)


def test_degenerate_heads_features_and_targets_have_notes() -> None:
    features, targets, weight, _ = data(40, 6, 3)
    weight[2] = weight[0] + weight[1]
    report = ncscope.measure_regression(features, targets, weight)
    assert any("rank 2 of 3" in note for note in report.notes)
    assert 0 < report["nrc2"] < 1
    report = ncscope.measure_regression(features, targets, torch.zeros(3, 6))
    assert math.isnan(report["nrc3"])
    assert report["nrc2"] == pytest.approx(1.0)
    targets[:, 2] = targets[:, 0]
    report = ncscope.measure_regression(features, targets, weight)
    assert report["nrc3_gamma"] == 0
    assert any("span 2 of 3" in note for note in report.notes)
    features[4] = 0
    report = ncscope.measure_regression(features, targets)
    assert any("1 features are zero" in note for note in report.notes)
    expected = outside_components(features, 3)
    assert report["nrc1"] == pytest.approx(expected, rel=1e-9)
    streamed = ncscope.measure_regression_moments(sum_of(features, targets, 2))
    assert streamed["nrc1"] == pytest.approx(expected, rel=1e-9)
    # In float64 the mean of many constants differs from them in the last bits.
    flat = torch.full((1001, 6), 0.1, dtype=torch.float64)
    report = ncscope.measure_regression(flat, normal(1001, 2))
    assert any("constant" in note for note in report.notes)
    for width in (3, 2):  # as many and fewer dimensions than targets
        report = ncscope.measure_regression(features[:, :width], targets)
        assert report["nrc1"] == pytest.approx(0, abs=1e-15)
        assert any("0 for any features" in note for note in report.notes)
    for count, fits_any in ((7, True), (8, False)):  # least squares has 6 weights and a bias
        report = ncscope.measure_regression(*data(count, 6, 2)[:2])
        assert any("least squares can fit any" in note for note in report.notes) == fits_any
    even = torch.cat([torch.eye(6), -torch.eye(6)]).double()
    report = ncscope.measure_regression(even, targets[:12])
    assert any("equal variance" in note for note in report.notes)


def test_isotropic_targets_leave_gamma_open() -> None:
    targets = torch.cat([torch.eye(2), -torch.eye(2)]).double()
    result = ncscope.measure_regression(normal(4, 5), targets, torch.eye(2, 5))
    assert result["nrc3"] < 1e-30
    assert math.isnan(result["nrc3_gamma"])
    deviations, axes = torch.tensor([1.0, 1.0]).double(), torch.eye(2).double()
    assert gram_distance(torch.diag(torch.tensor([1.0, 0.0])).double(), deviations, axes)[0] > 0.5


BAD = {
    "NaN": (lambda h, y, w: (h.fill_(math.nan), y, w), "finite features"),
    "infinite target": (lambda h, y, w: (h, y.fill_(math.inf), w), "finite targets"),
    "huge target": (lambda h, y, w: (h, y.double() * 1e200, w), "batch of targets of magnitude"),
    "constant": (lambda h, y, w: (h, torch.full_like(y, 0.3), w), "targets that vary"),
    "rows": (lambda h, y, w: (h, y[:3], w), r"targets of shape \(9, t\)"),
    "transposed": (lambda h, y, w: (h, y, w.mT), r"weight of shape \(2, 4\)"),
    "infinite weight": (lambda h, y, w: (h, y, w / 0), "finite weight"),
    "one sample": (lambda h, y, w: (h[:1], y[:1], w), "two samples"),
    "complex": (lambda h, y, w: (h, y * 1j, w), "real targets"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    change, message = BAD[name]
    with pytest.raises(InputError, match=message):
        ncscope.measure_regression(*change(normal(9, 4), normal(9, 2), normal(2, 4)))
    with pytest.raises(InputError, match=r"weight along .*; pass the weight too"):
        ncscope.measure_regression(normal(9, 4), normal(9, 2), bias=[0, 0])


def test_report_is_saved(tmp_path) -> None:
    features, targets, weight, _ = data(40, 6, 2)
    report = ncscope.measure_regression(features, targets, weight)
    assert '"nrc1"' in report.save(tmp_path / "a.json").read_text()
    assert (
        report.save(tmp_path / "a.csv").read_text().startswith("metric,value,collapsed_at\nnrc1,")
    )
    with pytest.raises(InputError, match=r"\.csv"):
        report.save(tmp_path / "a.html")
    assert "nrc3_gamma" in repr(report)


def test_report_is_a_data_frame() -> None:
    pytest.importorskip("pandas")
    features, targets, weight, _ = data(40, 6, 2)
    report = ncscope.measure_regression(features, targets, weight)
    assert list(report.to_dataframe()["metric"]) == list(report)


def test_a_value_that_is_absent_is_said_to_be_so() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 4, generator=generator)
    report = ncscope.measure_regression(features, features[:, 0])
    for key, reason in {
        "nrc2": "needs the last layer's weight",
        "nrc": "the keys are nrc1, ",
    }.items():
        with pytest.raises(KeyError, match=f"'{key}'.*{reason}"):
            report[key]
    headed = ncscope.measure_regression(features, features[:, 0], torch.eye(1, 4))
    with pytest.raises(KeyError, match="'nrc3' was not measured: the targets have one dimension"):
        headed["nrc3"]
    assert "nrc2" in headed
    assert "nrc2" not in report


SHAPES = ((60, 6), (60, 2), (2, 6))


def test_an_error_beyond_float64_is_undefined_and_said() -> None:
    draws = torch.Generator().manual_seed(0)
    features, targets, weight = (torch.randn(*shape, generator=draws) for shape in SHAPES)
    report = ncscope.measure_regression(features, targets, 1e200 * weight.double())
    assert math.isnan(report["mse"])
    assert math.isnan(report["r2"])
    assert (
        "the head's error is beyond the range of float64: mse and r2 are undefined" in report.notes
    )


def test_batches_of_targets_of_other_sizes_are_refused() -> None:
    features, targets = torch.randn(30, 4), torch.randn(30, 2)
    with pytest.raises(InputError, match="20 targets for 10 rows in batch 0"):
        ncscope.measure_regression(features.split([10, 20]), targets.split([20, 10]))
    parts = ncscope.measure_regression(features.split([10, 20]), targets.split([10, 20]))
    assert dict(parts) == dict(ncscope.measure_regression(features, targets))
