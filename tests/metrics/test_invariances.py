"""What each metric must not see, and what it must (VCI obs. 4.2-4.5, prop. 4.1)."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ncscope
from ncscope.metrics.registry import METRICS

from ..closeness import assert_agree, mismatches
from ..reference.instances import Instance, observation_4_2

LINEAR = ("vci", "linear_probe_mse")
SQUARED = ("within_in_signal", "within_off_signal")  # in squared units of the features
COSINE = ("cosine_within", "class_separation")
DISTANCES = ("nc1_quotient", "pfc1", "cdnv")
SEEING_BOTH = ("nc3_self_duality", "nc3_alignment", "nc3_etf")
REL, FLOOR = 1e-8, 1e-11  # of maps with condition numbers up to 100


@dataclass(frozen=True)
class Problem:
    """A random instance, and a generator for the transformation of it."""

    instance: Instance
    rng: np.random.Generator

    @property
    def dim(self) -> int:
        return self.instance.features.shape[1]


@st.composite
def problems(draw, min_dim: int = 1, priors=("empirical", "uniform")) -> Problem:
    sizes = draw(st.lists(st.integers(1, 9), min_size=2, max_size=6))
    d = draw(st.integers(min_dim, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    means = rng.normal(size=(len(sizes), d)) + draw(st.sampled_from([0.0, 1.0]))
    spread = draw(st.sampled_from([0.01, 0.5, 2.0]))
    features = means[labels] + spread * rng.normal(size=(len(labels), d))
    weight = means + 0.3 * rng.normal(size=means.shape)
    bias = draw(st.sampled_from([None, rng.normal(size=len(sizes))]))
    prior = draw(st.sampled_from(priors))
    decay = draw(st.sampled_from([0.0, 0.01]))
    k = len(sizes)
    return Problem(Instance(features, labels, weight, bias, k, prior, decay), rng)


def measured(instance: Instance, **options) -> dict[str, float]:
    report = ncscope.measure(
        instance.features,
        instance.labels,
        instance.weight,
        instance.bias,
        **(instance.options | options),
    )
    return dict(report)


def without_head(instance: Instance) -> Instance:
    return replace(instance, weight=None, bias=None, weight_decay=0.0)


def orthogonal(rng: np.random.Generator, d: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def invertible(rng: np.random.Generator, d: int) -> np.ndarray:
    stretch = np.geomspace(0.1, 10, d) if d > 1 else np.array([3.0])
    return orthogonal(rng, d) * stretch @ orthogonal(rng, d)


def chosen(values: dict[str, float], keys) -> dict[str, float]:
    return {key: values[key] for key in keys}


@pytest.mark.slow
@given(problems())
def test_vci_and_probe_loss_under_every_invertible_map_and_shift(problem: Problem) -> None:
    base = without_head(problem.instance)
    shift = problem.rng.normal(size=problem.dim)
    moved = replace(base, features=base.features @ invertible(problem.rng, problem.dim) + shift)
    before, after = measured(base, groups=["nc1"]), measured(moved, groups=["nc1"])
    assert_agree(chosen(after, LINEAR), chosen(before, LINEAR), rel=REL, abs_tol=FLOOR)


def test_the_other_variability_metrics_see_an_invertible_map() -> None:
    rng = np.random.default_rng(0)
    base = Instance(rng.normal(size=(40, 4)), np.arange(40) % 3)
    before = measured(base, groups=["nc1"])
    after = measured(replace(base, features=base.features @ invertible(rng, 4)), groups=["nc1"])
    changed = {key for key in before if after[key] != pytest.approx(before[key], rel=1e-3)}
    assert changed == set(before) - set(LINEAR)


def signal_basis(instance: Instance) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal bases of the column space of Sigma_B and of its complement."""
    classes = np.unique(instance.labels)
    means = np.stack([instance.features[instance.labels == c].mean(0) for c in classes])
    # the span of the differences does not depend on the prior
    _, values, directions = np.linalg.svd(means[1:] - means[0])
    rank = int((values > 1e-9 * values[0]).sum())
    return directions[:rank].T, directions[rank:].T


@pytest.mark.slow
@given(problems(min_dim=2))
def test_fuzziness_under_maps_of_the_signal_space_and_of_its_complement(problem: Problem) -> None:
    base, rng = without_head(problem.instance), problem.rng
    inside, outside = signal_basis(base)
    stretch = inside @ invertible(rng, inside.shape[1]) @ inside.T
    if outside.shape[1]:
        stretch = stretch + outside @ invertible(rng, outside.shape[1]) @ outside.T
    moved = replace(base, features=base.features @ stretch)
    before, after = measured(base, groups=["nc1"]), measured(moved, groups=["nc1"])
    keys = ("fuzziness", "nc1")
    assert_agree(chosen(after, keys), chosen(before, keys), rel=REL, abs_tol=FLOOR)


def test_fuzziness_sees_a_map_that_mixes_signal_and_complement() -> None:
    """VCI observation 4.2's counterexample: 1 becomes 2."""
    base = observation_4_2()
    sheared = base.features @ np.array([[1.0, 1.0], [0.0, 1.0]]).T
    assert measured(base)["fuzziness"] == pytest.approx(1, rel=1e-14)
    assert measured(replace(base, features=sheared))["fuzziness"] == pytest.approx(2, rel=1e-14)


@pytest.mark.slow
@given(problems(), st.sampled_from([1e-3, 0.5, 7.0, 1e4]))
def test_distances_under_scaling_rotation_and_shift(problem: Problem, scale: float) -> None:
    base = without_head(problem.instance)
    turn, shift = orthogonal(problem.rng, problem.dim), problem.rng.normal(size=problem.dim)
    moved = replace(base, features=scale * (base.features @ turn + shift))
    before, after = measured(base), measured(moved)
    unchanged = set(before) - {
        *COSINE,
        *SQUARED,
        "nc2_of",
        "rankme",
    }  # those see the origin, or the unit
    expected = chosen(before, unchanged) | {key: scale**2 * before[key] for key in SQUARED}
    assert set(DISTANCES) <= unchanged
    found = chosen(after, expected)
    assert_agree(snapped(found, scale), snapped(expected, scale), rel=REL, abs_tol=FLOOR)


def snapped(values: dict[str, float], scale: float = 1.0) -> dict[str, float]:
    """Values that are rounding of zero as zero."""
    units = dict.fromkeys(SQUARED, scale**2)
    return {k: 0.0 if abs(v) < FLOOR * units.get(k, 1) else v for k, v in values.items()}


@pytest.mark.slow
@given(problems(min_dim=2))
def test_cosines_under_positive_scaling_of_each_sample_and_rotation(problem: Problem) -> None:
    base, rng = without_head(problem.instance), problem.rng
    lengths = np.exp(rng.normal(size=(len(base.labels), 1)))
    moved = replace(base, features=lengths * base.features @ orthogonal(rng, problem.dim))
    before, after = measured(base, groups=["nc1"]), measured(moved, groups=["nc1"])
    assert_agree(chosen(after, COSINE), chosen(before, COSINE), rel=REL, abs_tol=FLOOR)


def relabelled(problem: Problem) -> Instance:
    base = problem.instance
    order = problem.rng.permutation(len(base.weight))  # class c is now called order[c]
    back = np.argsort(order)
    bias = None if base.bias is None else base.bias[back]
    return replace(base, labels=order[base.labels], weight=base.weight[back], bias=bias)


def reordered(problem: Problem) -> Instance:
    base = problem.instance
    order = problem.rng.permutation(len(base.labels))
    return replace(base, features=base.features[order], labels=base.labels[order])


def rotated(problem: Problem) -> Instance:
    base, turn = problem.instance, orthogonal(problem.rng, problem.dim)
    return replace(base, features=base.features @ turn, weight=base.weight @ turn)


def duplicated(problem: Problem) -> Instance:
    base = problem.instance
    features, labels = np.repeat(base.features, 2, axis=0), np.repeat(base.labels, 2)
    return replace(base, features=features, labels=labels)


@pytest.mark.slow
@settings(max_examples=12)
@given(problems())
def test_everything_under_relabelling_reordering_rotation_and_duplication(problem: Problem) -> None:
    before = snapped(measured(problem.instance))
    ratios = {key for key in before if key.startswith("mir")}
    for change in (relabelled, reordered, duplicated, rotated):
        after = snapped(measured(change(problem)))
        rel = REL if change is rotated else 1e-9
        rest = set(before) - ratios
        assert_agree(chosen(after, rest), chosen(before, rest), rel=rel)
        # A difference of entropies over the smaller, which may be tiny: RATIO_FLOOR in test_fuzz.
        assert_agree(chosen(after, ratios), chosen(before, ratios), rel=rel, abs_tol=1e-6)
        assert set(after) == set(before)


@pytest.mark.parametrize("dim", [12, 3], ids=["wide", "more classes than dimensions"])
@pytest.mark.parametrize("scale", [1e-100, 1e40, 1e100])
def test_scales_that_float32_does_not_have(scale: float, dim: int) -> None:
    rng = np.random.default_rng(dim)
    labels = np.arange(90) % 9
    weight = rng.normal(size=(9, dim))
    features = weight[labels] + 0.5 * rng.normal(size=(90, dim))
    plain, scaled = (ncscope.measure(s * features, labels, weight) for s in (1, scale))
    wanted = [key for key in METRICS if key.startswith(("nc1", "nc2", "nc3", "nc4"))]
    wanted += ["vci", "cdnv", "accuracy", "ncc_accuracy", "mir", "cosine_within"]
    assert not mismatches(chosen(scaled, wanted), chosen(plain, wanted), rel=REL, abs_tol=FLOOR)


@pytest.mark.slow
@given(problems(), st.floats(0.1, 10))
def test_alignment_under_scaling_of_features_or_head(problem: Problem, scale: float) -> None:
    base = replace(problem.instance, bias=None)
    keys = [*SEEING_BOTH, *(key for key in METRICS if key.startswith("nc2_")), "accuracy"]
    groups = ["nc2", "nc3", "nc4"]
    before = measured(base, groups=groups)
    features = measured(replace(base, features=scale * base.features), groups=groups)
    head = measured(replace(base, weight=scale * base.weight), groups=groups)
    for after in (features, head):
        found, expected = snapped(chosen(after, keys)), snapped(chosen(before, keys))
        assert not mismatches(found, expected, rel=REL, abs_tol=FLOOR)


@pytest.mark.slow
@given(problems(min_dim=2, priors=["empirical"]), st.floats(0.5, 50))
def test_variability_can_grow_without_bound_at_the_same_loss(
    problem: Problem, length: float
) -> None:
    """VCI proposition 4.1: move one sample of each class along the null space of the head."""
    rng = problem.rng
    base = replace(problem.instance, weight_decay=0.0)
    direction = orthogonal(rng, problem.dim)[0]
    weight = base.weight - np.outer(base.weight @ direction, direction)
    base = replace(base, weight=weight)
    counts = np.bincount(base.labels)
    first = np.array([np.flatnonzero(base.labels == c)[0] for c in range(len(counts))])
    features = base.features.copy()
    features[first] += length * counts[:, None] * direction
    before, after = moments_of(base), moments_of(replace(base, features=features))
    np.testing.assert_allclose(after[1], before[1], rtol=0, atol=1e-10)  # Sigma_B
    values, moved = measured(base), measured(replace(base, features=features))
    assert moved["mse_loss"] == pytest.approx(values["mse_loss"], rel=1e-9)
    assert moved["accuracy"] == values["accuracy"]
    means = np.stack([base.features[base.labels == c].mean(0) for c in range(len(counts))])
    along = (base.features[first] - means) @ direction
    gained = 2 * length * counts * along + length**2 * counts * (counts - 1)
    assert after[0] == pytest.approx(before[0] + gained.sum() / counts.sum(), rel=1e-9)


def moments_of(instance: Instance) -> tuple[float, np.ndarray]:
    """Tr Sigma_W, and Sigma_B."""
    stats = ncscope.measure(instance.features, instance.labels, groups=["pfc"]).statistics
    centred = stats.centred.numpy()
    return float(stats.within_trace), centred.T @ (stats.prior.numpy()[:, None] * centred)
