"""Tables as a terminal of a given width shows them."""

import math
import re
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.report.tables import build_model_table, build_run_table


def shown(table: RenderableType, width: int = 80) -> str:
    console = Console(width=width, record=True, file=None, color_system=None, quiet=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_run_table_has_a_row_a_layer_and_the_test_accuracy(measurements: list[Measurement]) -> None:
    text = shown(build_run_table(measurements))
    train = [each for each in measurements if each.split == "train"][-1]
    test = [each for each in measurements if each.split == "test"][-1]
    assert "train samples, epoch 40" in text
    for record, tested in zip(train.model_record.layers, test.model_record.layers, strict=True):
        line = next(line for line in text.splitlines() if record.layer in line)
        cells = line.split()
        assert cells[1] == f"{record.metrics['nc1_quotient']:.4g}"
        assert cells[-1] == f"{tested.metrics['ncc_accuracy']:.4g}"


def test_order_of_measurements_does_not_matter(measurements: list[Measurement]) -> None:
    assert shown(build_run_table(measurements[::-1])) == shown(build_run_table(measurements))


def test_eighty_columns_hold_every_number(measurements: list[Measurement]) -> None:
    for table in (build_run_table(measurements), build_model_table(measurements[-1].model_record)):
        lines = shown(table).splitlines()
        assert max(map(len, lines)) <= 80
        assert "…" not in "".join(lines)


def test_numbers_end_in_one_column(measurements: list[Measurement]) -> None:
    lines = [line for line in shown(build_run_table(measurements)).splitlines() if "stage" in line]
    assert len({len(line.rstrip()) for line in lines}) == 1


def test_table_of_one_layer_tells_the_value_at_collapse(single_layer: ModelRecord) -> None:
    text = shown(build_model_table(single_layer))
    assert "undefined" in text
    lines = {line.split()[0]: line.split()[2:] for line in text.splitlines() if line.strip()}
    assert lines["nc1_quotient"] == ["0", "↓"]
    assert lines["ncc_accuracy"] == ["1", "↑"]
    assert lines["novel_metric"] == ["–"]
    assert text.index("NC1") < text.index("NC2") < text.index("NC4")


def trusted(record: LayerRecord) -> LayerRecord:
    """A record with a warning, and with values at chance level, errors and corrections."""
    return replace(
        record,
        warnings=("n < 5 d",),
        baseline={"nc1_quotient": 7.5, "ncc_accuracy": 0.125},
        standard_errors={"nc1_quotient": 0.01, "ncc_accuracy": 0.01},
        bias_corrected={"nc1_quotient": 0.5},
    )


def test_chance_and_intervals_stand_beside_the_value_and_warnings_come_first(
    single_layer: ModelRecord,
) -> None:
    record = trusted(single_layer.layers[0])
    text = shown(build_model_table(ModelRecord((record,))))
    assert text.startswith("warning: n < 5 d")
    line = next(line for line in text.splitlines() if "nc1_quotient" in line)
    assert "± 0.01" in line
    assert "7.5" in line
    low, high = (float(end) for end in re.search(r"([\d.]+) to ([\d.]+)", line).groups())
    value = single_layer.layers[0].metrics["nc1_quotient"]
    # The interval of the logarithm, from the corrected value and 2.16 standard errors.
    assert math.log(high / 0.5) == pytest.approx(2.16 * 0.01 / value, abs=0.01)
    assert low * high == pytest.approx(0.25, rel=0.01)
    line = next(line for line in text.splitlines() if "ncc_accuracy" in line)
    assert "±" not in line  # without a corrected value there is no interval
    assert max(map(len, text.splitlines())) <= 80


def test_a_table_of_layers_ends_with_what_to_judge_the_last_by(
    measurements: list[Measurement],
) -> None:
    probe = measurements[-1].model_record
    last = trusted(probe.layers[-1])
    text = shown(build_model_table(replace(probe, layers=(*probe.layers[:-1], last))))
    rows = {line.strip()[:9].strip(): line.split() for line in text.splitlines()}
    assert rows["collapsed"][2:] == ["0↓", "0↓", "0↓", "0↓", "1↑", "1↑"]
    assert "7.5" in rows["by chance"]
    assert rows["± s.e., s"][3] == "0.01"
    assert all(f"{row}, {last.layer} " in text for row in ("by chance", "± s.e."))
    assert text.startswith(f"warning: {last.layer}: n < 5 d")


def test_table_of_bare_record(bare: ModelRecord) -> None:
    assert math.isnan(bare.layers[0].metrics["nc1_quotient"])
    assert "undefined" in shown(build_model_table(bare))


def test_table_of_no_run_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one measurement"):
        build_run_table([])


@pytest.mark.parametrize("number", [3, 20])
def test_columns_stand_still_and_no_cell_of_a_layer_is_blank(
    measurements: list[Measurement], number: int
) -> None:
    first, *_, last = measurements[-1].model_record.layers
    few = {"nc1_quotient": 1.25e-7}
    layers = [replace(first, layer=f"blocks.{place}", metrics=few) for place in range(number - 1)]
    lines = shown(build_model_table(ModelRecord((*layers, last)))).splitlines()
    rows = [line for line in lines if line.strip().startswith(("blocks.", last.layer))]
    assert len(rows) == number
    assert len({len(row.rstrip()) for row in rows}) == 1
    assert max(map(len, lines)) <= 80
    assert rows[0].split()[1] == "1.25e-07"
    assert len({len(row.split()) for row in rows}) == 1
