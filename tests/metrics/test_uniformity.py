"""NC0, log-norms, energies of directions and uniform duality: closed forms, bounds, edges."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

import ncscope
from ncscope.math.frames import simplex_etf
from ncscope.metrics.class_means import lognorm_spread
from ncscope.metrics.duality import row_cosines, row_sum, row_sum_norm
from ncscope.metrics.registry import METRICS
from ncscope.metrics.uniformity import uniformity

from ..closeness import mismatches
from ..reference import uniformity as reference
from ..reference.exact import mp, vectors

ENERGIES = [key for key in METRICS if key.startswith("gnc2_")]


def draws(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def measured(means: torch.Tensor, *weight: torch.Tensor, **options: object) -> ncscope.Report:
    return ncscope.measure(means, torch.arange(len(means)), *weight, **options)


def energies(vectors_: torch.Tensor) -> dict[str, float]:
    found = uniformity(vectors_)
    return {key: float(getattr(found, key.removeprefix("gnc2_"))) for key in ENERGIES}


@pytest.mark.parametrize("k", [2, 3, 7, 300])
def test_a_simplex_attains_the_bounds(k: int) -> None:
    found = energies(5 * simplex_etf(k, generator=torch.Generator().manual_seed(k)))
    distance = math.sqrt(2 * k / (k - 1))
    assert found["gnc2_distance"] == pytest.approx(distance, rel=1e-15)
    assert found["gnc2_riesz"] == pytest.approx(1 / distance, rel=1e-15)
    assert found["gnc2_log"] == pytest.approx(-math.log(distance), rel=1e-14)
    for key in ("gnc2_log_std", "gnc2_riesz_cv", "gnc2_distance_cv"):
        assert found[key] < 1e-13


@pytest.mark.parametrize(("k", "d"), [(5, 2), (9, 3), (40, 4), (12, 11), (6, 20)])
def test_the_simplex_bounds_every_frame(k: int, d: int) -> None:
    for seed in range(5):
        found = energies(draws(k, d, seed=seed) + 1)
        for key in ("gnc2_log", "gnc2_riesz"):
            assert found[key] > METRICS[key].at_collapse(k)
        assert found["gnc2_distance"] < METRICS["gnc2_distance"].at_collapse(k)


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9])
def test_spreads_near_a_simplex_keep_their_digits(size: float) -> None:
    frame = simplex_etf(6, dim=8) + size * draws(6, 8)
    wanted = {k: float(v) for k, v in reference.uniformity(vectors(frame), mp.zero).items()}
    assert size / 10 < wanted["gnc2_log_std"] < 10 * size
    assert not mismatches(energies(frame), wanted, rel=1e-15 / size + 1e-12, abs_tol=0)


@pytest.mark.parametrize("angle", [1e-2, 1e-5, 1e-9])
def test_close_directions_keep_their_digits(angle: float) -> None:
    frame = draws(6, 8)
    frame[1] = 3 * frame[0] + angle * frame[2]
    wanted = {k: float(v) for k, v in reference.uniformity(vectors(frame), mp.zero).items()}
    assert not mismatches(energies(frame), wanted, rel=1e-15 / angle + 1e-11, abs_tol=0)


def test_coincident_directions_are_infinite_with_a_note() -> None:
    means = torch.tensor([[1.0, 2, 0], [2, 4, 0], [-3, 0, 1], [0, -6, -1]]).double()
    report = measured(means)
    for key in ("gnc2_log", "gnc2_riesz"):
        assert report[key] == math.inf
        assert any(note.startswith(f"{key} is infinite: two centred") for note in report.notes)
    for key in ("gnc2_log_std", "gnc2_riesz_cv"):
        assert math.isnan(report[key])
        assert any(note.startswith(f"{key} is undefined: ") for note in report.notes)
    # of six pairs one is at no distance
    assert 0 < report["gnc2_distance"] < 2
    assert report["gnc2_distance_cv"] > 0
    assert ncscope.Report.from_json(report.to_json())["gnc2_log"] == math.inf


def test_a_mean_in_the_centre_has_no_direction() -> None:
    report = measured(torch.tensor([[1.0, 0], [-1, 0], [0, 0]]).double(), draws(3, 2))
    for key in [*ENERGIES, "nc2_lognorm_std_means", "unc3", "unc3_mean"]:
        assert math.isnan(report[key])
        assert any(key in note and "undefined" in note for note in report.notes)


def test_energies_are_left_out_with_many_classes_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key in ENERGIES:
        monkeypatch.setitem(METRICS, key, replace(METRICS[key], most_classes=4))
    monkeypatch.setitem(METRICS, "cdnv", replace(METRICS["cdnv"], most_classes=3))
    report = measured(draws(5, 3))
    assert not {*ENERGIES, "cdnv"} & set(report)
    notes = [note for note in report.notes if note.startswith("left out with more than")]
    assert [note.rpartition(" classes")[0][-1] for note in notes] == ["3", "4"]
    assert set(ENERGIES) <= set(measured(draws(4, 3)))
    assert {"nc2_lognorm_std_means", "seli_means", "minority_cosine_means"} <= set(report)
    assert set(measured(draws(5, 3), groups=["gnc2_log"])) == {"gnc2_log"}


def test_lognorms_by_hand() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 5.0], [-1.0, 0.0], [0.0, 1.0]]).double()
    assert float(lognorm_spread(rows)) == pytest.approx(math.log(5) / 2, rel=1e-15)
    assert float(lognorm_spread(1e-300 * rows)) == pytest.approx(math.log(5) / 2, rel=1e-15)
    assert float(lognorm_spread(simplex_etf(9))) < 1e-15
    assert math.isnan(lognorm_spread(torch.zeros(3, 2).double()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_nc0_by_hand(dtype: torch.dtype) -> None:
    rows = torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=dtype)
    assert float(row_sum(rows)) == pytest.approx(1 / math.sqrt(2), rel=1e-15)
    assert row_sum_norm(rows, 3) == 40
    assert float(row_sum(torch.ones(7, 3, dtype=dtype))) == 1
    assert math.isnan(row_sum(torch.zeros(7, 3, dtype=dtype)))
    assert row_sum_norm(torch.ones(2, 1, dtype=torch.float64), 1023) != math.inf


def test_nc0_is_of_all_rows_of_the_classifier() -> None:
    means, weight = draws(3, 4), simplex_etf(5, dim=4)
    report = measured(means, weight)
    assert report["nc0"] < 1e-15
    assert report["nc0_norm"] < 1e-14
    assert measured(means, weight[:3])["nc0"] > 0.1


def test_row_cosines_by_hand() -> None:
    weight = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]]).double()
    frame = torch.tensor([[1.0, 0.0], [0.0, -5.0], [4.0, 0.0]]).double()
    found, cosines = row_cosines(weight, frame), [1, -1, math.sqrt(0.5)]
    assert float(found.mean) == pytest.approx(np.mean(cosines), rel=1e-14)
    assert float(found.variance) == pytest.approx(np.var(cosines), rel=1e-14)


def test_row_cosines_near_alignment_keep_their_digits() -> None:
    frame = draws(5, 7)
    spreads = [1e-2, 1e-4, 1e-6]
    found = []
    for size in spreads:
        weight = 3 * frame + size * draws(5, 7, seed=1)
        wanted = reference.uniform_duality(vectors(weight), vectors(frame), mp.zero)["unc3"]
        found.append(float(row_cosines(weight, frame).variance))
        assert found[-1] == pytest.approx(float(wanted), rel=1e-14 / size + 1e-12, abs=0)
    for (one, other), (large, small) in zip(pairwise(found), pairwise(spreads), strict=True):
        assert other / one == pytest.approx((small / large) ** 4, rel=0.1)


def test_an_offset_costs_what_its_rounding_costs() -> None:
    means, weight = draws(6, 8), draws(6, 8, seed=1)
    near, far = measured(means, weight), measured(means + 1e6, weight)
    for key in [*ENERGIES, "nc2_lognorm_std_means", "unc3", "unc3_mean", "seli_means"]:
        assert far[key] == pytest.approx(near[key], rel=1e-8)


def test_invariances() -> None:
    means, weight = draws(6, 8), draws(6, 8, seed=1)
    turn = torch.linalg.qr(draws(8, 8, seed=2))[0]
    keys = [*ENERGIES, "nc2_lognorm_std_means", "nc2_lognorm_std_weights", "nc0", "unc3"]
    before = measured(means, weight)
    after = measured(3 * means @ turn + draws(8, seed=3), 7 * weight @ turn)
    assert not mismatches(after, {key: before[key] for key in keys}, rel=1e-12, abs_tol=0)
    assert after["nc0_norm"] == pytest.approx(7 * before["nc0_norm"], rel=1e-13)
