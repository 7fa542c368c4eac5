"""All experiments in one folder: verdicts by owner, failures, resuming, the command."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lab.tests.cli.commands import ran
from lab.tests.tiny import halving
from lab.tests.tiny.halving import list_alone

from ncscope.errors import InputError
from ncscope_lab import catalogue, execution
from ncscope_lab.claims import decide
from ncscope_lab.experiment import Part
from ncscope_lab.observations import Observation
from ncscope_lab.report.verdicts import ExperimentVerdicts, by_owner, verdicts_page
from ncscope_lab.runs.resources import Resources
from ncscope_lab.sweeps import all_experiments
from ncscope_lab.sweeps.all_experiments import run_all

PLAIN = halving.PLAIN


class Disk:
    """A data set that may be missing."""

    def __init__(self) -> None:
        self.present = False
        self.read = 0

    def rows(self, resources: Resources) -> Iterator[Observation]:
        self.read += 1
        if not self.present:
            raise InputError(expected="images", found="none", fix="pass --data")
        yield from PLAIN.parts(halving.Halving())[0].run(resources)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Put three experiments into the catalogue, of which one needs data."""
    disk = Disk()
    known = [
        replace(PLAIN, id="vci/halving"),
        replace(PLAIN, id="vci/images", parts=lambda config: [Part("upper", 4, disk.rows)]),
        replace(PLAIN, id="mse/paper", scales={"paper": halving.Halving()}),
    ]
    names = [each.id for each in known]
    monkeypatch.setattr(all_experiments, "EXPERIMENTS", dict.fromkeys(names, ""))
    monkeypatch.setattr(all_experiments, "REPRODUCTIONS", tuple(names))
    list_alone(monkeypatch, *known)
    return disk


def test_a_failure_stops_no_other_and_resuming_repeats_it_alone(disk: Disk, tmp_path: Path) -> None:
    states = []
    found = run_all(out=tmp_path, on_change=states.append)
    assert [each.name for each in found.experiments] == ["vci/halving", "vci/images"]
    assert list(found.failures) == ["vci/images"]
    assert "pass --data" in found.failures["vci/images"]
    record = json.loads((tmp_path / "verdicts.json").read_text())
    assert record["scale"] == "small"
    verdicts = [claim["verdict"] for claim in record["experiments"]["vci/halving"]["claims"]]
    assert verdicts == ["held", "not held"]
    assert states[-1]["vci/images"].state == "failed"
    page = found.page.read_text()
    assert "expected images" in page
    with pytest.raises(InputError, match="pass --resume"):
        run_all(out=tmp_path)

    disk.present = True
    before = (tmp_path / "vci-halving" / "report.html").stat().st_mtime_ns
    again = run_all(out=tmp_path, resume=True)
    assert again.failures == {}
    assert (tmp_path / "vci-halving" / "report.html").stat().st_mtime_ns == before
    assert disk.read == 2
    assert len(by_owner(again.experiments)[0].experiments) == 2
    run_all(out=tmp_path, resume=True)
    assert disk.read == 2


def test_the_page_is_written_whenever_an_experiment_has_ended(disk: Disk, tmp_path: Path) -> None:
    pages = []

    def seen(positions: object) -> None:
        page = tmp_path / "report.html"
        pages.append(page.read_text() if page.exists() else "")

    run_all(out=tmp_path, on_change=seen)
    assert any("It halves." in page and "not run yet" in page for page in pages)


def test_what_cannot_run_is_refused_before_anything_runs(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mse/paper"):
        run_all(out=tmp_path, only=["mse/paper"])
    execution.run("vci/halving", out=tmp_path / "single")
    with pytest.raises(InputError, match="one of a single run"):
        run_all(out=tmp_path / "single")
    assert not disk.read


def test_what_repeats_no_paper_is_not_run_with_the_others(tmp_path: Path) -> None:
    names = all_experiments._choose_names([], "small")
    assert names == list(catalogue.REPRODUCTIONS)
    others = set(catalogue.EXPERIMENTS) - set(names)
    assert {name for name in others if "/" in name} == {"pfc/demo", "transfer/zoo"}
    for name in others:
        with pytest.raises(InputError, match=f"found {name}; run it alone: ncscope run {name}"):
            run_all(out=tmp_path / "runs", only=["vci/training", name])
    assert not (tmp_path / "runs").exists()


def test_claims_are_counted_at_their_owner() -> None:
    claims = [
        decide("a", source="VCI, figure 2", held=True, evidence="1 < 2"),
        decide("b", source="ours", held=None, evidence="not measured"),
        decide("c", source="VCI, section 4.3", held=False, evidence="<2 & 1>"),
    ]
    owners = by_owner([ExperimentVerdicts("vci/training", claims)])
    assert [(each.owner, str(each.tally)) for each in owners] == [
        ("VCI", "1/2"),
        ("ours", "0/1, 1 undecided"),
    ]
    page = verdicts_page("small", [ExperimentVerdicts("vci/training", claims)])
    assert "&lt;2 &amp; 1&gt;" in page
    assert page.index("VCI, figure 2") < page.index("VCI, section 4.3") < page.index("1 undecided")


def test_the_command_prints_the_counts_and_the_failures(
    disk: Disk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "all", "--out", tmp_path]
    assert ran(*words, "--only", "vci/halving") == 0
    out, _ = capsys.readouterr()
    assert "undecided" in out
    assert (tmp_path / "report.html").as_uri() in out
    assert ran(*words, "--resume") == 1
    assert "vci/images has not ended: expected images" in capsys.readouterr().out
