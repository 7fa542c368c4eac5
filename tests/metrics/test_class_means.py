"""Norms, angles and frames of vectors, by hand; a frame's distance keeps its digits near 0."""

import math
import re

import pytest
import torch
from torch import Tensor

import ncscope
from ncscope.math.frames import orthogonal_frame, simplex_etf
from ncscope.metrics.class_means import (
    cosines,
    equiangular,
    equinorm,
    etf_distance,
    maxangle,
    orthogonal_frame_distance,
)
from ncscope.metrics.duality import alignment, logit_etf_distance, self_duality
from ncscope.metrics.registry import METRICS

ROWS = torch.tensor([[3.0, 4.0], [0.0, -2.0], [-1.0, 0.0]], dtype=torch.float64)


def test_norms_and_angles_by_hand() -> None:
    lengths, between = [5, 2, 1], [-0.8, -0.6, 0.0]
    spread = math.sqrt(sum((length - 8 / 3) ** 2 for length in lengths) / 3)
    assert float(equinorm(ROWS)) == pytest.approx(spread / (8 / 3), rel=1e-14)
    mean = -1.4 / 3
    deviation = math.sqrt(sum((cosine - mean) ** 2 for cosine in between) / 3)
    assert float(equiangular(ROWS)) == pytest.approx(deviation, rel=1e-13)
    assert float(maxangle(ROWS)) == pytest.approx((0.3 + 0.1 + 0.5) / 3, rel=1e-13)
    expected = torch.tensor([[1, -0.8, -0.6], [-0.8, 1, 0], [-0.6, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(cosines(ROWS), expected, rtol=1e-14, atol=1e-15)


def spread_of_cosines(rows: Tensor) -> float:
    """Return the spread over pairs from the differences, which cancel least."""
    k, unit = len(rows), torch.nn.functional.normalize(rows)
    off = (unit @ unit.mT)[~torch.eye(k, dtype=torch.bool)]
    return float(off.std(correction=0))


@pytest.mark.parametrize("k", [6, 7, 8, 40])  # the d x d form is used from k = 7 on
@pytest.mark.parametrize("offset", [0, 1, 1e3])
def test_equiangular_of_many_vectors_is_that_of_their_pairs(k: int, offset: float) -> None:
    rows = torch.randn(k, 3, generator=torch.Generator().manual_seed(k)).double()
    rows += offset * rows[0]
    accuracy = 1e-15 / spread_of_cosines(rows)
    assert float(equiangular(rows)) == pytest.approx(spread_of_cosines(rows), rel=100 * accuracy)
    assert float(equiangular(7 * rows)) == pytest.approx(float(equiangular(rows)), rel=1e-9)


def test_equiangular_of_equal_vectors_is_zero_and_of_a_zero_vector_nan() -> None:
    assert float(equiangular(torch.ones(9, 2).double())) < 1e-15
    assert float(equiangular(torch.tensor([[1.0], [-1], [1], [-1]]).double())) == pytest.approx(
        math.sqrt(8) / 3, rel=1e-15
    )
    assert math.isnan(equiangular(torch.eye(9, 2).double()))


def test_cosines_with_a_zero_vector_are_nan() -> None:
    found = cosines(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64))
    assert found.isnan().tolist() == [[False, True], [True, True]]


def apart(product: Tensor, frame: Tensor) -> float:
    """Return the distance of two matrices, the first brought to norm 1."""
    return float(torch.linalg.matrix_norm(product / torch.linalg.matrix_norm(product) - frame))


def simplex(k: int) -> Tensor:
    return (torch.eye(k).double() - 1 / k) / math.sqrt(k - 1)


@pytest.mark.parametrize("k", [2, 3, 4, 7])
def test_the_distance_of_almost_a_simplex_keeps_its_digits(k: int) -> None:
    """A simplex fits into k - 1 dimensions: k is larger than d, and almost all cancels."""
    draws = torch.Generator().manual_seed(0)
    frame = simplex_etf(k, generator=draws)
    assert frame.shape == (k, k - 1)
    frame = frame + 1e-9 * torch.randn(k, k - 1, generator=draws).double()
    small = apart(frame @ frame.mT, simplex(k))
    assert 1e-10 < small < 1e-8
    assert float(etf_distance(5 * frame)) == pytest.approx(small, rel=1e-4)
    assert float(logit_etf_distance(5 * frame, 7 * frame)) == pytest.approx(small, rel=1e-4)


@pytest.mark.parametrize("k", [3, 4, 7])
def test_a_simplex_is_as_far_from_orthogonal_vectors_as_they_from_it(k: int) -> None:
    frame = simplex_etf(k)
    assert float(etf_distance(frame)) < 1e-14
    assert float(logit_etf_distance(frame, 7 * frame)) < 1e-14
    to_orthogonal = math.sqrt(2 - 2 * math.sqrt((k - 1) / k))
    assert float(orthogonal_frame_distance(frame)) == pytest.approx(to_orthogonal, rel=1e-13)
    orthogonal = orthogonal_frame(k)
    assert float(orthogonal_frame_distance(orthogonal)) < 1e-14
    assert float(etf_distance(orthogonal)) == pytest.approx(to_orthogonal, rel=1e-13)


@pytest.mark.parametrize(("k", "d"), [(7, 2), (7, 3), (6, 3), (5, 3), (4, 6), (9, 1)])
def test_distances_of_vectors_whose_sum_is_not_zero_are_those_of_the_matrices(
    k: int, d: int
) -> None:
    draws = torch.Generator().manual_seed(k)
    first, second = (torch.randn(k, d, generator=draws).double() + 1 for _ in range(2))
    unit = torch.eye(k).double() / math.sqrt(k)
    gram, logits = first @ first.mT, first @ second.mT
    assert float(etf_distance(first)) == pytest.approx(apart(gram, simplex(k)), rel=1e-6)
    assert float(orthogonal_frame_distance(first)) == pytest.approx(apart(gram, unit), rel=1e-6)
    expected = apart(logits, simplex(k))
    assert float(logit_etf_distance(first, second)) == pytest.approx(expected, rel=1e-6)


def test_a_classifier_against_class_means_by_hand() -> None:
    weight = torch.tensor([[2.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    means = torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    square = (1 - 3 / 5) ** 2 + (4 / 5) ** 2
    assert float(self_duality(weight, means)) == pytest.approx(square, rel=1e-14)
    assert float(alignment(weight, means)) == pytest.approx(math.sqrt(square), rel=1e-14)
    assert float(self_duality(weight, -weight)) == 4
    assert float(alignment(weight, 3 * weight)) == 0


def test_what_two_classes_fix_is_declared_and_free_of_rounding() -> None:
    """Of any two classes; what is measured on request is asked for."""
    rows = [row for row in METRICS.values() if row.group != "ood"]
    asked = [*{row.group for row in rows}, *(row.key for row in rows if row.on_request)]
    reports = []
    for seed, sizes in enumerate([(50, 50), (50, 30), (20, 60)]):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.repeat_interleave(torch.arange(2), torch.tensor(sizes))
        features, weight, offset = (
            torch.randn(rows, 8, generator=generator, dtype=torch.float64)
            for rows in (len(labels), 2, 2)
        )
        reports.append(
            ncscope.measure(
                3 * features + offset[labels], labels, weight, groups=asked, baseline=True
            )
        )
    first = reports[0]
    declared = {key: row.for_two_classes for key, row in METRICS.items() if key in first}
    same = {
        key: first[key]
        for key in declared
        if all(abs(report[key] - first[key]) < 1e-12 for report in reports)
    }
    assert same == {key: value for key, value in declared.items() if value is not None}
    for report in reports:
        assert {key: report[key] for key in same} == same
        chance = {key: value for key, value in report.baseline.items() if key in same}
        assert chance == {key: same[key] for key in chance}
        (note,) = [note for note in report.notes if note.startswith("two classes fix")]
        assert all(key in note for key in [*same, "pfc2"])
        assert report.notes[0] == note
    features = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    three = ncscope.measure(features, torch.arange(60) % 3)
    assert three["nc2_etf"] > 0
    assert not any("two classes fix" in note for note in three.notes)


def test_what_one_logit_fixes_is_said() -> None:
    labels = torch.arange(60) % 2
    features = torch.randn(60, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        row = torch.randn(1, 5, generator=generator, dtype=torch.float64)
        report = ncscope.measure(features, labels, row, torch.zeros(1).double())
        (note,) = [note for note in report.notes if "by construction" in note]
        assert "nc0, unc3 and NC2 of the weights are 0" in note
        fixed = ["nc0", "unc3", *(key for key in report if re.fullmatch(r"nc2_.*_weights", key))]
        assert max(report[key] for key in fixed) < 1e-15
        assert min(abs(report["nc3_etf"] - value) for value in (0, 2)) < 1e-12
