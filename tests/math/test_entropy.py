"""Spectral entropy: known spectra, and the quadrature's bounds and error bars."""

import math

import pytest
import torch

from ncscope.math import entropy
from ncscope.math.entropy import (
    _Lanczos,
    average_probes,
    entropy_of_spectrum,
    estimate_entropy,
    gram_entropy,
    largest_contribution,
    spectral_entropy,
)

SPECTRA = {
    "flat": torch.ones(300),
    "linear": torch.linspace(0, 1, 300),
    "power law": torch.arange(1, 301.0) ** -1.5,
    "collapsed": torch.cat([torch.ones(9), torch.full((291,), 1e-7)]),
    "low rank": torch.cat([torch.linspace(0.5, 1, 40), torch.zeros(260)]),
    "rank one": torch.cat([torch.ones(1), torch.zeros(299)]),
}
SPECTRA = {name: values.double() for name, values in SPECTRA.items()}


def rotated(spectrum):
    normal = torch.randn(300, 300, generator=torch.Generator().manual_seed(0)).double()
    basis = torch.linalg.qr(normal)[0]
    return (basis * spectrum) @ basis.T, basis


def exact(spectrum):
    share = (spectrum / spectrum.sum()).tolist()
    return -sum(p * math.log(p) for p in share if p > 0)


@pytest.mark.parametrize("name", SPECTRA)
def test_entropy_of_known_spectra(name):
    matrix, _ = rotated(SPECTRA[name])
    assert float(spectral_entropy(matrix)) == pytest.approx(exact(SPECTRA[name]), abs=1e-11)
    assert float(entropy_of_spectrum(SPECTRA[name])) == pytest.approx(
        exact(SPECTRA[name]), abs=1e-13
    )


def test_both_sides_of_a_factor_agree():
    rows = torch.randn(40, 7, generator=torch.Generator().manual_seed(1)).double()
    assert float(gram_entropy(rows)) == pytest.approx(float(spectral_entropy(rows @ rows.T)))
    assert float(gram_entropy(rows.T)) == pytest.approx(float(gram_entropy(rows)))


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("depth", [4, 16, 64])
def test_gauss_and_radau_bracket_the_quadratic_form(name, depth):
    matrix, basis = rotated(SPECTRA[name] / SPECTRA[name].sum())
    vectors = torch.randn(300, 6, generator=torch.Generator().manual_seed(2)).double()
    share = SPECTRA[name] / SPECTRA[name].sum()
    form = ((basis.T @ vectors).square() * -torch.xlogy(share, share)[:, None]).sum(0)
    high, low = _Lanczos(lambda block: matrix @ block, vectors).bracket(depth)
    noise = 1e-9 * vectors.square().sum(0)
    assert (high >= form - noise).all()
    assert (low <= form + noise).all()
    if name != "power law" and depth == 64:
        assert float((high - low).max()) < 1e-3 * max(float(form.max()), 1e-3)


def test_the_form_of_a_shorter_vector_is_smaller_by_the_square():
    matrix, _ = rotated(SPECTRA["linear"] / SPECTRA["linear"].sum())
    vectors = torch.randn(300, 6, generator=torch.Generator().manual_seed(2)).double()
    bounds = _Lanczos(lambda block: matrix @ block, vectors).bracket(8)
    short = _Lanczos(lambda block: matrix @ block, vectors / 1024).bracket(8)
    for bound, smaller in zip(bounds, short, strict=True):
        torch.testing.assert_close(smaller * 1024**2, bound, rtol=1e-12, atol=0)


def test_the_form_of_a_vector_of_the_null_space_is_zero():
    basis = torch.eye(300).double()
    spectrum = SPECTRA["low rank"]
    high, low = _Lanczos(lambda block: spectrum[:, None] * block, basis[:, 40:43]).bracket(8)
    assert torch.equal(high, torch.zeros(3).double())
    assert torch.equal(low, torch.zeros(3).double())


@pytest.mark.parametrize("name", ["flat", "linear", "power law", "collapsed", "low rank"])
def test_error_bars_are_honest(name):
    spectrum = SPECTRA[name]
    scores = []
    for seed in range(20):
        found = estimate_entropy(
            lambda block: spectrum[:, None] * block,
            300,
            float(spectrum.sum()),
            0.05,
            torch.Generator().manual_seed(seed),
        )
        assert found.standard_error <= 0.05
        error = abs(found.mean - exact(spectrum))
        scores.append(error / max(found.standard_error, 1e-9))
    assert max(scores) < 5
    assert sum(score < 2 for score in scores) >= 15


@pytest.mark.parametrize("name", ["flat", "linear"])
def test_no_sketch_is_made_where_no_eigenvalue_matters_by_itself(name):
    matrix, _ = rotated(SPECTRA[name])
    share = float(SPECTRA[name].max() / SPECTRA[name].sum())

    def estimate(largest, seed):
        columns = []

        def product(block):
            columns.append(block.shape[1])
            return matrix @ block

        generator = torch.Generator().manual_seed(seed)
        trace = float(SPECTRA[name].sum())
        found = estimate_entropy(product, 300, trace, 0.06, generator, largest=largest)
        return found, sum(columns)

    found = [estimate(share, seed) for seed in range(20)]
    assert all(columns == entropy.probes * entropy.depth for entropy, columns in found)
    assert estimate(1.0, 0)[1] > 2 * found[0][1]
    known = [max(entropy.standard_error, 1e-9) for entropy, _ in found]
    errors = [abs(entropy.mean - exact(SPECTRA[name])) for entropy, _ in found]
    scores = [error / bar for error, bar in zip(errors, known, strict=True)]
    assert max(scores) < 5
    assert sum(score < 2 for score in scores) >= 15


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_few_probes_know_how_little_they_know(count):
    """Some eigenvalues just too small to be sketched, each along two coordinates, and a tail."""
    size = 400
    large, turn = 0.012, torch.tensor([[1.0, 1.0], [1.0, -1.0]]).double() / 2**0.5
    share = torch.full((size,), (1 - count * large) / (size - count)).double()
    share[: 2 * count : 2] = large
    matrix = torch.diag(share)
    for i in range(0, 2 * count, 2):
        matrix[i : i + 2, i : i + 2] = turn @ matrix[i : i + 2, i : i + 2] @ turn
    exact = float(-(share * share.log()).sum())
    scores = []
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        found = estimate_entropy(
            lambda block: matrix @ block, size, 1.0, 0.06, generator, largest=large
        )
        scores.append((found.mean - exact) / found.standard_error)
    square = sum(score**2 for score in scores) / len(scores)
    assert square**0.5 < 1.15
    assert max(map(abs, scores)) < 4


PROBES = [1.0, 2.0, 4.0, 3.0, 5.0]  # variance 2.5
PARTS = {  # of the error: sketch's bracket, quadratic forms, their bracket, one eigenvalue's share
    "nothing": ((2.0, 2.0), [3.0] * 5, 0.0, 0.0, 0.0),
    "sampling": ((2.0, 2.0), PROBES, 0.0, 0.0, (2.5 / 5 * 4 / 2) ** 0.5),
    "an eigenvalue that all met alike": ((2.0, 2.0), [3.0] * 5, 0.0, 0.1, 0.1 * (2 / 5) ** 0.5),
    "the bracket of the probes": ((2.0, 2.0), [3.0] * 5, 0.6, 0.0, 0.3),
    "the bracket of the sketch": ((2.4, 1.6), [3.0] * 5, 0.0, 0.0, 0.4),
    "both brackets": ((2.4, 1.6), [3.0] * 5, 0.6, 0.0, 0.7),
    "all": ((2.4, 1.6), PROBES, 0.6, 0.1, (1.0 + 0.01 * 2 / 5 + 0.49) ** 0.5),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_error_of_an_estimate_by_hand(name):
    sketch, forms, width, missed, error = PARTS[name]
    upper, lower = [x + width / 2 for x in forms], [x - width / 2 for x in forms]
    mean, width = average_probes(sketch, upper, lower, missed)
    assert mean == pytest.approx(5.0, rel=1e-14)  # 2 of the sketch, 3 of the probes
    assert width == pytest.approx(error, rel=1e-14, abs=1e-15)


@pytest.mark.parametrize(
    ("largest", "most"),
    [(0.0, 0.0), (0.1, 0.1 * math.log(10)), (math.exp(-1), math.exp(-1)), (1.0, math.exp(-1))],
)
def test_the_largest_share_of_one_eigenvalue(largest, most):
    assert largest_contribution(largest) == pytest.approx(most, rel=1e-14)


def test_a_single_direction_has_no_entropy_and_leaves_nothing_to_the_probes():
    generator = torch.Generator().manual_seed(0)
    found = estimate_entropy(lambda block: 3 * block, 1, 3.0, 0.05, generator)
    assert found.mean == pytest.approx(0, abs=1e-14)
    assert found.standard_error == pytest.approx(0, abs=1e-14)


def test_a_seed_gives_the_same_estimate():
    def estimate(seed):
        spectrum = SPECTRA["linear"]
        generator = torch.Generator().manual_seed(seed)
        return estimate_entropy(lambda v: spectrum[:, None] * v, 300, 150.0, 0.05, generator)

    assert estimate(0) == estimate(0)
    assert estimate(0) != estimate(1)


@pytest.mark.parametrize("name", ["linear", "power law"])
def test_the_brackets_of_the_sketch_add_up_to_a_small_share_of_the_error(name, monkeypatch):
    heads = []

    def spied(head, *rest):
        heads.append(head)
        return average_probes(head, *rest)

    monkeypatch.setattr(entropy, "average_probes", spied)
    spectrum, error = SPECTRA[name], 0.01
    generator = torch.Generator().manual_seed(0)
    trace = float(spectrum.sum())
    found = estimate_entropy(lambda v: spectrum[:, None] * v, 300, trace, error, generator)
    assert 0 <= heads[0][0] - heads[0][1] <= 0.2 * error
    assert (found.probes, found.size) == (8 * len(heads), 300)
