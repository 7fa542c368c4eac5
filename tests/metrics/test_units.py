"""Features in very different units: what is invariant does not see them, what is not sees all."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import ncscope

from ..closeness import assert_agree, assert_arrays_agree
from ..pace import others_slow
from ..reference.instances import INSTANCES, Instance, rotation
from ..reference.mse_parts import reference_mse_parts

INVARIANT = ("vci", "linear_probe_mse")
MSE = ("mse_loss", "mse_nc1", "mse_nc23", "mse_off_path")
SHAPES = [(2, 2), (3, 2), (5, 3), (9, 4), (3, 6), (4, 12)]  # K, d: more classes, fewer, few samples


def problem(k: int, d: int, samples: int = 3, spread: float = 0.3) -> Instance:
    rng = np.random.default_rng([k, d])
    labels = np.arange(samples * k + 1) % k
    means = rng.normal(size=(k, d))
    features = means[labels] + spread * rng.normal(size=(len(labels), d))
    return Instance(features, labels, rng.normal(size=(k, d)), rng.normal(size=k), k)


def in_units(base: Instance, units: np.ndarray) -> Instance:
    """The same samples and the same outputs."""
    return replace(base, features=base.features * units, weight=base.weight / units)


def units_of(base: Instance, ratio: float) -> np.ndarray:
    """Powers of two that span a ratio, in an order that depends on the shape."""
    d = base.features.shape[1]
    exponents = np.round(np.linspace(0, math.log2(ratio), d))
    return 2.0 ** np.random.default_rng(d).permutation(exponents)


def measured(instance: Instance, *groups: str) -> ncscope.Report:
    """Measure these groups; without any, all."""
    return ncscope.measure(
        instance.features,
        instance.labels,
        instance.weight,
        instance.bias,
        groups=groups or None,
        **instance.options,
    )


@pytest.mark.parametrize("unit", [1.0, 1e7, 3e7, 1e12])
def test_noise_in_large_units_hides_no_column_that_tells_classes_apart(unit: float) -> None:
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 2
    noise, spread = torch.randn(2, 400, generator=draws, dtype=torch.float64)
    around = 2.0 * labels - 1 + 0.1 * spread
    features = torch.stack([noise, around], 1)
    known = dict(ncscope.measure(features, labels, groups=["nc1"]))
    found = ncscope.measure(features * torch.tensor([unit, 1.0]), labels, groups=["nc1"])
    assert 0.005 < known["vci"] < 0.02
    for key in INVARIANT:
        assert found[key] == pytest.approx(known[key], rel=1e-9)


@pytest.mark.parametrize(("k", "d"), SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_units_do_not_matter_without_decay(k: int, d: int, with_bias: bool) -> None:
    base = problem(k, d)
    base = base if with_bias else replace(base, bias=None)
    groups = ("nc1", "mse", "spectra")
    before = measured(base, *groups)
    keys, spectrum = (*INVARIANT, *MSE), "snr_singular_values"
    expected = {key: before[key] for key in keys}
    for ratio in (1e2, 1e4, 1e8, 1e12, 1e60):
        after = measured(in_units(base, units_of(base, ratio)), *groups)
        assert_agree({key: after[key] for key in keys}, expected, rel=1e-8, abs_tol=1e-12)
        assert_arrays_agree(after.spectra[spectrum], before.spectra[spectrum], rel=1e-8)


@pytest.mark.parametrize("decay", [1e-12, 1e-3, 10.0])
@pytest.mark.parametrize(("k", "d"), others_slow(SHAPES, *SHAPES[:-1]))  # the widest takes longest
@pytest.mark.parametrize("with_bias", [True, False])
def test_with_decay_units_matter_and_are_kept(
    k: int, d: int, decay: float, with_bias: bool
) -> None:
    """Whitened by its units the decay is no multiple of the identity: against 60 digits."""
    base = problem(k, d, samples=2 * d // k + 3)
    scaled = in_units(base, units_of(base, 1e8))
    instance = replace(scaled, weight_decay=decay, bias=base.bias if with_bias else None)
    found, wanted = measured(instance, "mse"), reference_mse_parts(instance)
    for key in MSE:
        assert found[key] == pytest.approx(wanted[key], rel=1e-8), key
    parts = found["mse_nc1"] + found["mse_nc23"] + found["mse_off_path"]
    assert parts == pytest.approx(found["mse_loss"], rel=1e-10)


@pytest.mark.parametrize(("k", "d"), SHAPES)
def test_rotated_units_cost_the_digits_that_a_scatter_matrix_loses(k: int, d: int) -> None:
    """A d x d scatter of deviations `condition` apart keeps those of least to its square."""
    base = problem(k, d, samples=2 * d // k + 3)
    before = measured(base, "nc1")
    for condition in (1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7):
        rng = np.random.default_rng(d)
        turned = rotation(rng, d) * np.geomspace(1, condition, d) @ rotation(rng, d)
        after = measured(replace(base, features=base.features @ turned), "nc1")
        rel = 1e-15 * d * condition**2 + 1e-12
        assert {key: after[key] for key in INVARIANT} == pytest.approx(
            {key: before[key] for key in INVARIANT}, rel=rel
        ), condition


@pytest.mark.parametrize("ratio", [1e4, 1e6])
def test_what_depends_on_units_is_of_the_features_as_given(ratio: float) -> None:
    base = problem(4, 5, samples=8)
    units = units_of(base, ratio)
    report = measured(in_units(base, units))
    stats = ncscope.measure(base.features * units, base.labels).statistics
    within = stats.within.numpy()
    between = stats.centred.numpy().T * stats.prior.numpy() @ stats.centred.numpy()
    for name, matrix in (("within", within), ("total", within + between)):
        expected = np.linalg.eigvalsh(matrix)[::-1]
        np.testing.assert_allclose(report.spectra[name], expected, rtol=0, atol=1e-14 * expected[0])
    weighted = np.sqrt(stats.prior.numpy())[:, None] * stats.centred.numpy()
    _, lengths, directions = np.linalg.svd(weighted, full_matrices=False)
    kept = lengths**2 > 2.0**-52 * 5 * lengths[0] ** 2
    kept[3:] = False
    along = (directions @ within * directions).sum(1)[kept] / lengths[kept] ** 2
    assert report["fuzziness"] == pytest.approx(along.sum(), rel=1e-9)
    notes = "\n".join(report.notes)
    assert f"{int(kept.sum())} of 3 directions kept" in notes
    assert "total scatter: 5 of 5 directions kept" in notes
    assert "of features scaled to comparable deviations" in notes
    assert "comparable" not in "\n".join(measured(base).notes)


@pytest.mark.parametrize("name", ["balanced", "more_classes_than_dims", "no_bias"])
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("samples", others_slow([1, 500], 500))
def test_constant_features_tell_nothing_apart(name: str, copies: int, samples: int) -> None:
    """Their class means differ by rounding, more so the more samples there are."""
    base = INSTANCES[name]()
    base = replace(
        base, features=np.tile(base.features, (samples, 1)), labels=np.tile(base.labels, samples)
    )
    constants = np.tile(0.1 + 0.2 * np.arange(copies), (len(base.labels), 1))
    padded = replace(
        base,
        features=np.hstack([base.features, constants]),
        weight=np.pad(base.weight, ((0, 0), (0, copies))),
    )
    before, after = measured(without_head(base)), measured(without_head(padded))
    for key in ("linear_probe_mse", "fuzziness"):
        assert after[key] == pytest.approx(before[key], rel=1e-12)
    if base.bias is not None:  # without one, a constant feature takes its place
        before, after = measured(base), measured(padded)
        for key in MSE:
            assert after[key] == pytest.approx(before[key], rel=1e-10)


def without_head(base: Instance) -> Instance:
    return replace(base, weight=None, bias=None, weight_decay=0.0)


def test_collapsed_features_with_rounded_means_tell_apart_only_what_they_should() -> None:
    """Two features say which sample is of class 0, a third tells classes 1 and 2 apart a little."""
    rng = np.random.default_rng(0)
    labels = np.arange(3000) % 3
    rows = rng.normal(size=3000) + labels
    first = labels == 0
    exact = np.stack([first, 2.0 * first, rows], 1)
    rounded = np.stack([0.1 + 0.6 * first, 0.3 + 0.7 * first, rows], 1)
    found, wanted = (ncscope.measure(x, labels, groups=["nc1"]) for x in (rounded, exact))
    for key in INVARIANT:
        assert found[key] == pytest.approx(wanted[key], rel=1e-12)


@pytest.mark.parametrize(("k", "d"), [(5, 9), (9, 5)])
@pytest.mark.parametrize("apart", [1e-3, 1e-5, 1e-7])
def test_means_that_hardly_differ_tell_classes_apart_next_to_less_spread(
    k: int, d: int, apart: float
) -> None:
    """All but the first direction of the means shrink with the spread: rotated, to no effect."""
    base = problem(k, d, samples=2 * d, spread=0.1)
    stretch = np.r_[1.0, np.full(d - 1, apart)]
    turn = rotation(np.random.default_rng(d), d)
    moved = replace(base, features=base.features * stretch @ turn)
    before, after = measured(base), measured(moved)
    for key in INVARIANT:
        assert after[key] == pytest.approx(before[key], rel=1e-14 / apart**2 + 1e-12)
