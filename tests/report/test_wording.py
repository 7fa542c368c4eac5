"""What is said in words and numbers."""

import base64
import gzip
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from ncscope.measurement.provenance import UNKNOWN
from ncscope.measurement.records import ClassTable, LayerRecord, Measurement, ModelRecord
from ncscope.report.comparison import ComparisonSource, render_comparison_page
from ncscope.report.curves import describe_layers, select_drawable
from ncscope.report.overview import build_details, flatten_config, split_config
from ncscope.report.payload import (
    FRAME_NUMBERS,
    GRAM_CLASSES,
    build_gram_frame,
    build_history_payload,
    choose_class_limit,
    write_json,
)
from ncscope.report.wording import format_plain, join_words, round_for_json, typeset


def test_numbers() -> None:
    assert round_for_json(math.nan) is None
    assert round_for_json(-math.inf) is None
    assert round_for_json(1 / 3) == 0.333333
    assert [format_plain(v) for v in (math.nan, 0.123456, 1e-9)] == ["undefined", "0.1235", "1e-09"]
    assert [typeset(v) for v in (math.nan, -1.5, -math.inf)] == ["undefined", "−1.5", "−∞"]
    assert typeset(1.25e-7) == "1.25 × 10⁻⁷"
    assert [join_words(words) for words in ([], ["a"], ["a", "b", "c"])] == ["", "a", "a, b and c"]


def layers(*values: tuple[float, float, float]) -> ModelRecord:
    keys = ("pfc1", "pfc2", "pfc3")
    return ModelRecord(
        tuple(
            LayerRecord(f"l{index}", dict(zip(keys, own, strict=True)), (), 2, 200, 3)
            for index, own in enumerate(values)
        )
    )


def test_orderly_layers_are_said_to_be_so() -> None:
    assert describe_layers(layers((3, 0.5, 0.8), (1, 0.4, 0.995), (0.1, 0.1, 1))) == [
        "Effective depth (NCC error at most 0.01): l1, layer 2 of 3.",
        "PFC1 never rises from one layer to the next.",
        "PFC2 never rises from one layer to the next.",
        "PFC3 never falls from one layer to the next.",
    ]


def test_breaks_of_the_order_are_named() -> None:
    assert describe_layers(layers((1, 0.4, 0.9), (3, 0.4, 0.8), (2.5, 0.3, 0.9))) == [
        "No layer reaches the effective depth (NCC error at most 0.01).",
        "PFC1 breaks the order: it rises from l0 to l1 (by 2).",
        "PFC2 never rises from one layer to the next.",
        "PFC3 breaks the order: it falls from l0 to l1 (by 0.1).",
    ]


def test_nothing_breaks_the_order_within_the_resolution() -> None:
    assert describe_layers(layers((1, 0.4, 0.96), (1.01, 0.404, 0.95)))[1:] == [
        "PFC1 never rises by more than 1 % from one layer to the next.",
        "PFC2 never rises by more than 1 % from one layer to the next.",
        "PFC3 never falls by more than 2 of 200 samples from one layer to the next.",
    ]
    assert describe_layers(layers((1, 0.4, 0.96), (1.02, 0.41, 0.945)))[1:] == [
        "PFC1 breaks the order: it rises from l0 to l1 (by 0.02).",
        "PFC2 breaks the order: it rises from l0 to l1 (by 0.01).",
        "PFC3 breaks the order: it falls from l0 to l1 (by 0.015).",
    ]


def test_straightness_is_said_of_the_layers_that_have_positions() -> None:
    found = layers((3, 0.5, 0.8), (1, 0.4, 0.995), (0.1, 0.1, 1))
    chain = replace(
        found, comparable=("l0", "l1", "l2"), relative_position=(0.0, 0.5, 1.0), straightness=0.8768
    )
    assert describe_layers(chain)[-2:] == [
        "Relative position and geodesic compare the 3 layers of one dimension (d = 3) from l0 to "
        "l2.",
        "Straightness 0.877: the distance from the first of these layers to the last over the "
        "length of the samples’ path, 1 for a straight line.",
    ]
    still = replace(chain, straightness=math.nan)
    assert "Straightness" not in " ".join(describe_layers(still))


def test_only_the_largest_breaks_are_spelled_out() -> None:
    rising = layers(*((float(index**2), 0.4, 0.9) for index in range(5)))
    assert describe_layers(rising)[1] == (
        "PFC1 breaks the order: it rises from l3 to l4 (by 7), from l2 to l3 (by 5), "
        "from l1 to l2 (by 3) and at 1 smaller step."
    )


def test_one_layer_has_no_order_to_speak_of() -> None:
    assert describe_layers(layers((1, 0.4, 0.9))) == []


def test_spectrum_leaves_out_what_a_logarithm_cannot_show() -> None:
    values = [2.0, 1.0, 1e-13, 0.0, -1e-18, math.nan, math.inf]
    index, drawable, omission = select_drawable("within", values)
    assert (index, drawable) == ([1, 2], [2.0, 1.0])
    assert omission == (
        "Not drawn of the 7 values of “within classes”: 3 at or below 10⁻¹² of the largest, "
        "zero to rounding, 1 infinite, 1 undefined."
    )


def test_spectrum_leaves_out_what_has_no_room_for_a_margin() -> None:
    _, drawable, omission = select_drawable("total", [1e305, 1e295])
    assert drawable == [1e295]
    assert omission == "Not drawn of the 2 values of “total”: 1 above 10³⁰⁰."


def test_long_spectrum_is_thinned_and_keeps_its_ends() -> None:
    index, drawable, _ = select_drawable("total", [1 / place for place in range(1, 5001)])
    assert len(index) <= 240
    assert (index[:3], index[-1]) == ([1, 2, 3], 5000)
    assert drawable[-1] == 1 / 5000


def test_spectrum_of_nothing_but_zeros() -> None:
    _, drawable, _ = select_drawable("between", [0.0, 0.0])
    assert drawable == []


def test_large_gram_is_cut_and_says_so() -> None:
    count = GRAM_CLASSES + 6
    gram = [[1.0 if row == column else 0.0 for column in range(count)] for row in range(count)]
    frame = build_gram_frame(LayerRecord("l", {}, (), count, count, 3, {}, gram))
    assert frame is not None
    assert [len(row) for row in frame["cosines"]] == list(range(1, GRAM_CLASSES + 1))
    assert frame["reading"][-1] == f"Drawn: the first {GRAM_CLASSES} of {count} classes."


def test_heat_maps_name_the_classes_present() -> None:
    gram = np.eye(3).tolist()
    ones, numbers = [1, 1, 1], [1.0] * 3
    table = ClassTable(
        [2, 5, 7], ones, *[numbers] * 3, None, None, ones, *[numbers] * 3, None, None
    )
    record = LayerRecord("l", {}, (), 9, 9, 3, {}, gram, num_present=3, per_class=table)
    assert build_gram_frame(record)["names"] == ["2", "5", "7"]
    assert build_gram_frame(record, list("abcdefghi"))["names"] == ["c", "f", "h"]
    assert build_gram_frame(replace(record, per_class=None))["names"] == []
    whole = replace(record, per_class=None, num_present=0)
    assert build_gram_frame(whole)["names"] == ["0", "1", "2"]


def many_runs(runs: int, steps: int, classes: int) -> list[Measurement]:
    gram = [[0.0] * classes for _ in range(classes)]
    spectra = {"between": [1.0] * 100}
    record = LayerRecord("l", {"nc1": 1.0}, (), classes, classes, 3, spectra, gram)
    return [
        Measurement(ModelRecord((record,)), step, run=f"run {run}")
        for run in range(runs)
        for step in range(steps)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "steps", "classes", "moments", "drawn"),
    [(1, 20, 10, 20, 10), (4, 100, 16, 66, 16), (100, 50, 60, 2, 20), (1000, 3, 60, 2, 8)],
)
def test_heat_maps_and_spectra_of_many_networks_fit_into_a_page(
    runs: int, steps: int, classes: int, moments: int, drawn: int
) -> None:
    measurements = many_runs(runs, steps, classes)
    payload = build_history_payload(measurements, "epoch")
    for name, run in payload["runs"].items():
        if name != payload["together"]:
            for frames in (run["grams"]["train"], run["spectra"]["train"]):
                assert len(frames) == moments
                assert [frames[0]["step"], frames[-1]["step"]] == [0, steps - 1]
            assert {len(frame["cosines"]) for frame in run["grams"]["train"]} == {drawn}
            assert len(run["series"]["train"]["times"]) == steps  # curves have every step
    numbers = runs * moments * (100 + drawn**2)
    assert numbers <= FRAME_NUMBERS or (moments, drawn) == (2, 8)


def test_payload_is_strict_json_that_cannot_end_its_script(measurements: list[Measurement]) -> None:
    record = LayerRecord("</script><!--", {"nc1_quotient": math.nan}, (), 2, 4, 3)
    payload = build_history_payload([Measurement(ModelRecord((record,)), 0)], "epoch")["runs"][""]
    text = write_json(payload)
    assert "<" not in text
    assert json.loads(text)["layers"] == ["</script><!--"]
    assert (
        json.loads(write_json(build_history_payload(measurements, "epoch")))["runs"][""]["unit"]
        == "epoch"
    )


def test_aliases_are_one_metric(measurements: list[Measurement]) -> None:
    keys = [
        entry["key"]
        for entry in build_history_payload(measurements, "epoch")["runs"][""]["metrics"]
    ]
    assert "nc1_quotient" in keys
    assert "pfc1" not in keys


def test_note_is_written_once_with_its_layers() -> None:
    records = tuple(LayerRecord(n, {}, ("odd",) * (n != "c"), 2, 4, 3) for n in "abc")
    assert build_details(ModelRecord(records), "").notes == ["a and b: odd"]


def test_nested_configuration_becomes_dotted_names() -> None:
    assert flatten_config({"a": {"b": 1}, "c": [1, 2]}) == {"a.b": "1", "c": "1, 2"}


def test_what_runs_have_alike_is_said_once() -> None:
    alike, own = split_config([{"a": {"b": 1}, "c": 2}, {"a": {"b": 1}, "c": 3}, {"a": {"b": 1}}])
    assert alike == {"a.b": "1"}
    assert own == [{"c": "2"}, {"c": "3"}, {}]
    assert split_config([{"a": 1}]) == ({"a": "1"}, [{}])


def test_heat_maps_of_many_reports_fit_into_a_page() -> None:
    models = [each.model_record for each in many_runs(48, 1, 60)]
    most = choose_class_limit(models)
    assert 8 < most < 60
    assert 0.9 * FRAME_NUMBERS < 48 * (100 + most**2) <= FRAME_NUMBERS
    assert choose_class_limit(models[:2]) == GRAM_CLASSES
    sources = [
        ComparisonSource(f"net {place}", [Measurement(model, 0)], "", UNKNOWN)
        for place, model in enumerate(models)
    ]
    (packed,) = re.findall(r'id="data">([^<]+)<', render_comparison_page("Many", sources))
    data = gzip.decompress(base64.b64decode(packed)).decode()
    assert f"Drawn: the first {most} of 60 classes." in data
