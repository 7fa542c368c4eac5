"""The files that others read by rule: citation, CI script, commit hooks."""

import os
import re
import tomllib

import pytest
import yaml

import ncscope
from tests.docs.pages import PAGES, ROOT

PAPERS = {"2406.03999", "2306.03440", "2106.02073", "2405.00985", "2202.08087"}
WRITTEN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "CITATION.cff"]


def test_citation_names_the_software_and_the_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert (citation["title"], citation["version"]) == ("ncscope", ncscope.__version__)
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    named = (citation["repository-code"], citation["url"])
    assert named == (urls["Repository"], urls["Documentation"])
    numbers = {
        identifier["value"].removeprefix("arXiv:")
        for paper in citation["references"]
        for identifier in paper["identifiers"]
    }
    assert numbers == PAPERS


@pytest.mark.parametrize("document", ["README.md", "docs/references.md"])
def test_five_papers_are_cited(document: str):
    text = (ROOT / document).read_text()
    assert {number for number in PAPERS if number in text} == PAPERS


def test_version_is_in_the_changelog():
    assert f"## [{ncscope.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_continuous_integration_runs_what_the_readme_says():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert re.search(r"^make test$", script.read_text(), re.M)
    assert "make test" in (ROOT / "README.md").read_text()


def test_floors_are_those_of_the_import_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][0]
    layers = [re.split(" [:|] ", layer)[0].removeprefix("ncscope.") for layer in contract["layers"]]
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Layers")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.M) == layers


def test_relative_links_lead_somewhere():
    for path in WRITTEN:
        text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
        links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
        assert [link for link in links if not (path.parent / link).exists()] == [], path
