"""The reference against itself: algebraic identities, known values, invariances."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from .central_path import reference_least_squares
from .collapse import reference_metrics, reference_on_request, reference_spectra
from .instances import CLOSED_FORMS, CLOSED_SPECTRA, INSTANCES
from .layerwise import (
    reference_alignment,
    reference_effective_depth,
    reference_geodesic,
    reference_monotonicity_breaks,
    reference_relative_position,
    reference_transport_cost,
)
from .moments import reference_moments

pytestmark = pytest.mark.nightly  # what these test changes with themselves only, not with ncscope

each_instance = pytest.mark.parametrize("name", INSTANCES)


def measured(instance):
    return reference_metrics(
        instance.features, instance.labels, instance.weight, instance.bias, **instance.options
    )


@cache
def metrics(name):
    return measured(INSTANCES[name]())


def moments(instance):
    return reference_moments(
        instance.features,
        instance.labels,
        num_classes=instance.num_classes,
        prior=instance.prior,
    )


def spectra(instance):
    return reference_spectra(
        instance.features,
        instance.labels,
        num_classes=instance.num_classes,
        prior=instance.prior,
    )


def pinv(a):
    return np.linalg.pinv(a, rcond=1e-13, hermitian=True)


@each_instance
def test_instances_decide_nothing_by_a_tie(name):
    instance = INSTANCES[name]()
    means = moments(instance)["means"]
    distances = np.linalg.norm(instance.features[:, None] - means, axis=2)
    bias = 0 if instance.bias is None else instance.bias
    outputs = instance.features @ instance.weight.T + bias
    for scores in (np.sort(distances), np.sort(-outputs)):
        assert (scores[:, 1] - scores[:, 0]).min() > 1e-6
    assert np.linalg.norm(instance.features, axis=1).min() > 1e-3


@each_instance
def test_spectra_have_a_gap_at_the_cut(name):
    found = spectra(INSTANCES[name]())
    for key in ("between", "total"):
        values = found[key] / found[key][0]
        assert not ((values > 1e-20) & (values < 1e-10)).any(), values


@each_instance
def test_scatter_about_the_weighted_mean_is_within_plus_between(name):
    instance = INSTANCES[name]()
    known = moments(instance)
    position = np.searchsorted(known["classes"], instance.labels)
    shares = (known["priors"] / known["counts"])[position]
    centred = instance.features - known["grand_mean"]
    np.testing.assert_allclose(
        centred.T @ (shares[:, None] * centred),
        known["within"] + known["between"],
        rtol=0,
        atol=1e-10 * np.trace(known["total"]),
    )
    np.testing.assert_allclose(
        known["within"], np.einsum("c,cij->ij", known["priors"], known["class_scatters"])
    )


@each_instance
def test_probe_loss_equals_its_general_closed_form(name):
    instance = INSTANCES[name]()
    known = moments(instance)
    priors, centred = known["priors"], known["means"] - known["grand_mean"]
    inverse = pinv(known["total"])
    gains = np.einsum("ci,ij,cj->c", centred, inverse, centred)
    closed = (1 - (priors**2).sum()) / 2 - (priors**2 * gains).sum() / 2
    # the closed form is a difference of numbers near 1/2, hence absolute
    assert metrics(name)["linear_probe_mse"] == pytest.approx(closed, rel=0, abs=1e-9)


def test_probe_loss_equals_the_paper_s_form_when_balanced():
    known, k = moments(INSTANCES["balanced"]()), 5
    explained = np.trace(pinv(known["total"]) @ known["between"])
    paper = -explained / (2 * k) + 1 / 2 - 1 / (2 * k)
    assert metrics("balanced")["linear_probe_mse"] == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize("name", ["balanced", "imbalanced", "uniform_prior", "relu"])
def test_probe_loss_equals_numpy_least_squares(name):
    instance = INSTANCES[name]()
    known = moments(instance)
    roots = np.sqrt((known["priors"] / known["counts"])[instance.labels])[:, None]
    design = roots * np.column_stack([instance.features, np.ones(len(instance.labels))])
    targets = roots * np.eye(len(known["priors"]))[instance.labels]
    solution = np.linalg.lstsq(design, targets, rcond=1e-13)[0]
    loss = ((design @ solution - targets) ** 2).sum() / 2
    assert metrics(name)["linear_probe_mse"] == pytest.approx(loss, rel=1e-10)


@pytest.mark.parametrize(
    "name", ["balanced", "uniform_prior", "more_classes_than_dims", "two_classes", "one_dimension"]
)
def test_snr_values_are_those_of_the_snr_matrix(name):
    instance = INSTANCES[name]()
    known = moments(instance)
    values, vectors = np.linalg.eigh(known["within"])
    root = vectors / np.sqrt(values) @ vectors.T
    k = len(known["priors"])
    centred = (known["means"] - known["grand_mean"]).T * np.sqrt(k * known["priors"])
    expected = np.linalg.svd(root @ centred, compute_uv=False)
    expected = np.pad(expected, (0, k))[: k - 1]
    found = spectra(instance)["snr_singular_values"]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_central_path_losses_equal_the_snr_formulas():
    instance, k = INSTANCES["balanced"](), 5
    weight, bias = reference_least_squares(instance.features, instance.labels)
    values = measured(replace(instance, weight=weight, bias=bias))
    omega = spectra(instance)["snr_singular_values"]
    assert values["mse_off_path"] == pytest.approx(0, abs=1e-25)
    assert values["mse_loss"] == pytest.approx((1 / (omega**2 + k)).sum() / 2, rel=1e-12)
    noise = (omega**2 / (k + omega**2) ** 2).sum() / 2
    assert values["mse_nc1"] == pytest.approx(noise, rel=1e-12)
    shortfall = ((omega**2 / (omega**2 + k) - 1) ** 2).sum() / (2 * k)
    assert values["mse_nc23"] == pytest.approx(shortfall, rel=1e-12)


@pytest.mark.parametrize(
    ("prior", "with_bias", "decay"),
    [*product(["empirical", "uniform"], [True, False], [0.0, 5e-3])],
)
def test_least_squares_is_a_stationary_point(with_bias, decay, prior):
    instance = INSTANCES["imbalanced"]()
    weight, bias = reference_least_squares(
        instance.features, instance.labels, with_bias=with_bias, prior=prior, weight_decay=decay
    )
    best = replace(instance, weight=weight, bias=bias, weight_decay=decay, prior=prior)
    lowest = measured(best)["mse_loss"]
    rng = np.random.default_rng(0)
    step = 1e-3 * rng.normal(size=weight.shape)
    both = [measured(replace(best, weight=weight + s * step))["mse_loss"] for s in (1, -1)]
    assert both[0] == pytest.approx(both[1], rel=1e-11)
    assert min(both) > lowest


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_forms(name):
    build, expected = CLOSED_FORMS[name]
    instance = build()
    values = measured(instance) | reference_on_request(instance.features, instance.labels)
    found = {key: values[key] for key in expected}
    assert found == pytest.approx(expected, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("name", CLOSED_SPECTRA)
def test_closed_spectra(name):
    values = spectra(CLOSED_FORMS[name][0]())
    for key, expected in CLOSED_SPECTRA[name].items():
        np.testing.assert_allclose(values[key], expected, rtol=1e-13, atol=1e-15, err_msg=key)


@pytest.mark.parametrize("name", ["balanced", "imbalanced", "uniform_prior"])
def test_cosine_metrics_equal_their_weighted_pair_sums(name):
    instance = INSTANCES[name]()
    known = moments(instance)
    units = instance.features / np.linalg.norm(instance.features, axis=1, keepdims=True)
    distances = 1 - units @ units.T
    members = np.eye(len(known["priors"]))[instance.labels] / known["counts"]
    between_classes = members.T @ distances @ members
    within = known["priors"] @ np.diag(between_classes)
    total = known["priors"] @ between_classes @ known["priors"]
    assert metrics(name)["cosine_within"] == pytest.approx(within, rel=1e-12)
    assert metrics(name)["class_separation"] == pytest.approx(1 - within / total, rel=1e-12)


def test_vci_divides_by_the_dimension_when_it_is_the_smaller():
    # in one dimension Sigma_B / Sigma_T = 1 / (1 + fuzziness)
    fuzziness = metrics("one_dimension")["fuzziness"]
    expected = fuzziness / (1 + fuzziness)
    assert metrics("one_dimension")["vci"] == pytest.approx(expected, rel=1e-12)


def test_reference_means_decide_ncc():
    instance = INSTANCES["balanced"]()
    swapped = moments(instance)["means"][[1, 0, 2, 3, 4]]
    values = reference_metrics(
        instance.features, instance.labels, instance.weight, instance.bias, reference_means=swapped
    )
    assert values["ncc_accuracy"] < metrics("balanced")["ncc_accuracy"] - 0.2
    assert values["accuracy"] == metrics("balanced")["accuracy"]


def test_coinciding_class_means_are_undefined_or_infinite():
    features = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    values = reference_metrics(features, [0, 0, 1, 1])
    for key in ("fuzziness", "nc1", "nc2_etf", "nc2_of", "nc2_equinorm_means"):
        assert np.isnan(values[key]), key
    assert values["nc1_quotient"] == values["cdnv"] == np.inf
    assert values["vci"] == pytest.approx(1)
    assert values["linear_probe_mse"] == pytest.approx(0.25)


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
def test_geodesic_ends_at_the_layers(prior):
    first, last = INSTANCES["imbalanced"]().features, INSTANCES["imbalanced"]().features[::-1]
    labels = INSTANCES["imbalanced"]().labels
    path = reference_geodesic(first, last, labels, [0.0, 0.5, 1.0], prior=prior)
    for index, features in ((0, first), (1, (first + last) / 2), (2, last)):
        values = reference_metrics(features, labels, prior=prior)
        for key in ("pfc1", "pfc2", "pfc3"):
            assert path[key][index] == pytest.approx(values[key], rel=1e-13)


def test_geodesic_to_collapse_follows_its_closed_form():
    # h(0) = mean + noise, h(1) = 2 * mean: spread falls as (1 - t), means grow as (1 + t)
    features, labels = CLOSED_FORMS["signed_displacements"][0]().features, np.repeat(range(4), 18)
    last = 8 * np.eye(4, 9)[labels]
    times = np.linspace(0, 1, 5)
    path = reference_geodesic(features, last, labels, times)
    np.testing.assert_allclose(path["pfc1"], 0.75 * ((1 - times) / (1 + times)) ** 2, rtol=1e-13)
    np.testing.assert_allclose(path["pfc2"], 0, atol=1e-15)
    np.testing.assert_array_equal(path["pfc3"], 1)
    # the centred means move from 4 P to 8 P, ||P||^2 = 3
    assert reference_transport_cost(features, last, labels) == pytest.approx(16 * 3, rel=1e-14)
    assert reference_alignment(features, last, labels) == pytest.approx(32 * 3, rel=1e-14)


def test_relative_position_of_known_steps():
    start = np.zeros((3, 2))
    layers = [start + shift for shift in ((0, 0), (3, 4), (3, 4), (3, -1))]
    np.testing.assert_allclose(reference_relative_position(layers), [0, 0.5, 0.5, 1], rtol=1e-15)


def test_effective_depth_and_monotonicity():
    accuracies = [0.5, 0.9, 0.85, 1.0]
    assert reference_effective_depth(accuracies, 0.11) == 1
    assert reference_effective_depth(accuracies, 0.0) == 3
    assert reference_effective_depth(accuracies[:3], 0.0) is None
    breaks = reference_monotonicity_breaks(accuracies, decreasing=False)
    assert breaks == [(1, pytest.approx(0.05))]
    assert len(reference_monotonicity_breaks(accuracies, decreasing=True)) == 2
