"""Tables as a terminal of a given width shows them."""

import math

import pytest
from rich.console import Console
from rich.table import Table

from ncscope.probing.records import Measurement, ProbeRecord
from ncscope.report.tables import probe_table, run_table


def shown(table: Table, width: int = 80) -> str:
    console = Console(width=width, record=True, file=None, color_system=None, quiet=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_run_table_has_a_row_a_layer_and_the_test_accuracy(measurements: list[Measurement]) -> None:
    text = shown(run_table(measurements))
    train = [each for each in measurements if each.split == "train"][-1]
    test = [each for each in measurements if each.split == "test"][-1]
    assert "train samples, epoch 40" in text
    for record, tested in zip(train.probe.layers, test.probe.layers, strict=True):
        line = next(line for line in text.splitlines() if record.layer in line)
        cells = line.split()
        assert cells[1] == f"{record.metrics['nc1_quotient']:.4g}"
        assert cells[-1] == f"{tested.metrics['ncc_accuracy']:.4g}"


def test_order_of_measurements_does_not_matter(measurements: list[Measurement]) -> None:
    assert shown(run_table(measurements[::-1])) == shown(run_table(measurements))


def test_eighty_columns_hold_every_number(measurements: list[Measurement]) -> None:
    for table in (run_table(measurements), probe_table(measurements[-1].probe)):
        lines = shown(table).splitlines()
        assert max(map(len, lines)) <= 80
        assert "…" not in "".join(lines)


def test_numbers_end_in_one_column(measurements: list[Measurement]) -> None:
    lines = [line for line in shown(run_table(measurements)).splitlines() if "stage" in line]
    assert len({len(line.rstrip()) for line in lines}) == 1


def test_table_of_one_layer_tells_what_zero_means(single_layer: ProbeRecord) -> None:
    text = shown(probe_table(single_layer), width=100)
    assert "undefined" in text
    assert "every feature sits on its class mean" in text
    assert text.index("NC1") < text.index("NC2") < text.index("NC4")


def test_table_of_bare_record(bare: ProbeRecord) -> None:
    assert math.isnan(bare.layers[0].metrics["nc1_quotient"])
    assert "undefined" in shown(probe_table(bare))


def test_table_of_no_run_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one measurement"):
        run_table([])
