"""OOD metrics: the slow reference, closed forms, invariances, extreme and degenerate input."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

import ncscope
from ncscope.errors import InputError
from ncscope.metrics.registry import METRICS

from ..closeness import assert_agree
from ..reference.instances import INSTANCES, Instance, rotation, simplex_etf
from ..reference.ood import ood_for, reference_ood

OOD = {key for key, row in METRICS.items() if row.group == "ood"}
QUICK = ("more_classes_than_dims", "absent_class")


def measured(instance: Instance, ood: object, **options: object) -> ncscope.Report:
    return ncscope.measure(
        instance.features,
        instance.labels,
        instance.weight,
        instance.bias,
        **({"groups": ["ood"], "ood": ood} | instance.options | options),
    )


def expected(instance: Instance, ood: np.ndarray, reference: Instance | None = None) -> dict:
    fitted = None if reference is None else (reference.features, reference.labels)
    return reference_ood(
        instance.features,
        instance.labels,
        ood,
        instance.weight,
        instance.bias,
        reference=fitted,
        **instance.options,
    )


def halves(instance: Instance) -> tuple[Instance, Instance]:
    """Every second sample of each class for training, the others to judge."""
    order = np.argsort(instance.labels, kind="stable")
    return tuple(
        replace(instance, features=instance.features[rows], labels=instance.labels[rows])
        for rows in (np.sort(order[::2]), np.sort(order[1::2]))
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_equals_the_reference(name: str) -> None:
    instance = INSTANCES[name]()
    ood = ood_for(instance.features)
    assert_agree(dict(measured(instance, ood)), expected(instance, ood), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(INSTANCES) - set(QUICK)))
def test_equals_the_reference_on_every_instance(name: str) -> None:
    test_equals_the_reference(name)


def test_reference_gives_means_and_directions() -> None:
    training, test = halves(INSTANCES["balanced"]())
    ood = ood_for(test.features)
    fitted = ncscope.measure(training.features, training.labels)
    report = measured(test, ood, reference=fitted)
    assert_agree(dict(report), expected(test, ood, training), rel=1e-9)
    assert not any("fitted on the samples" in note for note in report.notes)
    assert any("fitted on the samples" in note for note in measured(test, ood).notes)


def test_orthogonal_samples_at_collapse() -> None:
    """K=4 means in the first four of six axes; the OOD samples lie in the last two."""
    ood = np.zeros((5, 6))
    ood[:, 4:] = np.random.default_rng(0).normal(size=(5, 2))
    report = measured(simplex_etf(), ood)
    assert report["nc5"] == report["nc5_centred"] == 0.0
    assert (report["neco_auroc"], report["neco_fpr95"]) == (1.0, 0.0)
    # logits are 3/4, -1/4 (three times) inside, and 0 outside
    assert [report[f"{name}_auroc"] for name in ("msp", "max_logit", "energy")] == [1.0, 1.0, 1.0]


def test_mean_of_a_class_as_ood() -> None:
    """Cosines of a simplex ETF: 1 once and 1/3 three times."""
    instance = simplex_etf()
    report = measured(instance, instance.weight[:1])
    assert report["nc5"] == report["nc5_centred"] == pytest.approx(0.5, abs=1e-15)
    assert (report["neco_auroc"], report["neco_fpr95"]) == (0.5, 1.0)


def test_equal_features_score_equally_whatever_their_row() -> None:
    instance = INSTANCES["balanced"]()
    shuffled = np.random.default_rng(0).permutation(instance.features)
    report = measured(instance, shuffled)
    assert {report[key] for key in OOD if key.endswith("auroc")} == {0.5}


def test_reduced_scores_against_scikit_learn() -> None:
    """On scores that no rounding saturates, in plain NumPy."""
    instance = INSTANCES["imbalanced"]()
    ood = ood_for(instance.features, seed=3, size=80)
    both = np.r_[instance.features, ood]
    truth = np.r_[np.ones(len(instance.features)), np.zeros(len(ood))]
    logits = both @ instance.weight.T + instance.bias
    apart = both - instance.features.mean(0)
    vectors = np.linalg.eigh(np.cov(instance.features.T, bias=True))[1][:, -4:]
    length = np.linalg.norm(apart, axis=1)
    along = (apart * instance.weight[logits.argmax(1)]).sum(1) / length
    standard = StandardScaler().fit(instance.features)
    scaled = standard.transform(both)
    axes = PCA(4).fit(standard.transform(instance.features)).components_
    share = np.linalg.norm(scaled @ axes.T, axis=1) / np.linalg.norm(scaled, axis=1)
    scores = {
        "neco": np.linalg.norm(apart @ vectors, axis=1) / length,
        "neco_uncentred": np.linalg.norm(both @ vectors, axis=1) / np.linalg.norm(both, axis=1),
        "neco_standardised": share,
        "neco_logit": share * logits.max(1),
        "nci": along + 1e-4 * np.abs(both).sum(1),
        "msp": np.exp(logits.max(1) - logsumexp(logits, 1)),
        "max_logit": logits.max(1),
        "energy": logsumexp(logits, 1),
    }
    wanted = {f"{name}_auroc": roc_auc_score(truth, score) for name, score in scores.items()}
    report = measured(instance, ood)
    assert_agree({key: report[key] for key in wanted}, wanted, rel=1e-12)


def test_a_constant_feature_is_centred_and_not_scaled() -> None:
    """As by the scaler of the authors' code; a dead unit that wakes for OOD samples counts."""
    instance = INSTANCES["imbalanced"]()
    dead = np.full((len(instance.features), 2), [0.0, 0.1])
    features, draws = np.c_[instance.features, dead], np.random.default_rng(0)
    ood = np.c_[ood_for(instance.features), 0.1 + draws.normal(size=(24, 2)) ** 2]
    standard = StandardScaler().fit(features)
    axes = PCA(4).fit(standard.transform(features)).components_
    here, there = (
        np.linalg.norm(z @ axes.T, axis=1) / np.linalg.norm(z, axis=1)
        for z in (standard.transform(features), standard.transform(ood))
    )
    truth = np.r_[np.ones(len(here)), np.zeros(len(there))]
    report = measured(Instance(features, instance.labels), ood)
    known = roc_auc_score(truth, np.r_[here, there])
    assert report["neco_standardised_auroc"] == pytest.approx(known, rel=1e-12)


def test_forms_of_neco_in_closed_form() -> None:
    """Two classes at (9, 0) and (11, 0), spread along both axes; K - 1 = 1 direction.

    The direction of the covariance is the second axis, along which samples vary most. Features are
    uncorrelated: after scaling, no direction is wider than the other, and none can be chosen.
    """
    features = np.array([[9.0, -4], [9, 4], [11, -4], [11, 4]])
    labels, weight = np.array([0, 0, 1, 1]), np.array([[-1.0, 0], [1, 0]])
    ood = np.array([[1.0, 4], [10, 1]])
    report = measured(Instance(features, labels, weight), ood)
    # centred: 4/sqrt(17) inside; OOD (-9, 4) has 4/sqrt(97), and (0, 1) has 1
    assert report["neco_auroc"] == 0.5
    # as given: 4/sqrt(97) and 4/sqrt(137) inside; OOD 4/sqrt(17) and 1/sqrt(101)
    assert report["neco_uncentred_auroc"] == 0.5
    assert report["neco_uncentred_fpr95"] == 0.5
    assert np.isnan(report["neco_standardised_auroc"])
    # a first feature that follows the second by a sixth: the diagonal is the direction
    leaning = features + np.array([[-2.0, 0], [2, 0], [-2, 0], [2, 0]])
    report = measured(Instance(leaning, labels, weight), np.array([[10.0, 40], [100, 0]]))
    # z on the diagonal: h = (10, 0) + (t sqrt(5), 4 t); (0, 40) and (90, 0) have 1/sqrt(2) of it,
    # less than any sample: (7, -4), (11, 4), (9, -4), (13, 4)
    assert report["neco_standardised_auroc"] == 1.0
    # logits are 7 to 13 inside; 10/sqrt(2) is 7.07, and 100/sqrt(2) more than all
    share = abs(np.array([-3, 1, -1, 3]) / 5**0.5 + np.array([-1, 1, -1, 1]))
    length = np.hypot(np.array([-3, 1, -1, 3]) / 5**0.5, 1) * 2**0.5
    inside = np.array([7, 11, 9, 13]) * share / length
    known = np.mean(inside > 10 / 2**0.5) / 2
    assert report["neco_logit_auroc"] == known


def test_the_zero_vector_has_no_direction_from_the_origin() -> None:
    instance = INSTANCES["balanced"]()
    report = measured(instance, np.r_[ood_for(instance.features), np.zeros((1, 8))])
    undefined = {key for key, value in report.items() if np.isnan(value)}
    assert undefined == {"neco_uncentred_auroc", "neco_uncentred_fpr95"}
    assert any("a sample is the zero vector" in note for note in report.notes)


def test_rotation_changes_nothing_but_nci_and_standardised_features() -> None:
    instance = INSTANCES["balanced"]()
    ood = ood_for(instance.features)
    turn = rotation(np.random.default_rng(1), instance.features.shape[1])
    weight = instance.weight @ turn
    turned = replace(instance, features=instance.features @ turn, weight=weight)
    before, after = measured(instance, ood), measured(turned, ood @ turn)
    forms = ("nci", "neco_standardised", "neco_logit")  # a 1-norm, and units of each feature
    keys = {key for key in OOD if not key.startswith(forms)}
    assert_agree({k: after[k] for k in keys}, {k: before[k] for k in keys}, rel=1e-11)


@pytest.mark.parametrize("factor", [2.0**-600, 1e-3, 1e150, 2.0**900])
def test_units_of_the_features(factor: float) -> None:
    """With the weight in the opposite unit the logits are the same; NCI has a unit."""
    instance = INSTANCES["balanced"]()
    ood = ood_for(instance.features)
    scaled = replace(instance, features=factor * instance.features, weight=instance.weight / factor)
    before, after = measured(instance, ood), measured(scaled, factor * ood)
    keys = OOD - {"nci_auroc", "nci_fpr95"}
    assert_agree({k: after[k] for k in keys}, {k: before[k] for k in keys}, rel=1e-9)
    assert np.isfinite([after["nci_auroc"], after["nci_fpr95"]]).all()


def test_units_of_the_logits_without_a_bias() -> None:
    """The largest logit has the same order in every unit; softmax tends to the margin."""
    instance = INSTANCES["no_bias"]()
    ood = ood_for(instance.features)
    large = measured(replace(instance, weight=2.0**1000 * instance.weight), ood)
    before = measured(instance, ood)
    assert large["max_logit_auroc"] == large["energy_auroc"] == before["max_logit_auroc"]
    sorted_logits = np.sort(np.r_[instance.features, ood] @ instance.weight.T, axis=1)
    truth = np.r_[np.ones(len(instance.features)), np.zeros(len(ood))]
    margins = sorted_logits[:, -1] - sorted_logits[:, -2]
    assert large["msp_auroc"] == pytest.approx(roc_auc_score(truth, margins), rel=1e-12)


def test_ood_of_another_magnitude() -> None:
    instance = INSTANCES["balanced"]()
    ood = ood_for(instance.features)
    near, far = measured(instance, 1e6 * ood), measured(instance, 2.0**400 * ood)
    assert far["nc5"] == pytest.approx(near["nc5"], rel=1e-12)
    assert np.isfinite(list(far.values())).all()
    with pytest.raises(InputError, match="OOD features of about the same magnitude"):
        measured(replace(instance, features=2.0**-600 * instance.features), 2.0**600 * ood)


@pytest.mark.slow
def test_offset_of_a_million() -> None:
    instance = INSTANCES["balanced"]()
    ood = ood_for(instance.features)
    moved = replace(instance, features=instance.features + 1e6)
    moved = replace(moved, bias=instance.bias - 1e6 * instance.weight.sum(1))
    assert_agree(dict(measured(moved, ood + 1e6)), expected(moved, ood + 1e6), rel=1e-9)


def test_float32_features_are_scored_in_float64() -> None:
    instance = INSTANCES["balanced"]()
    single = replace(instance, features=instance.features.astype(np.float32))
    ood = ood_for(instance.features).astype(np.float32)
    wide = replace(single, features=single.features.astype(np.float64))
    found, wanted = measured(single, torch.tensor(ood)), measured(wide, ood.astype(np.float64))
    assert_agree(dict(found), dict(wanted), rel=1e-12)


def test_saturated_softmax_keeps_its_order() -> None:
    """Probabilities that float64 rounds to 1 are told apart by their odds."""
    features = np.array([[80.0], [90.0], [-85.0], [-95.0]])
    instance = Instance(features, np.array([0, 0, 1, 1]), np.array([[1.0], [-1.0]]))
    report = measured(instance, np.array([[60.0], [-70.0]]))
    assert (report["msp_auroc"], report["msp_fpr95"]) == (1.0, 0.0)


@pytest.mark.parametrize("with_head", [True, False])
def test_without_a_head_neco_and_nc5_remain(with_head: bool) -> None:
    instance = INSTANCES["balanced"]()
    if not with_head:
        instance = replace(instance, weight=None, bias=None)
    forms = ("nc5", "neco_auroc", "neco_fpr95", "neco_uncentred", "neco_standardised")
    keys = OOD if with_head else {key for key in OOD if key.startswith(forms)}
    assert set(measured(instance, ood_for(instance.features))) == keys


def test_more_classes_than_dimensions() -> None:
    instance = INSTANCES["more_classes_than_dims"]()
    report = measured(instance, ood_for(instance.features))
    for form in ("neco", "neco_uncentred", "neco_standardised"):
        assert (report[f"{form}_auroc"], report[f"{form}_fpr95"]) == (0.5, 1.0)
    assert report["neco_logit_auroc"] == report["max_logit_auroc"]
    assert any("K - 1 directions span all dimensions" in note for note in report.notes)


def test_a_sample_at_the_mean_has_no_direction() -> None:
    instance = INSTANCES["balanced"]()
    ood = np.r_[ood_for(instance.features), instance.features.mean(0)[None]]
    report = measured(instance, ood)
    undefined = {key for key, value in report.items() if np.isnan(value)}
    forms = ("neco", "neco_standardised", "neco_logit", "nci")
    assert undefined == {f"{form}_{name}" for form in forms for name in ("auroc", "fpr95")}
    assert any("equals the global mean up to rounding" in note for note in report.notes)


def test_equal_eigenvalues_at_the_cut_choose_no_direction() -> None:
    features = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    report = measured(Instance(features, np.array([0, 0, 1, 1])), np.array([[3.0, 1], [0, 2]]))
    assert np.isnan(report["neco_auroc"])


def test_ood_around_the_origin_leaves_nc5_undefined() -> None:
    instance = INSTANCES["balanced"]()
    ood = ood_for(instance.features)
    report = measured(instance, np.r_[ood, -ood])
    assert np.isnan(report["nc5"])
    assert np.isfinite(report["nc5_centred"])


BAD = {
    "OOD features of dimension 8, found dimension 7; take both from the same layer": np.zeros(
        (3, 7)
    ),
    "expected OOD features as a numeric array": "data.npy",
    "expected OOD samples, found none": np.zeros((0, 8)),
    "finite OOD features, found NaN or Inf in 1 of 2 rows": np.array([[np.nan] * 8, [1.0] * 8]),
    r"OOD features of shape \(n, d\)": np.zeros(8),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_ood_is_refused_in_one_sentence(said: str) -> None:
    with pytest.raises(InputError, match=said):
        measured(INSTANCES["balanced"](), BAD[said])


def test_groups_and_samples_must_go_together() -> None:
    instance = INSTANCES["balanced"]()
    with pytest.raises(InputError, match="OOD samples for the group 'ood', found none"):
        measured(instance, None)
    with pytest.raises(InputError, match="the group 'ood' with OOD samples, found groups nc1"):
        measured(instance, ood_for(instance.features), groups=["nc1"])
    assert set(measured(instance, ood_for(instance.features), groups=["nc5"])) == {"nc5"}


@pytest.mark.slow
def test_uncertainty_and_chance_level() -> None:
    """DeLong's errors for AUROC; none for the others; no chance level, which is known.

    Scores fitted to the samples that they judge have an error with a reference only: DeLong's
    method takes scores as they are.
    """
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 4
    features, train = (rng.normal(size=(200, 6)) + 2 * np.eye(4, 6)[labels] for _ in range(2))
    ood, options = rng.normal(size=(150, 6)), {"groups": ["ood", "nc1"], "uncertainty": True}
    report = ncscope.measure(features, labels, np.eye(4, 6), ood=ood, baseline=True, **options)
    reference = ncscope.measure(train, labels)
    other = ncscope.measure(features, labels, np.eye(4, 6), ood=ood, reference=reference, **options)
    errors, fitted = (
        {key for key in each.standard_errors if key in OOD} for each in (report, other)
    )
    areas = {key for key in OOD if key.endswith("_auroc")}
    assert fitted == areas
    assert errors == {key for key in areas if not key.startswith(("neco", "nci"))}
    m, n = 150, 200
    bound = 0.5 / np.sqrt(min(m, n))  # of any AUROC
    assert all(0 < other.standard_errors[key] < bound for key in fitted)
    for key in fitted:
        low, high = other.interval(key)
        assert 0 < low < other[key] < high < 1
        assert (high - other[key] < other[key] - low) == (other[key] > 0.5)
    assert any("nc5, nc5_centred" in note and "no standard error" in note for note in report.notes)
    assert not OOD & set(report.baseline)


def test_values_keep_to_their_range() -> None:
    for name in ("balanced", "near_collapse", "one_dimension"):
        instance = INSTANCES[name]()
        for key, value in measured(instance, ood_for(instance.features)).items():
            assert METRICS[key].low <= value <= METRICS[key].high


def test_ood_is_left_out_of_other_reports() -> None:
    instance = INSTANCES["balanced"]()
    report = measured(instance, None, groups=None)
    assert not OOD & set(report)
    both = measured(instance, ood_for(instance.features), groups=None)
    assert set(both) >= OOD
    assert_agree({k: both[k] for k in report}, dict(report), rel=0)
