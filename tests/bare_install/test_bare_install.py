"""Measuring, reports and the torchmetrics adapter without any optional library."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope
from tests.bare import OPTIONAL

NCSCOPE = Path(sys.executable).with_name("ncscope")


def ncscope_command(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(NCSCOPE), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def samples() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(50)
    weight = torch.randn(4, 8, generator=generator)
    return weight[labels] + 0.1 * torch.randn(200, 8, generator=generator), labels, weight


# matplotlib brings pillow, and recent versions of typer bring pydantic.
@pytest.mark.parametrize("library", sorted(OPTIONAL - {"PIL", "pydantic"}))
def test_optional_libraries_are_absent(library: str) -> None:
    assert find_spec(library) is None


def test_measure_and_its_reports(tmp_path: Path) -> None:
    features, labels, weight = samples()
    report = ncscope.measure(features, labels, weight)
    assert report["accuracy"] == 1.0
    for suffix in ("html", "json", "svg"):
        assert report.save(tmp_path / f"report.{suffix}").stat().st_size > 0


def test_measure_model_and_its_page(tmp_path: Path) -> None:
    features, labels, _ = samples()
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    )
    loader = DataLoader(TensorDataset(features, labels), batch_size=32)
    report = ncscope.measure_model(model, loader, layers=["0", "2"])
    assert {"0", "2"} <= set(report.layers)
    assert "<html" in report.save(tmp_path / "model.html").read_text()


def test_a_history_saves_itself_and_is_read_again(tmp_path: Path) -> None:
    features, labels, weight = samples()
    history = ncscope.History()
    for epoch in range(2):
        history.add(ncscope.measure(features * (1 + epoch), labels, weight), step=epoch)
    for suffix in ("html", "csv", "tex", "svg"):
        assert history.save(tmp_path / f"run.{suffix}").stat().st_size > 0
    again = ncscope.History.load(history.save(tmp_path / "run.json"))
    assert again["nc1"].tolist() == history["nc1"].tolist()
    with pytest.raises(ncscope.InputError, match="pip install pandas"):
        history.to_dataframe()


def test_torchmetrics_adapter_agrees_with_measure() -> None:
    from ncscope.integrations.torchmetrics import NeuralCollapse

    features, labels, _ = samples()
    metric = NeuralCollapse(num_classes=4, dim=8)
    for rows, own in zip(features.split(32), labels.split(32), strict=True):
        metric.update(rows, own)
    assert float(metric.compute()["nc1"]) == pytest.approx(
        ncscope.measure(features, labels)["nc1"], rel=1e-9
    )


def test_command_measures_a_file(tmp_path: Path) -> None:
    features, labels, weight = samples()
    file = tmp_path / "features.npz"
    np.savez(file, features=features, labels=labels, weight=weight)
    done = ncscope_command("measure", file, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["metrics"]["accuracy"] == 1.0
    page = tmp_path / "page.html"
    assert ncscope_command("measure", file, "--save", page).returncode == 0
    assert page.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("demo",),
        ("run", "ufm"),
        ("list",),
        ("sweep", "xufm/ufm", "--over", "seed=0,1"),
    ],
)
def test_verbs_of_the_laboratory_say_what_to_install(words: tuple[str, ...], tmp_path) -> None:
    command = [str(NCSCOPE), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    words = f"expected the laboratory for ncscope {words[0]}, found that it is not installed; "
    assert done.stderr == f"error: {words}pip install ./lab in a checkout of ncscope\n"
    assert list(tmp_path.iterdir()) == []
