"""The table of classes is the same however the samples are passed, or says what it lacks."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import ncscope
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.measurement.records import ClassTable

from .test_ranks import LABELS, assert_same, batches, flat, network, on_ranks

OPTIONS = Options(groups=["per_class", "nc4"], layer_groups=["per_class"])


def tables(rows: slice, options: Options = OPTIONS, size: int = 16) -> list[ClassTable]:
    record = measure_layers(network(), batches(rows, size), options).record
    return [layer.per_class for layer in record.layers]


def numbers(found: list[ClassTable]) -> dict[str, float]:
    return flat([asdict(table) for table in found])


@pytest.mark.parametrize(
    "shares",
    [
        (slice(7), slice(7, 60)),
        pytest.param((slice(0), slice(1), slice(1, 60)), marks=pytest.mark.slow),
    ],
)
def test_processes_count_together(shares: tuple[slice, ...], tmp_path: Path) -> None:
    found = on_ranks(len(shares), tmp_path, lambda rank: numbers(tables(shares[rank], size=5)))
    assert_same(found, numbers(tables(slice(60))))


def test_recomputed_samples_are_counted_as_stored_ones() -> None:
    stored, again = (
        tables(slice(60), Options(groups=["per_class"], second_pass=second))
        for second in ("store", "recompute")
    )
    assert stored == again
    assert stored[-1].ncc_accuracy is not None


def test_of_a_random_sample_only_the_logits_are_counted_by_class() -> None:
    record = measure_layers(
        network(), batches(slice(60)), Options(groups=["per_class"], second_pass=20)
    ).record.layers[-1]
    whole = tables(slice(60))[-1]
    assert record.per_class.ncc_accuracy is None
    assert record.per_class.accuracy == whole.accuracy
    assert [note for note in record.notes if "random sample" in note]


def test_a_random_sample_of_all_samples_counts_as_all() -> None:
    options = Options(groups=["per_class"], second_pass=60)
    record = measure_layers(network(), batches(slice(60)), options).record.layers[-1]
    assert record.per_class == tables(slice(60), Options(groups=["per_class"]))[-1]
    assert not [note for note in record.notes if "random sample" in note]


def test_a_classifier_is_followed_by_its_logits_and_by_its_weights() -> None:
    model, accuracies = network().eval(), []
    with torch.no_grad(), ncscope.watch(model, groups=["per_class"]) as seen:
        for inputs, labels in batches(slice(60)):
            model(inputs)
            seen.labels(labels)
        accuracies = seen.report().per_class["accuracy"]
    assert accuracies == tables(slice(60))[-1].accuracy


def test_shards_are_counted_together() -> None:
    draws = torch.Generator().manual_seed(0)
    features, weight = torch.randn(60, 3, generator=draws), torch.randn(5, 3, generator=draws)
    shards = [[(features[rows], LABELS[rows])] for rows in (slice(9), slice(9, 60))]
    for head in (None, weight):
        found = ncscope.measure_shards(shards, weight=head).record.per_class
        wanted = ncscope.measure(features, LABELS, head).record.per_class
        assert flat(asdict(found)) == pytest.approx(flat(asdict(wanted)), rel=1e-10)
        assert (found.ncc_accuracy, found.accuracy) == (wanted.ncc_accuracy, wanted.accuracy)


def test_reference_means_decide_and_own_means_are_described() -> None:
    draws = torch.Generator().manual_seed(0)
    features = torch.randn(60, 3, generator=draws)
    train = ncscope.measure(features + 5, (LABELS + 1) % 4)
    own = ncscope.measure(features, LABELS).record.per_class
    test = ncscope.measure(features, LABELS, reference=train)
    assert test.record.per_class.nearest_cdnv == own.nearest_cdnv
    assert test.record.per_class.ncc_accuracy != own.ncc_accuracy
    hits = torch.tensor(test.record.per_class.ncc_accuracy) @ torch.full((4,), 15.0)
    assert hits / 60 == pytest.approx(test["ncc_accuracy"])


def test_unasked_for_in_the_front_door_only() -> None:
    record = measure_layers(network(), batches(slice(60)), Options()).record
    assert record.layers[-1].per_class is None
    report = ncscope.measure_model(network(), batches(slice(60)), progress=False)
    assert report.per_class is not None
