"""Warnings and notes of many layers: each said once, with the layers that it concerns."""

import pytest

from ncscope.measurement.records import LayerRecord, ModelRecord
from ncscope.report.overview import collect_sentences, collect_warnings

NOISE = "{}% of the spread is noise of few samples, 2 of {} directions"


def model(*warnings: tuple[str, ...]) -> ModelRecord:
    return ModelRecord(
        tuple(
            LayerRecord(f"blocks.{place}", {}, (), 2, 4, 1, warnings=each)
            for place, each in enumerate(warnings)
        )
    )


def test_neighbouring_layers_are_named_by_first_and_last_and_numbers_by_their_range() -> None:
    one = [(NOISE.format(share, 64),) for share in (81, 9, 78, 100)]
    found = collect_sentences(model(*one, (), (NOISE.format(50, 1024),), ("else",)), "warnings")
    assert found == [
        "blocks.6: else",  # the last layer leads
        "blocks.0 to blocks.3 and blocks.5: 9 to 100% of the spread is noise of few samples, "
        "2 of 64 to 1024 directions",
    ]


def test_a_sentence_of_all_layers_names_none() -> None:
    assert collect_sentences(model(("few",), ("few",)), "warnings") == ["few"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("classes 0, 1 have few samples", "classes 2, 3 have few samples"),
        ("class 3 has few samples", "class 5 has few samples"),
        ("too low: nc1", "too low: nc2"),
        ("see blocks.1", "see blocks.2"),
    ],
)
def test_numbers_that_are_names_are_no_range(one: str, other: str) -> None:
    assert collect_sentences(model((one,), (other,)), "warnings") == [
        f"blocks.1: {other}",
        f"blocks.0: {one}",
    ]


def test_two_facts_of_one_layer_stay_two() -> None:
    both = ("rank 3 is cut", "rank 5 is cut")
    assert collect_sentences(model(both, both), "warnings") == list(both)


def test_metrics_undefined_for_one_reason_share_a_note() -> None:
    reason = "is undefined: the class means coincide"
    record = LayerRecord("h", {}, (f"nc1, pfc1 {reason}", "few", f"cdnv {reason}"), 2, 4, 1)
    assert collect_sentences(ModelRecord((record,)), "notes") == [
        "nc1, pfc1 and cdnv are undefined: the class means coincide",
        "few",
    ]


def test_measurements_that_share_a_warning_are_named_together() -> None:
    models = {"train": model(("few",)), "test": model(("few",)), "other": model(("else",))}
    assert collect_warnings(models) == ["train and test: few", "other: else"]
