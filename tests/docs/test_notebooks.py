"""The notebooks run from top to bottom and hold no outputs."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


def name_of(path: Path) -> str:
    return path.name


def run(notebook: NotebookNode, folder: Path) -> None:
    """Execute a notebook's cells in order, in a kernel of this Python that starts in a folder.

    The kernel has one thread: beside the suite's processes, its threads would wait for each other.
    """
    client = NotebookClient(
        notebook,
        timeout=300,
        startup_timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=os.environ | {"OMP_NUM_THREADS": "1"})


def printed(notebook: NotebookNode) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_is_short_valid_and_without_outputs(path: Path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) <= 10
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * len(code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_links_of_a_notebook_lead_somewhere(path: Path):
    cells = nbformat.read(path, as_version=4).cells
    text = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.slow
def test_the_first_steps_show_collapse_and_write_a_page(tmp_path: Path):
    notebook = nbformat.read(ROOT / "docs" / "notebooks" / "first-steps.ipynb", as_version=4)
    run(notebook, tmp_path)
    for name in ("digits.html", "trained.html"):
        assert "<html" in (tmp_path / name).read_text()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (table,) = [each.data["text/html"] for each in outputs if "data" in each]
    headline = table.partition("<details")[0]
    names = re.findall(r'<th scope="col"[^>]*>([^<]+)<small>', headline)
    first, last = (
        dict(zip(names, map(float, re.findall(r"<td>([\d.]+)", row)), strict=True))
        for row in re.findall(r'<th scope="row">train, epoch [^<]*</th>(.*?)</tr>', headline)
    )
    for name in ("NC1", "NC3", "NC4"):
        assert last[name] < first[name] / 2, headline[-3000:]
    assert first["Accuracy"] < 0.5 < 0.95 < last["Accuracy"]
    assert "NC2" in names
    assert "digits.html" in printed(notebook)


@pytest.mark.slow
def test_a_failing_cell_is_seen(tmp_path: Path):
    cells = [nbformat.v4.new_code_cell("assert 1 + 1 == 3")]
    with pytest.raises(CellExecutionError, match="AssertionError"):
        run(nbformat.v4.new_notebook(cells=cells), tmp_path)
