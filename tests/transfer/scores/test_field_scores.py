"""The field's transfer scores against slow restatements of their formulas, sample by sample."""

import math
import sys
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import spearmanr

from ncscope.errors import InputError
from ncscope.metrics.discriminants import discriminants
from ncscope.stats.statistics import finish
from ncscope.transfer import (
    NctiParts,
    check_downstream,
    gbc,
    gbc_diagonal,
    h_score,
    leep,
    nce,
    ncti,
    ncti_parts,
    nleep,
    parc,
    regularised_h_score,
    sfda,
    transrate,
    transrate_listing,
    transrate_projected,
)
from ncscope.transfer.ranking import gather_moments
from tests.transfer.samples import blobs


def unbalanced(count: int = 90, dim: int = 7, seed: int = 3):
    """Samples of three classes, of which the first has half and the last a seventh."""
    features, _ = blobs(count, dim, 3, seed)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 0])[torch.arange(count) % 7]
    return features + labels[:, None], labels


def source_probabilities(count: int, classes: int, seed: int) -> np.ndarray:
    logits = 2 * np.random.default_rng(seed).normal(size=(count, classes))
    return np.exp(logits - logsumexp(logits, axis=1, keepdims=True))


def slow_leep(theta: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for i in range(len(y)):
        predicted = 0.0
        for z in range(theta.shape[1]):
            with_label = sum(theta[j, z] for j in range(len(y)) if y[j] == y[i])
            predicted += with_label / theta[:, z].sum() * theta[i, z]
        total += math.log(predicted)
    return total / len(y)


def slow_nce(z: np.ndarray, y: np.ndarray) -> float:
    n, total = len(y), 0.0
    for source in set(z):
        for target in set(y):
            joint = sum(a == source and b == target for a, b in zip(z, y, strict=True)) / n
            if joint:
                total += joint * math.log(joint / (np.sum(z == source) / n))
    return total


def slow_posterior(rows, y, within) -> np.ndarray:
    """Log densities of normal clouds of one covariance, plus the log shares, normalised."""
    inverse = np.linalg.inv(within)
    columns = []
    for c in np.unique(y):
        apart = rows - rows[y == c].mean(0)
        columns.append(-np.einsum("ni,ij,nj->n", apart, inverse, apart) / 2)
        columns[-1] = columns[-1] + math.log(np.mean(y == c))
    logs = np.stack(columns, 1)
    return logs - logsumexp(logs, axis=1, keepdims=True)


def slow_within(rows, y) -> np.ndarray:
    classes = np.unique(y)
    return sum(np.mean(y == c) * np.cov(rows[y == c].T, bias=True) for c in classes)


def shrunk(matrix, share) -> np.ndarray:
    return (1 - share) * matrix + share * np.trace(matrix) / len(matrix) * np.eye(len(matrix))


def slow_sfda(x: np.ndarray, y: np.ndarray) -> float:
    within = slow_within(x, y)
    share = max(math.exp(-5 * np.linalg.eigvalsh(within).max()), 1e-10)
    identity = share * np.eye(x.shape[1])
    first = np.exp(slow_posterior(x, y, (1 - share) * within + identity))
    mixed = x.copy()
    for i, label in enumerate(y):
        others = np.mean([x[y == c].mean(0) for c in np.unique(y) if c != label], axis=0)
        mixed[i] = first[i, label] * x[i] + (1 - first[i, label]) * others
    second = slow_posterior(mixed, y, (1 - share) * slow_within(mixed, y) + identity)
    return second[np.arange(len(y)), y].mean()


def slow_ncti(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """With at most 32 features, which the principal axes only rotate."""
    share = max(math.exp(-np.cov(x.T).trace()), 1e-10)
    within = shrunk(slow_within(x, y), share)
    posterior = np.exp(slow_posterior(x, y, within))
    root = np.linalg.inv(np.linalg.cholesky(within))  # whitens
    means = np.stack([x[y == c].mean(0) - x.mean(0) for c in np.unique(y)])
    weights = np.array([np.mean(y == c) for c in np.unique(y)])
    between = root @ (means.T * weights) @ means @ root.T
    axes = np.linalg.eigh(between)[1][:, -(len(means) - 1) :]
    low = (x - x.mean(0)) @ root.T @ axes
    nuclear = sum(np.linalg.svd(posterior[y == c], compute_uv=False).sum() for c in np.unique(y))
    right = posterior[np.arange(len(y)), y].mean()
    return np.linalg.svd(low, compute_uv=False).sum(), right, math.log(nuclear)


def slow_regularised(x: np.ndarray, y: np.ndarray) -> float:
    rows = x - x.mean(0)
    n, d = rows.shape
    sample = rows.T @ rows / n
    mean = np.trace(sample) / d
    apart = np.linalg.norm(sample - mean * np.eye(d)) ** 2
    noise = sum(np.linalg.norm(np.outer(row, row) - sample) ** 2 for row in rows) / n**2
    share = min(1.0, noise / apart)
    centres = np.stack([rows[y == label].mean(0) for label in y])
    between = centres.T @ centres / n
    return (1 - share) * np.trace(np.linalg.inv(shrunk(sample, share)) @ between)


def slow_gbc(x: np.ndarray, y: np.ndarray, spherical: bool) -> float:
    axes = np.linalg.svd(x - x.mean(0), full_matrices=False)[2]
    rows, total = (x - x.mean(0)) @ axes.T, 0.0
    for a in np.unique(y):
        for b in np.unique(y):
            if a == b:
                continue
            first, second = (np.diag(rows[y == c].var(0)) for c in (a, b))
            if spherical:
                first, second = (np.eye(len(m)) * np.trace(m) / len(m) for m in (first, second))
            middle = (first + second) / 2
            gap = rows[y == a].mean(0) - rows[y == b].mean(0)
            volume = np.linalg.det(middle) / math.sqrt(np.linalg.det(first) * np.linalg.det(second))
            total -= math.exp(-gap @ np.linalg.inv(middle) @ gap / 8) / math.sqrt(volume)
    return total


def slow_transrate(x: np.ndarray, y: np.ndarray) -> float:
    rows = x - x.mean(0)
    rows = rows / math.sqrt(np.mean((rows**2).sum(1)))

    def rate(part: np.ndarray) -> float:
        inner = np.eye(x.shape[1]) + part.T @ part / (1e-4 * len(part))
        return np.linalg.slogdet(inner)[1] / 2

    return rate(rows) - sum(np.mean(y == c) * rate(rows[y == c]) for c in np.unique(y))


def slow_transrate_listing(x: np.ndarray, y: np.ndarray) -> float:
    def rate(part: np.ndarray) -> float:
        volume = np.eye(len(part)) + part @ part.T / (1e-4 * len(part))
        return np.linalg.slogdet(volume)[1] / 2

    rows = x - x.mean(0)
    return rate(rows) - np.mean([rate(rows[y == c]) for c in np.unique(y)])


def slow_transrate_projected(x: np.ndarray, y: np.ndarray) -> float:
    """Build the covariances and their products, d x d."""
    total, within = np.cov(x.T, bias=True), slow_within(x, y)
    between = total - within
    onto = np.linalg.pinv(total, rcond=1e-12) @ between

    def rate(matrix: np.ndarray) -> float:
        values = np.linalg.svd(matrix, compute_uv=False) / np.trace(between)
        return np.log1p(values / 1e-4).sum() / 2

    each = {c: rate(np.cov(x[y == c].T, bias=True) @ onto) for c in np.unique(y)}
    inside = sum(np.mean(y == c) * value for c, value in each.items())
    return (rate(between) - inside) / np.linalg.matrix_rank(between, tol=1e-9)


def slow_parc(x: np.ndarray, y: np.ndarray) -> float:
    rows = (x - x.mean(0)) / x.std(0)
    first = np.triu_indices(len(y), 1)
    labels = np.array([float(y[i] != y[j]) for i, j in zip(*first, strict=True)])
    return spearmanr(1 - np.corrcoef(rows)[first], labels)[0]


RESTATED = {
    "sfda": (sfda, slow_sfda),
    "regularised_h_score": (regularised_h_score, slow_regularised),
    "gbc": (gbc, lambda x, y: slow_gbc(x, y, spherical=True)),
    "gbc_diagonal": (gbc_diagonal, lambda x, y: slow_gbc(x, y, spherical=False)),
    "transrate": (transrate, slow_transrate),
    "transrate_listing": (transrate_listing, slow_transrate_listing),
    "transrate_projected": (transrate_projected, slow_transrate_projected),
    "parc": (parc, slow_parc),
}
SCALE_FREE = {
    name: RESTATED[name][0] for name in RESTATED if name not in ("sfda", "transrate_listing")
}
ROTATION_FREE = {name: RESTATED[name][0] for name in RESTATED if name not in ("parc",)}


@pytest.mark.parametrize("data", [blobs(60, 6, 4, seed=0), unbalanced()])
@pytest.mark.parametrize("name", RESTATED)
def test_a_score_is_its_formula(name, data):
    fast, slow = RESTATED[name]
    features, labels = data
    known = slow(features.numpy(), labels.numpy())
    assert float(fast(check_downstream(features, labels))) == pytest.approx(known, rel=1e-9)


@pytest.mark.parametrize("data", [blobs(60, 6, 4, seed=0), unbalanced(), blobs(50, 5, 2, seed=1)])
def test_the_parts_of_ncti_are_their_formulas(data):
    features, labels = data
    features = features / 2  # so that the covariance is shrunk by more than the least
    found = ncti_parts(check_downstream(features, labels))
    assert tuple(found) == pytest.approx(slow_ncti(features.numpy(), labels.numpy()), rel=1e-8)


def test_leep_and_nce_are_their_formulas():
    theta, (features, labels) = source_probabilities(90, 5, seed=0), unbalanced()
    samples = check_downstream(features, labels)
    assert float(leep(samples, theta)) == pytest.approx(slow_leep(theta, labels.numpy()))
    assert float(leep(samples, 1.005 * theta)) == pytest.approx(float(leep(samples, theta)))
    predicted = theta.argmax(1)
    known = slow_nce(predicted, labels.numpy())
    assert float(nce(samples, predicted)) == pytest.approx(known)
    assert float(leep(samples, np.eye(5)[predicted])) == pytest.approx(known)
    assert float(leep(samples, theta.astype(np.float16))) == pytest.approx(
        float(leep(samples, theta)), rel=1e-2
    )


def test_leep_reaches_both_ends():
    samples = check_downstream(torch.zeros(8, 1), [0, 0, 0, 1, 1, 2, 2, 2])
    entropy = -sum(p * math.log(p) for p in (3 / 8, 2 / 8, 3 / 8))
    assert float(leep(samples, np.full((8, 3), 1 / 3))) == pytest.approx(-entropy)
    assert float(nce(samples, [4] * 8)) == pytest.approx(-entropy)
    exact = np.eye(4)[[2, 2, 2, 0, 0, 1, 1, 1]]  # a source class that never occurs, besides
    assert float(leep(samples, exact)) == 0.0
    tiny = np.where(exact > 0, 1.0, 1e-300)
    assert float(leep(samples, tiny)) == pytest.approx(0.0, abs=1e-250)


def test_nleep_is_leep_of_the_posterior_of_a_mixture():
    mixture = pytest.importorskip("sklearn.mixture")
    features, labels = blobs(80, 6, 2, seed=4)
    rows = (features - features.mean(0)).numpy()
    rows = rows / math.sqrt(np.mean((rows**2).sum(1)))
    lengths, axes = np.linalg.svd(rows, full_matrices=False)[1:]
    kept = 1 + int(np.sum(np.cumsum(lengths**2) / np.sum(lengths**2) < 0.8))
    samples = check_downstream(features, labels)
    found = {seed: float(nleep(samples, seed=seed)) for seed in (0, 0, 1)}
    for seed, value in found.items():
        fit = mixture.GaussianMixture(10, random_state=seed).fit(rows @ axes[:kept].T)
        known = slow_leep(fit.predict_proba(rows @ axes[:kept].T), labels.numpy())
        assert value == pytest.approx(known, abs=0.05)  # signs of axes may differ
    scaled = nleep(check_downstream(features * 2.0**300, labels), seed=0)
    assert float(scaled) == found[0]


def test_nleep_says_what_it_lacks(monkeypatch):
    features, labels = blobs(14, 3, 3, seed=0)
    with pytest.raises(InputError, match="at least 15 samples, 5 for each class, for NLEEP"):
        nleep(check_downstream(features, labels))
    with pytest.raises(InputError, match="features that vary, for NLEEP"):
        nleep(check_downstream(torch.ones(20, 3), torch.arange(20) % 2))
    monkeypatch.setitem(sys.modules, "sklearn.mixture", None)
    with pytest.raises(
        InputError, match="the library scikit-learn, found that it is not installed"
    ):
        nleep(check_downstream(*blobs(20, 3, 2, seed=0)))


@pytest.mark.parametrize("scale", [2.0**460, 2.0**-460, 1e-3])
@pytest.mark.parametrize("name", SCALE_FREE)
def test_the_scale_of_features_does_not_matter(name, scale):
    features, labels = unbalanced()
    plain, scaled = (
        float(SCALE_FREE[name](check_downstream(rows, labels)))
        for rows in (features, features * scale)
    )
    assert scaled == pytest.approx(plain, rel=1e-10)


@pytest.mark.parametrize("scale", [1e100, 1e-100])
def test_scale_only_moves_the_shrinkage_of_fisher_scores(scale):
    """The greatest and the least shrinkage, without overflow."""
    features, labels = unbalanced()
    samples = check_downstream(features * scale, labels)
    within = slow_within(features.numpy(), labels.numpy())
    share = 1e-10 if scale > 1 else 1.0
    first = slow_posterior(
        scale * features.numpy(), labels.numpy(), scale**2 * shrunk(within, share)
    )
    right = np.exp(first[np.arange(len(labels)), labels.numpy()]).mean()
    assert ncti_parts(samples).nearest_centre == pytest.approx(right, rel=1e-6)
    assert math.isfinite(float(sfda(samples)))


@pytest.mark.parametrize("name", ROTATION_FREE)
def test_rotation_and_shift_do_not_matter(name):
    features, labels = unbalanced()
    draws = torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(7, 7, generator=draws, dtype=torch.float64))[0]
    plain, turned = (
        float(ROTATION_FREE[name](check_downstream(rows, labels)))
        for rows in (features, features @ turn + 5)
    )
    assert turned == pytest.approx(plain, rel=1e-9)


def test_parc_does_not_see_the_units_of_a_feature():
    features, labels = unbalanced()
    units = 10.0 ** torch.arange(7)
    found = [float(parc(check_downstream(rows, labels))) for rows in (features, features * units)]
    assert found[1] == pytest.approx(found[0], rel=1e-9)


TIED = {
    "two features": lambda draws: draws.normal(size=(40, 2)),
    "permutations, moved along the diagonal far from 0": lambda draws: (
        1e7
        + np.repeat(draws.normal(size=10), 6)[:, None]
        + np.tile(list(permutations([0.0, 1.1, 3.3])), (10, 1))
    ),
    "one direction": lambda draws: draws.normal(size=(40, 1)) * draws.normal(size=(1, 5)),
    "one-hot": lambda draws: np.eye(4)[draws.integers(0, 4, 40)],
    "tenths": lambda draws: draws.integers(0, 3, (40, 4)) / 10,
    "points": lambda draws: draws.normal(size=(4, 5))[np.arange(40) % 4],
}


@pytest.mark.parametrize("name", TIED)
def test_parc_ranks_equal_distances_alike_in_every_order(name):
    """Rounding to seven digits makes exact ties of distances that are equal but for rounding."""
    draws = np.random.default_rng(0)
    x = TIED[name](draws)
    n, y = len(x), draws.integers(0, 2, len(x))
    first = np.triu_indices(n, 1)
    distances = np.round(1 - np.corrcoef((x - x.mean(0)) / x.std(0))[first], 7)
    known = spearmanr(distances, [y[i] != y[j] for i, j in zip(*first, strict=True)])[0]
    for order in (np.arange(n), *(draws.permutation(n) for _ in range(5))):
        found = float(parc(check_downstream(x[order], y[order])))
        assert found == pytest.approx(known, abs=1e-12)


def test_parc_without_two_distances_is_undefined():
    same = check_downstream(torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]), [0, 0, 1])
    assert math.isnan(float(parc(same)))


def test_classes_far_apart_reach_the_upper_ends():
    features, labels = blobs(60, 6, 3, seed=0)
    far = check_downstream(features + 1e4 * torch.eye(6, dtype=torch.float64)[labels], labels)
    assert float(sfda(far)) == pytest.approx(0, abs=1e-6)
    assert float(gbc(far)) == float(gbc_diagonal(far)) == 0
    assert float(regularised_h_score(far)) == pytest.approx(2, abs=0.1)
    same = ((labels[:, None] == labels).sum() - 60) / (60 * 59)
    assert float(parc(far)) == pytest.approx(float((3 * same * (1 - same)).sqrt()), abs=5e-3)
    parts = ncti_parts(far)
    assert parts.nearest_centre == pytest.approx(1)
    assert parts.variability == pytest.approx(math.log(3 * math.sqrt(20)), rel=1e-6)


def test_classes_that_are_alike_reach_the_lower_ends():
    cloud = blobs(30, 4, 3, seed=0)[0]
    alike = check_downstream(torch.cat([cloud, cloud]), torch.arange(60) // 30)
    assert float(gbc(alike)) == pytest.approx(-2)
    assert float(gbc_diagonal(alike)) == pytest.approx(-2)
    assert float(transrate(alike)) == pytest.approx(0, abs=1e-12)
    assert float(regularised_h_score(alike)) == pytest.approx(0, abs=1e-12)
    assert float(sfda(alike)) == pytest.approx(-math.log(2))
    assert ncti_parts(alike).nearest_centre == pytest.approx(0.5)
    # The means differ in no direction, wherever the origin is.
    for offset in (0.0, 1e4):
        assert ncti_parts(check_downstream(alike.features + offset, alike.labels)).spread == 0


def test_features_that_are_their_class_means_have_defined_values():
    labels = torch.arange(12) % 3
    point = check_downstream(torch.eye(5, dtype=torch.float64)[labels], labels)
    assert float(gbc(point)) == float(gbc_diagonal(point)) == 0
    restated = slow_sfda(point.features.numpy(), labels.numpy())
    assert float(sfda(point)) == pytest.approx(restated)
    assert all(map(math.isnan, ncti_parts(point)))
    assert 0 < float(regularised_h_score(point)) <= 2
    assert float(transrate(point)) == pytest.approx(
        slow_transrate(point.features.numpy(), labels.numpy())
    )
    nothing = check_downstream(torch.ones(12, 5), labels)
    assert float(sfda(nothing)) == pytest.approx(-math.log(3))
    assert float(gbc(nothing)) == float(gbc_diagonal(nothing)) == pytest.approx(-6)
    assert float(transrate(nothing)) == float(regularised_h_score(nothing)) == 0
    assert all(map(math.isnan, ncti_parts(nothing)))
    assert math.isnan(float(parc(nothing)))
    assert math.isnan(float(parc(check_downstream(torch.arange(12.0)[:, None], labels))))


def test_transrate_listing_in_closed_form():
    """The classes' second moments are diagonal; classes of unequal sizes count alike."""
    rows = [[1, 0.5], [1, -0.5], [1, 0.5], [1, -0.5], [-2, 2], [-2, -2]]
    features, labels = torch.tensor(rows, dtype=torch.float64), torch.tensor([0, 0, 0, 0, 1, 1])
    eps = 1e-4

    def rate(*moments: float) -> float:
        return sum(math.log1p(moment / eps) for moment in moments) / 2

    known = rate(2, (4 * 0.25 + 2 * 4) / 6) - (rate(1, 0.25) + rate(4, 4)) / 2
    found = [
        float(transrate_listing(check_downstream(size * features + 7 * size, labels)))
        for size in (1, 1e14)
    ]
    assert found[0] == pytest.approx(known, rel=1e-12)
    # In large units each direction counts by its logarithm, and no empty direction counts at all.
    eps *= 1e-28
    assert found[1] == pytest.approx(rate(2, 9 / 6) - (rate(1, 0.25) + rate(4, 4)) / 2, rel=1e-12)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = torch.nn.functional.pad(features, (0, 1)) @ torch.tensor(turn)
    assert float(transrate_listing(check_downstream(1e14 * turned, labels))) == pytest.approx(
        found[1], rel=1e-12
    )


@pytest.mark.parametrize("noise", [None, 0.1, 1e4])
def test_transrate_projected_of_two_classes_in_closed_form(noise):
    """Only the share of the variance within the classes counts, and no independent feature."""
    rows = torch.tensor([[1 + 0.5], [1 - 0.5], [-1 + 0.5], [-1 - 0.5]], dtype=torch.float64)
    rows = rows.repeat(2, 1)
    labels = torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])
    if noise is not None:
        each = torch.tensor([1.0, 1, 1, 1, -1, -1, -1, -1], dtype=torch.float64)
        rows = torch.cat([rows, noise * each[:, None]], 1)
    within = 0.25 / 1.25
    found = float(transrate_projected(check_downstream(1e3 + rows, labels)))
    assert found == pytest.approx(math.log((1e-4 + 1) / (1e-4 + within)) / 2, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_transrate_projected_is_largest_for_collapsed_classes_equally_far_apart(classes):
    labels = torch.arange(6 * classes) % classes
    simplex = check_downstream(torch.eye(classes, 8, dtype=torch.float64)[labels], labels)
    largest = math.log1p(1 / (1e-4 * (classes - 1))) / 2
    assert float(transrate_projected(simplex)) == pytest.approx(largest, rel=1e-12)


def test_transrate_projected_counts_directions_and_not_rounding():
    """Means on a line: rank 1, in any position; equal means have no direction."""
    draws = np.random.default_rng(0)
    line, spread = draws.normal(size=(1, 5)), draws.normal(size=(20, 5))
    labels = np.repeat(np.arange(3), 20)
    features = np.concatenate([shift * line + spread for shift in (0, 1, 3)])
    dependent = np.c_[features, features @ draws.normal(size=(5, 2))]
    for rows in (features, dependent):
        known = slow_transrate_projected(rows, labels)
        for offset in (0.0, 1e4, -1e6):
            found = float(transrate_projected(check_downstream(rows + offset, labels)))
            assert found == pytest.approx(known, rel=1e-7)
    assert math.isnan(float(transrate_projected(check_downstream(np.tile(spread, (3, 1)), labels))))


def test_transrate_projected_of_more_classes_and_features_than_a_class_has_samples():
    features, labels = blobs(40, 30, 12, seed=0)
    found = float(transrate_projected(check_downstream(features, labels)))
    known = slow_transrate_projected(features.numpy(), labels.numpy())
    assert found == pytest.approx(known, rel=1e-7)


def test_noise_wins_by_the_plain_coding_rate_and_loses_projected():
    draws = np.random.default_rng(0)
    labels = np.arange(300) % 3
    signal = np.eye(3)[labels] + 0.3 * draws.normal(size=(300, 3))
    noise = draws.normal(size=(300, 60))
    own, random = (check_downstream(rows, labels) for rows in (signal, noise))
    assert float(transrate(random)) > float(transrate(own))
    assert float(transrate_listing(random)) > float(transrate_listing(own))
    assert float(transrate_projected(random)) < float(transrate_projected(own))


def test_sfda_regularises_by_the_identity_and_mixes_by_the_probability():
    labels = torch.tensor([0, 0, 1, 1])
    samples = check_downstream(torch.tensor([[0.0], [0.0], [2.0], [2.0]]), labels)
    sure = 1 / (1 + math.exp(-2))  # no variance: the identity is the covariance
    apart = 2 * (2 * sure - 1)  # distance of the means once each moved 1 - sure to the other
    assert float(sfda(samples)) == pytest.approx(-math.log1p(math.exp(-(apart**2) / 2)))


def test_sfda_saturates_with_more_features_than_samples():
    draws = torch.Generator().manual_seed(0)
    noise = torch.randn(40, 80, generator=draws, dtype=torch.float64)
    assert float(sfda(check_downstream(noise, torch.arange(40) % 4))) == pytest.approx(0, abs=1e-6)
    assert float(sfda(check_downstream(noise[:, :5], torch.arange(40) % 4))) < -0.5


def test_the_regularised_h_score_shrinks_as_ledoit_and_wolf():
    covariance = pytest.importorskip("sklearn.covariance")
    features, labels = blobs(40, 30, 3, seed=0)
    fit = covariance.LedoitWolf().fit(features.numpy())
    rows = features.numpy() - features.numpy().mean(0)
    means = np.stack([rows[labels.numpy() == label].mean(0) for label in labels.numpy()])
    known = (1 - fit.shrinkage_) * np.trace(fit.precision_ @ means.T @ means) / 40
    samples = check_downstream(features, labels)
    assert float(regularised_h_score(samples)) == pytest.approx(known, rel=1e-8)
    stats = finish(gather_moments(samples))
    assert known < float(h_score(stats, discriminants(stats)))


def test_ncti_scales_each_part_over_the_checkpoints():
    parts = [NctiParts(2, 0.5, 1), NctiParts(4, 0.9, 0), NctiParts(3, 0.5, 4)]
    assert ncti(parts) == pytest.approx([0 + 0 - 0.25, 1 + 1 - 0, 0.5 + 0 - 1])
    assert ncti([parts[0]] * 3) == [0, 0, 0]
    assert all(map(math.isnan, ncti(parts[:1])))
    assert all(map(math.isnan, ncti([*parts, NctiParts(math.nan, 1, 1)])))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.ones((5, 2)) / 2, r"found shape \(5, 2\) for 8 samples"),
        (np.ones(8), r"found shape \(8,\) for 8 samples"),
        (np.ones((8, 2)), "row 0, which sums to 2, least 1; apply the softmax"),
        (np.tile([1.5, -0.5], (8, 1)), "row 0, which sums to 1, least -0.5"),
        (np.full((8, 2), np.nan), "row 0, which sums to nan"),
    ],
)
def test_source_probabilities_are_checked(given, said):
    samples = check_downstream(torch.zeros(8, 1), torch.arange(8) % 2)
    with pytest.raises(InputError, match=said):
        leep(samples, given)


@pytest.mark.parametrize("given", [[0, 1], [[0]] * 8, [0.5] * 8])
def test_source_predictions_are_checked(given):
    samples = check_downstream(torch.zeros(8, 1), torch.arange(8) % 2)
    with pytest.raises(InputError, match="one integer source class for each sample, found"):
        nce(samples, given)
