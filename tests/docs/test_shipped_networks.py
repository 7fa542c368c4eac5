"""The page on networks that packages ship says nothing that its measurements don't show."""

import json

import torch

from tests.docs.pages import ROOT, load_hook, load_script

PAGE = (ROOT / "docs" / "experiments" / "shipped-networks.md").read_text()
ROWS = json.loads((ROOT / "docs" / "figures" / "shipped-networks.json").read_text())
script = load_script("shipped_networks")
hook = load_hook("shipped_networks")


def test_the_table_has_a_row_for_each_network_of_the_script() -> None:
    assert list(ROWS) == list(script.NETWORKS)
    table = hook.on_page_markdown("<!-- shipped networks -->", None).splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in table[2:]] == list(ROWS)
    assert {line.count("|") for line in table} == {len(hook._COLUMNS) + 2}


def test_what_the_page_concludes() -> None:
    digits, notes, files, words = ROWS.values()
    assert "in the first three by a\n  factor of 45 or more" in PAGE
    assert all(row["nc1_by_chance"] >= 45 * row["nc1"] for row in (digits, notes, files))
    assert words["nc1_by_chance"] < 45 * words["nc1"]
    assert digits["accuracy"] == max(row["accuracy"] for row in ROWS.values())
    assert digits["nc2_etf"] < 0.7 * digits["nc2_by_chance"]
    for row in (notes, files):
        assert row["nc2_etf"] > 0.8 * row["nc2_by_chance"]
    assert words["nc2_etf"] > words["nc2_by_chance"]


def test_the_measurement_of_features_whose_values_are_known() -> None:
    labels = torch.arange(40) % 4
    weight = torch.eye(4)
    rows = script.measure_network(
        script.Samples(weight[labels] + 0.01 * torch.randn(40, 4), labels, weight, torch.zeros(4))
    )
    assert rows["accuracy"] == 1.0
    assert rows["nc1"] < 0.01 < rows["nc1_by_chance"]
    assert rows["nc1_of_right_answers"] == rows["nc1"]
