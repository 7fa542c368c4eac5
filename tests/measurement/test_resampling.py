"""Chance level and standard errors: of features, of models, over processes, and when refused."""

from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import ncscope
from ncscope import InputError
from ncscope.measurement.plans import LayerPlan
from ncscope.measurement.resampling import (
    AUTOMATIC,
    LayerSamples,
    estimate_standard_errors,
    measure_chance_level,
)
from ncscope.metrics.intervals import WITHOUT_LABELS
from ncscope.metrics.registry import METRICS
from ncscope.models.networks.residual import ResidualNet
from ncscope.stats.jackknife import Dealer, jackknife
from ncscope.stats.options import Prior, Redraw
from ncscope.stats.processes import Processes

from ..pace import others_slow
from .test_ranks import on_ranks

N, K, D = 300, 4, 6
LABELS = torch.arange(N) % K
FEATURES = (
    torch.randn(N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    + 2 * torch.eye(D, dtype=torch.float64)[LABELS]
)
WEIGHT = torch.eye(K, D, dtype=torch.float64)
ALL = ("nc1", "nc2", "nc3", "nc4", "mse", "information")
WAYS = ((0, True), (400, True), (0, "random_sizes"))


def close(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=1e-9, abs=1e-10, nan_ok=True), key


@pytest.mark.slow
def test_nothing_is_resampled_unless_asked() -> None:
    state = torch.random.get_rng_state()
    plain = ncscope.measure(FEATURES, LABELS, WEIGHT)
    asked = ncscope.measure(FEATURES, LABELS, WEIGHT, baseline=True, uncertainty=True)
    assert not plain.baseline
    assert not plain.standard_errors
    assert not plain.bias_corrected
    assert dict(plain) == dict(asked)
    assert set(asked.baseline) == set(asked) - WITHOUT_LABELS
    assert torch.equal(state, torch.random.get_rng_state())


def test_with_random_labels_the_values_are_at_chance() -> None:
    labels = LABELS[torch.randperm(N, generator=torch.Generator().manual_seed(5))]
    options: dict[str, Any] = {"groups": ["nc4"], "baseline": True}
    report = ncscope.measure(FEATURES, labels, WEIGHT, uncertainty=True, **options)
    errors = report.standard_errors
    told_apart = ncscope.measure(FEATURES, LABELS, WEIGHT, **options)
    for key in ("accuracy", "ncc_accuracy"):
        assert abs(report[key] - report.baseline[key]) < 5 * errors[key], key
        assert abs(told_apart[key] - told_apart.baseline[key]) > 8 * errors[key], key
    assert report.baseline["accuracy"] == pytest.approx(1 / K, abs=0.08)


@pytest.mark.parametrize(
    ("groups", "draws"), [(["nc1", "nc2", "nc4"], 9), (["nc1", "information"], 1)]
)
def test_the_chance_level_is_the_median_over_permutations(groups: list[str], draws: int) -> None:
    report = ncscope.measure(FEATURES, LABELS, WEIGHT, groups=groups, baseline=True)
    in_rows = LABELS.sort().values  # the labels are drawn from the sizes of the classes
    permuted = [
        ncscope.measure(
            FEATURES, in_rows[torch.randperm(N, generator=generator)], WEIGHT, groups=groups
        )
        for generator in map(torch.Generator().manual_seed, range(draws))
    ]
    for key, value in report.baseline.items():
        assert value == pytest.approx(
            median(each[key] for each in permuted), rel=1e-9, nan_ok=True
        ), key


def test_the_sizes_of_the_classes_are_kept() -> None:
    counts = torch.tensor([200, 60, 30, 10])
    labels = torch.arange(K).repeat_interleave(counts)
    report = ncscope.measure(FEATURES, labels, WEIGHT, baseline=True)
    # Of a head that always chooses class 0, the accuracy is the share of that class.
    always = torch.zeros_like(WEIGHT)
    bias = torch.eye(K, dtype=torch.float64)[0]
    report = ncscope.measure(FEATURES, labels, always, bias, groups=["nc4"], baseline=True)
    assert report.baseline["accuracy"] == report["accuracy"] == 200 / 300


@pytest.mark.slow
def test_small_samples_have_a_chance_level_of_their_own_accord() -> None:
    groups = ["pfc"]
    assert ncscope.measure(FEATURES, LABELS, groups=groups, baseline=None).baseline
    long = torch.zeros(AUTOMATIC // D // 2 + 1, D)
    long[: len(long) // 2, 0] = 1
    labels = (torch.arange(2 * len(long)) % 2).sort().values
    report = ncscope.measure(torch.cat([long, long]), labels, groups=groups, baseline=None)
    assert not report.baseline


@pytest.mark.parametrize(
    ("prior", "exponent", "redraw"),
    others_slow(
        [(p, *way) for p in ("empirical", "uniform") for way in WAYS],
        ("empirical", 400, True),
        ("uniform", 0, "random_sizes"),
    ),
)
def test_errors_are_those_of_measuring_each_replicate(
    prior: Prior, exponent: int, redraw: Redraw
) -> None:
    counts = torch.tensor([119, 81, 55, 45])
    labels = torch.arange(K).repeat_interleave(counts)
    features = 2.0**exponent * (FEATURES + 4 * torch.eye(D)[labels])
    options: dict[str, Any] = {"prior": prior, "groups": ALL}
    report = ncscope.measure(features, labels, WEIGHT, uncertainty=redraw, **options)
    left_out, twice = Dealer(counts, random_sizes=redraw == "random_sizes")(labels)
    rows = [torch.cat([torch.nonzero(left_out != g), torch.nonzero(twice == g)]) for g in range(20)]
    replicates = [
        ncscope.measure(features[r.squeeze(1)], labels[r.squeeze(1)], WEIGHT, **options)
        for r in rows
    ]
    assert len(report.standard_errors) > 20
    for key, error in report.standard_errors.items():
        expected = jackknife(report[key], [each[key] for each in replicates])
        assert error == pytest.approx(expected.standard_error, rel=1e-6), key
        if not {"accuracy", "ncc_accuracy", "pfc3", "nc4_disagreement"} & {key}:
            assert report.bias_corrected[key] == pytest.approx(expected.bias_corrected), key
        else:
            assert report.bias_corrected[key] == report[key]


def model() -> ResidualNet:
    torch.manual_seed(0)
    return ResidualNet(in_features=D, width=8, depth=2, num_classes=K).double().eval()


def loader(rows: slice = slice(N)) -> DataLoader[Any]:
    # Sorted by class: a permutation within batches would change nothing.
    order = LABELS.argsort(stable=True)[rows]
    return DataLoader(TensorDataset(FEATURES[order], LABELS[order]), batch_size=37)


@pytest.mark.parametrize("memory", others_slow([2**30, 400_000], 400_000))
def test_a_stream_has_what_its_features_have(memory: int) -> None:
    network, order = model(), LABELS.argsort(stable=True)
    seen: list[torch.Tensor] = []
    hook = network.blocks[0].register_forward_hook(lambda *call: seen.append(call[2].detach()))
    with torch.no_grad():
        network(FEATURES[order])
    hook.remove()
    options: dict[str, Any] = {"baseline": True, "uncertainty": True}
    groups = ("nc1", "nc4")
    report = ncscope.measure_model(
        network,
        loader(),
        groups=groups,
        layer_groups=groups,
        memory=memory,
        progress=False,
        **options,
    ).layers["blocks.0"]
    expected = ncscope.measure(seen[0], LABELS[order], groups=groups, **options)
    close(report.baseline, expected.baseline)
    close(report.standard_errors, expected.standard_errors)
    close(report.bias_corrected, expected.bias_corrected)


@pytest.mark.slow
def test_a_single_entropy_has_what_it_has_among_all_metrics() -> None:
    options: dict[str, Any] = {"layers": [], "baseline": True, "uncertainty": True}
    reports = [
        ncscope.measure_model(model(), loader(), groups=groups, progress=False, **options)
        for groups in (["mir"], ["information"])
    ]
    alone, among = reports
    assert alone.baseline == {"mir": among.baseline["mir"]}
    assert alone.standard_errors == {"mir": among.standard_errors["mir"]}


@pytest.mark.slow
def test_watched_passes_have_what_the_loader_has() -> None:
    network = model()
    options: dict[str, Any] = {"baseline": True, "uncertainty": True, "groups": ["nc1", "nc4"]}
    expected = ncscope.measure_model(network, loader(), progress=False, **options)
    with torch.no_grad(), ncscope.watch(network, **options) as seen:
        for inputs, labels in loader():
            network(inputs)
            seen.labels(labels)
        report = seen.report()
    close(report.baseline, expected.baseline)
    close(report.standard_errors, expected.standard_errors)


@pytest.mark.slow
def test_processes_draw_from_the_class_counts_of_all(tmp_path: Path) -> None:
    """Each process has samples of two classes only; one has none."""
    shares = (slice(0, 150), slice(0), slice(150, N))

    def measured(rows: slice) -> dict[str, dict[str, float]]:
        options: dict[str, Any] = {"baseline": True, "uncertainty": True, "progress": False}
        # A loader refuses to have no batch: the process has an empty list instead.
        batches = loader(rows) if rows.stop else []
        report = ncscope.measure_model(model(), batches, groups=ALL, **options)
        return {"baseline": report.baseline, "errors": report.standard_errors}

    alone = measured(slice(N))
    for found in on_ranks(3, tmp_path, lambda rank: measured(shares[rank])):
        close(found["baseline"], alone["baseline"])
        # Whether a distance is close to collapse is up to its error, which differs a little.
        differ = found["errors"].keys() ^ alone["errors"].keys()
        assert all(METRICS[key].group in ("nc2", "nc3") for key in differ)
        for key in found["errors"].keys() & alone["errors"].keys():
            error = alone["errors"][key]
            # The processes deal by themselves, into other groups.
            assert 0.4 < found["errors"][key] / error < 2.5, key


@pytest.mark.parametrize(
    ("change", "key", "reason"),
    [
        ({}, "nc2_equiangular_weights", "the value does not vary with the samples"),
        ({}, "entropy_weights", "the value does not vary with the samples"),
        ({"labels": LABELS.clamp(max=1)}, "nc4_disagreement", ""),
        ({"features": FEATURES / 9 + torch.eye(D)[LABELS] / 9}, "cdnv", ""),
        ({"features": FEATURES - 2 * torch.eye(D)[LABELS]}, "cdnv", "is noise"),
        ({"features": 30 * torch.eye(D)[LABELS] + FEATURES}, "ncc_accuracy", "fewer than 5"),
        ({"features": torch.eye(K)[LABELS] + FEATURES[:, :K] / 9}, "nc2_etf", "close to collapse"),
    ],
)
def test_metrics_without_an_error_have_a_reason(
    change: dict[str, Any], key: str, reason: str
) -> None:
    given = {"features": FEATURES, "labels": LABELS} | change
    weight = WEIGHT[:, : given["features"].shape[1]]
    groups = [METRICS[key].group]
    report = ncscope.measure(**given, weight=weight, groups=groups, uncertainty=True)
    told = [line for line in report.notes if line.startswith("no standard error of")]
    assert (key in report.standard_errors) == (not reason)
    if reason:
        (line,) = [
            line
            for line in told
            if key in line.partition(":")[0].split(", ")
            or line.startswith(f"no standard error of {key}")
        ]
        assert reason in line


def test_a_class_too_small_for_errors_is_a_warning() -> None:
    labels = torch.where(torch.arange(N) < 19, 3, LABELS % 3)
    report = ncscope.measure(FEATURES, labels, uncertainty=True)
    said = "no standard errors: they need 20 samples in each class, and the fewest are 19"
    assert report.warnings[-1] == said
    assert not report.standard_errors


@pytest.mark.slow
def test_one_process_may_measure_features_alone(tmp_path: Path) -> None:
    """Nothing waits for a process that does not call `measure`."""

    def program(rank: int) -> Any:
        if rank:
            return None
        return dict(ncscope.measure(FEATURES, LABELS, baseline=True, **options).standard_errors)

    options: dict[str, Any] = {"groups": ["nc1", "nc4"], "uncertainty": True}
    found = on_ranks(2, tmp_path, program)
    close(found[0], ncscope.measure(FEATURES, LABELS, **options).standard_errors)


class _Failing:
    """Batches that fail when they are read again, in one process."""

    def __init__(self, batches: Any, fails: bool) -> None:
        self.batches, self.fails = batches, fails

    def __iter__(self) -> Any:
        yield from self.batches
        if self.fails:
            msg = "the disk is gone"
            raise OSError(msg)


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
@pytest.mark.parametrize("step", [measure_chance_level, "errors"])
def test_a_process_that_cannot_read_again_ends_all(step: Any, prior: Prior, tmp_path: Path) -> None:
    counts = torch.bincount(LABELS)
    report = ncscope.measure(FEATURES, LABELS, groups=["nc1"], prior=prior)

    def program(rank: int) -> str:
        half = LABELS.reshape(2, -1)[rank], FEATURES.reshape(2, -1, D)[rank]
        samples = LayerSamples(
            plan=LayerPlan("last", "last", ["nc1"]),
            batches=_Failing([half[::-1]], fails=rank == 1),
            counts=counts,
            dim=D,
            prior=prior,
            processes=Processes(),
        )
        try:
            if step == "errors":
                estimate_standard_errors(samples, report, report.statistics)
            else:
                step(samples)
        except (InputError, OSError) as error:
            return str(error)
        return "no error"

    for said in on_ranks(2, tmp_path, program):
        assert "the disk is gone" in said


def test_statistics_beyond_the_memory_are_refused_with_their_size() -> None:
    with pytest.raises(InputError, match=r"expected [\d,]+ bytes for the statistics of 20 groups"):
        ncscope.measure_model(model(), loader(), memory=1000, uncertainty=True, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize(("redraw", "sizes"), [(True, "held"), ("random_sizes", "random")])
def test_reports_say_which_other_samples_the_errors_are_of(redraw: Redraw, sizes: str) -> None:
    report = ncscope.measure(
        FEATURES, LABELS, WEIGHT, groups=["nc1", "ood"], ood=FEATURES + 1, uncertainty=redraw
    )
    again = ncscope.Report.from_json(report.to_json())
    assert again.record.random_sizes == report.record.random_sizes == (sizes == "random")
    page = again.page("errors")
    assert f"bias corrected, class sizes {sizes}" in page
    held = "hold the sizes of the classes fixed"
    assert (held in " ".join(report.notes)) == (sizes == "held")
    areas = "of energy_auroc" in " ".join(report.notes) or "energy_auroc are of" in page
    assert areas == (sizes == "held")
    unlabelled = ncscope.measure(FEATURES, groups=["rankme"], uncertainty=redraw)
    assert "class sizes" not in unlabelled.page("errors")
