"""The tutorial's tables are those of the script, and the script measures what they say."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "figures"
TABLE = json.loads((FOLDER / "out-of-distribution.json").read_text())
FORMS = ("neco", "neco_uncentred", "neco_standardised", "neco_logit")
COLUMNS = (*FORMS, "nci", "msp", "max_logit", "energy")


@pytest.mark.parametrize("measure", ["auroc", "fpr95"])
def test_the_page_shows_the_numbers_of_the_script(measure: str) -> None:
    page = (ROOT / "docs" / "tutorials" / "out-of-distribution.md").read_text()
    for kind, values in TABLE["200"].items():
        pairs = [values[f"{score}_{measure}"] for score in COLUMNS]
        cells = [f"{100 * mean:.1f} ± {100 * spread:.1f}" for mean, spread in pairs]
        assert f"| {kind} | {' | '.join(cells)} |" in page


@pytest.mark.slow
def test_a_seed_is_within_the_spread_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    script = runpy.run_path(str(Path(FOLDER) / "out_of_distribution.py"))
    for kind, values in script["measured"](epochs=5, seed=0).items():
        for key, value in values.items():
            mean, spread = TABLE["5"][kind][key]
            assert abs(value - mean) <= 3 * spread + 0.02, (kind, key)
