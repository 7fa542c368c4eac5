"""The command `ncscope demo`, cut short, and its report in a real browser."""

import json

import pytest

from ncscope import History
from ncscope.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "run"
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--out", str(path), "--epochs", "2"])
    assert stopped.value.code == 0
    return path


@pytest.mark.slow
def test_the_run_folder_is_complete(folder):
    names = {file.name for file in folder.iterdir()}
    expected = {"config.yaml", "metrics.jsonl", "history.json", "claims.json", "report.html"}
    assert names == {*expected, "finished.json", "figures"}
    pictures = {file.name for file in (folder / "figures").iterdir()}
    assert pictures == {"nc.pdf", "nc.svg", "demo.pdf", "demo.svg"}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {(line["epoch"], line["split"]) for line in lines} >= {(0, "train"), (2, "test")}
    assert all({"step", "layer", "nc1_quotient", "pfc3"} <= set(line) for line in lines)
    history = History.load(folder)
    assert set(history.splits) == {"train", "test"}
    assert set(history.steps.tolist()) >= {0, 2}
    claims = json.loads((folder / "claims.json").read_text())
    written = {"claim", "source", "verdict", "evidence", "interval"}
    assert claims
    assert all(written < set(claim) for claim in claims)


@pytest.mark.slow
def test_the_report_draws_every_chart_and_asks_the_network_for_nothing(folder, browser):
    page = browser.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((folder / "report.html").as_uri())
    charts = page.locator(".chart")
    count = charts.count()
    assert count >= 7
    for index in range(count):
        charts.nth(index).scroll_into_view_if_needed()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.chart')].every(c => c.dataset.drawn === 'true')"
    )
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


def test_a_folder_that_cannot_be_written_stops_before_training(tmp_path, capsys):
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--out", str(tmp_path / "taken")])
    assert stopped.value.code == 2
    assert "a writable output folder" in capsys.readouterr().err
