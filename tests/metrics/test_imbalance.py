"""SELI and minority cosines: dense formulas, closed forms, a trained model, many classes."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ncscope
from ncscope.math.frames import simplex_etf
from ncscope.metrics import imbalance
from ncscope.metrics.class_means import etf_distance
from ncscope.metrics.duality import logit_etf_distance
from ncscope.metrics.imbalance import minority_cosine, seli_means, seli_weights, size_spectrum

from ..reference import imbalance as reference
from ..reference.exact import mp, vectors

SIZES = {
    "two classes": [3, 8],
    "all different": [1, 2, 5, 9, 40],
    "two sizes": [100, 100, 100, 5, 5, 5, 5],
    "many of one size": [1] * 9 + [2] * 3 + [60],
    "one far larger": [1, 2, 3, 10**7],
}
each_sizes = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def encoded(sizes: list[int]) -> tuple[Tensor, Tensor]:
    """Weight and class means of the decomposed label matrix of these sizes.

    The labels of class c, repeated n_c times, are one column of length sqrt(n_c).
    """
    k, counts = len(sizes), torch.tensor(sizes).double()
    labels = (torch.eye(k).double() - 1 / k) * counts.sqrt()
    left, values, right = torch.linalg.svd(labels)
    roots = values[: k - 1].sqrt()
    weight = left[:, : k - 1] * roots
    return weight, (roots[:, None] * right[: k - 1] / counts.sqrt()).mT


def exact(points: Tensor, sizes: list[int], power: int) -> float:
    target = reference.powers(sizes)[power]
    return float(reference.gram_distance(vectors(points), target, mp.zero))


@each_sizes
def test_the_decomposed_labels_are_the_geometry(sizes: list[int]) -> None:
    weight, means = encoded(sizes)
    spectrum = size_spectrum(torch.tensor(sizes))
    assert float(seli_weights(weight, spectrum)) < 1e-13
    assert float(seli_means(means, spectrum)) < 1e-11  # the decomposition loses small values
    assert float(logit_etf_distance(weight, means)) < 1e-11


@each_sizes
@pytest.mark.parametrize("d", [1, 3, 20])
def test_distances_are_those_of_the_matrices(sizes: list[int], d: int) -> None:
    points, spectrum = draws(len(sizes), d) + 0.3, size_spectrum(torch.tensor(sizes))
    for power, distance in enumerate((seli_weights, seli_means)):
        wanted = exact(points, sizes, power)
        assert float(distance(points, spectrum)) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("far", [1e-3, 10.0], ids=["as far as they are", "always by blocks"])
def test_both_ways_with_few_dimensions_agree(monkeypatch: pytest.MonkeyPatch, far: float) -> None:
    sizes = SIZES["many of one size"]
    points, spectrum = draws(len(sizes), 2), size_spectrum(torch.tensor(sizes))
    monkeypatch.setattr(imbalance, "_FAR", far)
    for power, distance in enumerate((seli_weights, seli_means)):
        assert float(distance(points, spectrum)) == pytest.approx(exact(points, sizes, power))


def test_near_the_geometry_few_dimensions_keep_the_digits() -> None:
    """Two classes hold almost all: a Gram matrix of rank 2 of 9 is near the geometry."""
    sizes = [1] * 7 + [10**9, 10**9]
    spectrum = size_spectrum(torch.tensor(sizes))
    points = encoded(sizes)[0][:, :2]
    wanted = exact(points, sizes, 0)
    assert wanted < 0.01
    assert float(seli_weights(points, spectrum)) == pytest.approx(wanted, rel=1e-10)


@each_sizes
@pytest.mark.parametrize("size", [1e-3, 1e-6])
def test_near_the_geometry_distances_keep_their_digits(sizes: list[int], size: float) -> None:
    weight = encoded(sizes)[0]
    weight = weight + size * weight.norm() * draws(*weight.shape)
    found = float(seli_weights(weight, size_spectrum(torch.tensor(sizes))))
    assert size / 10 < found < 100 * size
    assert found == pytest.approx(exact(weight, sizes, 0), rel=1e-15 / size + 1e-11)


@each_sizes
def test_the_spectrum_is_that_of_the_matrix(sizes: list[int]) -> None:
    spectrum, k = size_spectrum(torch.tensor(sizes)), len(sizes)
    centring = torch.eye(k).double() - 1 / k
    wanted = torch.linalg.eigvalsh(centring * torch.tensor(sizes) @ centring)[1:]
    repeated = spectrum.sizes.repeat_interleave(spectrum.members.long() - 1)
    found = torch.cat([spectrum.values, repeated]).sort().values
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-15 * max(sizes))
    vectors_ = spectrum.vectors
    identity = torch.eye(vectors_.shape[1]).double()
    torch.testing.assert_close(vectors_.mT @ vectors_, identity, rtol=0, atol=1e-14)
    assert float((spectrum.members.sqrt() @ vectors_).abs().max(0).values if k else 0) < 1e-13


def test_the_spectrum_does_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = torch.arange(3, 40).square()
    at_once = size_spectrum(counts)
    monkeypatch.setattr(imbalance, "_CACHED", 1)
    by_row = size_spectrum(counts)
    torch.testing.assert_close(by_row.values, at_once.values, rtol=1e-15, atol=0)
    torch.testing.assert_close(by_row.vectors, at_once.vectors, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("k", "d"), [(4, 6), (7, 3), (2, 5)])
def test_classes_of_one_size_are_the_simplex(k: int, d: int) -> None:
    points, spectrum = draws(k, d), size_spectrum(torch.full((k,), 13))
    for distance in (seli_weights, seli_means):
        assert float(distance(points, spectrum)) == pytest.approx(float(etf_distance(points)))
    assert float(seli_weights(simplex_etf(k), spectrum)) < 1e-15


def test_the_logits_of_every_sizes_are_a_simplex() -> None:
    """seli_logits is nc3_etf: the geometry's logits of class means are P."""
    sizes = SIZES["all different"]
    root, inverse = (np.array(a.tolist(), dtype=float) for a in reference.powers(sizes))
    values, columns = np.linalg.eigh(root)
    weight = columns * np.sqrt(np.clip(values, 0, None))
    values, columns = np.linalg.eigh(root)  # of (A^+)^(1/2) in the same basis
    means = columns[:, 1:] / np.sqrt(values[1:])
    logits = weight[:, 1:] @ means.T
    np.testing.assert_allclose(logits, np.eye(5) - 0.2, atol=1e-13)
    np.testing.assert_allclose(means @ means.T, inverse, atol=1e-13)
    labels = torch.arange(5).repeat_interleave(torch.tensor(sizes))
    weight, means = draws(5, 6), draws(5, 6, seed=1)
    report = ncscope.measure(means[labels], labels, weight)
    centred = means - means.mean(0)
    logits = weight @ centred.mT
    apart = logits / logits.norm() - (torch.eye(5) - 0.2) / 2
    assert report["seli_logits"] == report["nc3_etf"] == pytest.approx(float(apart.norm()))


def test_too_many_sizes_are_undefined_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imbalance, "MOST_SIZES", 2)
    labels = [0, 1, 1, 2, 2, 2]
    report = ncscope.measure(draws(6, 4), labels, draws(3, 4))
    for key in ("seli_means", "seli_weights"):
        assert math.isnan(report[key])
        assert any(note.startswith(f"{key} is undefined") for note in report.notes)


def test_empty_classes_have_no_part() -> None:
    labels = torch.tensor([0, 2, 2, 3, 3, 3, 5, 5, 5, 5])
    features, weight = draws(10, 6), draws(6, 6, seed=1)
    compact = labels.unique(return_inverse=True)[1]
    found = ncscope.measure(features, labels, weight)
    alone = ncscope.measure(features, compact, weight[[0, 2, 3, 5]])
    for key in ("seli_means", "seli_weights", "minority_cosine_means", "minority_cosine_weights"):
        assert found[key] == alone[key]


def test_minority_cosines_by_hand() -> None:
    rows = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, -1.0], [-7.0, 3.0]]).double()
    root = math.sqrt(0.5)
    cases = {(1, 2, 9, 9): root, (1, 9, 2, 9): 0, (9, 3, 3, 9): -root}
    for counts, wanted in cases.items():
        found = float(minority_cosine(rows, torch.tensor(counts)))
        assert found == pytest.approx(wanted, abs=1e-15)
    three = minority_cosine(torch.cat([rows, rows]), torch.tensor([1, 2, 3, 9, 9, 9, 9, 9]))
    assert float(three) == pytest.approx((root + 0 - root) / 3, abs=1e-15)


@pytest.mark.parametrize("counts", [[5, 5, 5, 5], [1, 5, 5, 5], [1, 2, 9]])
def test_below_two_small_classes_there_is_no_minority(counts: list[int]) -> None:
    assert math.isnan(minority_cosine(draws(len(counts), 3), torch.tensor(counts)))


def test_merged_small_classes_have_the_cosine_1() -> None:
    rows, counts = draws(6, 3), torch.tensor([1, 1, 1, 8, 8, 9])
    rows[1], rows[2] = 5 * rows[0], 0.1 * rows[0]
    assert float(minority_cosine(rows, counts)) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("m", [4, 60, 500])
def test_minority_cosines_of_a_simplex_keep_their_digits(m: int) -> None:
    """The sum of m of K directions is short where they almost cancel."""
    frame = torch.cat([simplex_etf(m, dim=m), draws(m + 1, m)])
    counts = torch.tensor([1] * m + [9] * (m + 1))
    assert float(minority_cosine(frame, counts)) == pytest.approx(-1 / (m - 1), rel=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
def test_a_trained_model_with_vanishing_decay_reaches_the_geometry() -> None:
    """Free features and classifier under cross-entropy; the decay falls step by step."""
    sizes = torch.tensor([20, 20, 4, 4])
    labels = torch.arange(4).repeat_interleave(sizes)
    weight, features = (0.3 * draws(n, 6, seed=n) for n in (4, len(labels)))
    parameters = [weight.requires_grad_(), features.requires_grad_()]
    apart = []
    for decay in 10.0 ** -torch.arange(2, 13):
        optimizer = torch.optim.LBFGS(
            parameters, max_iter=4000, line_search_fn="strong_wolfe",
            tolerance_grad=1e-14, tolerance_change=0, history_size=40,
        )  # fmt: skip

        def loss(decay: Tensor = decay, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            entropy = nn.functional.cross_entropy(features @ weight.mT, labels, reduction="sum")
            value = (entropy + decay / 2 * sum(p.square().sum() for p in parameters)) / decay
            value.backward()
            return value

        optimizer.step(loss)
        report = ncscope.measure(features.detach(), labels, weight.detach())
        apart.append([report[key] for key in ("seli_weights", "seli_means", "seli_logits")])
    assert (np.array(apart[-1]) < 0.025).all()
    # The distance falls as the inverse of the decay's logarithm: its inverse grows evenly.
    gained = np.diff(1 / np.array(apart), axis=0)
    assert ((gained > 2) & (gained < 6)).all()
    assert report["nc2_etf"] > 10 * report["seli_means"]
