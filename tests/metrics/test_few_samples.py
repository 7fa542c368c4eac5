"""Few samples in many dimensions: values of the d x d problem, from one of the samples' size."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import ncscope
from ncscope.stats.moments import ClassMoments
from ncscope.stats.scatter import ScatterSum
from ncscope.stats.statistics import finish

from ..closeness import assert_agree
from ..pace import others_slow
from ..reference.collapse import reference_metrics, reference_spectra
from ..reference.instances import Instance, clusters
from .collapse import collapse_of
from .test_conformance import assert_spectra_agree
from .test_many_classes import AliveBytes

UNITS = np.exp2(np.random.default_rng(0).integers(-30, 1, 60))


def few(prior: str = "empirical", decay: float = 0.0, dim: int = 60) -> Instance:
    return clusters(3, (5, 2, 4, 1), dim, prior=prior, weight_decay=decay)


CASES = {
    "plain": few(),
    "uniform": few("uniform"),
    "decay": few(decay=0.01),
    "no bias": replace(few(), bias=None),
    "no bias, decay": replace(few(decay=0.01), bias=None),
    "a class a sample": clusters(4, (1,) * 12, 60),
    "offset": replace(few(), features=few().features + 2.0**14),
    "units": replace(few(), features=few().features * UNITS),
    "units, decay": replace(few(decay=0.01), features=few().features * UNITS),
    "constant features": replace(few(), features=few().features * (np.arange(60) < 40) + 1),
    "duplicates": replace(few(), features=few().features[[0, 0, 0, 0, 0, *range(5, 12)]]),
}


def measured(instance: Instance) -> ncscope.Report:
    return ncscope.measure(
        instance.features, instance.labels, instance.weight, instance.bias, **instance.options
    )


@pytest.mark.parametrize("name", CASES)
def test_the_values_are_those_of_the_matrix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = measured(CASES[name])
    monkeypatch.setattr("ncscope.stats.scatter._LEAST_DIM", 1)
    rows = measured(CASES[name])
    if name != "a class a sample":  # then nothing varies within classes
        assert dense.statistics.scatter.shape == (60, 60)
    assert rows.statistics.scatter.rows.shape[0] <= 12
    assert_agree(rows, dense, rel=1e-10, abs_tol=1e-13)
    assert rows.notes == dense.notes
    for key, values in dense.spectra.items():
        size = values[np.isfinite(values)].max(initial=0)
        np.testing.assert_allclose(rows.spectra[key], values, rtol=1e-10, atol=1e-13 * size)


@pytest.mark.parametrize(
    "options",
    others_slow([{}, {"prior": "uniform"}, {"weight_decay": 0.01}], {"weight_decay": 0.01}),
    ids=["plain", "prior", "decay"],
)
def test_the_values_are_those_of_the_reference(
    options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncscope.stats.scatter._LEAST_DIM", 1)
    instance = clusters(3, (2, 1), 12, **options)
    arguments = (instance.features, instance.labels)
    report = measured(instance)
    assert not isinstance(report.statistics.scatter, torch.Tensor)
    wanted = reference_metrics(*arguments, instance.weight, instance.bias, **instance.options)
    defined = {key: value for key, value in wanted.items() if np.isfinite(value)}
    assert len(defined) > 30
    assert_agree({k: collapse_of(report)[k] for k in defined}, defined, rel=1e-9, abs_tol=1e-12)
    assert_spectra_agree(report, reference_spectra(*arguments, prior=instance.prior), 2, rel=1e-9)


def test_more_dimensions_without_variation_change_nothing_but_the_cuts() -> None:
    instance = few(dim=20)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(300, 20)))[0].T
    wide = replace(instance, features=instance.features @ turn, weight=instance.weight @ turn)
    narrow, report = measured(instance), measured(wide)
    assert report.statistics.within.shape == (300, 300)
    assert not isinstance(report.statistics.scatter, torch.Tensor)
    assert_agree(report, narrow, rel=1e-10, abs_tol=1e-12)


def test_without_labels_the_ranks_are_those_of_the_singular_values() -> None:
    features = np.random.default_rng(2).normal(size=(30, 400)) * np.logspace(0, -9, 400) + 3
    report = ncscope.measure(features)
    shares = np.linalg.svd(features, compute_uv=False)
    shares = shares / shares.sum()
    assert abs(report["rankme"] / np.exp(-(shares * np.log(shares)).sum()) - 1) < 1e-12
    assert not isinstance(report.statistics.scatter, torch.Tensor)


def test_no_matrix_of_all_dimensions_is_formed() -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight = (torch.randn(n, 1024, generator=generator) for n in (24, 4))
    labels = torch.arange(24) % 4
    with AliveBytes() as alive:
        report = ncscope.measure(features, labels, weight, baseline=True)
        spectra = ncscope.measure(features)
    assert {"nc1", "vci", "mse_loss", "rankme"} <= set(report)
    assert {"nc1", "vci", "mse_loss"} <= set(report.baseline)
    assert spectra["rankme"] > 20
    assert alive.peak < 8 * 1024 * 1024 / 2


def stream(sizes: list[int], precision: str = "float64") -> tuple[ClassMoments, torch.Tensor]:
    moments, batches = ClassMoments(precision=precision), []
    generator = torch.Generator().manual_seed(5)
    for size in sizes:
        batches.append(torch.randn(size, 256, generator=generator, dtype=torch.float64) + 1)
        moments.update(batches[-1], torch.arange(size) % 3)
    features = torch.cat(batches)
    labels = torch.cat([torch.arange(size) % 3 for size in sizes])
    centred = torch.cat([f - f.mean(0) for f in (features[labels == c] for c in range(3))])
    return moments, centred.mT @ centred / len(centred)


# Up to 64 rows are kept of 256 dimensions, those of the batches' means included.
@pytest.mark.parametrize("sizes", [[20], [9, 9, 9], [50, 20], [100], [100, 5, 5], [5, 100, 7]])
def test_a_stream_has_the_scatter_of_its_samples(sizes: list[int]) -> None:
    moments, within = stream(sizes)
    assert isinstance(finish(moments).scatter, torch.Tensor) == (sum(sizes) > 50)
    torch.testing.assert_close(finish(moments).within, within)
    saved = ClassMoments(3, 256)
    saved.load_state_dict(moments.state_dict())
    torch.testing.assert_close(finish(saved).within, within)


@pytest.mark.parametrize("sizes", [([20], [20]), ([20], [100]), ([100], [20]), ([100], [100])])
def test_merging_adds_rows_and_matrices(sizes: tuple[list[int], list[int]]) -> None:
    first, second = (stream(each)[0] for each in sizes)
    whole = finish(first + second)
    before, mean = [finish(each) for each in (first, second)], finish(first + second).means
    total = sum(
        each.num_samples * each.within
        + (each.means - mean).mT @ (each.counts[:, None] * (each.means - mean))
        for each in before
    )
    torch.testing.assert_close(whole.within, total / whole.num_samples)
    torch.testing.assert_close(finish(first).within, before[0].within, rtol=0, atol=0)


def test_rows_that_are_kept_are_exact_where_products_are_blocked() -> None:
    moments, within = stream([20], precision="blocked")
    stats = finish(moments)
    assert not stats.blocked
    torch.testing.assert_close(stats.within, within, rtol=1e-12, atol=1e-12)
    assert finish(stream([100], precision="blocked")[0]).blocked


def test_rows_are_copied() -> None:
    scatter = ScatterSum(256, torch.device("cpu"), "float64")
    rows = torch.ones(2, 256).double()
    scatter.add(rows)
    rows.zero_()
    assert scatter.few
    assert float(scatter.gram().dense()[3, 4]) == 2
