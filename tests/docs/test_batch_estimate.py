"""The page of the batch estimate shows what its script computes."""

import importlib.util
import sys

import pytest

import ncscope
from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def script():
    path = ROOT / "docs" / "figures" / "batch_mir.py"
    spec = importlib.util.spec_from_file_location("batch_mir", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["batch_mir"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["batch_mir"]


@pytest.mark.slow
def test_the_page_has_the_numbers_of_the_script(script):
    features = script.gaussian_features()
    parts = (features.rows, features.labels, features.weight)
    estimate = ncscope.batch_information(*parts, batch_size=64)
    exact = ncscope.measure(*parts, groups=["information"])["mir"]
    page = (ROOT / "docs" / "batch-estimate.md").read_text()
    assert f"| 64 | {estimate.mir:.3f} ± {estimate.mir_spread:.3f} |" in page
    assert f"gives {estimate.mir:.3f} where the whole set has {exact:.3f}" in page


def test_every_word_of_the_page_is_the_scripts(script):
    page = (ROOT / "docs" / "batch-estimate.md").read_text()
    curves = [
        script.Curve(name, 2, 0.5, [ncscope.BatchInformation(0.5, 0.0, 0.5, 0.0, 64, 2)])
        for name in ("Gaussian classes", "Digits, 1 epoch", "Digits, 100 epochs")
    ]
    written = script.page(curves)
    for paragraph in (written.split("\n\n")[1], written.split("\n\n")[-1]):
        assert paragraph.strip() in page
