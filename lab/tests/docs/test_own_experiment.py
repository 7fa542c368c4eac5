"""The tutorial on an experiment of one's own: the page shows the files that a reader downloads."""

import re

import pytest

from ncscope_lab.catalogue import find_experiment
from tests.docs.pages import ROOT, blocks

FOLDER = ROOT / "docs" / "tutorials"
PAGE = FOLDER / "own-experiment.md"
FILES = ("equinorm.py", "own_loop.py")


def test_the_page_shows_the_files_from_top_to_bottom():
    shown = "".join(block.text for block in blocks(PAGE) if block.language == "python")
    files = "".join((FOLDER / name).read_text() for name in FILES)
    assert re.sub(r"\n+", "\n", shown) == re.sub(r"\n+", "\n", files)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_short_and_its_claims_are_on_the_page(name):
    assert len((FOLDER / name).read_text().splitlines()) < 120
    experiment = find_experiment(str(FOLDER / name))
    text = re.sub(r"\s+", " ", PAGE.read_text())
    assert all(claim.text in text for claim in experiment.claims)
