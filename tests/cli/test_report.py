"""`ncscope report` on reports, histories and folders that the instrument reads alone."""

from pathlib import Path

import pytest
import torch

import ncscope
from ncscope.api.transfer import TransferReport
from ncscope.cli import main
from ncscope.transfer import rank_checkpoints


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of two reports, two histories, and a run with a history."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ncscope.cli.report.sections_of_runs", [])
    for name, spread in (("before", 1.0), ("after", 0.1)):
        report = make_report(spread)
        report.class_names = ["cat", "<dog>", "eel"]
        report.save(f"{name}.json")
    for name in ("long", "short"):
        history = ncscope.History(model=name)
        for step in range(3 if name == "long" else 2):
            history.add(make_report(0.5**step), step=step)
        history.save(f"{name}.json")
    Path("run").mkdir()
    history.save("run/history.json")
    return tmp_path


def make_report(spread: float) -> ncscope.Report:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    noise = spread * torch.randn(60, 5, generator=generator)
    return ncscope.measure(3 * torch.eye(5)[labels] + noise, labels)


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["report", *words])
    return int(stopped.value.code or 0)


def test_every_file_that_is_named_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["before.json", "after.json", "-o", "x.csv", "--save", "x.tex", "-o", "x.html"]
    assert run(*words) == 0
    *_, csv, tex, page = capsys.readouterr().out.splitlines()
    assert (csv, tex) == ("Written: x.csv", "Written: x.tex")
    assert page == f"Report: {(folder / 'x.html').as_uri()}"  # only a page is a link
    assert Path("x.csv").exists()
    assert Path("x.tex").exists()


def test_files_before_one_that_is_refused_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["before.json", "after.json", "-o", "x.csv", "-o", "x.pdf", "-o", "y.csv"]
    assert run(*words, "--metrics", "nc1,cdnv") == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "Written: x.csv"
    assert err.startswith("error: ")
    assert Path("x.csv").exists()
    assert not Path("y.csv").exists()


@pytest.mark.slow
def test_files_have_the_metrics_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-o", "x.csv", "-o", "x.tex", "--metrics", "nc1,cdnv"]
    assert run("before.json", *words) == 0
    assert Path("x.csv").read_text().startswith("layer,nc1,cdnv\n")
    assert "\nlayer & NC1 & \\texttt{cdnv} \\\\\n" in Path("x.tex").read_text()
    ncscope.compare("before.json", "after.json").save("y.csv", metrics="nc")
    assert run("before.json", "after.json", "-o", "x.csv", "--metrics", "nc") == 0
    assert Path("x.csv").read_text() == Path("y.csv").read_text()
    assert run("long.json", "-o", "x.svg", "--metrics", "nc1") == 0
    capsys.readouterr()
    assert run("before.json", "-o", "z.html", "--metrics", "nc1") == 2
    assert "all metrics in a .html, found a choice; leave metrics" in capsys.readouterr().err
    # A page beside a table has all of them.
    assert run("before.json", "-o", "x.csv", "-o", "z.html", "--metrics", "nc1") == 0
    assert run("before.json", "-o", "x.csv", "--metrics", "nc,cdnv") == 2
    assert "found 'nc' beside other metrics; pass 'nc' alone" in capsys.readouterr().err
    assert run("before.json", "-o", "x.csv", "--metrics", "ncx") == 2
    assert "'ncx'" in capsys.readouterr().err


def test_two_reports_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("before.json", "after.json", "--title", "A <title>", "-o", "both.html") == 0
    out = capsys.readouterr().out
    assert "1: before" in out
    assert "2 − 1" in out
    values = next(line for line in out.splitlines() if "nc1_quotient" in line).split()
    one, two = make_report(1.0)["nc1_quotient"], make_report(0.1)["nc1_quotient"]
    gap = f"{two - one:.3g}"
    assert values == ["nc1_quotient", "0", "↓", f"{one:.3g}", f"{two:.3g}", gap]
    assert max(map(len, out.split("Report: ")[0].splitlines())) <= 80
    page = Path("both.html").read_text()
    assert "<h1>A &lt;title&gt;</h1>" in page
    row = page[page.index('title="nc1_quotient;') :].partition("</tr>")[0]
    # Without intervals nothing says that the difference is more than noise.
    assert f'<td class="number">{two:.4g}</td>' in row.replace(" × 10⁻", "e-")


def test_warnings_and_sizes_stand_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    features = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    ncscope.measure(features, torch.arange(4) % 2).save("few.json")
    assert run("few.json", "before.json") == 0
    page = Path("comparison.html").read_text()
    out = " ".join(capsys.readouterr().out.split())
    said = "Samples differ (4 and 60): few samples look more collapsed; compare at equal numbers."
    classes = "Numbers of classes differ (2 and 3): the metrics depend on them"
    assert out.startswith(f"warning: {classes}")
    assert f"so nc2_etf is 0 at K = 2. warning: {said} warning: few: " in out
    assert "<li>n = 4 and 60</li>\n<li>K = 2 and 3</li>\n<li>d = 5</li>" in page
    assert out.index("warning: few: ") < out.index(" metric at ")
    assert "1: few (n = 4, K = 2, d = 5) 2: before (n = 60, K = 3, d = 5)" in out
    assert f"<li>{said}</li>" in page
    assert run("before.json", "after.json") == 0
    assert "Samples differ" not in capsys.readouterr().out + Path("comparison.html").read_text()


@pytest.mark.slow
def test_a_single_report_is_written_as_any_kind() -> None:
    assert run("before.json", "-o", "x.svg", "-o", "x.csv", "-o", "x.tex") == 0
    assert Path("x.svg").read_text().startswith("<?xml")
    assert Path("x.csv").read_text().startswith("layer,metric,value")


@pytest.mark.slow
def test_a_ranking_is_shown_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    labels = torch.arange(60) % 3
    noise = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    near = {"near": torch.eye(4)[labels] + 2 * noise, "far": torch.eye(4)[labels] + 0.1 * noise}
    report = TransferReport(rank_checkpoints(near, labels, expensive=False), {"samples": 60})
    report.save("ranking.json")
    assert run("ranking.json", "-o", "x.csv", "-o", "x.tex", "-o", "x.html") == 0
    assert "far is best" in capsys.readouterr().out
    report.save("y.csv")
    assert Path("x.csv").read_text() == Path("y.csv").read_text()
    assert Path("x.html").read_text().startswith("<!doctype html>")
    assert run("ranking.json", "-o", "x.csv", "--metrics", "nc1") == 2
    assert "found a ranking; leave --metrics out" in capsys.readouterr().err
    assert run("ranking.json", "before.json") == 2
    assert "show it by itself: ncscope report ranking.json" in capsys.readouterr().err


def test_single_reports_have_no_training_to_move_through() -> None:
    words = ("Move through training", "Last layer. Move through")
    run("before.json", "after.json")
    page = Path("comparison.html").read_text()
    assert [word in page for word in words] == [False, False]
    run("before.json", "long.json")
    page = Path("comparison.html").read_text()
    assert [word in page for word in words] == [True, True]


def test_any_mixture_is_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("before.json", "long.json", "run") == 0
    assert "3: run" in capsys.readouterr().out
    page = Path("comparison.html").read_text()
    assert "<h1>before and long and run</h1>" in page
    for name in ("before", "long", "run", "all runs by epoch, last layer"):
        assert f'<option value="{name}">' in page


def test_one_source_has_its_own_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("after.json") == 0
    assert "nc2_equinorm_means" in capsys.readouterr().out
    assert "Side by side" not in Path("comparison.html").read_text()
    assert run("run", "--title", "Mine") == 0
    assert "<h1>Mine</h1>" in Path("comparison.html").read_text()


def test_equal_names_are_numbered_and_name_no_folder(folder: Path) -> None:
    (folder / "run" / "after.json").write_bytes((folder / "after.json").read_bytes())
    assert run("after.json", "run/after.json", "run/history.json") == 0
    page = Path("comparison.html").read_text()
    assert "<h1>after and after (2) and run</h1>" in page
    assert str(folder) not in page
    for name in ("report", "history"):
        (folder / f"{name}.json").write_bytes((folder / "after.json").read_bytes())
    assert run("report.json", "history.json") == 0
    assert "<h1>report and history</h1>" in Path("comparison.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.json"], "the folder of a run, found nothing at none.json"),
        (["bad.json"], "a report or a history that ncscope wrote, found bad.json: Expecting"),
        (
            ["page.html", "after.json"],
            "ncscope wrote, found an HTML page, page.html; pass the .json",
        ),
        (["hollow.json"], "found an empty history, hollow.json"),
        (["empty"], "expected a history, found nothing at empty"),
        (["old.json"], "found old.json: nothing named 'schema_version'"),
        (["after.json", "-o", "none/x.html"], "a folder none to write in"),
    ],
)
def test_bad_sources_are_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.json").write_text("x")
    Path("page.html").write_text("\n<!doctype html>")
    Path("old.json").write_text('{"metrics": {}}')
    Path("empty").mkdir()
    head, _, _ = Path("long.json").read_text().partition('"measurements": [')
    Path("hollow.json").write_text(f'{head}"measurements": []}}')
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not Path("comparison.html").exists()
