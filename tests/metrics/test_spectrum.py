"""Metrics of the spectra: known spectra, invariances, offsets, and both ways to the eigenvalues."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import ncscope
from ncscope.math.frames import simplex_etf
from ncscope.metrics import spectrum
from ncscope.metrics.registry import METRICS

from ..closeness import assert_agree
from ..reference.instances import INSTANCES, rotation
from ..reference.spectra import reference_unlabelled
from .degenerate import DEGENERATE

SPECTRAL = {key for key, row in METRICS.items() if not row.needs_classes}
ENTROPIES = {"rankme", "effective_rank_features"}


def with_eigenvalues(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """2d samples of mean zero whose covariance has exactly these eigenvalues, up to a rotation."""
    steps = np.sqrt(len(values) * values)[:, None] * np.eye(len(values))
    return np.vstack([steps, -steps]) @ rotation(np.random.default_rng(seed), len(values))


def measured(features, labels=None, **options) -> dict[str, float]:
    report = ncscope.measure(features, labels, groups=["spectra"], **options)
    assert set(report) == SPECTRAL
    return dict(report)


@pytest.mark.parametrize("dim", [4, 300])  # 300: the root is one of Cholesky
def test_white_features(dim: int) -> None:
    found = measured(with_eigenvalues(np.full(dim, 3.0)))
    wanted = dict.fromkeys(("rankme", "effective_rank_features", "participation_ratio"), float(dim))
    assert_agree(found, wanted | {"alpha_req": 0.0, "alpha_req_r2": math.nan}, abs_tol=1e-11)


@pytest.mark.parametrize("dim", [5, 40, 300])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_a_power_law_has_its_exponent(alpha: float, dim: int) -> None:
    values = np.arange(1.0, dim + 1) ** -alpha
    found = measured(with_eigenvalues(values))
    roots = np.sqrt(values) / np.sqrt(values).sum()
    shares = values / values.sum()
    wanted = {
        "rankme": np.exp(-(roots * np.log(roots)).sum()),
        "effective_rank_features": np.exp(-(shares * np.log(shares)).sum()),
        "participation_ratio": 1 / (shares**2).sum(),
        "alpha_req": alpha,
        "alpha_req_r2": 1.0,
    }
    assert_agree(found, wanted)


def test_the_exponent_is_that_of_the_eigenvalues_that_are_not_zero() -> None:
    values = np.arange(1.0, 13) ** -1.5 * (np.arange(12) < 7)
    report = ncscope.measure(with_eigenvalues(values))
    assert report["alpha_req"] == pytest.approx(1.5, rel=1e-9)
    assert any("7 of 12 eigenvalues" in note for note in report.notes)


@pytest.mark.parametrize("rank", [1, 2, 6])
def test_equal_directions_count_as_their_number(rank: int) -> None:
    found = measured(with_eigenvalues(np.array([2.0] * rank + [0.0] * (9 - rank))))
    for key in ("rankme", "effective_rank_features", "participation_ratio"):
        assert found[key] == pytest.approx(rank, rel=1e-7)


@pytest.mark.parametrize("k", [2, 4, 7])
def test_collapse_to_a_simplex_has_k_minus_one_directions(k: int) -> None:
    frame = simplex_etf(k, dim=12)
    report = ncscope.measure(frame.repeat(3, 1), torch.arange(k).repeat(3), frame)
    for key in ("rankme", "effective_rank_features", "participation_ratio"):
        assert report[key] == pytest.approx(k - 1, rel=1e-12)


@pytest.mark.parametrize("spread", [1e-3, 1e-6, 1e-9])
def test_near_collapse(spread: float) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 5
    frame = simplex_etf(5, dim=12).numpy() @ rotation(rng, 12)
    features = frame[labels] + spread * rng.normal(size=(60, 12))
    found, wanted = measured(features, labels), reference_unlabelled(features)
    loose = ENTROPIES if spread < 1e-6 else set()
    for key in SPECTRAL - ({"alpha_req", "alpha_req_r2"} if spread < 1e-6 else set()):
        assert found[key] == pytest.approx(wanted[key], rel=1e-4 if key in loose else 1e-9)


@pytest.mark.parametrize("name", INSTANCES)
def test_labels_change_nothing(name: str) -> None:
    """With labels the values are those of the reference: see test_conformance."""
    features, labels = INSTANCES[name]().features, INSTANCES[name]().labels
    assert_agree(measured(features), measured(features, labels))


@pytest.mark.parametrize("name", ["imbalanced", "more_classes_than_dims", "two_classes", "relu"])
def test_a_large_common_offset_costs_no_digits(name: str) -> None:
    instance = INSTANCES[name]()
    features = instance.features + 1e6
    wanted = reference_unlabelled(features)
    assert_agree(measured(features), wanted)
    assert_agree(measured(features, instance.labels), wanted)


# The reference does not take features that are all zero.
@pytest.mark.parametrize("name", [n for n in DEGENERATE if n != "all_zero"])
def test_degenerate_features_without_labels(name: str) -> None:
    features = DEGENERATE[name]().features
    report = ncscope.measure(features)
    assert_agree(dict(report), reference_unlabelled(features))
    for key in (key for key, value in report.items() if math.isnan(value)):
        assert any(note.startswith(f"{key} is undefined: ") for note in report.notes)


@pytest.mark.parametrize("rows", [1, 5])
def test_features_that_do_not_vary(rows: int) -> None:
    report = ncscope.measure(np.full((rows, 3), 0.1) + np.array([0.0, 1e3, -7.7]))
    assert report["rankme"] == 1
    assert {key for key in report if math.isnan(report[key])} == SPECTRAL - {"rankme"}
    assert "participation_ratio is undefined: the features do not vary" in report.notes
    nothing = ncscope.measure(np.zeros((rows, 3)))
    assert all(math.isnan(value) for value in nothing.values())
    assert "rankme is undefined: all features are zero" in nothing.notes


@pytest.mark.parametrize("shape", [(40, 6), (6, 10), (3, 2), (2, 1)], ids=str)
def test_any_shape_is_the_reference(shape: tuple[int, int]) -> None:
    features = np.random.default_rng(1).normal(size=shape) + 1
    assert_agree(measured(features), reference_unlabelled(features))


@pytest.mark.parametrize("shape", [(50, 6), (5, 9)], ids=str)
def test_rotation_scale_shift_and_order(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=shape) * np.arange(1, shape[1] + 1) + 3
    base, turn = measured(features), rotation(rng, shape[1])
    assert_agree(measured(0.01 * features @ turn), base)
    assert_agree(measured(np.repeat(features, 3, axis=0)[::-1]), base)
    moved = measured(features - 8)
    assert moved.pop("rankme") != pytest.approx(base["rankme"], rel=1e-3)
    assert_agree(moved, {key: base[key] for key in moved})


@pytest.mark.parametrize("exponent", [-997, -300, -149, 300, 997])
def test_features_of_any_scale(exponent: int) -> None:
    features = np.round(np.random.default_rng(3).normal(size=(30, 5)) * 2**12) / 2**12
    assert measured(features * 2.0**exponent) == measured(features)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8])
def test_every_type_of_the_same_numbers(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    features = (20 * torch.randn(40, 6, generator=generator)).to(dtype)
    assert measured(features) == measured(features.double())


def test_float32_features_with_a_large_mean() -> None:
    features = (np.random.default_rng(5).normal(size=(40, 6)) + 1e4).astype(np.float32)
    assert_agree(measured(features), reference_unlabelled(features.astype(np.float64)))


@pytest.mark.parametrize("dim", [20, 300])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_both_ways_to_the_eigenvalues_agree(
    monkeypatch: pytest.MonkeyPatch, offset: float, dim: int
) -> None:
    rng = np.random.default_rng(6)
    labels = np.arange(900) % 6
    features = rng.normal(size=(900, dim)) + rng.normal(size=(6, dim))[labels] + offset
    by_matrix = measured(features), measured(features, labels)
    monkeypatch.setattr(spectrum, "_WELL_CONDITIONED", math.inf)
    for before, after in zip(
        by_matrix, (measured(features), measured(features, labels)), strict=True
    ):
        assert before != after
        assert_agree(after, before)


def test_the_uniform_prior_weighs_classes_alike() -> None:
    """As many copies of each sample as make the classes equally large."""
    instance = INSTANCES["imbalanced"]()
    sizes = np.bincount(instance.labels)
    copies = (np.lcm.reduce(sizes) // sizes)[instance.labels]
    balanced = np.repeat(instance.features, copies, axis=0)
    found = measured(instance.features, instance.labels, prior="uniform")
    assert_agree(found, measured(balanced))
    assert found["rankme"] != pytest.approx(measured(instance.features)["rankme"], rel=1e-3)


def test_chance_level_has_no_metric_that_labels_do_not_change() -> None:
    instance = INSTANCES["balanced"]()
    report = ncscope.measure(instance.features, instance.labels, baseline=True)
    assert report.baseline
    assert not SPECTRAL & set(report.baseline)


@pytest.mark.parametrize(("n", "d", "rank"), [(30, 90, 29), (120, 90, 90), (2000, 64, 40)])
@pytest.mark.parametrize("labelled", [True, False])
def test_products_in_float32_leave_no_tail_of_noise(
    n: int, d: int, rank: int, labelled: bool
) -> None:
    """Features of a lower rank than their dimension, by few samples or by dependence."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n, d)) + 2 * np.eye(4, d)[np.arange(n) % 4]
    if n > d > rank:
        features = features[:, :rank] @ rng.normal(size=(rank, d))
    labels = np.arange(n) % 4 if labelled else None
    exact = ncscope.measure(features, labels, groups=["spectra"])
    report = ncscope.measure(features, labels, groups=["spectra"], precision="blocked")
    lost = "does not resolve" in " ".join(report.warnings)
    for key, value in exact.items():
        assert report[key] == pytest.approx(value, rel=0.05 if rank == d else 1e-5), key
    assert lost == (rank < d)
    assert not any("does not resolve" in said for said in exact.warnings)


def test_the_decay_of_a_layer_normalisation_is_that_in_float64() -> None:
    """It fixes a combination of the features, which in float32 varies by rounding alone."""
    torch.manual_seed(0)
    parts = nn.Linear(20, 8), nn.GELU(), nn.Linear(8, 8), nn.LayerNorm(8)
    model = nn.Sequential(*parts)
    inputs = torch.randn(500, 20)
    with torch.no_grad():
        single, double = model(inputs), model.double()(inputs.double())
    found, wanted = (ncscope.measure(each)["alpha_req"] for each in (single, double))
    assert found == pytest.approx(wanted, rel=1e-3)


def test_eigenvalues_between_both_cuts_are_not_fitted() -> None:
    whole = np.array([1, 0.5, 0.3, 0.2, 0.1, 0.05, 1e-13, 5e-14])
    features = with_eigenvalues(whole)
    wanted = {key: float(value) for key, value in reference_unlabelled(features).items()}
    found = measured(features)
    for key in ("alpha_req", "alpha_req_r2"):
        assert found[key] == pytest.approx(wanted[key], rel=1e-9)
    assert found["alpha_req"] == pytest.approx(measured(with_eigenvalues(whole[:6]))["alpha_req"])
