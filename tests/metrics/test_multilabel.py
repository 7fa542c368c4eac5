"""Multi-label collapse: reference, the authors' code, closed forms, training, invariances."""

import json
import math
import re
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ncscope
from ncscope.errors import InputError
from ncscope.losses import pick_all_label
from ncscope.math.frames import simplex_etf
from ncscope.metrics import multilabel
from ncscope.metrics.metric import metrics_of_module
from ncscope.report.wording import typeset

from ..closeness import assert_agree
from ..docs.pages import ROOT
from ..reference.multilabel import multilabel as reference


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def label_sets(k: int, *multiplicities: int) -> Tensor:
    """Every set of labels of the multiplicities, a row of 0 and 1 each."""
    chosen = [own for m in multiplicities for own in combinations(range(k), m)]
    return torch.stack([torch.eye(k, dtype=torch.int64)[list(own)].sum(0) for own in chosen])


def data(k: int, d: int, *multiplicities: int, offset: float = 0.0, seed: int = 0):
    """Noisy features about sums of class vectors, uneven label sets, and a classifier."""
    sets = label_sets(k, *multiplicities)
    draws = torch.Generator().manual_seed(seed)
    counts = torch.randint(2, 5, (len(sets),), generator=draws)
    targets = sets.repeat_interleave(counts, 0)
    targets = targets[torch.randperm(len(targets), generator=draws)]
    vectors = normal(k, d, seed=seed + 1)
    features = targets.double() @ vectors + 0.5 * normal(len(targets), d, seed=seed + 2) + offset
    return features, targets, vectors + 0.3 * normal(k, d, seed=seed + 3), normal(k, seed=seed + 4)


@pytest.mark.parametrize(
    ("k", "d", "multiplicities", "offset"),
    [(3, 4, (1, 2), 0.0), (4, 3, (1, 2, 3), 5.0), (4, 6, (1, 3), 1e4), (5, 2, (1, 2), 0.0)],
)
def test_reference(k: int, d: int, multiplicities: tuple[int, ...], offset: float) -> None:
    features, targets, weight, bias = data(k, d, *multiplicities, offset=offset, seed=k)
    expected = reference(features.numpy(), targets.tolist(), weight.numpy(), bias.numpy())
    assert_agree(dict(ncscope.measure_multilabel(features, targets, weight, bias)), expected)
    assert min(expected.values()) >= 0
    assert 0 < expected["ml_accuracy"] <= 1


def test_the_authors_code() -> None:
    """Values of github.com/Heimine/NC_MLab, calculate_nc_stats of utility.py at d824232.

    Run in float64, with a copy in the place of line 191's alias, which writes the sum of each class
    over its first feature. Samples with one label have the mean zero, because that code divides
    their sum by the number of *all* samples, and does not centre the means for nc2_h.
    """
    features, targets, weight = balanced()
    report = ncscope.measure_multilabel(features, targets, weight)
    assert {key: report[key] for key in AUTHORS} == pytest.approx(AUTHORS, rel=1e-12)
    moved = ncscope.measure_multilabel(features + 0.7, targets)
    assert moved["ml_angle_m2"] == pytest.approx(26.17472053397996, rel=1e-12)
    assert moved["ml_ncm_m2"] == pytest.approx(0.44843879940529874, rel=1e-12)


def balanced() -> tuple[Tensor, Tensor, Tensor]:
    """Samples without a random draw, two label sets of each class, and a classifier."""
    k, d, each = 4, 6, 3
    targets = label_sets(k, 1, 2).repeat_interleave(each, 0)
    n = len(targets)
    numbers = torch.arange(n * d, dtype=torch.float64)
    vectors, weight = torch.cos(numbers[: k * d] ** 2), torch.sin(1 + numbers[: k * d])
    features = torch.sin(numbers**2).view(n, d) + 2 * targets.double() @ vectors.view(k, d)
    features[: k * each] -= features[: k * each].mean(0)
    return features, targets, weight.view(k, d)


AUTHORS = {
    "ml_nc1": 0.3896861175988012,
    "ml_nc2_weights": 1.3747908155209094,
    "ml_nc2_means": 0.6687712585222206,
    "ml_nc3": 1.3539747365726533,
    "ml_angle_m2": 45.57366295984274,
    "ml_ncm_m2": 0.5063740328871416,
}


@pytest.mark.parametrize("scales", [(1.0, 2.0, 3.0), (0.3, 5.0, 0.01)])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_exact_collapse_has_the_limits(scales: tuple[float, ...], offset: float) -> None:
    """Means of a simplex, tag-wise averages of any scale, uneven sets; then a common offset."""
    k, d = 5, 7
    means = simplex_etf(k, d, torch.Generator().manual_seed(0))
    targets = label_sets(k, 1, 2, 3)
    targets = targets.repeat_interleave(torch.arange(len(targets)) % 3 + 2, 0)
    m = targets.sum(1)
    factors = torch.tensor(scales, dtype=torch.float64)[m - 1] / m
    features = factors[:, None] * targets.double() @ means + offset
    report = ncscope.measure_multilabel(features, targets, 3 * means, torch.zeros(k))
    for key in report:
        if key.startswith("ml_scale"):
            assert report[key] == pytest.approx(scales[int(key[-1]) - 1] / scales[0])
        elif key.startswith(("ml_angle", "ml_ncm")) and offset:
            assert report[key] > 0.01  # of features as they are, as in the paper
        elif key != "ml_accuracy":
            assert abs(report[key]) < 1e-13
    if not offset:
        assert report["ml_accuracy"] == 1
    assert set(report.multiplicities) == {1, 2, 3}


def test_known_values_apart_from_collapse() -> None:
    """Two classes on the axes, and pairs that point along the first, up, and down."""
    features = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [2, 0, 0]]).repeat(2, 1)
    targets = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]).repeat(2, 1)
    report = ncscope.measure_multilabel(features, targets, torch.eye(3))
    assert report["ml_angle_m2"] == pytest.approx(45)
    # The sums of classes (0, 1) and (0, 2) are at 45 degrees, that of (1, 2) at 90.
    assert report["ml_ncm_m2"] == pytest.approx(45 / 60)
    assert report["ml_nc2_means"] < 1e-15
    # (2, 0, 0) - (1, 1, 1) / 3 against (1, 1, -2) / 6
    assert report["ml_scale_m2"] == pytest.approx((4 / 3 / 6 + 2 / 6 / 3) / (1 / 6) * 1.0)
    assert report["ml_tagwise_m2"] == pytest.approx(1 - (1 / 3) ** 2 / (1 / 6 * 3))
    assert math.isnan(report["ml_nc1_quotient_m2"])  # one label set
    backwards = features.clone()
    backwards[3::4] = -features[3::4] - 2
    opposed = ncscope.measure_multilabel(backwards, targets)
    assert opposed["ml_tagwise_m2"] == 1  # no scale of at least 0 fits better than 0


def pick_all_label_minimum(k: int, most: int, decays: tuple[float, float]):
    """The theorem's minimum: W a simplex, features C_m times the sum of their labels' rows.

    Of the loss, plus decays[0] / 2n times the features' and decays[1] / 2 times the classifier's
    squared length. One equation for each C_m, and one for the size of W, are solved by bisection.
    """
    targets = label_sets(k, *range(1, most + 1))
    frame = simplex_etf(k) * math.sqrt((k - 1) / k)  # Gram matrix I - 11'/k

    def excess(factor: float, length: float, m: int) -> float:
        gap = factor * length**2  # of a label's logit to another's
        inside = 1 / (m + (k - m) * math.exp(-gap))
        return 1 - m * inside * (1 - math.exp(-gap)) - decays[0] * factor

    def slope(length: float) -> float:
        _, features, weight = at(length)
        share = targets.sum(1, keepdim=True) * torch.softmax(features @ weight.mT, 1)
        gradient = (share - targets).mT @ features / len(targets) + decays[1] * weight
        return -float((gradient * weight).sum())

    def at(length: float) -> tuple[list[float], Tensor, Tensor]:
        factors = [
            bisect(lambda c, m=m: excess(c, length, m), 0.0, 1 / decays[0])
            for m in range(1, most + 1)
        ]
        scales = torch.tensor(factors, dtype=torch.float64)[targets.sum(1) - 1]
        return factors, scales[:, None] * targets.double() @ (length * frame), length * frame

    # A root is at 0 too, where all features are zero.
    factors, features, weight = at(bisect(slope, 1.0, 1e3))
    return factors, features, targets, weight


def bisect(function, low: float, high: float) -> float:
    """Where a function that is above zero at first, and then below, crosses it."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return low


def test_minimum_of_the_unconstrained_features_model() -> None:
    gaps = []
    for decays in ((0.05, 0.01), (1e-4, 1e-4)):
        factors, features, targets, weight = pick_all_label_minimum(5, 3, decays)
        features, weight = features.requires_grad_(), weight.requires_grad_()
        loss = pick_all_label(features @ weight.mT, targets)
        loss = loss + decays[0] / (2 * len(targets)) * features.square().sum()
        loss = loss + decays[1] / 2 * weight.square().sum()
        for gradient in torch.autograd.grad(loss, [features, weight]):
            assert gradient.abs().max() < 1e-12
        report = ncscope.measure_multilabel(features, targets, weight)
        for key in ("ml_nc2_means", "ml_nc2_weights", "ml_nc3", "ml_angle_m2", "ml_ncm_m3"):
            assert report[key] < 1e-13
        assert report["ml_tagwise_m2"] < 1e-24
        assert report["ml_accuracy"] == 1
        for m in (2, 3):
            assert report[f"ml_scale_m{m}"] == pytest.approx(m * factors[m - 1] / factors[0])
        gaps.append(3 - report["ml_scale_m3"])
    assert 0 < gaps[1] < 0.7 * gaps[0]  # the scale tends to m as the decay tends to 0


def train_free_features(decay: float, steps: int) -> ncscope.MultilabelReport:
    """Train features without a network, a classifier and a bias by the pick-all-label loss."""
    targets = label_sets(4, 1, 2).repeat_interleave(3, 0)
    features = (0.5 * normal(len(targets), 6, seed=1)).requires_grad_()
    weight = (0.5 * normal(4, 6, seed=2)).requires_grad_()
    bias = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    parameters = [features, weight, bias]
    descent = torch.optim.LBFGS(
        parameters, max_iter=steps, tolerance_grad=1e-12, tolerance_change=0, history_size=50,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        descent.zero_grad()
        loss = pick_all_label(features @ weight.mT + bias, targets)
        loss = loss + decay / 2 * (features.square().sum() / len(targets) + weight.square().sum())
        loss.backward()
        return loss

    descent.step(closure)
    return ncscope.measure_multilabel(features, targets, weight, bias)


@pytest.mark.slow
def test_training_with_the_loss_approaches_collapse() -> None:
    before, after = train_free_features(0.01, steps=0), train_free_features(0.01, steps=150)
    for key in before:
        if key not in ("ml_accuracy", "ml_scale_m2"):
            assert after[key] < 0.005 * before[key]
    assert after["ml_accuracy"] == 1
    assert 1.7 < after["ml_scale_m2"] < 1.9


@settings(max_examples=4)
@given(st.integers(0, 10**6), st.floats(0.1, 10.0))
def test_invariances(seed: int, factor: float) -> None:
    features, targets, weight, bias = data(4, 5, 1, 2, seed=seed)
    plain = dict(ncscope.measure_multilabel(features, targets, weight, bias))
    near = {key: pytest.approx(value, rel=1e-8, abs=1e-12) for key, value in plain.items()}
    turn = torch.linalg.qr(normal(5, 5, seed=seed + 9)).Q
    turned = factor * features @ turn, targets, weight @ turn / factor, bias
    assert dict(ncscope.measure_multilabel(*turned)) == near
    draws = torch.Generator().manual_seed(seed)
    rows, classes = (torch.randperm(n, generator=draws) for n in (len(targets), 4))
    mixed = features[rows], targets[rows][:, classes], weight[classes], bias[classes]
    assert dict(ncscope.measure_multilabel(*mixed)) == near
    twice = features.repeat(2, 1), targets.repeat(2, 1), weight, bias
    assert dict(ncscope.measure_multilabel(*twice)) == near
    moved = ncscope.measure_multilabel(features + 7, targets, weight)
    for key in (
        "ml_nc1",
        "ml_nc2_means",
        "ml_nc3",
        "ml_nc1_quotient_m2",
        "ml_tagwise_m2",
        "ml_scale_m2",
    ):
        assert moved[key] == near[key]


@pytest.mark.parametrize("scale", [2.0**400, 2.0**-400])
def test_magnitudes_and_types(scale: float) -> None:
    features, targets, weight, bias = data(3, 4, 1, 2)
    plain = ncscope.measure_multilabel(features, targets, weight)
    assert dict(ncscope.measure_multilabel(scale * features, targets, weight / scale)) == dict(
        plain
    )
    narrow = ncscope.measure_multilabel(features.float(), targets.bool(), weight)
    wide = ncscope.measure_multilabel(
        features.float().double().numpy(), targets.float().tolist(), weight.numpy()
    )
    assert dict(narrow) == dict(wide)
    beyond = ncscope.measure_multilabel(1e200 * features, targets, 1e200 * weight, bias)
    assert math.isnan(beyond["ml_accuracy"])
    assert any("ml_accuracy is undefined: a logit is beyond" in note for note in beyond.notes)


def test_what_the_definition_lacks_is_undefined_and_said() -> None:
    features, targets, weight, _ = data(4, 5, 1, 2, 3, 4)
    report = ncscope.measure_multilabel(features, targets, weight)
    assert all(math.isnan(report[key]) for key in report if key.endswith("_m4"))
    assert any("label set holds all classes" in note for note in report.notes)
    kept = (targets.sum(1) > 1) | (targets[:, 3] == 0)  # nobody has class 3 alone
    few = ncscope.measure_multilabel(features[kept], targets[kept], weight)
    lost = {"ml_nc1", "ml_nc2_means", "ml_nc3", "ml_tagwise_m2", "ml_scale_m3"}
    assert all(math.isnan(few[key]) for key in lost)
    assert any(all(key in note for key in lost) and "(class 3)" in note for note in few.notes)
    assert few["ml_nc1_quotient_m2"] == report["ml_nc1_quotient_m2"]
    assert few["ml_nc2_weights"] == report["ml_nc2_weights"]
    assert any(
        "mean of zero: 3 of 6 with 2 labels, 3 of 4 with 3 labels" in note for note in few.notes
    )
    # As the note advises: drop the column, and every sample that has its label.
    without = targets[:, 3] == 0
    smaller = ncscope.measure_multilabel(features[without], targets[without, :3])
    assert few["ml_angle_m2"] == pytest.approx(smaller["ml_angle_m2"])
    assert few["ml_ncm_m2"] == pytest.approx(smaller["ml_ncm_m2"])
    assert math.isfinite(smaller["ml_tagwise_m2"])
    none = targets.sum(1) > 1
    assert math.isnan(ncscope.measure_multilabel(features[none], targets[none])["ml_angle_m2"])


def test_samples_without_a_label_and_few_samples_are_named() -> None:
    features, targets, weight, _ = data(3, 4, 1, 2)
    empty = torch.zeros(2, 3, dtype=torch.int64)
    report = ncscope.measure_multilabel(
        torch.cat([features, normal(2, 4)]), torch.cat([targets, empty]), weight
    )
    assert dict(report) == dict(ncscope.measure_multilabel(features, targets, weight))
    assert report.notes[0] == f"2 of {len(features) + 2} samples left out: without a label"
    assert any(
        "3 of 3 with 1 label, 3 of 3 with 2 labels" in warning for warning in report.warnings
    )
    # A label set of one sample has no variability, and is left out of it.
    pair = (targets == torch.tensor([1, 1, 0])).all(1)
    first = pair & (pair.cumsum(0) == 1)
    lone, none = (
        ncscope.measure_multilabel(features[kept], targets[kept]) for kept in (~pair | first, ~pair)
    )
    assert lone["ml_nc1_quotient_m2"] == pytest.approx(none["ml_nc1_quotient_m2"], rel=1e-12)
    assert lone["ml_angle_m2"] != none["ml_angle_m2"]
    once = label_sets(3, 1, 2)
    single = ncscope.measure_multilabel(normal(6, 4), once)
    assert math.isnan(single["ml_nc1_quotient_m2"])
    assert any("ml_nc1_quotient_m2 is undefined: fewer than two" in note for note in single.notes)
    plain = ncscope.measure_multilabel(features[targets.sum(1) == 1], targets[targets.sum(1) == 1])
    assert list(plain) == ["ml_nc1", "ml_nc2_means"]
    assert any("measure has more metrics" in note for note in plain.notes)
    assert not any("measure has more metrics" in note for note in report.notes)


def test_angles_that_would_take_long_are_left_out(monkeypatch) -> None:
    features, targets, _, _ = data(4, 5, 1, 2)
    monkeypatch.setattr(multilabel, "MOST_ANGLES", 35)
    report = ncscope.measure_multilabel(features, targets)
    assert math.isnan(report["ml_ncm_m2"])
    assert math.isfinite(report["ml_angle_m2"])
    assert any("ml_ncm_m2 is undefined: more than 35 angles" in note for note in report.notes)


BAD = {
    "sparse": (
        lambda y: pytest.importorskip("scipy.sparse").csr_matrix(y),
        r"pass targets\.toarray",
    ),
    "one label each": (lambda y: y.argmax(1), "for one label a sample call measure"),
    "on their side": (lambda y: y.T, "transpose the targets: one row a sample"),
    "other rows": (lambda y: y[:5], r"targets of shape \(\d+, K\), .*found shape \(5, 3\)"),
    "lists of labels": (lambda y: [[0], [1, 2]], "MultiLabelBinarizer of scikit-learn"),
    "unknown labels": (lambda y: np.where(np.eye(*y.shape), -1, y), r"keep = \(targets != -1\)"),
    "signs": (lambda y: 2 * y - 1, "pass targets > 0 if -1"),
    "probabilities": (lambda y: 0.9 * y, "found 0.9 at row 0, column .*; pass targets > 0.5"),
    "NaN": (lambda y: y * np.nan, "found nan at row 0, column 0"),
    "no label": (lambda y: 0 * y, "at least one sample with a label"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_targets(name: str) -> None:
    change, message = BAD[name]
    features, targets, _, _ = data(3, 4, 1, 2)
    with pytest.raises(InputError, match=message):
        ncscope.measure_multilabel(features, change(targets.numpy()))


def test_bad_classifiers_and_features() -> None:
    features, targets, weight, bias = data(3, 4, 1, 2)
    with pytest.raises(InputError, match="transpose it"):
        ncscope.measure_multilabel(features, targets, weight.mT)
    with pytest.raises(InputError, match="a weight along with the bias"):
        ncscope.measure_multilabel(features, targets, bias=bias)
    with pytest.raises(InputError, match="finite features"):
        ncscope.measure_multilabel(features * math.nan, targets)
    with pytest.raises(InputError, match=r"a weight of shape \(2, 4\)"):  # one logit has no sets
        ncscope.measure_multilabel(features, targets[:, :2], weight[:1])


def test_measure_names_the_way() -> None:
    features, targets, _, _ = data(3, 4, 1, 2)
    with pytest.raises(InputError, match="call measure_multilabel"):
        ncscope.measure(features, targets)
    loader = [(features.float(), targets)]
    with pytest.raises(InputError, match="call measure_multilabel"):
        ncscope.measure_model(torch.nn.Sequential(torch.nn.Linear(4, 3)), loader, progress=False)


def test_report_is_saved(tmp_path) -> None:
    features, targets, weight, _ = data(3, 4, 1, 2, 3)
    report = ncscope.measure_multilabel(features, targets, weight)
    content = json.loads(report.save(tmp_path / "a.json").read_text())
    assert content["metrics"]["ml_nc1"] == report["ml_nc1"]
    assert content["metrics"]["ml_nc1_quotient_m3"] is None
    assert content["multiplicities"]["2"]["label_sets"] == 3
    lines = report.save(tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "metric,value,collapsed_at,meaning"
    assert len(lines) == len(report) + 1
    at = {row["metric"]: row["collapsed_at"] for row in report.rows()}
    assert (at["ml_nc1"], at["ml_accuracy"], at["ml_scale_m2"]) == (0, 1, None)
    assert "3 label sets of 2" in repr(report)
    page = report.save(tmp_path / "a.html", title="<several> labels").read_text()
    assert "<h1>&lt;several&gt; labels</h1>" in page
    assert "3 label sets of 2" in page
    for key, value in report.items():
        row = re.search(f'title="{key}[";].*?<td class="number">(.*?)</td>', page, re.DOTALL)
        assert row is not None, key
        assert row[1] == typeset(value, 4)
    with pytest.raises(KeyError, match="'ml_nc3' was not measured; it needs the last layer's"):
        ncscope.measure_multilabel(features, targets)["ml_nc3"]
    with pytest.raises(KeyError, match="the keys are ml_nc1, "):
        report["nc1"]


def test_the_page_lists_every_key() -> None:
    page = (ROOT / "docs" / "field" / "multi-label.md").read_text()
    for row in metrics_of_module(multilabel.__name__):
        assert f"| `{row.key}2` |" in page or f"| `{row.key}` |" in page
