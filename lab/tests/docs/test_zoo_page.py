"""Page of the zoo: its tables, figures and evidence are those of the committed cells."""

import json
import sys

import pytest

from ncscope.transfer.advice import CONDITIONS, read_evidence
from ncscope_lab.experiments.transfer.design import list_networks, list_targets
from ncscope_lab.transfer_zoo import Zoo
from tests.docs.pages import ROOT

sys.path.insert(0, str(ROOT / "docs" / "figures"))
import zoo as generator

pytestmark = pytest.mark.usefixtures("unchecked_signatures_of_module")

PAGE = (ROOT / "docs" / "transfer-zoo.md").read_text()
TABLES = (ROOT / "docs" / "figures" / "zoo-tables.md").read_text()


@pytest.fixture(scope="module")
def zoo() -> Zoo:
    return Zoo.read(ROOT / "docs" / "figures" / "zoo-cells.json.gz")


def test_the_committed_cells_are_a_whole_zoo(zoo):
    cells = {(cell.network, cell.target, cell.images) for cell in zoo.cells}
    wanted = {
        (name, target, images)
        for name, training in list_networks(zoo.config).items()
        for target in list_targets(training.data, zoo.config.targets)
        for images in ("all", "few")
    }
    assert cells == wanted
    assert len(cells) == len(zoo.cells)


@pytest.mark.slow
def test_the_evidence_is_that_of_the_cells(zoo):
    assert json.loads(generator.evidence(zoo)) == json.loads(generator.EVIDENCE.read_text())
    assert set(read_evidence()) == set(CONDITIONS)


@pytest.mark.slow
def test_the_tables_are_those_of_the_cells(zoo):
    costs = json.loads(generator.COSTS.read_text())
    assert generator.written(zoo, costs) == TABLES


def test_every_generated_part_is_on_the_page():
    for line in TABLES.splitlines():
        if "[start:" in line:
            name = line.partition("[start:")[2].partition("]")[0]
            assert f'"docs/figures/zoo-tables.md:{name}"' in PAGE


@pytest.mark.slow
def test_another_seed_of_the_bootstrap_gives_the_same_verdicts(zoo):
    claims = zoo.verdicts(seed=1).claims
    committed = [line for line in TABLES.splitlines() if line.startswith("* **")]
    assert len(committed) == len(claims)
    for claim, line in zip(claims, committed, strict=True):
        assert line.startswith(f"* **{claim.verdict.capitalize()}.** {claim.text}.")
    assert claims[0].evidence.capitalize() not in committed[0]


def test_numbers_in_the_text_are_those_of_the_evidence():
    usual, tuned = read_evidence()["usual"], read_evidence()["tuned"]
    assert f"is {usual['explained_entropy'].value:.2f}, that of" in PAGE
    assert f"LogME, {usual['log_me'].value:.2f}." in PAGE
    assert f"of ours is {tuned['explained_entropy'].value:.2f}, of LEEP" in PAGE
    assert f"the best, {tuned['leep'].value:.2f}." in PAGE
    assert f"worse ({usual['other_sets'].value:.2f}) than LogME" in PAGE
